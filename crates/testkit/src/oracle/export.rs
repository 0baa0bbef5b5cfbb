//! What a cluster exports, and what its ServiceExports show (BEHAVIOUR §1).

use std::net::IpAddr;
use std::sync::Arc;

use tombolo_model::endpoint::EntryProtocol;
use tombolo_model::names::ServiceKey;
use tombolo_model::object::{
    AddressType, ExportObject, ServiceKind, ServiceObject, SliceEndpoint, SliceObject,
};
use tombolo_model::record::{ExportRecord, Labels};
use tombolo_model::service::{ImportType, Protocol};

use super::endpoints::{Statement, to_entries};
use super::merge::Combined;
use super::refused;
use super::{ExpectedExport, Stated, Truth};

/// The reason of Valid.
fn validity(truth: &Truth, key: &ServiceKey) -> &'static str {
    if !truth.is_global(&key.namespace) {
        return "NamespaceNotGlobal";
    }
    match truth.services.get(key) {
        None => "NoService",
        Some(service) if service.meta.terminating => "NoService",
        Some(service) if service.kind == ServiceKind::ExternalName => "InvalidServiceType",
        Some(service)
            if service
                .meta
                .label("multicluster.kubernetes.io/service-name")
                .is_some() =>
        {
            "InvalidServiceType"
        }
        Some(_) => "Valid",
    }
}

/// What this cluster states of a service, if it exports it.
pub(super) fn stated(truth: &Truth, key: &ServiceKey) -> Option<Stated> {
    let export = truth.exports.get(key)?;
    if export.meta.terminating || validity(truth, key) != "Valid" {
        return None;
    }
    let service = truth.services.get(key)?;
    let record = record(export, service);
    if !every_consumer_takes(key, &record) {
        return None;
    }
    let all = Stated {
        export: Arc::new(record),
        entries: to_entries(statements(truth, service)),
    };
    // What every other cluster would drop is not published.
    refused::within_limits(truth.members.get(&truth.config.cluster), key, all)
}

fn record(export: &ExportObject, service: &ServiceObject) -> ExportRecord {
    let taken = |listed: &Labels| -> Labels {
        listed
            .iter()
            .filter(|(key, _)| !steers(key))
            .map(|(key, value)| (Arc::clone(key), Arc::clone(value)))
            .collect()
    };
    ExportRecord {
        created: export.meta.created.unwrap_or_default(),
        uid: Arc::clone(&export.meta.uid),
        kind: if service.headless {
            ImportType::Headless
        } else {
            ImportType::ClusterSetIp
        },
        ports: service.ports.clone(),
        families: service.families.clone(),
        affinity: service.affinity,
        internal_traffic_policy: service.internal_traffic_policy,
        traffic_distribution: service.traffic_distribution.clone(),
        labels: taken(&export.labels),
        annotations: taken(&export.annotations),
    }
}

/// Whether a label or annotation could steer a controller.
fn steers(key: &str) -> bool {
    let Some((prefix, _)) = key.split_once('/') else {
        return false;
    };
    if key == "app.kubernetes.io/managed-by" || prefix == "tombolo.dev" {
        return true;
    }
    prefix != "app.kubernetes.io"
        && (prefix.ends_with("kubernetes.io") || prefix.ends_with("k8s.io"))
}

/// The rules of BEHAVIOUR §7 that an object of a real API server can break.
fn every_consumer_takes(key: &ServiceKey, record: &ExportRecord) -> bool {
    let starts_with_letter = key
        .name
        .as_str()
        .chars()
        .next()
        .is_some_and(|c| c.is_ascii_lowercase());
    let has_ports = record.kind == ImportType::Headless || !record.ports.is_empty();
    let label_values_are_good = record.labels.values().all(|value| {
        value.is_empty()
            || (value.len() <= 63
                && value
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
                && value.starts_with(|c: char| c.is_ascii_alphanumeric())
                && value.ends_with(|c: char| c.is_ascii_alphanumeric()))
    });
    starts_with_letter && has_ports && label_values_are_good
}

/// Everything that the slices of a Service say, one statement per address, protocol and slice.
fn statements(truth: &Truth, service: &ServiceObject) -> Vec<Statement> {
    let mut statements = Vec::new();
    for slice in truth.slices.values() {
        let of_service = slice.meta.key.namespace == service.meta.key.namespace
            && slice.meta.label("kubernetes.io/service-name")
                == Some(service.meta.key.name.as_str());
        if !of_service
            || stands_for_pods_elsewhere(truth, slice)
            || slice.address_type == AddressType::Fqdn
        {
            continue;
        }
        let is_service = |address| truth.service_cidrs.iter().any(|c| c.contains(&address));
        let usable = |e: &&SliceEndpoint| is_reachable(e.address) && !is_service(e.address);
        for endpoint in slice.endpoints.iter().filter(usable) {
            for (protocol, ports) in ports_by_protocol(service, slice) {
                statements.push(Statement {
                    address: endpoint.address,
                    protocol,
                    ports,
                    hostname: endpoint.hostname.clone(),
                    zone: endpoint.zone.clone(),
                    conditions: endpoint.conditions,
                });
            }
        }
    }
    statements
}

type NamedPorts = Vec<(Arc<str>, u16)>;

/// The ports of a slice that are the Service's by name and protocol.
fn ports_by_protocol(
    service: &ServiceObject,
    slice: &SliceObject,
) -> Vec<(EntryProtocol, NamedPorts)> {
    if service.ports.is_empty() {
        return vec![(EntryProtocol::None, Vec::new())];
    }
    let mut all = Vec::new();
    for protocol in [Protocol::Tcp, Protocol::Udp, Protocol::Sctp] {
        let mut ports: Vec<(Arc<str>, u16)> = Vec::new();
        for port in slice.ports.iter().filter(|p| p.protocol == protocol) {
            let is_known =
                |p: &tombolo_model::service::Port| p.name == port.name && p.protocol == protocol;
            if service.ports.iter().any(is_known) {
                ports.push((Arc::clone(&port.name), port.port));
            }
        }
        if !ports.is_empty() {
            ports.sort();
            all.push((EntryProtocol::Some(protocol), ports));
        }
    }
    all
}

/// Whether a slice stands for pods of other clusters.
pub(super) fn stands_for_pods_elsewhere(truth: &Truth, slice: &SliceObject) -> bool {
    const MANAGERS: [&str; 5] = [
        "endpointslice-mesh-controller.cilium.io",
        "endpointslice-local-mcsapi-controller.cilium.io",
        "lighthouse-agent.submariner.io",
        "endpointslice-dispatch-controller.karmada.io",
        "endpointslice.reflection.liqo.io",
    ];
    let labelled = slice
        .meta
        .labels
        .keys()
        .any(|key| key.starts_with("multicluster.kubernetes.io/"));
    let manager = slice.meta.label("endpointslice.kubernetes.io/managed-by");
    let listed = manager.is_some_and(|manager| {
        MANAGERS.contains(&manager)
            || truth
                .config
                .foreign_slice_managers
                .iter()
                .any(|m| **m == *manager)
    });
    labelled || listed
}

/// Whether an address means the same on another machine.
fn is_reachable(address: IpAddr) -> bool {
    let link_local = match address {
        IpAddr::V4(v4) => v4.octets()[0] == 169 && v4.octets()[1] == 254,
        IpAddr::V6(v6) => v6.segments()[0] & 0xffc0 == 0xfe80,
    };
    let mapped = matches!(address, IpAddr::V6(v6) if v6.segments()[..6] == [0, 0, 0, 0, 0, 0xffff]);
    !address.is_loopback()
        && !address.is_multicast()
        && !address.is_unspecified()
        && !link_local
        && !mapped
}

/// The conditions of a ServiceExport, if there is one that is to stay.
pub(super) fn conditions(
    truth: &Truth,
    key: &ServiceKey,
    combined: Option<&Combined>,
) -> Option<ExpectedExport> {
    let export = truth.exports.get(key)?;
    // Nothing is said of an object whose namespace is not there: it is about to go, or to come.
    if export.meta.terminating || !truth.namespaces.contains_key(&key.namespace) {
        return None;
    }
    let valid = validity(truth, key);
    let counts = stated(truth, key).is_some();
    Some(ExpectedExport {
        valid,
        ready: match (valid, counts) {
            ("Valid", true) => "Exported",
            ("Valid", false) => "Failed",
            _ => "Pending",
        },
        conflicts: combined
            .filter(|_| counts)
            .map(|combined| combined.disagreements.clone()),
    })
}
