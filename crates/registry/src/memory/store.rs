//! The store that all registries in memory of a process share.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use futures::stream::BoxStream;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tombolo_model::record::{Origin, Owner, Record, RecordKey};

use super::MemoryRegistry;
use super::faults::Faults;
use super::log::{Change, Log, LogLimits};
use super::subscription;
use crate::batch::Op;
use crate::error::Error;
use crate::event::{Event, ListCause};
use crate::key::{KeyRange, Layout, Place};
use crate::registry::{KeyValue, Page};
use crate::session::{Held, Opening, Standing};
use crate::value::decode_record;

/// A registry's contents in memory.
#[derive(Debug)]
pub struct MemoryStore {
    pub(super) layout: Layout,
    pub(super) inner: Mutex<Inner>,
    /// The latest revision; also touched when subscriptions have something else to look at.
    pub(super) revision: watch::Sender<u64>,
    pub(super) closed: CancellationToken,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) keys: BTreeMap<Arc<[u8]>, Arc<KeyValue>>,
    pub(super) revision: u64,
    pub(super) log: Log,
    /// The sessions that are alive, with the registry object that each belongs to.
    pub(super) sessions: HashMap<Origin, Live>,
    /// The last epoch given. It never goes back, not even when an older state is restored.
    epoch: u64,
    pub(super) faults: Faults,
}

/// A session that is alive: what its lease is in etcd.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) epoch: u64,
    /// Told when the session ends.
    pub(super) told: watch::Sender<Option<u64>>,
}

/// Where a subscription stands: how often lists were forced on it, and what it reads next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cursor {
    pub(super) interrupts: u64,
    pub(super) regresses: u64,
    pub(super) next: u64,
}

/// What there is for a subscription.
#[derive(Debug)]
pub(super) enum Progress {
    /// These changes, none if there is nothing new.
    Changes(Vec<Change>),
    /// It has to list again.
    Lost(ListCause),
}

// === impl MemoryStore ===

impl MemoryStore {
    /// An empty store.
    pub fn new(layout: Layout) -> Arc<Self> {
        Self::with_limits(layout, LogLimits::default())
    }

    /// An empty store that keeps another number of changes.
    pub fn with_limits(layout: Layout, limits: LogLimits) -> Arc<Self> {
        Arc::new(Self {
            layout,
            inner: Mutex::new(Inner {
                keys: BTreeMap::new(),
                revision: 1,
                log: Log::new(limits),
                sessions: HashMap::new(),
                epoch: 0,
                faults: Faults::default(),
            }),
            revision: watch::Sender::new(1),
            closed: CancellationToken::new(),
        })
    }

    /// The registry of a cluster. Several of one name are several processes of it.
    pub fn registry(self: &Arc<Self>, origin: Origin) -> MemoryRegistry {
        MemoryRegistry::new(Arc::clone(self), origin)
    }

    /// Everything below the root, then every change: for all clusters of the process together.
    pub fn subscribe(self: &Arc<Self>) -> BoxStream<'static, Event> {
        subscription::stream(Arc::clone(self), self.closed.clone())
    }

    /// The latest revision, as a signal.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    /// Closes the registries of all clusters.
    pub fn close(&self) {
        self.closed.cancel();
    }

    pub(super) fn revision(&self) -> u64 {
        self.inner.lock().revision
    }

    pub(super) fn open(
        &self,
        origin: &Origin,
        opening: Opening,
        told: &watch::Sender<Option<u64>>,
    ) -> Result<u64, Error> {
        let mut inner = self.inner.lock();
        inner.faults.check_reachable()?;
        let epoch = inner.epoch + 1;
        let writes = inner
            .standing(&self.layout, origin)
            .admit(origin, opening, epoch)?;
        let ops: Result<Vec<_>, _> = writes
            .iter()
            .map(|write| Op::new(&self.layout, origin, write))
            .collect();
        inner.commit(ops?);
        inner.epoch = epoch;
        inner.end_session(origin);
        let told = told.clone();
        told.send_replace(Some(epoch));
        inner.sessions.insert(origin.clone(), Live { epoch, told });
        self.tell(inner.revision);
        Ok(epoch)
    }

    /// One transaction that compares owner and session.
    pub(super) fn commit(
        &self,
        origin: &Origin,
        owner: &Owner,
        epoch: u64,
        ops: Vec<Op>,
    ) -> Result<u64, Error> {
        let mut inner = self.inner.lock();
        let lost = inner.faults.next_apply()?;
        inner.check_writer(&self.layout, origin, owner, epoch)?;
        inner.commit(ops);
        self.tell(inner.revision);
        match lost {
            Some(lost) => Err(lost),
            None => Ok(inner.revision),
        }
    }

    pub(super) fn leave(
        &self,
        origin: &Origin,
        owner: &Owner,
        epoch: u64,
        left: Op,
    ) -> Result<u64, Error> {
        let mut inner = self.inner.lock();
        inner.faults.check_reachable()?;
        inner.check_writer(&self.layout, origin, owner, epoch)?;
        let range = KeyRange::of_prefix(&self.layout.own_prefix(origin));
        let mut ops: Vec<Op> = inner
            .range(&range)
            .filter(|kv| *kv.key != *left.key.as_bytes())
            .filter_map(|kv| std::str::from_utf8(&kv.key).ok())
            .map(|key| Op {
                key: key.to_owned(),
                value: None,
            })
            .collect();
        ops.push(left);
        inner.commit(ops);
        inner.end_session(origin);
        self.tell(inner.revision);
        Ok(inner.revision)
    }

    /// Ends the session of this epoch, if it is still there.
    pub(super) fn revoke(&self, origin: &Origin, epoch: u64) {
        let mut inner = self.inner.lock();
        if inner
            .sessions
            .get(origin)
            .is_some_and(|live| live.epoch == epoch)
        {
            inner.expire(&self.layout, origin);
            self.tell(inner.revision);
        }
    }

    pub(super) fn scan(&self, range: &KeyRange, limit: usize) -> Result<Page, Error> {
        let inner = self.inner.lock();
        inner.faults.check_reachable()?;
        let limit = inner
            .faults
            .page_len_max
            .map_or(limit, |len_max| len_max.min(limit));
        let mut found = inner.range(range);
        let items = found
            .by_ref()
            .take(limit)
            .map(|kv| KeyValue::clone(kv))
            .collect();
        Ok(Page {
            items,
            revision: inner.revision,
            more: found.next().is_some(),
        })
    }

    /// Everything below the root, its revision, and where its changes go on.
    pub(super) fn list(&self) -> Result<(Vec<Arc<KeyValue>>, u64, Cursor), Error> {
        let inner = self.inner.lock();
        inner.faults.check_reachable()?;
        let root = KeyRange::of_prefix(&self.layout.root_prefix());
        let items = inner.range(&root).map(Arc::clone).collect();
        Ok((items, inner.revision, inner.cursor()))
    }

    pub(super) fn progress(&self, cursor: Cursor, limit: usize) -> Progress {
        let inner = self.inner.lock();
        let now = inner.cursor();
        if inner.faults.check_reachable().is_err() {
            Progress::Changes(Vec::new())
        } else if cursor.regresses != now.regresses {
            Progress::Lost(ListCause::Regress)
        } else if cursor.interrupts != now.interrupts {
            Progress::Lost(ListCause::Interrupted)
        } else {
            match inner.log.read(cursor.next, limit) {
                Some(changes) => Progress::Changes(changes),
                None => Progress::Lost(ListCause::Behind),
            }
        }
    }

    pub(super) fn tell(&self, revision: u64) {
        self.revision.send_replace(revision);
    }
}

// === impl Inner ===

impl Inner {
    fn cursor(&self) -> Cursor {
        Cursor {
            interrupts: self.faults.interrupts,
            regresses: self.faults.regresses,
            next: self.log.end(),
        }
    }

    pub(super) fn range(&self, range: &KeyRange) -> impl Iterator<Item = &Arc<KeyValue>> {
        let bounds = (
            Bound::Included(range.start.as_slice()),
            Bound::Excluded(range.end.as_slice()),
        );
        let bounds = (!range.is_empty()).then_some(bounds);
        bounds
            .into_iter()
            .flat_map(|bounds| self.keys.range::<[u8], _>(bounds))
            .map(|(_, kv)| kv)
    }

    /// Makes one revision of these operations, or none where they change nothing.
    pub(super) fn commit(&mut self, ops: Vec<Op>) {
        let revision = self.revision + 1;
        for Op { key, value } in ops {
            self.set(key.as_bytes(), value.as_deref(), revision);
        }
    }

    pub(super) fn set(&mut self, key: &[u8], value: Option<&[u8]>, revision: u64) {
        let change = match value {
            Some(value) => {
                let known = self.keys.get_key_value(key);
                let key = known.map_or_else(|| key.into(), |(key, _)| Arc::clone(key));
                let kv = Arc::new(KeyValue {
                    key: Arc::clone(&key),
                    value: value.into(),
                    revision,
                });
                self.keys.insert(Arc::clone(&key), Arc::clone(&kv));
                Change {
                    key,
                    value: Some(kv),
                    revision,
                }
            }
            None => match self.keys.remove_entry(key) {
                Some((key, _)) => Change {
                    key,
                    value: None,
                    revision,
                },
                None => return,
            },
        };
        self.revision = revision;
        self.log.push(change);
    }

    pub(super) fn standing(&self, layout: &Layout, origin: &Origin) -> Standing {
        let owner = |record| match record {
            Record::Owner(owner) | Record::Left(owner) => Some(owner),
            Record::Session(_)
            | Record::Synced(_)
            | Record::Report(_)
            | Record::Export(_)
            | Record::Endpoint(_)
            | Record::Config(_) => None,
        };
        let session = |record| match record {
            Record::Session(session) => Some(session),
            Record::Owner(_)
            | Record::Left(_)
            | Record::Synced(_)
            | Record::Report(_)
            | Record::Export(_)
            | Record::Endpoint(_)
            | Record::Config(_) => None,
        };
        Standing {
            owner: self.held(layout, origin, &RecordKey::Owner, owner),
            session: self.held(layout, origin, &RecordKey::Session, session),
            left: self.held(layout, origin, &RecordKey::Left, owner),
        }
    }

    fn held<T>(
        &self,
        layout: &Layout,
        origin: &Origin,
        key: &RecordKey,
        pick: impl FnOnce(Record) -> Option<T>,
    ) -> Held<T> {
        let found = layout.record(origin, key).ok();
        let Some(kv) = found.and_then(|text| self.keys.get(text.as_bytes())) else {
            return Held::Vacant;
        };
        match decode_record(origin, key, &kv.value).ok().and_then(pick) {
            Some(value) => Held::Known(value),
            None => Held::Unreadable,
        }
    }

    /// Whether the writer is still the one. A writer that is not has lost its session.
    fn check_writer(
        &mut self,
        layout: &Layout,
        origin: &Origin,
        owner: &Owner,
        epoch: u64,
    ) -> Result<(), Error> {
        let standing = self.standing(layout, origin);
        let alive = self
            .sessions
            .get(origin)
            .is_some_and(|live| live.epoch == epoch);
        if alive && standing.owner == Held::Known(owner.clone()) {
            return Ok(());
        }
        if alive {
            self.end_session(origin);
        }
        Err(standing.refusal(origin, owner))
    }

    /// The session's process is told that it is over; its key is another matter.
    pub(super) fn end_session(&mut self, origin: &Origin) {
        if let Some(Live { told, .. }) = self.sessions.remove(origin) {
            told.send_replace(None);
        }
    }

    /// What the end of a lease does.
    pub(super) fn expire(&mut self, layout: &Layout, origin: &Origin) {
        self.end_session(origin);
        if let Ok(key) = layout.key(&Place::Record {
            origin: origin.clone(),
            key: RecordKey::Session,
        }) {
            self.set(key.as_bytes(), None, self.revision + 1);
        }
    }
}
