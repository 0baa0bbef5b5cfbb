//! An import with its derived Service and its endpoints (BEHAVIOUR §3).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use data_encoding::BASE32HEX_NOPAD;
use sha2::{Digest, Sha256};
use tombolo_model::config::Config;
use tombolo_model::endpoint::{Conditions, Endpoint};
use tombolo_model::names::{ClusterName, DerivedNaming, ObjectName, ServiceKey};
use tombolo_model::object::{ImportObject, ImportSpec, ServiceObject, SliceEndpoint, SlicePort};
use tombolo_model::record::Labels;
use tombolo_model::service::{ImportType, IpFamily, Protocol};

use super::absence;
use super::endpoints::{both, joined, smaller};
use super::export::stands_for_pods_elsewhere;
use super::merge::Combined;
use super::refused;
use super::{ExpectedEndpoint, ExpectedImport, ExpectedService, Stated, Truth};

const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
const SERVICE_NAME: &str = "multicluster.kubernetes.io/service-name";

/// Whether a ServiceImport was made or adopted by Tombolo.
pub(super) fn is_ours(import: &ImportObject) -> bool {
    import.meta.label(MANAGED_BY) == Some("tombolo")
}

/// The derived Service's name.
pub(super) fn derived_name(config: &Config, key: &ServiceKey) -> ServiceKey {
    let name = match config.naming {
        DerivedNaming::Hash => {
            let digest = Sha256::digest(format!("{}/{}", key.namespace, key.name));
            let text = BASE32HEX_NOPAD.encode(&digest).to_lowercase();
            format!("derived-{}", &text[..10])
        }
        DerivedNaming::Suffix => format!("{}-clusterset", key.name),
    };
    ServiceKey::new(key.namespace.clone(), ObjectName::new(&name))
}

/// Whether a Service is this import's derived one.
pub(super) fn is_derived_of(service: &ServiceObject, key: &ServiceKey, uid: Option<&str>) -> bool {
    let labelled = service.meta.label(MANAGED_BY) == Some("tombolo")
        && service.meta.label(SERVICE_NAME) == Some(key.name.as_str());
    let owned = service
        .meta
        .owners
        .iter()
        .any(|o| &*o.kind == "ServiceImport" && o.name == key.name && Some(&*o.uid) == uid);
    labelled || owned
}

pub(super) fn import(
    truth: &Truth,
    key: &ServiceKey,
    combined: &Combined,
    all: &BTreeMap<ClusterName, Stated>,
) -> ExpectedImport {
    let oldest = &combined.oldest;
    let usable: Vec<IpFamily> = combined
        .families
        .iter()
        .copied()
        .filter(|f| truth.families.contains(f))
        .collect();
    let derived = derived_name(&truth.config, key);
    let uid = truth.imports.get(key).map(|import| &*import.meta.uid);
    let is_taken = truth
        .services
        .get(&derived)
        .is_some_and(|service| !is_derived_of(service, key, uid));
    let has_service = !usable.is_empty() && !is_taken;
    let headless = oldest.kind == ImportType::Headless;
    let slices_wanted = truth.slices_wanted(headless);
    let families = if usable.is_empty() {
        combined.families.clone()
    } else {
        usable.clone()
    };
    // What is among the last does not depend on what this cluster can use.
    let (accepted, refused) = refused::without(truth, all);
    let (stated, kept) = &absence::used(truth, combined, &accepted, &families);
    let mut annotations = oldest.annotations.clone();
    annotations.insert(
        "multicluster.kubernetes.io/derived-service".into(),
        derived.name.as_str().into(),
    );
    ExpectedImport {
        spec: ImportSpec {
            kind: oldest.kind,
            ports: combined.ports.clone(),
            ips: Vec::new(),
            families,
            affinity: oldest.affinity,
            internal_traffic_policy: oldest.internal_traffic_policy,
            traffic_distribution: oldest.traffic_distribution.clone(),
        },
        labels: with(&oldest.labels, &[(MANAGED_BY, "tombolo")]),
        annotations,
        clusters: all
            .keys()
            .filter(|cluster| !combined.unused.contains(*cluster))
            .filter(|cluster| absence::counts(truth, cluster, kept))
            .map(|cluster| cluster.as_str().into())
            .collect(),
        slices_present: slices_wanted,
        ready: if usable.is_empty() {
            "IPFamilyNotSupported"
        } else if is_taken {
            "Pending"
        } else {
            "Ready"
        },
        service: has_service.then(|| service(truth, key, combined, &usable)),
        endpoints: if has_service && slices_wanted {
            endpoints(truth, key, combined, stated, &usable)
        } else {
            BTreeSet::new()
        },
        kept: kept.clone(),
        amiss: &absence::amiss(truth, all) | &refused,
        derived,
    }
}

fn with(labels: &Labels, more: &[(&str, &str)]) -> Labels {
    let mut labels = labels.clone();
    for (key, value) in more {
        labels.insert((*key).into(), (*value).into());
    }
    labels
}

fn service(
    truth: &Truth,
    key: &ServiceKey,
    combined: &Combined,
    usable: &[IpFamily],
) -> ExpectedService {
    let distribution = combined.oldest.traffic_distribution.clone();
    ExpectedService {
        families: usable.to_vec(),
        labels: with(
            &combined.oldest.labels,
            &[(MANAGED_BY, "tombolo"), (SERVICE_NAME, key.name.as_str())],
        ),
        annotations: combined.oldest.annotations.clone(),
        traffic_distribution: distribution
            .filter(|value| truth.config.known_distributions.contains(&&**value)),
    }
}

/// An endpoint under the ports it serves in the import.
#[derive(Clone)]
struct Serving {
    cluster: ClusterName,
    address: IpAddr,
    ports: Vec<SlicePort>,
    hostname: Option<Arc<str>>,
    zone: Option<Arc<str>>,
    conditions: Conditions,
}

fn endpoints(
    truth: &Truth,
    key: &ServiceKey,
    combined: &Combined,
    stated: &BTreeMap<ClusterName, Stated>,
    usable: &[IpFamily],
) -> BTreeSet<ExpectedEndpoint> {
    let mut all: Vec<Serving> = Vec::new();
    for (cluster, stated) in stated {
        if combined.unused.contains(cluster) {
            continue;
        }
        for endpoint in joined(&stated.entries) {
            if usable.contains(&IpFamily::of(endpoint.address)) {
                add(&mut all, combined, cluster, &endpoint);
            }
        }
    }
    agree(&mut all);
    all.into_iter()
        .map(|serving| finish(truth, key, combined, serving))
        .collect()
}

/// Adds an endpoint under the accepted ports it serves; where only dropped ports told it from
/// another one, they are one.
fn add(all: &mut Vec<Serving>, combined: &Combined, cluster: &ClusterName, endpoint: &Endpoint) {
    let served = &combined.served[cluster];
    let mut ports: Vec<SlicePort> = endpoint
        .ports
        .iter()
        .filter_map(|p| {
            let accepted = served.get(&(Arc::clone(&p.name), p.protocol))?;
            Some(SlicePort {
                name: Arc::clone(&accepted.name),
                protocol: p.protocol,
                port: p.port,
                app_protocol: accepted.app_protocol.clone(),
            })
        })
        .collect();
    ports.sort();
    if ports.is_empty() && !combined.ports.is_empty() {
        return;
    }
    let known = all.iter_mut().find(|s| {
        s.cluster == *cluster
            && s.address == endpoint.address
            && s.ports == ports
            && s.hostname == endpoint.hostname
    });
    if let Some(known) = known {
        known.conditions = both(known.conditions, endpoint.conditions);
        known.zone = smaller(known.zone.take(), endpoint.zone.clone());
    } else {
        all.push(Serving {
            cluster: cluster.clone(),
            address: endpoint.address,
            ports,
            hostname: endpoint.hostname.clone(),
            zone: endpoint.zone.clone(),
            conditions: endpoint.conditions,
        });
    }
}

/// Where address, protocol and port agree, all carry the same conditions, from one to the next.
fn agree(all: &mut [Serving]) {
    let meet = |a: &Serving, b: &Serving| {
        let numbers = |s: &Serving| -> BTreeSet<(Protocol, u16)> {
            s.ports.iter().map(|p| (p.protocol, p.port)).collect()
        };
        let both_bare = a.ports.is_empty() && b.ports.is_empty();
        a.address == b.address && (both_bare || !numbers(a).is_disjoint(&numbers(b)))
    };
    // Each round carries what is known one step further; there are no more steps than endpoints.
    for _ in 0..all.len() {
        let mut is_still = true;
        for i in 0..all.len() {
            for j in 0..all.len() {
                let joined = both(all[i].conditions, all[j].conditions);
                if i != j && meet(&all[i], &all[j]) && all[i].conditions != joined {
                    all[i].conditions = joined;
                    is_still = false;
                }
            }
        }
        if is_still {
            return;
        }
    }
}

fn finish(
    truth: &Truth,
    key: &ServiceKey,
    combined: &Combined,
    serving: Serving,
) -> ExpectedEndpoint {
    let is_own = serving.cluster == truth.config.cluster;
    let source = is_own.then(|| own_source(truth, key, &serving)).flatten();
    let node = source.as_ref().and_then(|e| e.node.clone());
    let distribution = combined.oldest.traffic_distribution.as_deref();
    let hints = distribution.filter(|_| serving.conditions.ready).map(|d| {
        let zone = serving.zone.clone();
        let zones = vec![zone.unwrap_or_else(|| "tombolo-no-zone".into())];
        let nodes = if d == "PreferSameNode" {
            vec![node.clone().unwrap_or_else(|| "no-node.tombolo.dev".into())]
        } else {
            Vec::new()
        };
        (zones, nodes)
    });
    ExpectedEndpoint {
        cluster: serving.cluster.as_str().into(),
        address: serving.address,
        ports: serving.ports,
        hostname: serving.hostname,
        zone: serving.zone,
        conditions: serving.conditions,
        target: source
            .and_then(|e| e.target)
            .map(|t| format!("{}/{}/{}/{}", t.kind, t.namespace, t.name, t.uid)),
        node,
        hints,
    }
}

/// The endpoint of this cluster's own slices that this one comes from. Tests give an address the
/// same node and target everywhere, so any will do.
fn own_source(truth: &Truth, key: &ServiceKey, serving: &Serving) -> Option<SliceEndpoint> {
    truth
        .slices
        .values()
        .filter(|slice| {
            slice.meta.key.namespace == key.namespace
                && slice.meta.label("kubernetes.io/service-name") == Some(key.name.as_str())
                && !stands_for_pods_elsewhere(truth, slice)
        })
        .flat_map(|slice| slice.endpoints.iter())
        .find(|e| e.address == serving.address && e.hostname == serving.hostname)
        .cloned()
}
