//! Mirrored endpoints: what the EndpointSlices of an import hold, before they are packed
//! (BEHAVIOUR §3).

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use crate::endpoint::{Conditions, EndpointPort, join_zones};
use crate::export::Detail;
use crate::fleet::ClusterService;
use crate::merge::{Merged, Part};
use crate::names::ClusterName;
use crate::object::{Hints, SliceEndpoint, SlicePort};
use crate::own::{NO_NODE, NO_ZONE};
use crate::packing::Ports;
use crate::service::{IpFamily, Protocol};

/// The traffic distribution that prefers the client's own node.
const PREFER_SAME_NODE: &str = "PreferSameNode";

/// One cluster that contributes to an import.
#[derive(Clone, Copy)]
pub(crate) struct Contributor<'a> {
    pub(crate) cluster: &'a ClusterName,
    pub(crate) service: &'a ClusterService,
    /// Node and target of each endpoint: only of this cluster's own.
    pub(crate) details: Option<&'a [Detail]>,
}

/// The endpoints of one source cluster and family, each with its slice's ports.
pub(crate) type Mirrored = BTreeMap<(ClusterName, IpFamily), Vec<(Ports, SliceEndpoint)>>;

/// All endpoints that an import's slices hold, by source cluster and family.
pub(crate) fn mirrored(
    merged: &Merged,
    contributors: &[Contributor<'_>],
    families: &[IpFamily],
) -> Mirrored {
    let mut all = Vec::new();
    for contributor in contributors {
        let part = merged
            .parts
            .get(contributor.cluster)
            .filter(|part| part.endpoints_used);
        if let Some(part) = part {
            all.extend(served(merged, part, contributor));
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

/// An endpoint with the accepted ports that it serves.
struct Served<'a> {
    cluster: &'a ClusterName,
    ports: Ports,
    endpoint: SliceEndpoint,
}

/// The endpoints of one cluster that serve an accepted port, or any where there are no ports.
fn served<'a>(merged: &Merged, part: &Part, contributor: &Contributor<'a>) -> Vec<Served<'a>> {
    let mut port_sets: HashMap<&Arc<[EndpointPort]>, Ports> = HashMap::new();
    let mut place: HashMap<(IpAddr, Option<Arc<str>>, Ports), usize> = HashMap::new();
    let mut all: Vec<Served<'a>> = Vec::with_capacity(contributor.service.endpoints.len());
    for (index, endpoint) in contributor.service.endpoints.iter().enumerate() {
        let ports = port_sets
            .entry(&endpoint.ports)
            .or_insert_with(|| accepted_ports(merged, part, &endpoint.ports));
        if ports.is_empty() && !merged.ports.is_empty() {
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

/// The accepted ports that an endpoint with these ports serves, in their order.
fn accepted_ports(merged: &Merged, part: &Part, own: &[EndpointPort]) -> Ports {
    let mut ports: Vec<(usize, SlicePort)> = own
        .iter()
        .filter_map(|port| {
            let index = *part.serves.get(&(Arc::clone(&port.name), port.protocol))?;
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
