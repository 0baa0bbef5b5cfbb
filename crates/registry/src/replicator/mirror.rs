//! What has to be written at the peer so that it has what the own region has: pure.
//!
//! Absence is not withdrawal: a key that is at the peer and no longer in the own region is
//! deleted only once its cluster says that what it published is everything (`synced` is the epoch
//! of its `session`), or that it has left. Until then it is *kept*.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};

use tombolo_model::names::Region;
use tombolo_model::record::{Origin, Record, RecordKey};

use crate::batch::{Op, split};
use crate::event::ListCause;
use crate::key::{Layout, Place};
use crate::value::decode_record;

/// What stands at the peer: hashes of values, as they are compared and never read.
#[derive(Debug, Default)]
pub(super) struct Held {
    hasher: RandomState,
    keys: HashMap<Box<[u8]>, Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Value {
    hash: u64,
    /// Whether it lies under the lock's lease.
    is_leased: bool,
}

/// What a partition of the own region says about itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Standing {
    session: Option<u64>,
    synced: Option<u64>,
    has_left: bool,
    /// The session that a listing showed of a registry that had been set back: what a backup says
    /// was published is not what was published since.
    doubted: Option<u64>,
}

/// What kind of key it is, in the order in which a listing's differences are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Data,
    Session,
    Synced,
}

#[derive(Debug)]
pub(super) struct Mirror {
    layout: Layout,
    region: Region,
    /// The listing under way: what of the peer has not been seen in it.
    listing: Option<(ListCause, Held)>,
    partitions: BTreeMap<Origin, Standing>,
    /// Keys at the peer that wait for their cluster's word.
    kept: BTreeMap<Origin, BTreeSet<Vec<u8>>>,
    /// To be written, in order.
    ops: Vec<(Rank, Op)>,
    revision: u64,
    /// Whether the own region's etcd was set back since the last complete listing.
    is_regressed: bool,
}

// === impl Held ===

impl Held {
    pub(super) fn insert(&mut self, key: &[u8], value: &[u8], is_leased: bool) {
        let hash = self.hasher.hash_one(value);
        self.keys.insert(key.into(), Value { hash, is_leased });
    }

    /// Takes a key out. Whether it had this value.
    fn remove(&mut self, key: &[u8], value: &[u8], is_leased: bool) -> bool {
        let hash = self.hasher.hash_one(value);
        self.keys.remove(key) == Some(Value { hash, is_leased })
    }
}

// === impl Standing ===

impl Standing {
    /// Whether what is not there was withdrawn.
    fn is_trusted(self) -> bool {
        let is_said = self.session.is_some() && self.session != self.doubted;
        self.has_left || (is_said && self.session == self.synced)
    }
}

// === impl Mirror ===

impl Mirror {
    pub(super) fn new(layout: Layout, region: Region) -> Self {
        Self {
            layout,
            region,
            listing: None,
            partitions: BTreeMap::new(),
            kept: BTreeMap::new(),
            ops: Vec::new(),
            revision: 0,
            is_regressed: false,
        }
    }

    /// A listing of the own region begins; `held` stands at the peer.
    pub(super) fn begin(&mut self, cause: ListCause, held: Held) {
        self.listing = Some((cause, held));
        self.partitions.clear();
        self.is_regressed |= cause == ListCause::Regress;
        self.kept.clear();
        self.ops.clear();
    }

    /// A key of the own region was listed, or has changed.
    pub(super) fn learn(&mut self, key: Vec<u8>, value: Option<Vec<u8>>, revision: u64) {
        let Ok(text) = String::from_utf8(key) else {
            // No key of the layout, and no transaction of ours could hold it.
            return;
        };
        let place = self.layout.parse(text.as_bytes());
        if matches!(place, Ok(Place::Replicator(_))) {
            return;
        }
        let (rank, origin) = match &place {
            Ok(Place::Record { origin, key }) => (rank(key), Some(origin.clone())),
            Ok(_) | Err(_) => (Rank::Data, None),
        };
        if let Ok(Place::Record { origin, key }) = &place {
            self.stand(origin, key, value.as_deref());
        }
        match value {
            Some(value) => {
                if let Some(kept) = origin.as_ref().and_then(|o| self.kept.get_mut(o)) {
                    kept.remove(text.as_bytes());
                }
                let is_session = rank == Rank::Session;
                let equal = self
                    .listing
                    .as_mut()
                    .is_some_and(|(_, held)| held.remove(text.as_bytes(), &value, is_session));
                if !equal {
                    self.push(rank, text, Some(value));
                }
            }
            None => self.deleted(rank, origin, text),
        }
        if self.listing.is_none() {
            self.revision = self.revision.max(revision);
            self.release();
        }
    }

    fn deleted(&mut self, rank: Rank, origin: Option<Origin>, key: String) {
        match origin {
            // A session that is gone says that its cluster is not heard of, and no more.
            Some(_) if rank == Rank::Session => self.push(rank, key, None),
            Some(origin) => {
                self.kept
                    .entry(origin)
                    .or_default()
                    .insert(key.into_bytes());
            }
            // The operator's keys mean what they say.
            None => self.push(rank, key, None),
        }
    }

    /// The listing is complete: what of the peer was not in it is gone, or kept.
    pub(super) fn end(&mut self, revision: u64) {
        self.revision = revision;
        let Some((cause, held)) = self.listing.take() else {
            return;
        };
        if std::mem::take(&mut self.is_regressed) {
            for standing in self.partitions.values_mut() {
                standing.doubted = standing.session;
            }
        }
        let mut gone: Vec<_> = held.keys.into_keys().collect();
        gone.sort_unstable();
        for key in gone {
            let Ok(text) = String::from_utf8(key.into_vec()) else {
                continue;
            };
            match self.layout.parse(text.as_bytes()) {
                Ok(Place::Record { origin, key }) => {
                    self.deleted(rank(&key), Some(origin), text);
                }
                // Of these no cluster says whether they were withdrawn: only one who saw the
                // registry before knows that it is still the same.
                Ok(Place::Member(_) | Place::Settings(_)) | Err(_) => {
                    if cause == ListCause::Behind {
                        self.push(Rank::Data, text, None);
                    }
                }
                Ok(Place::Replicator(_)) => {}
            }
        }
        self.release();
        self.ops.sort_by_key(|(rank, _)| *rank);
    }

    /// So long after a regress that all sessions are right.
    pub(super) fn believe(&mut self) {
        for standing in self.partitions.values_mut() {
            standing.doubted = None;
        }
        self.release();
    }

    /// Nothing happened up to this revision.
    pub(super) fn reached(&mut self, revision: u64) {
        self.revision = self.revision.max(revision);
    }

    /// Deletes what was kept and is withdrawn by now.
    fn release(&mut self) {
        let partitions = &self.partitions;
        let trusted = |origin: &Origin| partitions.get(origin).is_some_and(|s| s.is_trusted());
        let released: Vec<_> = self.kept.keys().filter(|o| trusted(o)).cloned().collect();
        for origin in released {
            for key in self.kept.remove(&origin).unwrap_or_default() {
                if let Ok(key) = String::from_utf8(key) {
                    self.push(Rank::Data, key, None);
                }
            }
        }
    }

    fn stand(&mut self, origin: &Origin, key: &RecordKey, value: Option<&[u8]>) {
        let standing = self.partitions.entry(origin.clone()).or_default();
        let record = value.and_then(|value| decode_record(origin, key, value).ok());
        match key {
            RecordKey::Session => {
                standing.session = match record {
                    Some(Record::Session(session)) => Some(session.epoch),
                    _ => None,
                };
            }
            RecordKey::Synced => {
                standing.synced = match record {
                    Some(Record::Synced(epoch)) => Some(epoch),
                    _ => None,
                };
            }
            RecordKey::Left => standing.has_left = record.is_some(),
            RecordKey::Owner
            | RecordKey::Report
            | RecordKey::Export(_)
            | RecordKey::Endpoint { .. }
            | RecordKey::Config { .. } => {}
        }
    }

    fn push(&mut self, rank: Rank, key: String, value: Option<Vec<u8>>) {
        debug_assert!(
            key.starts_with(&self.layout.region_prefix(&self.region)),
            "only the own region is copied"
        );
        self.ops.push((rank, Op { key, value }));
    }

    /// The transactions to be done. While a listing is under way, data only: what stands for it
    /// comes last.
    pub(super) fn take(&mut self) -> Vec<Vec<Op>> {
        let mut ops = std::mem::take(&mut self.ops);
        if self.listing.is_some() {
            (ops, self.ops) = ops.into_iter().partition(|(rank, _)| *rank == Rank::Data);
        }
        split(ops.into_iter().map(|(_, op)| op).collect())
    }

    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    pub(super) fn kept(&self) -> usize {
        self.kept.values().map(BTreeSet::len).sum()
    }
}

fn rank(key: &RecordKey) -> Rank {
    match key {
        RecordKey::Session => Rank::Session,
        RecordKey::Synced => Rank::Synced,
        RecordKey::Owner
        | RecordKey::Left
        | RecordKey::Report
        | RecordKey::Export(_)
        | RecordKey::Endpoint { .. }
        | RecordKey::Config { .. } => Rank::Data,
    }
}

#[cfg(test)]
mod tests {
    use tombolo_model::record::Session;

    use super::*;
    use crate::value::encode_record;

    const EAST: &str = "/tombolo/v1/regions/eu/clusters/east";

    fn mirror() -> Mirror {
        Mirror::new(Layout::default(), Region::try_new("eu").unwrap())
    }

    fn written(mirror: &mut Mirror) -> Vec<(String, bool)> {
        let shown = |op: Op| {
            let key = op.key.strip_prefix(&format!("{EAST}/")).unwrap_or(&op.key);
            (key.to_owned(), op.value.is_some())
        };
        mirror.take().into_iter().flatten().map(shown).collect()
    }

    /// A message with the epoch as its first field, as `Synced` has it.
    fn synced(epoch: u8) -> Vec<u8> {
        vec![8, epoch]
    }

    /// Only the epoch counts.
    fn session(epoch: u64) -> Vec<u8> {
        let session = Session {
            holder: "pod".into(),
            epoch,
            started: jiff::Timestamp::UNIX_EPOCH,
            software: "test".into(),
            schema: 1,
            families: Vec::new(),
            service_cidrs: Vec::new(),
            blind_since: None,
        };
        encode_record(&RecordKey::Session, &Record::Session(session)).unwrap()
    }

    #[test]
    fn a_key_that_is_gone_waits_for_its_clusters_word() {
        let mut mirror = mirror();
        mirror.begin(ListCause::Start, Held::default());
        mirror.learn(format!("{EAST}/ns/a/exports/x").into(), Some(vec![1]), 2);
        mirror.end(5);
        assert_eq!(written(&mut mirror), [("ns/a/exports/x".to_owned(), true)]);
        mirror.learn(format!("{EAST}/ns/a/exports/x").into(), None, 6);
        assert_eq!((written(&mut mirror), mirror.kept()), (vec![], 1));
        // It comes back meanwhile: nothing is deleted any more.
        mirror.learn(format!("{EAST}/ns/a/exports/x").into(), Some(vec![2]), 7);
        assert_eq!(mirror.kept(), 0);
        assert_eq!(written(&mut mirror), [("ns/a/exports/x".to_owned(), true)]);
        assert_eq!(mirror.revision(), 7);
    }

    #[test]
    fn what_stands_for_the_data_is_written_last_and_equal_keys_never() {
        let mut held = Held::default();
        held.insert(format!("{EAST}/ns/a/exports/x").as_bytes(), &[1], false);
        held.insert(format!("{EAST}/session").as_bytes(), &[9], false);
        held.insert(b"/tombolo/v1/regions/eu/members/east", &[1], false);
        let mut mirror = mirror();
        mirror.begin(ListCause::Regress, held);
        mirror.learn(format!("{EAST}/ns/a/exports/x").into(), Some(vec![1]), 2);
        // The same bytes under a lease that is not the lock's.
        mirror.learn(format!("{EAST}/session").into(), Some(vec![9]), 2);
        mirror.learn(format!("{EAST}/synced").into(), Some(synced(3)), 2);
        mirror.learn(format!("{EAST}/zzz").into(), Some(vec![1]), 2);
        assert_eq!(written(&mut mirror), [("zzz".to_owned(), true)]);
        mirror.end(5);
        // The member is not deleted: nobody knows whether this is the registry of before.
        let rest = ["session", "synced"].map(|key| (key.to_owned(), true));
        assert_eq!(written(&mut mirror), rest);
    }

    #[test]
    fn a_session_that_a_regress_shows_says_nothing() {
        let mut mirror = mirror();
        let held = || {
            let mut held = Held::default();
            held.insert(format!("{EAST}/ns/a/exports/x").as_bytes(), &[1], false);
            held
        };
        mirror.begin(ListCause::Start, held());
        mirror.learn(format!("{EAST}/ns/a/exports/x").into(), Some(vec![1]), 4);
        mirror.learn(format!("{EAST}/session").into(), Some(session(3)), 2);
        mirror.learn(format!("{EAST}/synced").into(), Some(synced(3)), 3);
        mirror.end(5);
        mirror.take();
        // A backup of before the export.
        mirror.begin(ListCause::Regress, held());
        mirror.learn(format!("{EAST}/session").into(), Some(session(3)), 2);
        mirror.learn(format!("{EAST}/synced").into(), Some(synced(3)), 3);
        mirror.end(3);
        let is_deleted = |mirror: &mut Mirror| {
            let export = ("ns/a/exports/x".to_owned(), false);
            written(mirror).contains(&export)
        };
        assert!(!is_deleted(&mut mirror));
        assert_eq!(mirror.kept(), 1);
        mirror.learn(format!("{EAST}/session").into(), Some(session(4)), 4);
        mirror.learn(format!("{EAST}/synced").into(), Some(synced(4)), 5);
        assert!(is_deleted(&mut mirror));
    }

    #[test]
    fn the_lock_is_neither_copied_nor_deleted() {
        let lock = b"/tombolo/v1/regions/eu/replicator";
        let mut mirror = mirror();
        mirror.begin(ListCause::Start, Held::default());
        mirror.learn(lock.to_vec(), Some(vec![1]), 2);
        mirror.end(5);
        mirror.learn(lock.to_vec(), None, 6);
        assert_eq!(written(&mut mirror), []);
    }
}
