//! What a subscriber is told: listings and changes, decoded.
//!
//! A subscription begins with a full listing, and begins another whenever changes may have been
//! missed. A subscriber that keeps what it was told between [`Event::ListBegan`] and
//! [`Event::ListEnded`], and drops what it was not, is never wrong for longer than that.
//! What does not decode is told like everything else: nothing stops for it.

use std::error::Error as StdError;
use std::sync::Arc;

use tombolo_model::names::Region;
use tombolo_model::record::{Member, Origin, Record, RecordKey, Settings};

use crate::key::{KeyError, Layout, Place, shown};
use crate::value::{self, ValueError};

/// One thing that a subscriber learns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A full listing begins: what is not told until it ends is not in the registry. What that
    /// means for a record is the subscriber's decision ("absence is not withdrawal", DESIGN §2.2).
    ListBegan(ListCause),
    /// The listing is complete. Changes follow.
    ListEnded {
        /// The revision that it shows.
        revision: u64,
    },
    /// A record of a cluster.
    Record {
        /// Whose, from the key.
        origin: Origin,
        /// Where in its partition.
        key: RecordKey,
        /// What stands there.
        state: State<Record>,
        /// The revision of its last change.
        revision: u64,
    },
    /// What the operator recorded for a cluster.
    Member {
        /// Which cluster.
        origin: Origin,
        /// What stands there.
        state: State<Member>,
        /// The revision of its last change.
        revision: u64,
    },
    /// The settings of a region.
    Settings {
        /// Which region.
        region: Region,
        /// What stands there.
        state: State<Settings>,
        /// The revision of its last change.
        revision: u64,
    },
    /// A key below the root that is none of the layout.
    Stray {
        /// The key, cut and made readable.
        key: Arc<str>,
        /// Why it is none; `None` once it is gone.
        rejection: Option<Rejection>,
        /// The revision of its last change.
        revision: u64,
    },
}

/// Why a listing begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ListCause {
    /// The first of this subscription.
    Start,
    /// The next changes are no longer kept: the subscriber was too slow, or the registry was
    /// compacted while it was away.
    Behind,
    /// The connection was lost in a way that may have lost changes.
    Interrupted,
    /// The registry is not the one that it was: restored, emptied, another server. No absence is
    /// to be trusted until a new epoch is synced.
    Regress,
}

impl ListCause {
    /// A word for metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Behind => "behind",
            Self::Interrupted => "interrupted",
            Self::Regress => "regress",
        }
    }
}

/// What stands at a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State<T> {
    /// This.
    Present(T),
    /// Nothing, any more.
    Gone,
    /// Something that cannot be used. The last one that could stays in use (BEHAVIOUR §7).
    Rejected(Rejection),
}

/// Why something in the registry cannot be used. Data for status, counters and `registry check`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// A word out of few.
    pub kind: &'static str,
    /// A sentence that names the key or field.
    pub reason: Arc<str>,
}

impl Rejection {
    fn of(kind: &'static str, error: &dyn StdError) -> Self {
        let mut reason = error.to_string();
        let mut source = error.source();
        while let Some(error) = source {
            reason = format!("{reason}: {error}");
            source = error.source();
        }
        let reason = reason.into();
        Self { kind, reason }
    }
}

impl From<&KeyError> for Rejection {
    fn from(error: &KeyError) -> Self {
        Self::of(error.kind(), error)
    }
}

impl From<&ValueError> for Rejection {
    fn from(error: &ValueError) -> Self {
        Self::of(error.kind(), error)
    }
}

/// What a subscriber is told of a key and its value, `None` if it was deleted. Nothing is told of
/// a replicator's lock.
pub fn event(layout: &Layout, key: &[u8], value: Option<&[u8]>, revision: u64) -> Option<Event> {
    let place = match layout.parse(key) {
        Ok(place) => place,
        Err(error) => {
            return Some(Event::Stray {
                key: shown(key).into(),
                rejection: value.map(|_| Rejection::from(&error)),
                revision,
            });
        }
    };
    match place {
        Place::Record { origin, key } => {
            let state = state(value, |bytes| value::decode_record(&origin, &key, bytes));
            Some(Event::Record {
                origin,
                key,
                state,
                revision,
            })
        }
        Place::Member(origin) => Some(Event::Member {
            origin,
            state: state(value, value::decode_member),
            revision,
        }),
        Place::Settings(region) => Some(Event::Settings {
            region,
            state: state(value, value::decode_settings),
            revision,
        }),
        Place::Replicator(_) => None,
    }
}

fn state<T>(value: Option<&[u8]>, decode: impl FnOnce(&[u8]) -> Result<T, ValueError>) -> State<T> {
    match value.map(decode) {
        None => State::Gone,
        Some(Ok(value)) => State::Present(value),
        Some(Err(error)) => State::Rejected(Rejection::from(&error)),
    }
}
