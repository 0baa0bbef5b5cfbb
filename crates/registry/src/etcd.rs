//! The etcd backend (DESIGN §2.2).
//!
//! ```text
//! EtcdRegistry ─► Writer ──transactions──► Connection ─► one member, else the next
//!      │                                        │
//!      ├─► drive: lease, certificates, signal ──┤
//!      └─► subscribe: Watcher ──── a connection of its own
//!                                               └─► Seen: which etcd it is, and how far
//! ```
//!
//! Every call has a deadline. What fails without having been done is tried at the other members;
//! a write whose answer is lost is told as such, and the caller decides.

use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, BoxStream, StreamExt};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tombolo_model::io::RecordWrite;
use tombolo_model::record::{Origin, Record, RecordKey};

use self::connection::Connection;
use self::failure::Failure;
use self::seen::Seen;
use self::watcher::{Listings, Told, Watcher};
use self::writer::{LEASE_TTL_SECS, Writer};
use crate::batch::{Op, transactions};
use crate::error::Error;
use crate::event::{Decoder, Event};
use crate::key::{KeyRange, Layout};
use crate::registry::{KeyValue, Page, Registry};
use crate::session::{NewSession, Opening, SessionEnd};

mod access;
mod config;
mod connection;
mod failure;
mod operator;
mod seen;
mod watcher;
mod writer;

pub use self::access::{Grantee, Proof, Role};
pub use self::config::{ConfigError, DIAL_TIMEOUT_DEFAULT, EtcdConfig, Password, TlsFiles, User};
pub use self::operator::{EtcdStatus, Malformed, Operator};
pub use self::seen::Counts;

/// The parts underneath, for the replicator.
pub(crate) mod raw {
    pub(crate) use super::connection::{Connection, Repeat};
    pub(crate) use super::failure::{Failure, FailureKind};
    pub(crate) use super::watcher::{Listings, Told, Watcher};
    pub(crate) use super::writer::{grant, keep_alive, revoke};
}

/// Between signs of life: two may be lost.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(LEASE_TTL_SECS as u64 / 3);

/// After a sign of life that was not answered.
const KEEP_ALIVE_RETRY: Duration = Duration::from_secs(1);

/// One cluster's registry in etcd. Clones are the same registry.
#[derive(Clone, Debug)]
pub struct EtcdRegistry {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    origin: Origin,
    connection: Connection,
    /// Who writes, once a session was opened; also when it has been lost since.
    writer: Mutex<Option<Writer>>,
    session: watch::Sender<Option<u64>>,
    /// Whether anyone asked for the signal of changes.
    signal_wanted: watch::Sender<bool>,
    closed: CancellationToken,
}

// === impl EtcdRegistry ===

impl EtcdRegistry {
    /// The registry of a cluster. Connects when it is first used.
    pub fn try_new(config: EtcdConfig, origin: Origin) -> Result<Self, ConfigError> {
        config.check()?;
        let connection = Connection::new(Arc::new(config), Arc::new(Seen::new()));
        Ok(Self {
            inner: Arc::new(Inner {
                origin,
                connection,
                writer: Mutex::new(None),
                session: watch::Sender::new(None),
                signal_wanted: watch::Sender::new(false),
                closed: CancellationToken::new(),
            }),
        })
    }

    /// The client underneath, for tools: connected to the member in use. It has no deadlines, and
    /// may be cut off when the registry connects to another member.
    pub async fn client(&self) -> Result<etcd_client::Client, Error> {
        self.inner.check_open()?;
        let client = self.inner.connection.client().await;
        Ok(client.map_err(Failure::of_read)?.0)
    }

    /// What happened so far, for metrics.
    pub fn counts(&self) -> Counts {
        self.inner.connection.counts()
    }

    /// How often this was not the etcd of before: restored, emptied or another.
    pub fn regresses(&self) -> watch::Receiver<u64> {
        self.inner.connection.seen.regresses()
    }
}

impl Registry for EtcdRegistry {
    fn origin(&self) -> &Origin {
        &self.inner.origin
    }

    fn layout(&self) -> &Layout {
        &self.inner.connection.config.layout
    }

    async fn open(&self, opening: Opening) -> Result<u64, Error> {
        let inner = &*self.inner;
        inner.check_open()?;
        let (writer, revision) = Writer::open(&inner.connection, &inner.origin, opening).await?;
        let epoch = seen::unsigned(writer.lease);
        let earlier = inner.writer.lock().replace(writer);
        inner.session.send_replace(Some(epoch));
        inner.connection.seen.raise(revision);
        if let Some(earlier) = earlier.filter(|earlier| !earlier.ended) {
            // Nothing lies under it any more; it would run out by itself.
            writer::revoke(&inner.connection, earlier.lease).await.ok();
        }
        Ok(epoch)
    }

    async fn amend(&self, session: NewSession) -> Result<u64, Error> {
        let writer = self.inner.writer()?;
        let record = Record::Session(session.at(seen::unsigned(writer.lease)));
        let write = RecordWrite {
            key: RecordKey::Session,
            record: Some(record),
        };
        let op = Op::new(self.layout(), &self.inner.origin, &write)?;
        self.inner.commit(&writer, &[op]).await
    }

    async fn leave(&self) -> Result<u64, Error> {
        let inner = &*self.inner;
        let writer = inner.writer()?;
        let left = writer.leave(&inner.connection, &inner.origin).await;
        let revision = inner.told(&writer, left)?;
        *inner.writer.lock() = None;
        inner.session.send_replace(None);
        // Nothing lies under it any more; it would run out by itself.
        writer::revoke(&inner.connection, writer.lease).await.ok();
        Ok(revision)
    }

    fn session(&self) -> watch::Receiver<Option<u64>> {
        self.inner.session.subscribe()
    }

    async fn apply(&self, batch: Vec<RecordWrite>) -> Result<u64, Error> {
        let inner = &*self.inner;
        let writer = inner.writer()?;
        let epoch = seen::unsigned(writer.lease);
        let transactions = transactions(self.layout(), &inner.origin, epoch, &batch)?;
        let mut revision = *inner.connection.seen.signal.borrow();
        let mut written = 0;
        for ops in transactions {
            revision = match inner.commit(&writer, &ops).await {
                Ok(revision) => revision,
                Err(source) if written == 0 => return Err(source),
                Err(source) => {
                    return Err(Error::Partial {
                        written,
                        total: batch.len(),
                        source: Box::new(source),
                    });
                }
            };
            written += ops.len();
        }
        Ok(revision)
    }

    fn subscribe(&self) -> BoxStream<'static, Event> {
        let watcher = self.inner.watcher(Listings::Full);
        let decoder = Decoder::new(self.layout().clone());
        stream::unfold(
            (watcher, decoder),
            |(mut watcher, mut decoder)| async move {
                let event = next_event(&mut watcher, &mut decoder).await?;
                Some((event, (watcher, decoder)))
            },
        )
        .boxed()
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.inner
            .signal_wanted
            .send_if_modified(|wanted| !std::mem::replace(wanted, true));
        self.inner.connection.seen.signal.subscribe()
    }

    async fn scan(&self, range: KeyRange, limit: usize) -> Result<Page, Error> {
        self.inner.check_open()?;
        let found = self.inner.connection.range(&range, limit, None).await;
        let (mut answer, revision) = found.map_err(Failure::of_read)?;
        let items = answer.take_kvs().into_iter().map(|kv| {
            let revision = seen::unsigned(kv.mod_revision());
            let (key, value) = kv.into_key_value();
            KeyValue {
                key: key.into(),
                value: value.into(),
                revision,
            }
        });
        Ok(Page {
            items: items.collect(),
            revision,
            more: answer.more(),
        })
    }

    async fn drive(&self) -> Result<(), Error> {
        let inner = &*self.inner;
        tokio::select! {
            biased;
            () = inner.closed.cancelled() => {}
            () = Box::pin(inner.keep_session()) => {}
            () = Box::pin(inner.signal()) => {}
            () = inner.heed_regresses() => {}
        }
        Ok(())
    }

    async fn close(&self, session: SessionEnd) -> Result<(), Error> {
        let inner = &*self.inner;
        let writer = inner.writer.lock().take().filter(|writer| !writer.ended);
        inner.session.send_replace(None);
        inner.closed.cancel();
        match (session, writer) {
            (SessionEnd::Revoke, Some(writer)) => {
                writer::revoke(&inner.connection, writer.lease).await
            }
            (SessionEnd::Revoke, None) | (SessionEnd::Lapse, _) => Ok(()),
        }
    }
}

/// The next event of a subscription.
async fn next_event(watcher: &mut Watcher, decoder: &mut Decoder) -> Option<Event> {
    loop {
        let told = match watcher.next().await? {
            Told::ListBegan(cause) => Some(Event::ListBegan(cause)),
            Told::ListEnded { revision } => Some(Event::ListEnded { revision }),
            Told::Key {
                key,
                value,
                revision,
            } => decoder.event(&key, value.as_deref(), revision),
            Told::Heard(is_heard) => Some(Event::Heard(is_heard)),
            Told::Believed => Some(Event::Believed),
            Told::Progress { .. } => None,
        };
        if told.is_some() {
            return told;
        }
    }
}

// === impl Inner ===

impl Inner {
    fn check_open(&self) -> Result<(), Error> {
        if self.closed.is_cancelled() {
            return Err(Error::Closed);
        }
        Ok(())
    }

    fn writer(&self) -> Result<Writer, Error> {
        self.check_open()?;
        self.end_session_of_before();
        self.writer.lock().clone().ok_or_else(|| Error::NoSession {
            cluster: self.origin.cluster.clone(),
        })
    }

    async fn commit(&self, writer: &Writer, ops: &[Op]) -> Result<u64, Error> {
        self.check_open()?;
        let committed = writer.commit(&self.connection, &self.origin, ops).await;
        self.told(writer, committed)
    }

    /// Learns from the outcome of a transaction.
    fn told(&self, writer: &Writer, outcome: Result<u64, Error>) -> Result<u64, Error> {
        match &outcome {
            Ok(revision) => self.connection.seen.raise(*revision),
            Err(error) if error.ends_session() => self.end_session(writer.lease),
            Err(_) => {}
        }
        outcome
    }

    /// The session under this lease is over, if it is still that of this registry.
    fn end_session(&self, lease: i64) {
        let mut writer = self.writer.lock();
        let Some(current) = writer.as_mut().filter(|writer| writer.lease == lease) else {
            return;
        };
        if !current.ended {
            current.ended = true;
            drop(writer);
            self.session.send_replace(None);
        }
    }

    fn watcher(&self, listings: Listings) -> Watcher {
        Watcher::new(
            self.connection.sibling(),
            KeyRange::of_prefix(&self.connection.config.layout.root_prefix()),
            listings,
            self.closed.clone(),
        )
    }

    /// Keeps the session's lease alive while there is one, and finds out when there is none.
    async fn keep_session(&self) {
        let mut session = self.session.subscribe();
        let mut pause = KEEP_ALIVE_INTERVAL;
        loop {
            session.mark_unchanged();
            tokio::select! {
                biased;
                changed = session.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    pause = KEEP_ALIVE_INTERVAL;
                    continue;
                }
                () = sleep(pause) => {}
            }
            self.connection.reload();
            let writer = self.writer.lock().clone().filter(|writer| !writer.ended);
            pause = match writer {
                None => KEEP_ALIVE_INTERVAL,
                Some(writer) => match self.keep_alive(&writer).await {
                    Ok(()) => KEEP_ALIVE_INTERVAL,
                    Err(error) => {
                        tracing::warn!(
                            error = &error as &dyn std::error::Error,
                            "registry session not kept alive, trying on"
                        );
                        KEEP_ALIVE_RETRY
                    }
                },
            };
        }
    }

    /// One sign of life. The session may have been overwritten while its lease is alive.
    async fn keep_alive(&self, writer: &Writer) -> Result<(), Error> {
        let alive = writer::keep_alive(&self.connection, writer.lease).await;
        let alive = alive.map_err(Failure::of_read)?;
        if !alive || !writer.stands(&self.connection, &self.origin).await? {
            tracing::warn!(epoch = writer.lease, "the registry session is over");
            self.end_session(writer.lease);
        }
        Ok(())
    }

    /// Signals changes for those who subscribe to nothing else.
    async fn signal(&self) {
        let mut wanted = self.signal_wanted.subscribe();
        if wanted.wait_for(|wanted| *wanted).await.is_err() {
            return;
        }
        let mut watcher = self.watcher(Listings::None);
        while watcher.next().await.is_some() {}
    }

    /// A session does not outlive the etcd that it was opened in.
    async fn heed_regresses(&self) {
        let mut regresses = self.connection.seen.regresses();
        while regresses.changed().await.is_ok() {
            self.end_session_of_before();
        }
    }

    fn end_session_of_before(&self) {
        let regresses = self.connection.seen.regress_count();
        let writer = self.writer.lock().clone();
        if let Some(writer) = writer.filter(|writer| writer.regresses != regresses) {
            self.end_session(writer.lease);
        }
    }
}
