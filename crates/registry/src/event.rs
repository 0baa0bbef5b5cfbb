//! What a subscriber is told: listings and changes, decoded.
//!
//! A subscription begins with a full listing, and begins another whenever changes may have been
//! missed. A subscriber that keeps what it was told between [`Event::ListBegan`] and
//! [`Event::ListEnded`], and drops what it was not, is never wrong for longer than that.
//! What does not decode is told like everything else: nothing stops for it.

use std::error::Error as StdError;
use std::sync::Arc;

use tombolo_model::endpoint::{Entry, EntryProtocol};
use tombolo_model::names::{Region, ServiceKey};
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
    /// Whether changes are heard of. They are until this says otherwise, and what happened
    /// meanwhile is told after it says so again. Time in which nothing could be heard is nobody's
    /// silence.
    Heard(bool),
    /// Some time after a listing for [`ListCause::Regress`]: whoever writes has noticed as well, so
    /// that the sessions that are there are not those of a backup.
    Believed,
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

impl Event {
    /// The revision that it tells of, if any.
    pub const fn revision(&self) -> Option<u64> {
        match self {
            Self::ListBegan(_) | Self::Heard(_) | Self::Believed => None,
            Self::ListEnded { revision }
            | Self::Record { revision, .. }
            | Self::Member { revision, .. }
            | Self::Settings { revision, .. }
            | Self::Stray { revision, .. } => Some(*revision),
        }
    }
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

/// How many different values of one service are remembered: its zones times its conditions, with
/// room for some host names. More than these are decoded each for itself.
const SHARED_LEN_MAX: usize = 32;

/// Turns keys and values into events. One for each subscription.
///
/// Most endpoints of a service differ in nothing but their address, so equal values that follow
/// each other in a listing share one decoded form, and equal names one text. A million endpoints
/// kept by a subscriber are held in a tenth of the memory.
#[derive(Debug)]
pub struct Decoder {
    layout: Layout,
    /// The partition and service of the last endpoint.
    last: Option<(Origin, ServiceKey)>,
    /// What was decoded for it.
    shared: Vec<Shared>,
}

/// An endpoint's value that was decoded. Whether it is accepted depends on partition and protocol.
#[derive(Debug)]
struct Shared {
    protocol: EntryProtocol,
    bytes: Box<[u8]>,
    entries: Arc<[Entry]>,
}

// === impl Decoder ===

impl Decoder {
    /// Of the keys of this layout.
    pub const fn new(layout: Layout) -> Self {
        Self {
            layout,
            last: None,
            shared: Vec::new(),
        }
    }

    /// What a subscriber is told of a key and its value, `None` if it was deleted. Nothing is told
    /// of a replicator's lock. Takes any bytes.
    pub fn event(&mut self, key: &[u8], value: Option<&[u8]>, revision: u64) -> Option<Event> {
        let place = match self.layout.parse(key) {
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
            Place::Record { origin, key } => Some(self.record(origin, key, value, revision)),
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

    fn record(
        &mut self,
        mut origin: Origin,
        mut key: RecordKey,
        value: Option<&[u8]>,
        revision: u64,
    ) -> Event {
        if let RecordKey::Endpoint { service, .. } = &mut key {
            self.share(&mut origin, service);
        }
        let state = state(value, |bytes| self.decode(&origin, &key, bytes));
        Event::Record {
            origin,
            key,
            state,
            revision,
        }
    }

    fn decode(
        &mut self,
        origin: &Origin,
        key: &RecordKey,
        bytes: &[u8],
    ) -> Result<Record, ValueError> {
        let RecordKey::Endpoint { protocol, .. } = *key else {
            return value::decode_record(origin, key, bytes);
        };
        let known = self
            .shared
            .iter()
            .find(|s| s.protocol == protocol && *s.bytes == *bytes);
        if let Some(Shared { entries, .. }) = known {
            return Ok(Record::Endpoint(Arc::clone(entries)));
        }
        let record = value::decode_record(origin, key, bytes)?;
        if let Record::Endpoint(entries) = &record
            && self.shared.len() < SHARED_LEN_MAX
        {
            self.shared.push(Shared {
                protocol,
                bytes: bytes.into(),
                entries: Arc::clone(entries),
            });
        }
        Ok(record)
    }

    /// Replaces names by the equal ones of the last endpoint, or begins anew with these.
    fn share(&mut self, origin: &mut Origin, service: &mut ServiceKey) {
        match &self.last {
            Some((last_origin, last_service))
                if last_origin == origin && last_service == service =>
            {
                origin.clone_from(last_origin);
                service.clone_from(last_service);
            }
            Some(_) | None => {
                self.last = Some((origin.clone(), service.clone()));
                self.shared.clear();
            }
        }
    }
}

fn state<T>(value: Option<&[u8]>, decode: impl FnOnce(&[u8]) -> Result<T, ValueError>) -> State<T> {
    match value.map(decode) {
        None => State::Gone,
        Some(Ok(value)) => State::Present(value),
        Some(Err(error)) => State::Rejected(Rejection::from(&error)),
    }
}

#[cfg(test)]
mod tests {
    use tombolo_model::endpoint::EntryPort;

    use super::*;

    const EAST: &str = "/tombolo/v1/regions/eu/clusters/east/ns/shop/services";

    fn entries(decoder: &mut Decoder, key: &str, value: &[u8]) -> State<Arc<[Entry]>> {
        match decoder.event(key.as_bytes(), Some(value), 1) {
            Some(Event::Record {
                state: State::Present(Record::Endpoint(entries)),
                ..
            }) => State::Present(entries),
            Some(Event::Record {
                state: State::Rejected(rejection),
                ..
            }) => State::Rejected(rejection),
            other => panic!("an endpoint is told: {other:?}"),
        }
    }

    #[test]
    fn equal_endpoints_of_a_service_share_their_decoded_form() {
        let mut decoder = Decoder::new(Layout::default());
        let mut decode = |key: &str, value: &[u8]| match entries(
            &mut decoder,
            &format!("{EAST}/{key}"),
            value,
        ) {
            State::Present(entries) => entries,
            other => panic!("{other:?}"),
        };
        // entries { ports { name: "a" port: N } ready: true }
        let value = |port| [10, 9, 10, 5, 10, 1, b'a', 16, port, 32, 1];
        let first = decode("checkout/protocols/TCP/endpoints/10.0.0.1", &value(7));
        let equal = decode("checkout/protocols/TCP/endpoints/10.0.0.2", &value(7));
        assert!(Arc::ptr_eq(&first, &equal));
        let differs = decode("checkout/protocols/TCP/endpoints/10.0.0.3", &value(8));
        assert_eq!(
            differs[0].ports[..],
            [EntryPort {
                name: "a".into(),
                port: 8
            }]
        );
        let protocol = decode("checkout/protocols/UDP/endpoints/10.0.0.1", &value(7));
        assert_eq!(protocol, first);
        assert!(!Arc::ptr_eq(&first, &protocol));
        let service = decode("search/protocols/TCP/endpoints/10.0.0.1", &value(7));
        assert!(!Arc::ptr_eq(&first, &service));
    }

    #[test]
    fn what_one_cluster_may_say_is_not_taken_from_another() {
        let mut decoder = Decoder::new(Layout::default());
        let key = "checkout/protocols/TCP/endpoints/10.0.0.1";
        // entries { ports { name: "a" port: 7 } } origin { region: "eu" cluster: "east" }
        let claim: Vec<u8> = [
            &[10, 7, 10, 5, 10, 1, b'a', 16, 7, 122, 10, 10, 2][..],
            b"eu",
            &[18, 4],
            b"east",
        ]
        .concat();
        let east = entries(&mut decoder, &format!("{EAST}/{key}"), &claim);
        assert!(matches!(east, State::Present(_)), "{east:?}");
        let west = format!("{EAST}/{key}").replace("east", "west");
        let west = entries(&mut decoder, &west, &claim);
        assert!(
            matches!(&west, State::Rejected(r) if r.kind == "value-origin"),
            "{west:?}"
        );
        // The same value under NONE, which has no ports.
        let none = format!("{EAST}/{}", key.replace("TCP", "NONE"));
        let none = entries(&mut decoder, &none, &claim);
        assert!(
            matches!(&none, State::Rejected(r) if r.kind == "value-field"),
            "{none:?}"
        );
    }
}
