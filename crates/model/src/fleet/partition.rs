//! What one cluster wrote, and what of it the registry still has.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use super::ClusterService;
use crate::endpoint::{Entries, Entry, EntryProtocol, join};
use crate::names::ServiceKey;
use crate::record::{ExportRecord, Session};

/// What one cluster wrote.
#[derive(Debug, Default)]
pub(super) struct Partition {
    pub(super) session: Option<Held<Session>>,
    pub(super) synced: Option<Held<u64>>,
    pub(super) left: Option<Held<()>>,
    /// The epoch that a registry showed which had been set back: it says nothing of what is absent.
    pub(super) doubted: Option<u64>,
    pub(super) services: HashMap<ServiceKey, PartitionService>,
}

/// One service in a partition.
#[derive(Debug, Default)]
pub(super) struct PartitionService {
    pub(super) export: Option<Held<Arc<ExportRecord>>>,
    pub(super) entries: BTreeMap<(IpAddr, EntryProtocol), Held<Arc<[Entry]>>>,
}

/// A record that is in use, and whether the registry still has it.
#[derive(Debug)]
pub(super) struct Held<T> {
    pub(super) value: T,
    /// The listing that saw it last.
    pub(super) seen: u32,
    pub(super) present: bool,
}

impl Partition {
    pub(super) fn has_left(&self) -> bool {
        self.left.as_ref().is_some_and(|held| held.present)
    }

    /// Whether a missing record means that it was withdrawn.
    pub(super) fn absence_is_trusted(&self) -> bool {
        let synced = self
            .synced
            .as_ref()
            .filter(|held| held.present)
            .map(|held| held.value);
        let epoch = self
            .session
            .as_ref()
            .filter(|held| held.present)
            .map(|held| held.value.epoch);
        let is_said = epoch.is_some() && epoch != self.doubted;
        self.has_left() || (is_said && synced == epoch)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.services.is_empty()
            && !self.session.as_ref().is_some_and(|held| held.present)
            && !self.synced.as_ref().is_some_and(|held| held.present)
            && !self.has_left()
    }
}

impl PartitionService {
    /// What this cluster says of the service; `None` while it does not export it.
    pub(super) fn state(&self) -> Option<ClusterService> {
        let export = Arc::clone(&self.export.as_ref()?.value);
        let entries: Entries = self
            .entries
            .iter()
            .map(|(at, held)| (*at, Arc::clone(&held.value)))
            .collect();
        Some(ClusterService {
            export,
            endpoints: join(&entries).into(),
            joined: None,
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.export.is_none() && self.entries.is_empty()
    }

    /// Forgets what the registry no longer has; says whether anything was.
    pub(super) fn drop_absent(&mut self) -> bool {
        let before = (self.export.is_some(), self.entries.len());
        if self.export.as_ref().is_some_and(|held| !held.present) {
            self.export = None;
        }
        self.entries.retain(|_, held| held.present);
        before != (self.export.is_some(), self.entries.len())
    }
}

/// Takes the state of one record in; says whether its value changed, it went or it came back.
pub(super) fn hold<T: PartialEq>(slot: &mut Option<Held<T>>, value: Option<T>, seen: u32) -> bool {
    match (slot.as_mut(), value) {
        (Some(held), Some(value)) => {
            let changed = !held.present || held.value != value;
            *held = Held {
                value,
                seen,
                present: true,
            };
            changed
        }
        (None, Some(value)) => {
            *slot = Some(Held {
                value,
                seen,
                present: true,
            });
            true
        }
        (Some(held), None) => std::mem::replace(&mut held.present, false),
        (None, None) => false,
    }
}

/// Marks a record as still there.
pub(super) fn see<T>(slot: Option<&mut Held<T>>, listing: u32) {
    if let Some(held) = slot {
        held.seen = listing;
        held.present = true;
    }
}

/// Marks a record absent that this listing did not see; says whether it was there before.
pub(super) fn sweep_one<T>(slot: Option<&mut Held<T>>, listing: u32) -> bool {
    match slot {
        Some(held) if held.present && held.seen != listing => {
            held.present = false;
            true
        }
        _ => false,
    }
}
