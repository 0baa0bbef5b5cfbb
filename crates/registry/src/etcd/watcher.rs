//! A range of keys as it is and as it changes, without a gap: list, then watch from the next
//! revision on, wherever the connection goes meanwhile.
//!
//! ```text
//! Empty ──list──► Listing ──all pages──► Listed(rev) ──watch──► Watching(rev)
//!   ▲                │                     ▲                        │
//!   └── compacted ───┘                     └── connection lost ─────┤
//!   └────────────── compacted, another etcd ────────────────────────┘
//! ```
//!
//! It pulls: who does not read holds up nothing but its own connection, and etcd keeps what is
//! not yet sent, until it compacts it. Then there is a new listing.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;
use std::vec;

use etcd_client::{
    Event as EtcdEvent, EventType, KeyValue as EtcdKeyValue, WatchOptions, WatchResponse,
    WatchStream,
};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::connection::{CALL_DEADLINE, Connection};
use super::failure::{Failure, FailureKind};
use super::seen::{count, signed, unsigned};
use crate::event::ListCause;
use crate::key::KeyRange;

/// Keys in a page of a listing (measured in DESIGN §2.2).
const PAGE_LEN: usize = 50_000;

/// The longest message of a watch: what was missed comes as up to 1,000 transactions at once.
const MESSAGE_BYTES_MAX: usize = 256 * 1024 * 1024;

/// After so long without a word the server is asked how far it is, and given as long to answer.
const SILENCE_MAX: Duration = Duration::from_mins(1);

/// Attempts after which a watch counts as gone: so many in half a second are what a change of
/// leader takes.
const SILENT_AFTER: u32 = 3;

/// So long after a regress, with a watch all the time, who writes has noticed it as well and has
/// opened a new session, and the lease of one that is dead has run out twice.
const BELIEVED_AFTER: Duration = Duration::from_mins(1);

/// Between attempts, doubled up to the longest.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(5);

/// One thing that is learnt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// A listing begins; one under way is void.
    ListBegan(ListCause),
    /// A key: listed, or changed.
    Key {
        key: Vec<u8>,
        /// `None`: deleted.
        value: Option<Vec<u8>>,
        revision: u64,
    },
    /// The listing is complete, as of this revision.
    ListEnded { revision: u64 },
    /// Nothing happened up to this revision. Only when the server says so.
    Progress { revision: u64 },
    /// The sessions that are there so long after a regress are right.
    Believed,
    /// Whether there is a watch: said where there was none for some attempts, and once there is.
    Heard(bool),
}

/// Whether a reader wants to know what stands there, or only that something changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listings {
    /// All of it.
    Full,
    /// No keys: a listing is empty, and says from where on changes are told.
    None,
}

pub(crate) struct Watcher {
    connection: Connection,
    range: KeyRange,
    listings: Listings,
    closed: CancellationToken,
    regresses: watch::Receiver<u64>,
    state: State,
    /// Whether there was a watch since the last listing.
    watched: bool,
    attempts: u32,
    /// Whether there is, or may be soon, a watch; and what was said of it last.
    is_heard: bool,
    said_heard: bool,
    /// When the sessions of a registry that was set back are believed.
    believed_at: Option<Instant>,
}

/// How far it is.
enum State {
    /// Everything is to be listed.
    Empty(ListCause),
    /// Pages of one revision are read.
    Listing {
        revision: u64,
        page: vec::IntoIter<EtcdKeyValue>,
        /// What comes after the page.
        rest: Option<KeyRange>,
    },
    /// Everything up to this revision is told.
    Listed(u64),
    /// Likewise, and what comes next comes by itself.
    Watching(Box<Watching>),
    /// The registry was closed.
    Closed,
}

struct Watching {
    stream: WatchStream,
    generation: u64,
    revision: u64,
    /// Events that were received, and how many of them are told.
    received: Option<WatchResponse>,
    told: usize,
    /// Whether the server was asked how far it is.
    asked: bool,
}

/// What a message means.
enum Message {
    /// Nothing to be told.
    Nothing,
    /// Something to be told.
    Told(Told),
    /// The watch is over.
    Over(Failure),
}

// === impl Watcher ===

impl Watcher {
    pub(crate) fn new(
        connection: Connection,
        range: KeyRange,
        listings: Listings,
        closed: CancellationToken,
    ) -> Self {
        Self {
            regresses: connection.seen.regresses(),
            connection,
            range,
            listings,
            closed,
            state: State::Empty(ListCause::Start),
            watched: false,
            attempts: 0,
            is_heard: true,
            said_heard: true,
            believed_at: None,
        }
    }

    /// The next thing; `None` once the registry is closed. May be dropped and called again.
    pub(crate) async fn next(&mut self) -> Option<Told> {
        let closed = self.closed.clone();
        tokio::select! {
            biased;
            () = closed.cancelled() => {
                self.state = State::Closed;
                None
            }
            told = self.advance() => Some(told),
        }
    }

    async fn advance(&mut self) -> Told {
        loop {
            if self.is_heard != self.said_heard {
                self.said_heard = self.is_heard;
                return Told::Heard(self.is_heard);
            }
            if self.regresses.has_changed().unwrap_or(false) {
                self.regresses.mark_unchanged();
                self.state = State::Empty(ListCause::Regress);
            }
            let step = match &mut self.state {
                State::Empty(cause) => {
                    let cause = *cause;
                    self.begin(cause).await.map(Some)
                }
                State::Listing { .. } => self.list().await,
                State::Listed(revision) => {
                    let revision = *revision;
                    self.watch(revision).await.map(|()| None)
                }
                State::Watching(_) => self.follow().await,
                State::Closed => std::future::pending().await,
            };
            match step {
                Ok(Some(told)) => return told,
                Ok(None) => {}
                Err(failure) => self.fall_back(&failure).await,
            }
        }
    }

    /// Takes the first page.
    async fn begin(&mut self, cause: ListCause) -> Result<Told, Failure> {
        match self.listings {
            Listings::Full => {
                let (mut answer, revision) =
                    self.connection.range(&self.range, PAGE_LEN, None).await?;
                let page = answer.take_kvs();
                let rest = rest(&self.range, &page, answer.more());
                self.state = State::Listing {
                    revision,
                    page: page.into_iter(),
                    rest,
                };
            }
            Listings::None => {
                let revision = self.connection.revision(&self.range).await?;
                self.state = State::Listing {
                    revision,
                    page: Vec::new().into_iter(),
                    rest: None,
                };
            }
        }
        // A regress that this very answer showed is what this listing is about.
        let found = self.regresses.has_changed().unwrap_or(false);
        self.regresses.mark_unchanged();
        let was_lately = self.connection.seen.regressed_within(BELIEVED_AFTER);
        let cause = if found || was_lately {
            self.believed_at = Some(Instant::now() + BELIEVED_AFTER);
            ListCause::Regress
        } else {
            cause
        };
        if self.listings == Listings::Full {
            self.connection.seen.counters.list(cause);
            if cause != ListCause::Start {
                tracing::info!(cause = cause.as_str(), "listing the registry again");
            }
        }
        Ok(Told::ListBegan(cause))
    }

    /// The next key of the listing, or its end.
    async fn list(&mut self) -> Result<Option<Told>, Failure> {
        let State::Listing {
            revision,
            page,
            rest: after,
        } = &mut self.state
        else {
            return Ok(None);
        };
        let revision = *revision;
        if let Some(kv) = page.next() {
            return Ok(Some(told_key(kv)));
        }
        // Not taken out before there is more: the caller may stop waiting at any time.
        let Some(range) = after.clone() else {
            self.attempts = 0;
            self.watched = false;
            self.state = State::Listed(revision);
            self.connection.seen.raise(revision);
            return Ok(Some(Told::ListEnded { revision }));
        };
        let listed = self.connection.range(&range, PAGE_LEN, Some(revision));
        let (mut answer, _) = listed.await?;
        let kvs = answer.take_kvs();
        *after = rest(&range, &kvs, answer.more());
        *page = kvs.into_iter();
        Ok(None)
    }

    /// Opens a watch from the next revision on, once this is known to be the etcd of before.
    async fn watch(&mut self, revision: u64) -> Result<(), Failure> {
        self.connection.revision(&self.range).await?;
        if self.regresses.has_changed().unwrap_or(false) {
            return Ok(());
        }
        let (client, generation) = self.connection.client().await?;
        let options = WatchOptions::new()
            .with_range(self.range.end.clone())
            .with_start_revision(signed(revision + 1))
            .with_progress_notify();
        let mut client = client
            .watch_client()
            .max_decoding_message_size(MESSAGE_BYTES_MAX);
        let opened = client.watch(self.range.start.clone(), Some(options));
        let stream = match timeout(CALL_DEADLINE, opened).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(self.lost(generation, Failure::from(error))),
            Err(_) => {
                return Err(self.lost(generation, Failure::deadline("a watch", CALL_DEADLINE)));
            }
        };
        if std::mem::replace(&mut self.watched, true) {
            count(&self.connection.seen.counters.watches_resumed);
        }
        self.is_heard = true;
        // What could not be heard meanwhile does not count.
        let believed_at = self.believed_at.as_mut();
        if let Some(at) = believed_at {
            *at = Instant::now() + BELIEVED_AFTER;
        }
        self.state = State::Watching(Box::new(Watching {
            stream,
            generation,
            revision,
            received: None,
            told: 0,
            asked: false,
        }));
        Ok(())
    }

    fn lost(&self, generation: u64, failure: Failure) -> Failure {
        if failure.is_of_connection() {
            self.connection.failed(generation);
        }
        failure
    }

    /// The next event, received already or to come.
    async fn follow(&mut self) -> Result<Option<Told>, Failure> {
        let State::Watching(watching) = &mut self.state else {
            return Ok(None);
        };
        if let Some(told) = watching.next_event() {
            if let Told::Key { revision, .. } = told {
                self.connection.seen.raise(revision);
            }
            return Ok(Some(told));
        }
        let message = tokio::select! {
            biased;
            changed = self.regresses.changed() => {
                if changed.is_ok() {
                    self.regresses.mark_changed();
                }
                return Ok(None);
            }
            () = until(self.believed_at) => {
                self.believed_at = None;
                return Ok(Some(Told::Believed));
            }
            message = watching.receive() => message,
        };
        let generation = watching.generation;
        let response = match message {
            Ok(Some(response)) => response,
            Ok(None) => return Ok(None),
            Err(failure) => return Err(self.lost(generation, failure)),
        };
        if !self.connection.seen.is_known(response.header()) {
            // An honest read finds out whether it is another one.
            let failure = Failure::not_sent("the watch is of another etcd");
            return Err(self.lost(generation, failure));
        }
        self.attempts = 0;
        match watching.learn(response) {
            Message::Nothing => Ok(None),
            Message::Told(told) => {
                if let Told::Progress { revision } = told {
                    self.connection.seen.watched(signed(revision));
                }
                Ok(Some(told))
            }
            Message::Over(failure) => Err(self.lost(generation, failure)),
        }
    }

    /// Where to go on after a failure, and when.
    async fn fall_back(&mut self, failure: &Failure) {
        let watched = match &self.state {
            State::Watching(watching) => Some(watching.revision),
            State::Listed(revision) => Some(*revision),
            State::Empty(_) | State::Listing { .. } | State::Closed => None,
        };
        let was_watching = matches!(self.state, State::Watching(_));
        match failure.kind {
            FailureKind::Compacted => {
                let cause = match (&self.state, watched) {
                    // The listing itself was overtaken: it begins again for the same reason.
                    (State::Empty(cause), None) => *cause,
                    (_, _) => ListCause::Behind,
                };
                self.state = State::Empty(cause);
                return;
            }
            FailureKind::TooLarge => self.state = State::Empty(ListCause::Interrupted),
            FailureKind::NotSent
            | FailureKind::Token
            | FailureKind::Denied
            | FailureKind::LeaseGone
            | FailureKind::Unknown => {
                if let Some(revision) = watched {
                    self.state = State::Listed(revision);
                }
            }
        }
        if was_watching {
            tracing::debug!(reason = %failure.reason, "a registry watch has ended and goes on");
        } else if self.attempts == SILENT_AFTER {
            self.is_heard = false;
            tracing::warn!(reason = %failure.reason, "the registry cannot be read, trying on");
        }
        sleep(self.pause()).await;
    }

    fn pause(&mut self) -> Duration {
        let doubled = RETRY_MIN
            .saturating_mul(1 << self.attempts.min(10))
            .min(RETRY_MAX);
        self.attempts = self.attempts.saturating_add(1);
        // Between half and all of it, so that a fleet does not come back as one.
        let random = RandomState::new().hash_one(self.attempts) % 512;
        doubled * (512 + u32::try_from(random).unwrap_or(0)) / 1024
    }
}

// === impl Watching ===

impl Watching {
    /// The next message, `None` after a while without one.
    async fn receive(&mut self) -> Result<Option<WatchResponse>, Failure> {
        match timeout(SILENCE_MAX, self.stream.message()).await {
            Ok(Ok(Some(response))) => {
                self.asked = false;
                Ok(Some(response))
            }
            Ok(Ok(None)) => Err(Failure::not_sent("the server ended the watch")),
            Ok(Err(error)) => Err(Failure::from(error)),
            Err(_) if self.asked => Err(Failure::deadline("a watch", SILENCE_MAX * 2)),
            Err(_) => {
                self.asked = true;
                self.stream
                    .request_progress()
                    .await
                    .map_err(Failure::from)?;
                Ok(None)
            }
        }
    }

    fn learn(&mut self, response: WatchResponse) -> Message {
        if response.compact_revision() > 0 {
            let reason: Arc<str> = "the next changes are compacted".into();
            let kind = FailureKind::Compacted;
            return Message::Over(Failure { kind, reason });
        }
        if response.canceled() {
            return Message::Over(Failure::of_cancelled_watch(response.cancel_reason()));
        }
        if !response.events().is_empty() {
            self.received = Some(response);
            self.told = 0;
            return Message::Nothing;
        }
        // The answer to the request itself says nothing about events that are still to come.
        let progress = response.header().filter(|_| !response.created());
        match progress.map(|header| unsigned(header.revision())) {
            Some(revision) if revision > self.revision => {
                self.revision = revision;
                Message::Told(Told::Progress { revision })
            }
            Some(_) | None => Message::Nothing,
        }
    }

    fn next_event(&mut self) -> Option<Told> {
        let events = self.received.as_ref().map(WatchResponse::events)?;
        while let Some(event) = events.get(self.told) {
            self.told += 1;
            if let Some(told) = told_event(event) {
                if let Told::Key { revision, .. } = told {
                    // Not before the last event of a revision is told may it be gone on from.
                    let next = events[self.told..].iter().find_map(EtcdEvent::kv);
                    let whole = next.is_none_or(|kv| unsigned(kv.mod_revision()) > revision);
                    self.revision = if whole { revision } else { revision - 1 }.max(self.revision);
                }
                return Some(told);
            }
        }
        self.received = None;
        None
    }
}

/// Waits until then; for ever, if there is no such time.
async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

fn told_event(event: &EtcdEvent) -> Option<Told> {
    let kv = event.kv()?;
    Some(Told::Key {
        key: kv.key().to_vec(),
        value: match event.event_type() {
            EventType::Put => Some(kv.value().to_vec()),
            EventType::Delete => None,
        },
        revision: unsigned(kv.mod_revision()),
    })
}

fn told_key(kv: EtcdKeyValue) -> Told {
    let revision = unsigned(kv.mod_revision());
    let (key, value) = kv.into_key_value();
    Told::Key {
        key,
        value: Some(value),
        revision,
    }
}

/// What of a range comes after a page of it.
fn rest(range: &KeyRange, page: &[EtcdKeyValue], more: bool) -> Option<KeyRange> {
    let last = page.last().filter(|_| more)?;
    Some(range.clone().after(last.key()))
}
