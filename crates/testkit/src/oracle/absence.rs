//! Clusters that are missing or drained (BEHAVIOUR §6): which endpoints are left.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tombolo_model::endpoint::Entry;
use tombolo_model::names::ClusterName;
use tombolo_model::service::{IpFamily, Protocol};

use super::merge::Combined;
use super::{Stated, Truth};

/// A port of the import by name and protocol, or the import itself where it has no ports; and a
/// family.
type Place = (Option<(Arc<str>, Protocol)>, IpFamily);

fn is_missing(truth: &Truth, cluster: &ClusterName) -> bool {
    truth.missing.contains(cluster) && *cluster != truth.config.cluster
}

/// What of each cluster is used, and the clusters whose endpoints are kept as the last.
pub(super) fn used(
    truth: &Truth,
    combined: &Combined,
    all: &BTreeMap<ClusterName, Stated>,
    families: &[IpFamily],
) -> (BTreeMap<ClusterName, Stated>, BTreeSet<ClusterName>) {
    let live = all.iter().filter(|(cluster, _)| {
        !is_missing(truth, cluster)
            && !truth.drained.contains(*cluster)
            && !combined.unused.contains(*cluster)
    });
    let served: BTreeSet<Place> = live
        .flat_map(|(cluster, stated)| places(combined, cluster, stated, true))
        .collect();
    let mut used = BTreeMap::new();
    let mut kept = BTreeSet::new();
    for (cluster, stated) in all {
        let mut stated = stated.clone();
        if truth.drained.contains(cluster) {
            stated.entries.clear();
        } else if is_missing(truth, cluster) {
            if truth.config.keep_last {
                without(combined, cluster, &mut stated, &served);
            } else {
                stated.entries.clear();
            }
            let left = places(combined, cluster, &stated, false);
            let counts = !combined.unused.contains(cluster);
            if counts && left.iter().any(|(_, family)| families.contains(family)) {
                kept.insert(cluster.clone());
            }
        }
        used.insert(cluster.clone(), stated);
    }
    (used, kept)
}

/// Every place that a cluster's endpoints serve.
fn places(
    combined: &Combined,
    cluster: &ClusterName,
    stated: &Stated,
    ready_only: bool,
) -> Vec<Place> {
    let mut places = Vec::new();
    for ((address, protocol), entries) in &stated.entries {
        let family = IpFamily::of(*address);
        for entry in entries.iter().filter(|e| e.conditions.ready || !ready_only) {
            if combined.ports.is_empty() {
                places.push((None, family));
            }
            for port in entry.ports.iter() {
                if let tombolo_model::endpoint::EntryProtocol::Some(protocol) = *protocol {
                    let name = (Arc::clone(&port.name), protocol);
                    if let Some(accepted) = combined.served[cluster].get(&name) {
                        places.push((Some((Arc::clone(&accepted.name), protocol)), family));
                    }
                }
            }
        }
    }
    places
}

/// Takes out what is served already.
fn without(
    combined: &Combined,
    cluster: &ClusterName,
    stated: &mut Stated,
    served: &BTreeSet<Place>,
) {
    let mut left = BTreeMap::new();
    for ((address, protocol), entries) in &stated.entries {
        let family = IpFamily::of(*address);
        if combined.ports.is_empty() && served.contains(&(None, family)) {
            continue;
        }
        let keep = |name: &Arc<str>| {
            let tombolo_model::endpoint::EntryProtocol::Some(protocol) = *protocol else {
                return true;
            };
            let own = (Arc::clone(name), protocol);
            let accepted = combined.served[cluster].get(&own);
            accepted.is_none_or(|accepted| {
                !served.contains(&(Some((Arc::clone(&accepted.name), protocol)), family))
            })
        };
        let entries: Vec<Entry> = entries
            .iter()
            .map(|entry| {
                let ports = entry.ports.iter().filter(|p| keep(&p.name)).cloned();
                Entry {
                    ports: ports.collect(),
                    ..entry.clone()
                }
            })
            .collect();
        left.insert((*address, *protocol), entries.into());
    }
    stated.entries = left;
}

/// Whether a cluster's endpoints count.
pub(super) fn counts(truth: &Truth, cluster: &ClusterName, kept: &BTreeSet<ClusterName>) -> bool {
    !truth.drained.contains(cluster) && (!is_missing(truth, cluster) || kept.contains(cluster))
}

/// The clusters behind an import of which its users should know something.
pub(super) fn amiss(truth: &Truth, all: &BTreeMap<ClusterName, Stated>) -> BTreeSet<ClusterName> {
    let amiss = all
        .keys()
        .filter(|cluster| truth.drained.contains(*cluster) || is_missing(truth, cluster));
    amiss.cloned().collect()
}
