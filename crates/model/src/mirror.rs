//! Mirrored endpoints: what the EndpointSlices of an import hold, before they are packed
//! (BEHAVIOUR §3).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use crate::endpoint::{Conditions, EndpointPort, join_zones};
use crate::export::Detail;
use crate::fleet::ClusterService;
use crate::guard::Guard;
use crate::merge::{Merged, Part};
use crate::names::ClusterName;
use crate::object::{Hints, SliceEndpoint, SlicePort};
use crate::own::{NO_NODE, NO_ZONE};
use crate::packing::Ports;
use crate::service::{IpFamily, Protocol};

#[cfg(test)]
mod tests;

/// The traffic distribution that prefers the client's own node.
const PREFER_SAME_NODE: &str = "PreferSameNode";

/// Which of a cluster's endpoints are used (BEHAVIOUR §6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Usage {
    /// All; those that are ready let others go where the cluster is live.
    All {
        /// Whether its session is there.
        live: bool,
    },
    /// Those of ports and families for which no live cluster has a ready one.
    Last,
    /// None.
    None,
}

/// One cluster that contributes to an import.
#[derive(Clone, Copy)]
pub(crate) struct Contributor<'a> {
    pub(crate) cluster: &'a ClusterName,
    pub(crate) service: &'a ClusterService,
    pub(crate) usage: Usage,
    /// Node and target of each endpoint: only of this cluster's own.
    pub(crate) details: Option<&'a [Detail]>,
    /// What its addresses are held against: those of other clusters.
    pub(crate) guard: Option<Guard<'a>>,
}

impl Contributor<'_> {
    fn refuses(&self, address: IpAddr) -> bool {
        let rule = self.guard.and_then(|guard| guard.refuses(address));
        rule.is_some()
    }
}

/// The endpoints of one source cluster and family, each with its slice's ports.
pub(crate) type Mirrored = BTreeMap<(ClusterName, IpFamily), Vec<(Ports, SliceEndpoint)>>;

/// All endpoints that an import's slices hold, by source cluster and family.
pub(crate) fn mirrored(
    merged: &Merged,
    contributors: &[Contributor<'_>],
    families: &[IpFamily],
) -> Mirrored {
    let spoken_for = spoken_for(merged, contributors);
    let mut all = Vec::new();
    for contributor in contributors {
        let spoken_for = match contributor.usage {
            Usage::All { .. } => None,
            Usage::Last => Some(&spoken_for),
            Usage::None => continue,
        };
        if let Some(part) = used_part(merged, contributor) {
            all.extend(served(merged, part, contributor, spoken_for));
        }
    }
    all.retain(|e| families.contains(&IpFamily::of(e.endpoint.address)));
    join_conditions(&mut all);
    if let Some(distribution) = merged.traffic_distribution.as_deref() {
        add_hints(&mut all, distribution == PREFER_SAME_NODE);
    }
    let mut mirrored = Mirrored::new();
    for Served {
        cluster,
        ports,
        endpoint,
    } in all
    {
        let family = IpFamily::of(endpoint.address);
        mirrored
            .entry((cluster.clone(), family))
            .or_default()
            .push((ports, endpoint));
    }
    mirrored
}

/// The accepted ports, as indices, and families for which a live cluster has a ready endpoint;
/// `None` stands for the service itself where it has no ports. Empty where nobody asks.
type SpokenFor = BTreeSet<(Option<usize>, IpFamily)>;

fn spoken_for(merged: &Merged, contributors: &[Contributor<'_>]) -> SpokenFor {
    let mut spoken_for = SpokenFor::new();
    if !contributors.iter().any(|c| c.usage == Usage::Last) {
        return spoken_for;
    }
    let live = Usage::All { live: true };
    for contributor in contributors.iter().filter(|c| c.usage == live) {
        let Some(part) = used_part(merged, contributor) else {
            continue;
        };
        let endpoints = contributor.service.endpoints.iter();
        for endpoint in endpoints.filter(|e| e.conditions.ready && !contributor.refuses(e.address))
        {
            let family = IpFamily::of(endpoint.address);
            if merged.ports.is_empty() {
                spoken_for.insert((None, family));
            }
            let ports = endpoint.ports.iter();
            let indices = ports.filter_map(|port| accepted_port(part, port));
            spoken_for.extend(indices.map(|index| (Some(index), family)));
        }
    }
    spoken_for
}

/// The part of a cluster, if its endpoints can be used at all.
fn used_part<'a>(merged: &'a Merged, contributor: &Contributor<'_>) -> Option<&'a Part> {
    let part = merged.parts.get(contributor.cluster);
    part.filter(|part| part.endpoints_used)
}

/// The clusters of which some endpoint is used because it is among the last.
pub(crate) fn kept(
    merged: &Merged,
    contributors: &[Contributor<'_>],
    families: &[IpFamily],
) -> BTreeSet<ClusterName> {
    let spoken_for = spoken_for(merged, contributors);
    let keeps = |contributor: &&Contributor<'_>| {
        let Some(part) = used_part(merged, contributor) else {
            return false;
        };
        let served = served(merged, part, contributor, Some(&spoken_for));
        let mut families_of = served.iter().map(|s| IpFamily::of(s.endpoint.address));
        families_of.any(|family| families.contains(&family))
    };
    let last = contributors.iter().filter(|c| c.usage == Usage::Last);
    last.filter(keeps).map(|c| c.cluster.clone()).collect()
}

/// An endpoint with the accepted ports that it serves.
struct Served<'a> {
    cluster: &'a ClusterName,
    ports: Ports,
    endpoint: SliceEndpoint,
}

/// The endpoints of one cluster that serve an accepted port, or any where there are no ports.
/// What is spoken for is left out.
fn served<'a>(
    merged: &Merged,
    part: &Part,
    contributor: &Contributor<'a>,
    spoken_for: Option<&SpokenFor>,
) -> Vec<Served<'a>> {
    let is_open = |port: Option<usize>, family| {
        spoken_for.is_none_or(|spoken_for| !spoken_for.contains(&(port, family)))
    };
    let mut port_sets: HashMap<(&Arc<[EndpointPort]>, IpFamily), Ports> = HashMap::new();
    let mut place: HashMap<(IpAddr, Option<Arc<str>>, Ports), usize> = HashMap::new();
    let mut all: Vec<Served<'a>> = Vec::with_capacity(contributor.service.endpoints.len());
    for (index, endpoint) in contributor.service.endpoints.iter().enumerate() {
        if contributor.refuses(endpoint.address) {
            continue;
        }
        let family = IpFamily::of(endpoint.address);
        let ports = port_sets
            .entry((&endpoint.ports, family))
            .or_insert_with(|| {
                let is_open = |index| is_open(Some(index), family);
                accepted_ports(merged, part, &endpoint.ports, is_open)
            });
        let is_served = if merged.ports.is_empty() {
            is_open(None, family)
        } else {
            !ports.is_empty()
        };
        if !is_served {
            continue;
        }
        let detail = contributor.details.and_then(|details| details.get(index));
        let served = Served {
            cluster: contributor.cluster,
            ports: Arc::clone(ports),
            endpoint: SliceEndpoint {
                address: endpoint.address,
                conditions: endpoint.conditions,
                hostname: endpoint.hostname.clone(),
                zone: endpoint.zone.clone(),
                node: detail.and_then(|d| d.node.clone()),
                target: detail.and_then(|d| d.target.clone()),
                hints: None,
            },
        };
        // Endpoints that differed only in ports that were dropped are one.
        let key = (
            endpoint.address,
            endpoint.hostname.clone(),
            Arc::clone(ports),
        );
        if let Some(&at) = place.get(&key) {
            let first: &mut SliceEndpoint = &mut all[at].endpoint;
            first.conditions = first.conditions.join(endpoint.conditions);
            first.zone = join_zones(first.zone.take(), served.endpoint.zone);
        } else {
            place.insert(key, all.len());
            all.push(served);
        }
    }
    all
}

/// The accepted port that a port of this cluster serves, as an index.
fn accepted_port(part: &Part, port: &EndpointPort) -> Option<usize> {
    let key = (Arc::clone(&port.name), port.protocol);
    part.serves.get(&key).copied()
}

/// The accepted ports that an endpoint with these ports serves, in their order.
fn accepted_ports(
    merged: &Merged,
    part: &Part,
    own: &[EndpointPort],
    is_open: impl Fn(usize) -> bool,
) -> Ports {
    let mut ports: Vec<(usize, SlicePort)> = own
        .iter()
        .filter_map(|port| {
            let index = accepted_port(part, port).filter(|index| is_open(*index))?;
            let accepted = merged.ports.get(index)?;
            Some((
                index,
                SlicePort {
                    name: Arc::clone(&accepted.name),
                    protocol: accepted.protocol,
                    port: port.port,
                    app_protocol: accepted.app_protocol.clone(),
                },
            ))
        })
        .collect();
    ports.sort();
    ports.into_iter().map(|(_, port)| port).collect()
}

/// Several clusters may hold one address: where address, protocol and port agree, all carry the
/// same conditions, joined as within a cluster.
fn join_conditions(all: &mut [Served<'_>]) {
    let mut by_address: HashMap<IpAddr, Vec<usize>> = HashMap::new();
    for (index, served) in all.iter().enumerate() {
        by_address
            .entry(served.endpoint.address)
            .or_default()
            .push(index);
    }
    for indices in by_address.into_values().filter(|indices| indices.len() > 1) {
        // Until nothing changes: agreement goes on from one to the next.
        let mut changed = true;
        while changed {
            changed = false;
            let mut by_port: HashMap<Option<(Protocol, u16)>, Conditions> = HashMap::new();
            for &index in &indices {
                let conditions = all[index].endpoint.conditions;
                for port in port_numbers(&all[index].ports) {
                    by_port
                        .entry(port)
                        .and_modify(|c| *c = c.join(conditions))
                        .or_insert(conditions);
                }
            }
            for &index in &indices {
                let old = all[index].endpoint.conditions;
                let joined = port_numbers(&all[index].ports)
                    .filter_map(|port| by_port.get(&port))
                    .fold(old, |a, b| a.join(*b));
                changed |= joined != old;
                all[index].endpoint.conditions = joined;
            }
        }
    }
}

/// Protocol and number of each port; one `None` where there are no ports.
fn port_numbers(ports: &Ports) -> impl Iterator<Item = Option<(Protocol, u16)>> {
    let none = ports.is_empty().then_some(None);
    ports
        .iter()
        .map(|port| Some((port.protocol, port.port)))
        .chain(none)
}

/// Gives every ready endpoint hints: kube-proxy ignores all of them if one has none.
fn add_hints(all: &mut [Served<'_>], same_node: bool) {
    let mut known: HashMap<(Arc<str>, Option<Arc<str>>), _> = HashMap::new();
    for Served { endpoint, .. } in all.iter_mut().filter(|s| s.endpoint.conditions.ready) {
        let zone = endpoint.zone.clone().unwrap_or_else(|| NO_ZONE.into());
        let node = same_node.then(|| endpoint.node.clone().unwrap_or_else(|| NO_NODE.into()));
        let hints = known
            .entry((Arc::clone(&zone), node.clone()))
            .or_insert_with(|| {
                Arc::new(Hints {
                    zones: vec![zone],
                    nodes: node.into_iter().collect(),
                })
            });
        endpoint.hints = Some(Arc::clone(hints));
    }
}
