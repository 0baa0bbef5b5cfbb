//! Keeps what was observed and makes snapshots of it, at the cost of what changed.
//!
//! [`SnapshotBuilder::apply`] marks the service that a change touches; the next
//! [`SnapshotBuilder::publish`] puts the marked services together again and shares the others.
//! So a burst of changes to one service is paid for once, and its size is that of the service,
//! never of the fleet.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use mcs_api::well_known::LABEL_SERVICE_NAME;
use tombolo_model::names::{Namespace, ObjectName, ServiceKey};
use tombolo_model::object::{ImportObject, SliceObject};
use tombolo_model::service::ImportType;

use super::part::SlicePart;
use super::{ClusterSetIp, Headless, NameMap, NamedPort, PortId, Service, Snapshot};
use crate::name::single_label;
use crate::zone::Zones;

/// What is listed and watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listing {
    /// ServiceImports.
    Imports,
    /// EndpointSlices with the label `multicluster.kubernetes.io/service-name`.
    Slices,
}

/// Something observed at the API server.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    /// A ServiceImport is there, new or changed.
    Import(&'a ImportObject),
    /// A ServiceImport went.
    ImportGone(&'a ServiceKey),
    /// An EndpointSlice is there, new or changed.
    Slice(&'a SliceObject),
    /// An EndpointSlice went.
    SliceGone(&'a ServiceKey),
    /// A listing in full begins. What is known stays in use meanwhile.
    ListBegins(Listing),
    /// It ended: what was not seen since it began is gone.
    ListEnds(Listing),
}

/// Where a listing stands.
#[derive(Clone, Copy, Debug, Default)]
struct ListState {
    /// Counts listings; each object remembers the one it was seen in last.
    round: u32,
    /// Whether one has ended.
    complete: bool,
}

/// What is known of one service.
#[derive(Debug, Default)]
struct Known {
    import: Option<ImportPart>,
    /// By the slice's own name.
    slices: BTreeMap<ObjectName, SlicePart>,
}

/// What is needed of a ServiceImport.
#[derive(Debug, PartialEq, Eq)]
struct ImportPart {
    kind: ImportType,
    ips: Vec<IpAddr>,
    ports: Vec<(PortId, u16)>,
}

/// Makes snapshots. One task owns it.
#[derive(Debug)]
pub struct SnapshotBuilder {
    known: HashMap<ServiceKey, Known>,
    /// The service that each slice belongs to, and the listing that it was seen in.
    slices: HashMap<ServiceKey, (ObjectName, u32)>,
    /// The listing that each import was seen in.
    imports: HashMap<ServiceKey, u32>,
    dirty: HashSet<ServiceKey>,
    listings: [ListState; 2],
    /// The last one published.
    current: Arc<Snapshot>,
}

impl SnapshotBuilder {
    /// Starts with nothing. `now_secs` (since the epoch) is where the serials start, so that they
    /// grow over a restart too.
    pub fn new(zones: Zones, now_secs: u32) -> Self {
        Self {
            known: HashMap::new(),
            slices: HashMap::new(),
            imports: HashMap::new(),
            dirty: HashSet::new(),
            listings: [ListState::default(); 2],
            current: Arc::new(Snapshot::unsynced(Arc::new(zones), now_secs)),
        }
    }

    /// The snapshot published last.
    pub fn current(&self) -> Arc<Snapshot> {
        Arc::clone(&self.current)
    }

    /// Takes note of a change.
    pub fn apply(&mut self, change: Change<'_>) {
        match change {
            Change::Import(import) => self.apply_import(import),
            Change::ImportGone(key) => self.remove_import(key),
            Change::Slice(slice) => self.apply_slice(slice),
            Change::SliceGone(key) => self.remove_slice(key),
            Change::ListBegins(listing) => self.listings[listing as usize].round += 1,
            Change::ListEnds(listing) => self.end_listing(listing),
        }
    }

    /// Whether [`Self::publish`] may find something new.
    pub fn is_dirty(&self) -> bool {
        !self.dirty.is_empty() || self.is_synced() != self.current.synced
    }

    /// Makes the snapshot of all changes until now; the same as before when no answer changed.
    pub fn publish(&mut self, now_secs: u32) -> Arc<Snapshot> {
        let mut next = Snapshot::clone(&self.current);
        next.synced = self.is_synced();
        let mut changed = next.synced != self.current.synced;
        for key in std::mem::take(&mut self.dirty) {
            changed |= self.rebuild(&mut next, &key);
        }
        if changed {
            // A clock that was set back, or several changes a second, still count up.
            next.serial = now_secs.max(next.serial.wrapping_add(1));
            self.current = Arc::new(next);
        }
        self.current()
    }

    fn is_synced(&self) -> bool {
        self.listings.iter().all(|listing| listing.complete)
    }

    fn round(&self, listing: Listing) -> u32 {
        self.listings[listing as usize].round
    }

    fn apply_import(&mut self, import: &ImportObject) {
        let key = &import.meta.key;
        self.imports
            .insert(key.clone(), self.listings[Listing::Imports as usize].round);
        let part = ImportPart::new(import);
        let known = self.known.entry(key.clone()).or_default();
        if known.import != part {
            known.import = part;
            self.mark(key.clone());
        }
    }

    fn remove_import(&mut self, key: &ServiceKey) {
        self.imports.remove(key);
        if let Some(known) = self.known.get_mut(key)
            && known.import.take().is_some()
        {
            self.mark(key.clone());
        }
    }

    fn apply_slice(&mut self, slice: &SliceObject) {
        let key = &slice.meta.key;
        let service = slice.meta.label(LABEL_SERVICE_NAME).map(ObjectName::new);
        let (Some(service), Some(part)) = (service, SlicePart::new(slice)) else {
            // Without the labels it is no slice of an import, or no longer.
            self.remove_slice(key);
            return;
        };
        let moved = |(old, _): &(ObjectName, u32)| *old != service;
        if self.slices.get(key).is_some_and(moved) {
            self.remove_slice(key);
        }
        let seen = (service.clone(), self.round(Listing::Slices));
        self.slices.insert(key.clone(), seen);
        let service = key.sibling(&service);
        let known = self.known.entry(service.clone()).or_default();
        if known.slices.get(&key.name) != Some(&part) {
            known.slices.insert(key.name.clone(), part);
            self.mark(service);
        }
    }

    fn remove_slice(&mut self, key: &ServiceKey) {
        let Some((service, _)) = self.slices.remove(key) else {
            return;
        };
        let service = key.sibling(&service);
        if let Some(known) = self.known.get_mut(&service) {
            known.slices.remove(&key.name);
            self.mark(service);
        }
    }

    fn end_listing(&mut self, listing: Listing) {
        let round = self.round(listing);
        match listing {
            Listing::Imports => {
                let gone = unseen(&self.imports, |&seen| seen != round);
                for key in &gone {
                    self.remove_import(key);
                }
            }
            Listing::Slices => {
                let gone = unseen(&self.slices, |&(_, seen)| seen != round);
                for key in &gone {
                    self.remove_slice(key);
                }
            }
        }
        self.listings[listing as usize].complete = true;
    }

    fn mark(&mut self, key: ServiceKey) {
        self.dirty.insert(key);
    }

    /// Puts a service together again. Whether any of its answers changed.
    fn rebuild(&mut self, next: &mut Snapshot, key: &ServiceKey) -> bool {
        let known = self.known.get(key);
        if known.is_some_and(|known| known.import.is_none() && known.slices.is_empty()) {
            self.known.remove(key);
        }
        // An import whose name is no label can be made, but no name leads to it.
        let Some(labels) = service_labels(key) else {
            return false;
        };
        let service = self.known.get(key).and_then(Known::service);
        let old = next.services.get(&labels);
        if old.map(AsRef::as_ref) == service.as_ref() {
            return false;
        }
        let was = old.is_some();
        let is = service.is_some();
        match service {
            Some(service) => next.services.insert(Arc::clone(&labels), Arc::new(service)),
            None => next.services.remove(&labels),
        };
        if was != is {
            count_namespace(&mut next.namespaces, &key.namespace, is);
        }
        true
    }
}

/// The keys of a listing that were not seen in its last round.
fn unseen<V>(objects: &HashMap<ServiceKey, V>, is_gone: impl Fn(&V) -> bool) -> Vec<ServiceKey> {
    objects
        .iter()
        .filter(|(_, seen)| is_gone(seen))
        .map(|(key, _)| key.clone())
        .collect()
}

/// The labels of service and namespace, one after the other as they stand in a question.
fn service_labels(key: &ServiceKey) -> Option<Arc<[u8]>> {
    let service = single_label(key.name.as_str())?;
    let namespace = single_label(key.namespace.as_str())?;
    Some([service, namespace].concat().into())
}

/// Counts one service more or less in a namespace.
fn count_namespace(namespaces: &mut NameMap<usize>, namespace: &Namespace, more: bool) {
    let Some(label) = single_label(namespace.as_str()) else {
        return;
    };
    let label: Arc<[u8]> = label.into();
    let count = namespaces.get(&label).copied().unwrap_or_default();
    let count = if more {
        count + 1
    } else {
        count.saturating_sub(1)
    };
    if count == 0 {
        namespaces.remove(&label);
    } else {
        namespaces.insert(label, count);
    }
}

impl ImportPart {
    /// `None` where the spec cannot be read: no answer is right then.
    fn new(import: &ImportObject) -> Option<Self> {
        let spec = import.spec.as_ref()?;
        let ports = spec.ports.iter();
        Some(Self {
            kind: spec.kind,
            ips: spec.ips.clone(),
            ports: ports
                .map(|port| (PortId::new(&port.name, port.protocol), port.port))
                .collect(),
        })
    }

    /// The service of an import with clusterset IPs. It has its names from the start, also while
    /// it has no IPs yet: an empty answer then, which no client takes for the end of the name.
    fn cluster_set_ip(&self) -> ClusterSetIp {
        let mut v4 = Vec::new();
        let mut v6 = Vec::new();
        for ip in &self.ips {
            match ip {
                IpAddr::V4(ip) if !v4.contains(ip) => v4.push(*ip),
                IpAddr::V6(ip) if !v6.contains(ip) => v6.push(*ip),
                IpAddr::V4(_) | IpAddr::V6(_) => {}
            }
        }
        let mut ports: Vec<NamedPort> = Vec::with_capacity(self.ports.len());
        let mut numbers: Vec<u16> = Vec::with_capacity(self.ports.len());
        let (mut seen_ports, mut seen_numbers) = (HashSet::new(), HashSet::new());
        for (id, number) in &self.ports {
            if seen_ports.insert((id, number)) {
                ports.push(NamedPort {
                    id: id.clone(),
                    number: *number,
                });
            }
            if seen_numbers.insert(*number) {
                numbers.push(*number);
            }
        }
        ClusterSetIp {
            v4: v4.into(),
            v6: v6.into(),
            ports: ports.into(),
            numbers: numbers.into(),
        }
    }
}

impl Known {
    /// The service with names that this is, if any.
    fn service(&self) -> Option<Service> {
        let import = self.import.as_ref()?;
        match import.kind {
            ImportType::ClusterSetIp => Some(Service::ClusterSetIp(import.cluster_set_ip())),
            ImportType::Headless => {
                let accepted: Vec<PortId> = import.ports.iter().map(|(id, _)| id.clone()).collect();
                let parts: Vec<&SlicePart> = self.slices.values().collect();
                Headless::new(&accepted, &parts).map(Service::Headless)
            }
        }
    }
}
