//! ServiceImport and derived Service of one importing cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::check::{Problems, check_condition};
use super::expect::{ClusterIp, Content, Derived, Import, Keys};
use super::stage::Name;
use super::world::{Held, Meta, Policies, Port, Service, ServiceImport, keys};

/// What is looked at: an import of a cluster.
pub(crate) struct Target<'a> {
    pub(crate) place: &'a str,
    pub(crate) cluster: &'a str,
    pub(crate) key: &'a Name,
    pub(crate) held: &'a Held,
}

/// Checks both objects, each by itself and against the other.
pub(crate) fn check(problems: &mut Problems, target: &Target<'_>, content: &Content) {
    let Some(import) = target.held.imports.get(target.key) else {
        problems.say(target.place, "no ServiceImport");
        return;
    };
    let place = format!("{} ServiceImport", target.place);
    if let Some(want) = &content.service_import {
        check_import(problems, &place, want, import);
    }
    check_import_itself(problems, &place, import);

    let place = format!("{} derived Service", target.place);
    let named = import.metadata.annotations.get(keys::DERIVED_SERVICE);
    let Some(name) = named else {
        problems.say(&place, "the ServiceImport does not name it");
        return;
    };
    let Some(service) = target
        .held
        .services
        .get(&(target.key.0.clone(), name.clone()))
    else {
        problems.say(&place, format!("{name} is not there"));
        return;
    };
    if let Some(want) = &content.derived_service {
        check_derived(problems, &place, want, service);
    }
    check_pair(problems, &place, import, service);
    let label = service.metadata.label(keys::SERVICE_NAME);
    problems.same(&format!("{place} label"), &Some(&target.key.1), &label);
    let count = target.held.derived_of(target.key).count();
    problems.same(&format!("{place} count"), &1, &count);
}

fn check_import(problems: &mut Problems, place: &str, want: &Import, import: &ServiceImport) {
    let spec = &import.spec;
    if let Some(kind) = &want.kind {
        problems.same(&format!("{place} type"), kind, &spec.kind);
    }
    if let Some(ports) = &want.ports {
        let want: BTreeSet<(&str, &str, u16)> = ports
            .iter()
            .map(|port| (port.name.as_str(), port.protocol.as_str(), port.number))
            .collect();
        problems.same(&format!("{place} ports"), &want, &port_set(&spec.ports));
        for port in ports.iter().filter(|port| port.app_protocol.is_some()) {
            let found = spec.ports.iter().find(|got| got.name == port.name);
            let got = found.and_then(|got| got.app_protocol.clone());
            problems.same(&format!("{place} appProtocol"), &port.app_protocol, &got);
        }
    }
    if let Some(families) = &want.ip_families {
        problems.same(&format!("{place} ipFamilies"), families, &spec.ip_families);
    }
    if let Some(ips) = want.ips {
        problems.same(&format!("{place} number of ips"), &ips, &spec.ips.len());
    }
    if let Some(clusters) = &want.clusters {
        let want: BTreeSet<&String> = clusters.iter().collect();
        let got = import
            .status
            .clusters
            .iter()
            .map(|status| &status.cluster)
            .collect();
        problems.same(&format!("{place} clusters"), &want, &got);
    }
    if let Some(distribution) = &want.traffic_distribution {
        let want = Some(distribution.as_str()).filter(|value| *value != "unset");
        let got = spec.policies.traffic_distribution.as_deref();
        problems.same(&format!("{place} trafficDistribution"), &want, &got);
    }
    if let Some(policy) = &want.internal_traffic_policy {
        let got = spec.policies.internal_traffic_policy();
        problems.same(
            &format!("{place} internalTrafficPolicy"),
            policy.as_str(),
            got,
        );
    }
    let affinity = (
        &want.session_affinity,
        want.session_affinity_timeout_seconds,
    );
    check_affinity(problems, place, affinity, &spec.policies);
    if let Some(ready) = &want.ready {
        let got = import
            .status
            .condition("Ready")
            .map(|ready| ready.status.as_str());
        problems.same(&format!("{place} Ready"), &Some(ready.as_str()), &got);
    }
    check_keys(
        problems,
        place,
        (&want.labels, &want.annotations),
        &import.metadata,
    );
}

fn check_affinity(
    problems: &mut Problems,
    place: &str,
    (affinity, timeout): (&Option<String>, Option<i64>),
    policies: &Policies,
) {
    if let Some(affinity) = affinity {
        let want = (affinity.as_str(), timeout);
        problems.same(
            &format!("{place} sessionAffinity"),
            &want,
            &policies.affinity(),
        );
    }
}

fn check_keys(
    problems: &mut Problems,
    place: &str,
    (labels, annotations): (&Keys, &Keys),
    meta: &Meta,
) {
    let maps = [
        ("label", labels, &meta.labels),
        ("annotation", annotations, &meta.annotations),
    ];
    for (what, want, got) in maps {
        for (key, value) in &want.has {
            problems.same(
                &format!("{place} {what} {key}"),
                &Some(value),
                &got.get(key),
            );
        }
        for key in &want.has_not {
            problems.same(&format!("{place} {what} {key}"), &None, &got.get(key));
        }
    }
}

/// What holds for every ServiceImport.
fn check_import_itself(problems: &mut Problems, place: &str, import: &ServiceImport) {
    let families: Vec<&str> = import.spec.ips.iter().map(|ip| family(ip)).collect();
    let mut wanted: Vec<&str> = import.spec.ip_families.iter().map(String::as_str).collect();
    wanted.truncate(families.len());
    problems.same(&format!("{place} families of the ips"), &wanted, &families);
    let clusters: Vec<&String> = import
        .status
        .clusters
        .iter()
        .map(|status| &status.cluster)
        .collect();
    problems.holds(place, clusters.is_sorted(), "status.clusters is not sorted");
    let present = import.whole.pointer("/status/endpointSliceObjects");
    let present = present.and_then(|value| value.as_str());
    problems.same(
        &format!("{place} endpointSliceObjects"),
        &Some("Present"),
        &present,
    );
    for condition in &import.status.conditions {
        check_condition(problems, &format!("{place} {}", condition.kind), condition);
    }
}

fn check_derived(problems: &mut Problems, place: &str, want: &Derived, service: &Service) {
    let spec = &service.spec;
    if let Some(name) = &want.name {
        problems.same(&format!("{place} name"), name, &service.metadata.name);
    }
    match want.cluster_ip {
        Some(ClusterIp::Allocated) => {
            let real = spec
                .cluster_ip
                .as_deref()
                .is_some_and(|ip| ip.parse::<IpAddr>().is_ok());
            let what = format!("clusterIP is no address: {:?}", spec.cluster_ip);
            problems.holds(place, real, &what);
        }
        Some(ClusterIp::None) => {
            let got = spec.cluster_ip.as_deref();
            problems.same(&format!("{place} clusterIP"), &Some("None"), &got);
        }
        None => {}
    }
    if want.selector.is_some() {
        problems.same(
            &format!("{place} selector"),
            &BTreeMap::new(),
            &spec.selector,
        );
    }
    if let Some(families) = &want.ip_families {
        let got: BTreeSet<&String> = spec.ip_families.iter().collect();
        let all = families.iter().all(|family| got.contains(family));
        let what = format!("expected the families {families:?}, got {got:?}");
        problems.holds(place, all, &what);
    }
    let affinity = (
        &want.session_affinity,
        want.session_affinity_timeout_seconds,
    );
    check_affinity(problems, place, affinity, &spec.policies);
    check_keys(
        problems,
        place,
        (&want.labels, &want.annotations),
        &service.metadata,
    );
}

/// The derived Service does what the ServiceImport shows.
fn check_pair(problems: &mut Problems, place: &str, import: &ServiceImport, service: &Service) {
    let spec = &service.spec;
    let both = (&import.spec.ports, &spec.ports);
    problems.same(&format!("{place} ports"), both.0, both.1);
    let target = spec_port_key(service, "targetPort") || spec_port_key(service, "nodePort");
    problems.holds(place, !target, "a port has a targetPort or nodePort");
    let headless = spec.cluster_ip.as_deref() == Some("None");
    problems.same(
        &format!("{place} headless"),
        &(import.spec.kind == "Headless"),
        &headless,
    );
    problems.same(
        &format!("{place} type"),
        "ClusterIP",
        spec.kind.as_deref().unwrap_or("ClusterIP"),
    );
    if !headless {
        let has = |ip: &String| spec.cluster_ips.contains(ip);
        problems.holds(
            place,
            import.spec.ips.iter().all(has),
            "clusterIPs lack an ip",
        );
        let first = spec.cluster_ips.first();
        problems.same(
            &format!("{place} clusterIP"),
            &first,
            &spec.cluster_ip.as_ref(),
        );
    }
    let policy = if spec.ip_families.len() > 1 {
        "PreferDualStack"
    } else {
        "SingleStack"
    };
    let got = spec.ip_family_policy.as_deref();
    problems.same(&format!("{place} ipFamilyPolicy"), &Some(policy), &got);
    let (of_import, of_service) = (&import.spec.policies, &spec.policies);
    if !headless {
        let both = (of_import.affinity(), of_service.affinity());
        problems.same(&format!("{place} affinity"), &both.0, &both.1);
    }
    problems.same(
        &format!("{place} internalTrafficPolicy"),
        of_import.internal_traffic_policy(),
        of_service.internal_traffic_policy(),
    );
    problems.same(
        &format!("{place} trafficDistribution"),
        &of_import.traffic_distribution,
        &of_service.traffic_distribution,
    );
    check_owner(problems, place, &service.metadata, &import.metadata.name);
}

fn spec_port_key(service: &Service, key: &str) -> bool {
    let ports = service
        .whole
        .pointer("/spec/ports")
        .and_then(|ports| ports.as_array());
    ports.is_some_and(|ports| {
        // An API server shows an unset targetPort as the port's own number.
        ports.iter().any(|port| {
            port.get(key)
                .is_some_and(|target| Some(target) != port.get("port"))
        })
    })
}

/// It goes with its ServiceImport.
pub(crate) fn check_owner(problems: &mut Problems, place: &str, meta: &Meta, import: &str) {
    let owner = |(kind, name): (&str, &str)| kind == "ServiceImport" && name == import;
    let owned = meta
        .owner_references
        .iter()
        .any(|o| owner((&o.kind, &o.name)));
    problems.holds(place, owned, "the ServiceImport is not its owner");
}

/// Clusterset IPs are real, and no two Services of a cluster share one.
pub(crate) fn check_addresses(problems: &mut Problems, cluster: &str, held: &Held) {
    let mut taken: BTreeMap<&str, &str> = BTreeMap::new();
    for service in held.services.values() {
        for ip in service.spec.cluster_ips.iter().filter(|ip| *ip != "None") {
            if let Some(other) = taken.insert(ip, &service.metadata.name) {
                problems.say(
                    cluster,
                    format!("{ip} is that of two Services, one is {other}"),
                );
            }
        }
    }
}

fn port_set(ports: &[Port]) -> BTreeSet<(&str, &str, u16)> {
    ports
        .iter()
        .map(|port| (port.name.as_str(), port.protocol.as_str(), port.number))
        .collect()
}

/// The family of an address.
pub(crate) fn family(address: &str) -> &'static str {
    match address.parse::<IpAddr>() {
        Ok(IpAddr::V4(_)) => "IPv4",
        Ok(IpAddr::V6(_)) => "IPv6",
        Err(_) => "no address",
    }
}
