//! A subscription: a listing, then what the log says, as a stream that pulls.

use std::collections::VecDeque;
use std::sync::Arc;
use std::vec;

use futures::stream::{self, BoxStream, StreamExt};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::log::Change;
use super::store::{Cursor, MemoryStore, Progress};
use crate::event::{Decoder, Event, ListCause};
use crate::registry::KeyValue;

/// How many changes are read from the log at once: few enough to hold the lock for a moment.
const CHUNK_LEN: usize = 256;

/// The events of a store until it, or one registry of it, is closed.
pub(super) fn stream(
    store: Arc<MemoryStore>,
    closed: CancellationToken,
) -> BoxStream<'static, Event> {
    let subscription = Subscription {
        signal: store.changes(),
        decoder: Decoder::new(store.layout.clone()),
        store,
        closed,
        position: Position::Start(ListCause::Start),
    };
    stream::unfold(subscription, |mut subscription| async move {
        let event = subscription.next().await?;
        Some((event, subscription))
    })
    .boxed()
}

struct Subscription {
    store: Arc<MemoryStore>,
    closed: CancellationToken,
    signal: watch::Receiver<u64>,
    decoder: Decoder,
    position: Position,
}

/// How far the reader is.
enum Position {
    /// A listing is to begin.
    Start(ListCause),
    /// It is within one, whose changes go on at the cursor.
    Listing {
        items: vec::IntoIter<Arc<KeyValue>>,
        revision: u64,
        cursor: Cursor,
    },
    /// It follows the log; `read` has what was taken from it and is not yet told.
    Following {
        read: VecDeque<Change>,
        cursor: Cursor,
    },
}

// === impl Subscription ===

impl Subscription {
    async fn next(&mut self) -> Option<Event> {
        loop {
            if self.closed.is_cancelled() {
                return None;
            }
            if let Some(event) = self.ready() {
                return Some(event);
            }
            if !self.advance() {
                tokio::select! {
                    biased;
                    () = self.closed.cancelled() => return None,
                    changed = self.signal.changed() => changed.ok()?,
                }
            }
        }
    }

    /// The next event of what was read already.
    fn ready(&mut self) -> Option<Event> {
        match &mut self.position {
            Position::Start(cause) => {
                let cause = *cause;
                self.begin(cause).then_some(Event::ListBegan(cause))
            }
            Position::Listing {
                items,
                revision,
                cursor,
            } => {
                let decoder = &mut self.decoder;
                let told =
                    items.find_map(|kv| decoder.event(&kv.key, Some(&kv.value), kv.revision));
                if told.is_some() {
                    return told;
                }
                let (revision, cursor) = (*revision, *cursor);
                let read = VecDeque::new();
                self.position = Position::Following { read, cursor };
                Some(Event::ListEnded { revision })
            }
            Position::Following { read, .. } => {
                while let Some(Change {
                    key,
                    value,
                    revision,
                }) = read.pop_front()
                {
                    let value = value.as_ref().map(|kv| &*kv.value);
                    let told = self.decoder.event(&key, value, revision);
                    if told.is_some() {
                        return told;
                    }
                }
                None
            }
        }
    }

    /// Takes a listing. Returns whether the store could be asked.
    fn begin(&mut self, cause: ListCause) -> bool {
        let Ok((items, revision, cursor)) = self.store.list() else {
            return false;
        };
        if cause != ListCause::Start {
            tracing::info!(
                cause = cause.as_str(),
                revision,
                "listing the registry again"
            );
        }
        self.position = Position::Listing {
            items: items.into_iter(),
            revision,
            cursor,
        };
        true
    }

    /// Reads on in the log. Returns whether there was anything.
    fn advance(&mut self) -> bool {
        let Position::Following { read, cursor } = &mut self.position else {
            // The store is away: a listing begins once it is back.
            return false;
        };
        // Seen before reading, so that what comes meanwhile wakes again.
        self.signal.mark_unchanged();
        match self.store.progress(*cursor, CHUNK_LEN) {
            Progress::Changes(changes) => {
                let prefix = self.store.layout.root_prefix();
                cursor.next += changes.len() as u64;
                let any = !changes.is_empty();
                let below = |change: &Change| change.key.starts_with(prefix.as_bytes());
                read.extend(changes.into_iter().filter(below));
                any
            }
            Progress::Lost(cause) => {
                self.position = Position::Start(cause);
                true
            }
        }
    }
}
