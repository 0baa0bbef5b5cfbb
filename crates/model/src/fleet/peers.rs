//! The clusters themselves: whose session is there, and what the operator recorded for them.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Fleet, hold, sweep_one};
use crate::names::ClusterName;
use crate::presence::{Peer, PeerSession};
use crate::record::{Member, Origin};

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

    /// What a listing did not see is not recorded any more: there is nobody to record it again.
    pub(super) fn sweep_members(&mut self) {
        let now = self.listing;
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
