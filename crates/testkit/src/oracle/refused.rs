//! Endpoints of other clusters that this one refuses, as their addresses mean something else here
//! (BEHAVIOUR §7).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use tombolo_model::names::{ClusterName, ServiceKey};
use tombolo_model::record::Member;

use super::export::stands_for_pods_elsewhere;
use super::{Stated, Truth};

/// Takes out what is refused; says of which clusters anything was.
pub(super) fn without(
    truth: &Truth,
    all: &BTreeMap<ClusterName, Stated>,
) -> (BTreeMap<ClusterName, Stated>, BTreeSet<ClusterName>) {
    let mut left = all.clone();
    let mut refused = BTreeSet::new();
    let peers = left.iter_mut();
    for (cluster, stated) in peers.filter(|(cluster, _)| **cluster != truth.config.cluster) {
        let before = stated.entries.len();
        stated
            .entries
            .retain(|(address, _), _| !is_refused(truth, *address));
        if stated.entries.len() < before {
            refused.insert(cluster.clone());
        }
    }
    (left, refused)
}

/// What of a statement the operator allows; `None` where that is nothing at all.
pub(super) fn within_limits(
    member: Option<&Member>,
    key: &ServiceKey,
    mut stated: Stated,
) -> Option<Stated> {
    let Some(member) = member else {
        return Some(stated);
    };
    if !member.namespaces.is_empty() && !member.namespaces.contains(&key.namespace) {
        return None;
    }
    if !member.cidrs.is_empty() {
        let is_in = |address: &IpAddr| member.cidrs.iter().any(|cidr| cidr.contains(address));
        stated.entries.retain(|(address, _), _| is_in(address));
    }
    Some(stated)
}

fn is_refused(truth: &Truth, address: IpAddr) -> bool {
    let is_in = |cidrs: &[IpNet]| cidrs.iter().any(|cidr| cidr.contains(&address));
    let is_elsewhere = is_in(&truth.config.pod_cidrs) && !is_in(&truth.config.shared_cidrs);
    is_in(&truth.service_cidrs) || is_elsewhere || is_pod(truth, address)
}

/// Whether an EndpointSlice of this cluster says that a Pod has the address.
fn is_pod(truth: &Truth, address: IpAddr) -> bool {
    let own = truth.slices.values().filter(|slice| {
        slice.meta.label("kubernetes.io/service-name").is_some()
            && !stands_for_pods_elsewhere(truth, slice)
    });
    let mut endpoints = own.flat_map(|slice| slice.endpoints.iter());
    endpoints.any(|e| e.address == address && e.target.as_ref().is_some_and(|t| &*t.kind == "Pod"))
}
