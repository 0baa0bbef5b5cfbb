//! Faults to inject, so that tests of what stands on a registry see what etcd does on a bad day;
//! and writes of the operator and of strangers, which no cluster's registry makes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tombolo_model::names::Region;
use tombolo_model::record::{Member, Origin, RecordKey, Settings};

use super::store::MemoryStore;
use crate::error::Error;
use crate::key::{KeyRange, Place};
use crate::registry::KeyValue;
use crate::value::{ValueError, encode_member, encode_settings};

/// How a transaction fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplyFault {
    /// It is not done, and the writer knows.
    Before,
    /// It is done, and the answer is lost.
    After,
}

/// The contents of a store at some time.
#[derive(Clone, Debug)]
pub struct Snapshot {
    keys: BTreeMap<Arc<[u8]>, Arc<KeyValue>>,
    revision: u64,
}

/// What is wrong with the store.
#[derive(Debug, Default)]
pub(super) struct Faults {
    /// How many of the next transactions fail, and how.
    failing: Option<(usize, ApplyFault)>,
    away: bool,
    delay: Duration,
    /// A page is no longer than this, if set.
    pub(super) page_len_max: Option<usize>,
    pub(super) interrupts: u64,
    pub(super) regresses: u64,
}

// === impl Faults ===

impl Faults {
    pub(super) fn check_reachable(&self) -> Result<(), Error> {
        if self.away {
            return Err(Error::Unavailable {
                reason: "fault injected: away".into(),
            });
        }
        Ok(())
    }

    /// The next transaction fails at once, or does so after it is done, or does not.
    pub(super) fn next_apply(&mut self) -> Result<Option<Error>, Error> {
        self.check_reachable()?;
        let Some((count, fault)) = self.failing.take() else {
            return Ok(None);
        };
        if count > 1 {
            self.failing = Some((count - 1, fault));
        }
        match fault {
            ApplyFault::Before => Err(Error::Unavailable {
                reason: "fault injected: not done".into(),
            }),
            ApplyFault::After => Ok(Some(Error::OutcomeUnknown {
                reason: "fault injected: answer lost".into(),
            })),
        }
    }
}

// === impl MemoryStore ===

impl MemoryStore {
    /// The next `count` transactions of batches fail so.
    pub fn fail_applies(&self, count: usize, fault: ApplyFault) {
        self.inner.lock().faults.failing = (count > 0).then_some((count, fault));
    }

    /// Every call takes so much longer.
    pub fn delay(&self, delay: Duration) {
        self.inner.lock().faults.delay = delay;
    }

    /// Pages are shorter than they are asked for.
    pub fn shorten_pages(&self, len_max: usize) {
        self.inner.lock().faults.page_len_max = Some(len_max);
    }

    /// Calls fail, and subscriptions hear nothing, until [`MemoryStore::come_back`].
    pub fn go_away(&self) {
        self.inner.lock().faults.away = true;
    }

    /// Ends [`MemoryStore::go_away`].
    pub fn come_back(&self) {
        let mut inner = self.inner.lock();
        inner.faults.away = false;
        self.tell(inner.revision);
    }

    /// All subscriptions lose their connection and list again.
    pub fn drop_subscriptions(&self) {
        let mut inner = self.inner.lock();
        inner.faults.interrupts += 1;
        self.tell(inner.revision);
    }

    /// Forgets past changes: subscriptions that have not read them list again.
    pub fn compact(&self) {
        self.inner.lock().log.compact();
    }

    /// The contents, as a backup.
    pub fn snapshot(&self) -> Snapshot {
        let inner = self.inner.lock();
        let (keys, revision) = (inner.keys.clone(), inner.revision);
        Snapshot { keys, revision }
    }

    /// Restores a backup: the revision goes back, and no session of now is one of then.
    pub fn regress(&self, to: &Snapshot) {
        let mut inner = self.inner.lock();
        let Snapshot { keys, revision } = to;
        inner.keys = keys.clone();
        inner.revision = *revision;
        inner.log.compact();
        inner.faults.regresses += 1;
        let ended: Vec<Origin> = inner.sessions.keys().cloned().collect();
        for origin in ended {
            inner.end_session(&origin);
        }
        self.tell(inner.revision);
    }

    /// Ends a cluster's session as the end of its lease does, also one that a backup brought back.
    pub fn expire_session(&self, origin: &Origin) {
        let mut inner = self.inner.lock();
        inner.expire(&self.layout, origin);
        self.tell(inner.revision);
    }

    /// Writes any bytes at any key, as a stranger could; `None` deletes.
    pub fn put_raw(&self, key: &[u8], value: Option<&[u8]>) {
        let mut inner = self.inner.lock();
        let revision = inner.revision + 1;
        inner.set(key, value, revision);
        // A session that was not put under its lease is not that session.
        if let Ok(Place::Record {
            origin,
            key: RecordKey::Session,
        }) = self.layout.parse(key)
        {
            inner.end_session(&origin);
        }
        self.tell(inner.revision);
    }

    /// Everything of a range, as it is stored.
    pub fn get_raw(&self, range: &KeyRange) -> Vec<KeyValue> {
        self.inner
            .lock()
            .range(range)
            .map(|kv| KeyValue::clone(kv))
            .collect()
    }

    /// What the operator records for a cluster; `None` deletes it.
    pub fn set_member(&self, origin: &Origin, member: Option<&Member>) -> Result<(), ValueError> {
        let value = member.map(encode_member).transpose()?;
        self.put_place(&Place::Member(origin.clone()), value.as_deref());
        Ok(())
    }

    /// The settings of a region.
    pub fn set_settings(&self, region: &Region, settings: &Settings) {
        let value = encode_settings(settings);
        self.put_place(&Place::Settings(region.clone()), Some(&value));
    }

    fn put_place(&self, place: &Place, value: Option<&[u8]>) {
        let key = self
            .layout
            .key(place)
            .expect("the names in this place are checked ones");
        self.put_raw(key.as_bytes(), value);
    }

    /// The delay that is injected.
    pub(super) async fn wait(&self) {
        let delay = self.inner.lock().faults.delay;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
    }
}
