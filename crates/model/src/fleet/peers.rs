//! The clusters themselves: whose session is there, and what the operator recorded for them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Fleet, Partition, hold, sweep_one};
use crate::names::{ClusterName, Region};
use crate::presence::{Peer, PeerSession};
use crate::record::{Joined, Member, Origin, Settings};

/// What operators recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// For each cluster, in its region that counts.
    pub members: BTreeMap<ClusterName, Member>,
    /// For the whole registry.
    pub settings: Settings,
}

impl Recorded {
    /// What is recorded of the age of a cluster's exports.
    pub fn joined(&self, cluster: &ClusterName) -> Option<Joined> {
        self.members.get(cluster).map(|member| Joined {
            at: member.joined,
            counts: self.settings.precedence_from_join,
        })
    }
}

impl Fleet {
    pub(super) fn member(&mut self, origin: Origin, member: Option<Member>) {
        let mut slot = self.members.remove(&origin);
        if hold(&mut slot, member, self.listing) {
            self.touched.insert(origin.cluster.clone());
            self.limits_changed(&origin);
        }
        if let Some(held) = slot.filter(|held| held.present) {
            self.members.insert(origin, held);
        }
    }

    pub(super) fn set_settings(&mut self, region: Region, settings: Option<Settings>) {
        let before = self.settings_now();
        let mut slot = self.settings.remove(&region);
        hold(&mut slot, settings, self.listing);
        if let Some(held) = slot.filter(|held| held.present) {
            self.settings.insert(region, held);
        }
        self.settings_changed(before);
    }

    /// The settings that count.
    pub(super) fn settings_now(&self) -> Settings {
        let first = self.settings.values().next();
        first.map(|held| held.value).unwrap_or_default()
    }

    /// Whether regions have different settings: only those of the first count.
    pub fn settings_differ(&self) -> bool {
        let mut all = self.settings.values().map(|held| held.value);
        let first = all.next();
        all.any(|settings| Some(settings) != first)
    }

    /// The age of every export may count from another time.
    fn settings_changed(&mut self, before: Settings) {
        if self.settings_now() == before {
            return;
        }
        let origins: Vec<Origin> = self.members.keys().cloned().collect();
        for origin in origins {
            self.limits_changed(&origin);
        }
    }

    /// Brings what operators recorded up to date; says whether it changed.
    pub(super) fn recorded_changed(&mut self, touched: &BTreeSet<ClusterName>) -> bool {
        let settings = self.settings_now();
        let mut changed = self.recorded.settings != settings;
        if changed {
            Arc::make_mut(&mut self.recorded).settings = settings;
        }
        for cluster in touched {
            let member = self.member_of(cluster).cloned();
            if self.recorded.members.get(cluster) == member.as_ref() {
                continue;
            }
            changed = true;
            let members = &mut Arc::make_mut(&mut self.recorded).members;
            match member {
                Some(member) => members.insert(cluster.clone(), member),
                None => members.remove(cluster),
            };
        }
        changed
    }

    /// What is recorded for a cluster in its region that counts; before it has written anything,
    /// in the first one that knows it.
    fn member_of(&self, cluster: &ClusterName) -> Option<&Member> {
        let region = self.clusters.get(cluster).and_then(|r| r.keys().next());
        let mut members = self.members.iter();
        let found = members.find(|(origin, _)| {
            origin.cluster == *cluster && region.is_none_or(|region| origin.region == *region)
        });
        found.map(|(_, held)| &held.value)
    }

    /// What a listing did not see is not recorded any more: there is nobody to record it again.
    pub(super) fn sweep_members(&mut self) {
        let now = self.listing;
        let before = self.settings_now();
        self.settings.retain(|_, held| !sweep_one(Some(held), now));
        self.settings_changed(before);
        let touched = &mut self.touched;
        let mut gone = Vec::new();
        self.members.retain(|origin, held| {
            let is_gone = sweep_one(Some(held), now);
            if is_gone {
                touched.insert(origin.cluster.clone());
                gone.push(origin.clone());
            }
            !is_gone
        });
        for origin in gone {
            self.limits_changed(&origin);
        }
    }

    /// What a cluster states is looked at again.
    fn limits_changed(&mut self, origin: &Origin) {
        let regions = self.clusters.get(&origin.cluster);
        let partition = regions.and_then(|regions| regions.get(&origin.region));
        if let Some(partition) = partition {
            self.dirty.extend(partition.services.keys().cloned());
        }
    }

    /// Brings the set of trusted clusters up to date; says whether it changed.
    pub(super) fn trust_changed(&mut self, touched: &BTreeSet<ClusterName>) -> bool {
        let mut changed = false;
        for cluster in touched {
            let regions = self.clusters.get(cluster);
            let trusted = regions
                .and_then(|regions| regions.values().next())
                .is_some_and(Partition::absence_is_trusted);
            if trusted != self.trusted.contains(cluster) {
                changed = true;
                let set = Arc::make_mut(&mut self.trusted);
                if trusted {
                    set.insert(cluster.clone());
                } else {
                    set.remove(cluster);
                }
            }
        }
        changed
    }

    /// Brings the clusters up to date; says whether any changed.
    pub(super) fn peers_changed(&mut self, touched: &BTreeSet<ClusterName>) -> bool {
        let mut changed = false;
        for cluster in touched {
            let peer = self.peer(cluster);
            if peer.as_ref() == self.peers.get(cluster) {
                continue;
            }
            changed = true;
            let peers = Arc::make_mut(&mut self.peers);
            match peer {
                Some(peer) => peers.insert(cluster.clone(), peer),
                None => peers.remove(cluster),
            };
        }
        changed
    }

    /// How a cluster is; `None` where it has nothing in the registry, or has left.
    fn peer(&self, cluster: &ClusterName) -> Option<Peer> {
        let (region, partition) = self.clusters.get(cluster)?.iter().next()?;
        if partition.has_left() {
            return None;
        }
        let recorded = self.members.get(&Origin {
            region: region.clone(),
            cluster: cluster.clone(),
        });
        let session = partition.session.as_ref().filter(|held| held.present);
        Some(Peer {
            session: match session.map(|held| held.value.blind_since) {
                Some(None) => PeerSession::Live,
                Some(Some(since)) => PeerSession::Blind(since),
                None => PeerSession::Missing,
            },
            drained: recorded.is_some_and(|held| held.value.drained),
        })
    }
}
