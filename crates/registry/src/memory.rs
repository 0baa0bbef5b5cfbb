//! The memory backend: a registry within one process, for `tombolo up`, `plan` and tests.
//!
//! ```text
//! MemoryRegistry (one a cluster) ─apply─► MemoryStore ─► Log ─► subscriptions
//! ```
//!
//! It behaves as etcd does: keys and values are encoded, revisions count up, one transaction is one
//! revision, sessions have epochs. A subscription is a cursor into the store's log and has no queue
//! of its own; the log has a bound, and a cursor that it has passed lists again. So no reader,
//! however slow, holds memory.
//!
//! Each subscription decodes for itself. A process with many clusters takes one subscription of
//! the store ([`MemoryStore::subscribe`]) and hands its events on to all of them.
//!
//! There is no connection to be lost, but tests need one: [`MemoryStore`] has faults to inject.

use std::sync::Arc;

use futures::stream::BoxStream;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tombolo_model::io::RecordWrite;
use tombolo_model::record::{Origin, Owner, Record, RecordKey};

use crate::batch::{Op, transactions};
use crate::error::Error;
use crate::event::Event;
use crate::key::{KeyRange, Layout};
use crate::registry::{Page, Registry};
use crate::session::{NewSession, Opening, SessionEnd};

mod faults;
mod log;
mod store;
mod subscription;

pub use self::faults::{ApplyFault, Snapshot};
pub use self::log::LogLimits;
pub use self::store::MemoryStore;

/// One cluster's registry in memory.
#[derive(Debug)]
pub struct MemoryRegistry {
    store: Arc<MemoryStore>,
    origin: Origin,
    /// Who writes, once a session was opened; also when it has been lost since.
    writer: Mutex<Option<Writer>>,
    session: watch::Sender<Option<u64>>,
    closed: CancellationToken,
}

/// What each write compares.
#[derive(Clone, Debug)]
struct Writer {
    owner: Owner,
    epoch: u64,
}

// === impl MemoryRegistry ===

impl MemoryRegistry {
    fn new(store: Arc<MemoryStore>, origin: Origin) -> Self {
        Self {
            closed: store.closed.child_token(),
            store,
            origin,
            writer: Mutex::new(None),
            session: watch::Sender::new(None),
        }
    }

    fn check_open(&self) -> Result<(), Error> {
        if self.closed.is_cancelled() {
            return Err(Error::Closed);
        }
        Ok(())
    }

    fn writer(&self) -> Result<Writer, Error> {
        self.check_open()?;
        self.writer.lock().clone().ok_or_else(|| Error::NoSession {
            cluster: self.origin.cluster.clone(),
        })
    }

    fn op(&self, key: RecordKey, record: Option<Record>) -> Result<Op, Error> {
        Op::new(
            &self.store.layout,
            &self.origin,
            &RecordWrite { key, record },
        )
    }

    /// One transaction of the session.
    async fn commit(&self, writer: &Writer, ops: Vec<Op>) -> Result<u64, Error> {
        self.store.wait().await;
        self.check_open()?;
        self.store
            .commit(&self.origin, &writer.owner, writer.epoch, ops)
    }
}

impl Registry for MemoryRegistry {
    fn origin(&self) -> &Origin {
        &self.origin
    }

    fn layout(&self) -> &Layout {
        &self.store.layout
    }

    async fn open(&self, opening: Opening) -> Result<u64, Error> {
        self.check_open()?;
        self.store.wait().await;
        let owner = opening.owner.clone();
        let epoch = self.store.open(&self.origin, opening, &self.session)?;
        *self.writer.lock() = Some(Writer { owner, epoch });
        Ok(epoch)
    }

    async fn amend(&self, session: NewSession) -> Result<u64, Error> {
        let writer = self.writer()?;
        let session = Record::Session(session.at(writer.epoch));
        let op = self.op(RecordKey::Session, Some(session))?;
        self.commit(&writer, vec![op]).await
    }

    async fn leave(&self) -> Result<u64, Error> {
        let writer = self.writer()?;
        self.store.wait().await;
        let left = self.op(RecordKey::Left, Some(Record::Left(writer.owner.clone())))?;
        let revision = self
            .store
            .leave(&self.origin, &writer.owner, writer.epoch, left)?;
        *self.writer.lock() = None;
        Ok(revision)
    }

    fn session(&self) -> watch::Receiver<Option<u64>> {
        self.session.subscribe()
    }

    async fn apply(&self, batch: Vec<RecordWrite>) -> Result<u64, Error> {
        let writer = self.writer()?;
        let transactions = transactions(self.layout(), &self.origin, writer.epoch, &batch)?;
        let mut revision = self.store.revision();
        let mut written = 0;
        for ops in transactions {
            let len = ops.len();
            revision = match self.commit(&writer, ops).await {
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
            written += len;
        }
        Ok(revision)
    }

    fn subscribe(&self) -> BoxStream<'static, Event> {
        subscription::stream(Arc::clone(&self.store), self.closed.clone())
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.store.changes()
    }

    async fn scan(&self, range: KeyRange, limit: usize) -> Result<Page, Error> {
        self.check_open()?;
        self.store.wait().await;
        self.store.scan(&range, limit)
    }

    async fn drive(&self) -> Result<(), Error> {
        // A session in memory needs no keeping alive.
        self.closed.cancelled().await;
        Ok(())
    }

    async fn close(&self, session: SessionEnd) -> Result<(), Error> {
        if session == SessionEnd::Revoke
            && let Some(Writer { epoch, .. }) = self.writer.lock().take()
        {
            self.store.revoke(&self.origin, epoch);
        }
        self.session.send_replace(None);
        self.closed.cancel();
        Ok(())
    }
}
