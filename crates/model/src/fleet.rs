//! The fleet: what all clusters say in the registry, gathered by service.
//!
//! Records come in one by one, or as a full listing; what goes out is one immutable
//! [`FleetService`] per changed service, which every reader in the process shares. This is also
//! where *absence is not withdrawal* (DESIGN §2.2): a record that the registry no longer has stays
//! in use until its cluster has said, under its present session, that it published everything.
//!
//! ```text
//! records ─► Fleet::observe ─► (dirty services) ─► Fleet::drain ─► Input::{Fleet, Trusted, Peers}
//! ```

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, OnceLock};

use crate::contents::SharedContents;
use crate::endpoint::Endpoint;
use crate::io::Input;
use crate::merge::{Claim, Merged, merge};
use crate::names::{ClusterName, Region, ServiceKey};
use crate::presence::Peers;
use crate::record::{ExportRecord, Joined, Member, Origin, Record, RecordKey, Settings};

mod accept;
mod claims;
mod partition;
mod peers;
mod regress;
#[cfg(test)]
mod tests;

pub(crate) use self::accept::Refusals;
pub use self::accept::{Refused, Rule};
pub use self::claims::Claims;
use self::partition::{Held, Partition, hold, see, sweep_one};
pub use self::peers::Recorded;

/// What one cluster says of one service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterService {
    /// The export.
    pub export: Arc<ExportRecord>,
    /// The endpoints, sorted by address.
    pub endpoints: Arc<[Endpoint]>,
    /// When the cluster joined, where the operator recorded it.
    pub joined: Option<Joined>,
}

/// What all clusters say of one service. Immutable, so that all readers in a process share it,
/// and with it the merge, which is computed once.
#[derive(Debug, Default)]
pub struct FleetService {
    clusters: BTreeMap<ClusterName, Arc<ClusterService>>,
    merged: OnceLock<Option<Arc<Merged>>>,
    contents: SharedContents,
}

impl FleetService {
    /// The service as these clusters state it.
    pub fn new(clusters: BTreeMap<ClusterName, Arc<ClusterService>>) -> Self {
        Self {
            clusters,
            merged: OnceLock::new(),
            contents: SharedContents::default(),
        }
    }

    /// By cluster.
    pub const fn clusters(&self) -> &BTreeMap<ClusterName, Arc<ClusterService>> {
        &self.clusters
    }

    /// The contents of the slices in clusters that do not export the service themselves.
    pub(crate) const fn contents(&self) -> &SharedContents {
        &self.contents
    }

    /// The merge of all of them, computed at the first call; `None` if there is no cluster.
    pub fn merged(&self) -> Option<&Arc<Merged>> {
        self.merged
            .get_or_init(|| {
                let clusters = self.clusters.iter();
                merge(clusters.map(|(name, state)| Claim::of(name, state))).map(Arc::new)
            })
            .as_ref()
    }
}

/// One thing that a reader of the registry learns.
#[derive(Clone, Debug)]
pub enum FleetInput {
    /// A record appeared, changed or (`None`) went.
    Record {
        /// Whose it is.
        origin: Origin,
        /// Its place.
        key: RecordKey,
        /// Its value.
        record: Option<Record>,
    },
    /// A record is there but cannot be read: the last one that could stays in use.
    Unreadable {
        /// Whose it is.
        origin: Origin,
        /// Its place.
        key: RecordKey,
    },
    /// What the operator recorded for a cluster; `None`: nothing, any more.
    Member {
        /// Which cluster.
        origin: Origin,
        /// What is recorded.
        member: Option<Member>,
    },
    /// The settings of a region; `None`: none, any more.
    Settings {
        /// Which region.
        region: Region,
        /// What they are.
        settings: Option<Settings>,
    },
    /// So long after a regress that every writer that lives has noticed it, and no session of one
    /// that is dead is left: sessions are believed again.
    Believed,
    /// A full listing begins: what is not seen until it ends is not there. One that was under way
    /// is void.
    ListBegan,
    /// Likewise, of a registry that is not the one that it was: restored, emptied or another
    /// (DESIGN §2.2, regress). No absence is trusted under the sessions that it shows.
    Regressed,
    /// The listing is complete.
    ListEnded,
}

/// All partitions of the registry, as one reader knows them.
#[derive(Debug, Default)]
pub struct Fleet {
    clusters: BTreeMap<ClusterName, BTreeMap<Region, Partition>>,
    /// Of all that a cluster says only the region that sorts first counts.
    services: HashMap<ServiceKey, Arc<FleetService>>,
    /// The clusters that have a record of a service, so that a change costs its own.
    holders: HashMap<ServiceKey, BTreeSet<ClusterName>>,
    dirty: BTreeSet<ServiceKey>,
    /// Clusters of which more than single records changed.
    touched: BTreeSet<ClusterName>,
    members: BTreeMap<Origin, Held<Member>>,
    /// Of which the region counts that sorts first.
    settings: BTreeMap<Region, Held<Settings>>,
    /// What the engines were told of both.
    recorded: Arc<Recorded>,
    trusted: Arc<BTreeSet<ClusterName>>,
    peers: Arc<Peers>,
    refusals: Refusals,
    claims: Arc<Claims>,
    /// Whether anything was told yet.
    is_told: bool,
    /// Counts full listings; a record is stamped with the one that last saw it.
    listing: u32,
    /// Not before a first listing is complete, and not while another one is under way: what is
    /// known then is a part, from which nothing must be concluded.
    is_complete: bool,
    /// Whether the registry was set back since the last complete listing.
    is_regressed: bool,
}

// === impl Fleet ===

impl Fleet {
    /// Takes one input in.
    pub fn observe(&mut self, input: FleetInput) {
        match input {
            FleetInput::ListBegan => self.list_began(),
            FleetInput::Regressed => {
                self.is_regressed = true;
                self.list_began();
            }
            FleetInput::Believed => self.believe(),
            FleetInput::ListEnded => {
                self.is_complete = true;
                self.sweep();
                self.doubt();
            }
            FleetInput::Record {
                origin,
                key,
                record,
            } => self.accept(&origin, key, record),
            FleetInput::Unreadable { origin, key } => self.unreadable(&origin, &key),
            FleetInput::Member { origin, member } => self.member(origin, member),
            FleetInput::Settings { region, settings } => self.set_settings(region, settings),
        }
    }

    fn list_began(&mut self) {
        self.listing += 1;
        self.is_complete = false;
    }

    /// The changes since the last call, for every engine of the process. Nothing until a first
    /// listing is complete.
    pub fn drain(&mut self) -> Vec<Input> {
        if !self.is_complete {
            return Vec::new();
        }
        self.settle();
        let mut inputs = Vec::with_capacity(self.dirty.len() + 1);
        for service in std::mem::take(&mut self.dirty) {
            let state = self.gather(&service);
            let old = match &state {
                Some(state) => self.services.insert(service.clone(), Arc::clone(state)),
                None => self.services.remove(&service),
            };
            self.claims
                .change(&service, old.as_deref(), state.as_deref());
            inputs.push(Input::Fleet { service, state });
        }
        let touched = std::mem::take(&mut self.touched);
        let is_first = !std::mem::replace(&mut self.is_told, true);
        if is_first {
            inputs.push(Input::Claims(Arc::clone(&self.claims)));
        }
        if self.trust_changed(&touched) || is_first {
            inputs.push(Input::Trusted(Arc::clone(&self.trusted)));
        }
        if self.recorded_changed(&touched) || is_first {
            inputs.push(Input::Recorded(Arc::clone(&self.recorded)));
        }
        if self.peers_changed(&touched) || is_first {
            inputs.push(Input::Peers(Arc::clone(&self.peers)));
        }
        inputs
    }

    /// All that is known, as inputs for an engine that joins later.
    pub fn snapshot(&self) -> Vec<Input> {
        let mut services: Vec<_> = self.services.iter().collect();
        services.sort_by_key(|(service, _)| *service);
        services
            .into_iter()
            .map(|(service, state)| Input::Fleet {
                service: service.clone(),
                state: Some(Arc::clone(state)),
            })
            .chain([
                Input::Claims(Arc::clone(&self.claims)),
                Input::Trusted(Arc::clone(&self.trusted)),
                Input::Recorded(Arc::clone(&self.recorded)),
                Input::Peers(Arc::clone(&self.peers)),
            ])
            .collect()
    }

    fn record(&mut self, origin: &Origin, key: RecordKey, record: Option<Record>) {
        let seen = self.listing;
        let regions = self.clusters.entry(origin.cluster.clone()).or_default();
        if !regions.contains_key(&origin.region) {
            // A region that sorts before the one in use takes its place.
            for partition in regions.values() {
                self.dirty.extend(partition.services.keys().cloned());
            }
            regions.insert(origin.region.clone(), Partition::default());
            self.touched.insert(origin.cluster.clone());
        }
        let Some(partition) = regions.get_mut(&origin.region) else {
            return;
        };
        let service = match (key, record) {
            (RecordKey::Session, Some(Record::Session(value))) => {
                return self.touch(origin, |p| hold(&mut p.session, Some(value), seen));
            }
            (RecordKey::Session, _) => {
                return self.touch(origin, |p| hold(&mut p.session, None, seen));
            }
            (RecordKey::Synced, Some(Record::Synced(value))) => {
                return self.touch(origin, |p| hold(&mut p.synced, Some(value), seen));
            }
            (RecordKey::Synced, _) => {
                return self.touch(origin, |p| hold(&mut p.synced, None, seen));
            }
            (RecordKey::Left, record) => {
                // Who has left states nothing, whatever stands there yet.
                self.dirty.extend(partition.services.keys().cloned());
                return self.touch(origin, |p| hold(&mut p.left, record.map(|_| ()), seen));
            }
            (RecordKey::Export(service), record) => {
                let value = match record {
                    Some(Record::Export(value)) => Some(value),
                    _ => None,
                };
                let held = partition.services.entry(service.clone()).or_default();
                hold(&mut held.export, value, seen).then_some(service)
            }
            (
                RecordKey::Endpoint {
                    service,
                    protocol,
                    address,
                },
                record,
            ) => {
                let value = match record {
                    Some(Record::Endpoint(value)) => Some(value),
                    _ => None,
                };
                let held = partition.services.entry(service.clone()).or_default();
                let mut slot = held.entries.remove(&(address, protocol));
                let changed = hold(&mut slot, value, seen);
                if let Some(slot) = slot {
                    held.entries.insert((address, protocol), slot);
                }
                changed.then_some(service)
            }
            // Who a cluster is and how it fares does not change what it exports.
            (RecordKey::Owner | RecordKey::Report | RecordKey::Config { .. }, _) => None,
        };
        if let Some(service) = service {
            let holders = self.holders.entry(service.clone()).or_default();
            holders.insert(origin.cluster.clone());
            self.dirty.insert(service);
        }
    }

    fn unreadable(&mut self, origin: &Origin, key: &RecordKey) {
        let message = format!("{key:?} cannot be read");
        self.refusals
            .add(&origin.cluster, Rule::Unreadable, message);
        self.keep_last(origin, key);
    }

    /// Keeps the last value of a record that could be used, if there was one.
    fn keep_last(&mut self, origin: &Origin, key: &RecordKey) {
        let seen = self.listing;
        let regions = self.clusters.get_mut(&origin.cluster);
        let Some(partition) = regions.and_then(|regions| regions.get_mut(&origin.region)) else {
            return;
        };
        match key {
            RecordKey::Session => see(partition.session.as_mut(), seen),
            RecordKey::Synced => see(partition.synced.as_mut(), seen),
            RecordKey::Left => see(partition.left.as_mut(), seen),
            RecordKey::Export(service) => {
                let held = partition.services.get_mut(service);
                see(held.and_then(|held| held.export.as_mut()), seen);
            }
            RecordKey::Endpoint {
                service,
                protocol,
                address,
            } => {
                let held = partition.services.get_mut(service);
                see(
                    held.and_then(|h| h.entries.get_mut(&(*address, *protocol))),
                    seen,
                );
            }
            RecordKey::Owner | RecordKey::Report | RecordKey::Config { .. } => {}
        }
    }

    /// Changes what decides whether a cluster's absence is trusted.
    fn touch(&mut self, origin: &Origin, change: impl FnOnce(&mut Partition) -> bool) {
        let regions = self.clusters.get_mut(&origin.cluster);
        if let Some(partition) = regions.and_then(|r| r.get_mut(&origin.region))
            && change(partition)
        {
            self.touched.insert(origin.cluster.clone());
        }
    }

    /// At the end of a listing: what it did not see is absent.
    fn sweep(&mut self) {
        let now = self.listing;
        for (cluster, regions) in &mut self.clusters {
            for Partition {
                session,
                synced,
                left,
                doubted: _,
                services,
            } in regions.values_mut()
            {
                sweep_one(session.as_mut(), now);
                sweep_one(synced.as_mut(), now);
                sweep_one(left.as_mut(), now);
                for held in services.values_mut() {
                    sweep_one(held.export.as_mut(), now);
                    for entry in held.entries.values_mut() {
                        sweep_one(Some(entry), now);
                    }
                }
            }
            self.touched.insert(cluster.clone());
        }
        self.sweep_members();
    }

    /// Forgets absent records of the clusters whose absence is trusted, and empty partitions.
    fn settle(&mut self) {
        for cluster in &self.touched {
            let Some(regions) = self.clusters.get_mut(cluster) else {
                continue;
            };
            let first = regions.keys().next().cloned();
            for partition in regions.values_mut().filter(|p| p.absence_is_trusted()) {
                for (service, held) in &mut partition.services {
                    if held.drop_absent() {
                        self.dirty.insert(service.clone());
                    }
                }
                partition.services.retain(|_, held| !held.is_empty());
            }
            regions.retain(|_, partition| !partition.is_empty());
            // Where the region in use went, the next one counts.
            if first.as_ref() != regions.keys().next() {
                for partition in regions.values() {
                    self.dirty.extend(partition.services.keys().cloned());
                }
            }
            if regions.is_empty() {
                self.clusters.remove(cluster);
            }
        }
        for service in &self.dirty {
            for cluster in self.holders.get(service).into_iter().flatten() {
                let regions = self.clusters.get_mut(cluster);
                for partition in regions.into_iter().flat_map(BTreeMap::values_mut) {
                    if partition.absence_is_trusted()
                        && let Some(held) = partition.services.get_mut(service)
                    {
                        held.drop_absent();
                        if held.is_empty() {
                            partition.services.remove(service);
                        }
                    }
                }
            }
        }
    }

    /// The state of one service over all clusters; unchanged parts are shared with the last one.
    fn gather(&mut self, service: &ServiceKey) -> Option<Arc<FleetService>> {
        let counts = self.settings_now().precedence_from_join;
        let last = self.services.get(service);
        let mut clusters = BTreeMap::new();
        let holders = self.holders.get_mut(service)?;
        holders.retain(|cluster| {
            let regions = self.clusters.get(cluster);
            let held = regions.and_then(|r| r.values().find_map(|p| p.services.get(service)));
            let first = regions.and_then(|r| r.iter().next().filter(|(_, p)| !p.has_left()));
            let used = first.and_then(|(region, partition)| {
                let mut state = partition.services.get(service)?.state()?;
                let origin = Origin {
                    region: region.clone(),
                    cluster: cluster.clone(),
                };
                let member = self.members.get(&origin).map(|held| &held.value);
                state.joined = member.map(|member| Joined {
                    at: member.joined,
                    counts,
                });
                let place = (cluster, service);
                self.refusals.within_limits(member, place, state)
            });
            if let Some(state) = used {
                let shared = last
                    .and_then(|last| last.clusters.get(cluster))
                    .filter(|old| ***old == state)
                    .map_or_else(|| Arc::new(state), Arc::clone);
                clusters.insert(cluster.clone(), shared);
            }
            held.is_some()
        });
        if holders.is_empty() {
            self.holders.remove(service);
        }
        if clusters.is_empty() {
            return None;
        }
        Some(match last {
            Some(last) if last.clusters == clusters => Arc::clone(last),
            _ => Arc::new(FleetService::new(clusters)),
        })
    }
}
