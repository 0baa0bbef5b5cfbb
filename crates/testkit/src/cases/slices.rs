//! Mirrored EndpointSlices: their union by source cluster, and what holds for each.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::check::Problems;
use super::expect::{Conditions, Endpoint, Group, MayAlso};
use super::import::{Target, check_owner, family};
use super::inputs::Inputs;
use super::world::{self, Held, Slice, keys};

/// Endpoints that a slice may hold (BEHAVIOUR §3).
const ENDPOINTS_MAX: usize = 100;

/// What a case leaves open (`slicesMayAlso`), decided by the table of ports in BEHAVIOUR §2: case,
/// source cluster, port, and the answer with its row.
const DECIDED: [(&str, &str, &str, Decision); 2] = [
    // Other name, same protocol and number: served under the accepted name.
    ("M07", "west", "http", Decision::Served),
    // West's dns is TCP where the accepted dns is UDP. That row stands before the one that would
    // serve it as dns-tcp, and the first that fits counts: dropped.
    ("M23", "west", "dns-tcp", Decision::NotServed),
];

/// Whether endpoints must be there that a case only allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decision {
    Served,
    NotServed,
}

/// An endpoint at one port: what consumers can tell apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Served {
    address: String,
    ready: bool,
    serving: bool,
    terminating: bool,
    hostname: Option<String>,
    zone: Option<String>,
    hint_zones: Vec<String>,
    hint_nodes: Vec<String>,
    /// Name, protocol and number; `None` where the service has no ports.
    port: Option<(String, String, u16)>,
}

/// The additions that BEHAVIOUR demands, of those that the case allows.
pub(crate) fn decide<'a>(
    problems: &mut Problems,
    case: &str,
    place: &str,
    may_also: &'a [MayAlso],
) -> Vec<&'a MayAlso> {
    let mut served = Vec::new();
    for addition in may_also {
        let (cluster, port) = (addition.cluster.as_str(), addition.port.as_str());
        let row = DECIDED
            .iter()
            .find(|row| (row.0, row.1, row.2) == (case, cluster, port));
        match row.map(|row| row.3) {
            Some(Decision::Served) => served.push(addition),
            Some(Decision::NotServed) => {}
            None => problems.say(place, format!("nobody has decided about {addition:?}")),
        }
    }
    served
}

/// Compares the union over the slices of an import with the case, source cluster by source
/// cluster.
pub(crate) fn check_union(
    problems: &mut Problems,
    target: &Target<'_>,
    sources: &BTreeMap<String, Vec<Group>>,
    decided: &[&MayAlso],
    inputs: &Inputs,
) {
    let mut want: BTreeMap<&str, BTreeSet<Served>> = BTreeMap::new();
    for (source, groups) in sources {
        let endpoints = groups
            .iter()
            .flat_map(|group| expand(problems, target.place, group));
        want.entry(source).or_default().extend(endpoints);
    }
    for addition in decided {
        let more = additional(inputs, &target.key.0, &target.key.1, addition);
        problems.holds(
            target.place,
            !more.is_empty(),
            "an addition that no endpoint could be",
        );
        want.entry(&addition.cluster).or_default().extend(more);
    }
    let mut got: BTreeMap<&str, BTreeSet<Served>> = BTreeMap::new();
    for slice in target.held.slices_of(target.key) {
        let source = slice
            .metadata
            .label(keys::SOURCE_CLUSTER)
            .map_or("", String::as_str);
        let union = got.entry(source).or_default();
        for served in slice
            .endpoints
            .iter()
            .flat_map(|endpoint| serve(slice, endpoint))
        {
            if let Some(twice) = union.replace(served) {
                problems.say(target.place, format!("from {source}: twice {twice:?}"));
            }
        }
    }
    let sources: BTreeSet<&str> = want.keys().chain(got.keys()).copied().collect();
    let nothing = BTreeSet::new();
    for source in sources {
        let want = want.get(source).unwrap_or(&nothing);
        let got = got.get(source).unwrap_or(&nothing);
        for missing in want.difference(got) {
            problems.say(target.place, format!("from {source}: missing {missing:?}"));
        }
        for extra in got.difference(want) {
            problems.say(target.place, format!("from {source}: too much {extra:?}"));
        }
    }
    for slice in target.held.slices_of(target.key) {
        check_belongs(problems, target, slice);
    }
}

fn expand(problems: &mut Problems, place: &str, group: &Group) -> Vec<Served> {
    let mut ports: Vec<Option<(String, String, u16)>> = Vec::new();
    for (name, target) in &group.ports {
        match parse_target(target) {
            Some((protocol, number)) => ports.push(Some((name.clone(), protocol, number))),
            None => problems.say(place, format!("no PROTOCOL/number: {target}")),
        }
    }
    if ports.is_empty() {
        ports.push(None);
    }
    let all = group.endpoints.iter().map(expected);
    all.flat_map(|served| {
        ports.iter().map(move |port| Served {
            port: port.clone(),
            ..served.clone()
        })
    })
    .collect()
}

fn parse_target(target: &str) -> Option<(String, u16)> {
    let (protocol, number) = target.split_once('/')?;
    Some((protocol.to_owned(), number.parse().ok()?))
}

fn expected(endpoint: &Endpoint) -> Served {
    let full = match endpoint {
        Endpoint::Address(address) => return plain(address),
        Endpoint::Full(full) => full,
    };
    let (ready, serving, terminating) = match full.conditions {
        Some(Conditions::Exact(exact)) => (exact.ready, exact.serving, exact.terminating),
        // Unset counts as ready, and so do they arrive.
        Some(Conditions::Words(_)) | None => (true, true, false),
    };
    Served {
        ready,
        serving,
        terminating,
        hostname: full.hostname.clone(),
        zone: full.zone.clone(),
        hint_zones: full.hint_zones.clone(),
        ..plain(&full.address)
    }
}

fn plain(address: &str) -> Served {
    Served {
        address: address.to_owned(),
        ready: true,
        serving: true,
        terminating: false,
        hostname: None,
        zone: None,
        hint_zones: Vec::new(),
        hint_nodes: Vec::new(),
        port: None,
    }
}

/// The endpoints of a cluster's own slices that listen at a target, under another port name.
fn additional(inputs: &Inputs, namespace: &str, name: &str, addition: &MayAlso) -> Vec<Served> {
    let Some((protocol, number)) = parse_target(&addition.target) else {
        return Vec::new();
    };
    let label = format!(
        "/metadata/labels/{}",
        keys::LOCAL_SERVICE.replace('/', "~1")
    );
    let own = inputs.objects().filter(|object| {
        let service = object.value.pointer(&label).and_then(Value::as_str);
        object.cluster == addition.cluster
            && object.kind == "EndpointSlice"
            && object.namespace == namespace
            && service == Some(name)
    });
    let slices = own.filter_map(|object| serde_json::from_value(object.value.clone()).ok());
    let mut all = Vec::new();
    for slice in slices {
        let slice: Slice = slice;
        let listens = |port: &world::Port| (port.protocol == protocol) && port.number == number;
        if slice.ports.iter().any(listens) {
            let port = Some((addition.port.clone(), protocol.clone(), number));
            let endpoints = slice.endpoints.iter();
            all.extend(endpoints.map(|endpoint| Served {
                port: port.clone(),
                ..seen(endpoint)
            }));
        }
    }
    all
}

fn serve(slice: &Slice, endpoint: &world::Endpoint) -> Vec<Served> {
    let served = seen(endpoint);
    if slice.ports.is_empty() {
        return vec![served];
    }
    let port = |port: &world::Port| (port.name.clone(), port.protocol.clone(), port.number);
    slice
        .ports
        .iter()
        .map(|p| Served {
            port: Some(port(p)),
            ..served.clone()
        })
        .collect()
}

fn seen(endpoint: &world::Endpoint) -> Served {
    let names = |hints: &[world::Hint]| hints.iter().map(|hint| hint.name.clone()).collect();
    let (ready, serving, terminating) = endpoint.conditions.read();
    Served {
        address: endpoint.addresses.first().cloned().unwrap_or_default(),
        ready,
        serving,
        terminating,
        hostname: endpoint.hostname.clone(),
        zone: endpoint.zone.clone(),
        hint_zones: names(&endpoint.hints.for_zones),
        hint_nodes: names(&endpoint.hints.for_nodes),
        port: None,
    }
}

/// It is one of this import's, and kube-proxy and DNS find it.
fn check_belongs(problems: &mut Problems, target: &Target<'_>, slice: &Slice) {
    let place = format!("{} EndpointSlice {}", target.place, slice.metadata.name);
    let import = target.held.imports.get(target.key);
    let derived = import.and_then(|import| import.metadata.annotations.get(keys::DERIVED_SERVICE));
    let local = slice.metadata.label(keys::LOCAL_SERVICE);
    problems.same(
        &format!("{place} label {}", keys::LOCAL_SERVICE),
        &derived,
        &local,
    );
    let headless = import.is_some_and(|import| import.spec.kind == "Headless");
    let label = slice.metadata.label(keys::HEADLESS).map(String::as_str);
    let want = headless.then_some("");
    problems.same(&format!("{place} label {}", keys::HEADLESS), &want, &label);
    if let Some(import) = import {
        let used = import.spec.ip_families.contains(&slice.address_type);
        problems.holds(&place, used, "a family that the import does not have");
        let clusters: Vec<&str> = import
            .status
            .clusters
            .iter()
            .map(|status| status.cluster.as_str())
            .collect();
        let source = slice
            .metadata
            .label(keys::SOURCE_CLUSTER)
            .map_or("", String::as_str);
        problems.holds(
            &place,
            clusters.contains(&source),
            "its cluster does not contribute",
        );
    }
    check_owner(problems, &place, &slice.metadata, &target.key.1);
    let controlled = slice
        .metadata
        .owner_references
        .iter()
        .any(|owner| owner.controller);
    problems.holds(&place, !controlled, "an owner is its controller");
    let own = slice
        .metadata
        .label(keys::SOURCE_CLUSTER)
        .map(String::as_str);
    if own != Some(target.cluster) {
        let local = |e: &world::Endpoint| e.node_name.is_some() || e.target_ref.is_some();
        let any = slice.endpoints.iter().any(local);
        problems.holds(&place, !any, "nodeName or targetRef of another cluster");
    }
}

/// What holds for every slice that Tombolo writes.
pub(crate) fn check_all(problems: &mut Problems, cluster: &str, held: &Held) {
    for slice in held.slices.values() {
        let meta = &slice.metadata;
        let place = format!("{cluster} EndpointSlice {}/{}", meta.namespace, meta.name);
        for key in [
            keys::SERVICE_NAME,
            keys::SOURCE_CLUSTER,
            keys::LOCAL_SERVICE,
        ] {
            problems.holds(
                &place,
                meta.label(key).is_some(),
                &format!("no label {key}"),
            );
        }
        let manager = meta.label(keys::SLICE_MANAGED_BY).map(String::as_str);
        let want = Some("controller.tombolo.dev");
        problems.same(
            &format!("{place} label {}", keys::SLICE_MANAGED_BY),
            &want,
            &manager,
        );
        let count = slice.endpoints.len();
        problems.holds(
            &place,
            count <= ENDPOINTS_MAX,
            &format!("{count} endpoints"),
        );
        for endpoint in &slice.endpoints {
            for address in &endpoint.addresses {
                let place = format!("{place} {address}");
                problems.same(&place, slice.address_type.as_str(), family(address));
            }
        }
        let names: BTreeSet<&str> = slice.ports.iter().map(|port| port.name.as_str()).collect();
        problems.holds(
            &place,
            names.len() == slice.ports.len(),
            "two ports of one name",
        );
    }
}
