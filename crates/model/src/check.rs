//! The rules by which every consumer refuses a record (BEHAVIOUR §7). The exporter applies the
//! same ones before it publishes, so that its user hears of it, not a stranger's log.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::names::{LABEL_LEN_MAX, ServiceKey, check_service_name};
use crate::record::{ExportRecord, Labels};
use crate::service::{AFFINITY_TIMEOUT_MAX_SECS, Affinity, ImportType, Port};

/// Prefixes whose keys may steer a controller and are not taken over, by their end.
const STEERING_ENDS: [&str; 2] = ["kubernetes.io", "k8s.io"];

/// Whether an exported label or annotation is left out, as it could steer a controller.
pub fn is_steering(key: &str) -> bool {
    if key == "app.kubernetes.io/managed-by" {
        return true;
    }
    match key.split_once('/') {
        Some(("app.kubernetes.io", _)) | None => false,
        Some((prefix, _)) => {
            prefix == "tombolo.dev" || STEERING_ENDS.iter().any(|end| prefix.ends_with(end))
        }
    }
}

/// What is wrong with an export record, if anything: a sentence without full stop.
pub fn export_problem(service: &ServiceKey, record: &ExportRecord) -> Option<String> {
    if let Err(error) = check_service_name(service.name.as_str()) {
        return Some(error.to_string());
    }
    ports_problem(record)
        .or_else(|| families_problem(record))
        .or_else(|| affinity_problem(record))
        .or_else(|| labels_problem("exported label", &record.labels, true))
        .or_else(|| labels_problem("exported annotation", &record.annotations, false))
}

/// Why no endpoint can have this address, if so.
pub fn address_problem(address: IpAddr) -> Option<&'static str> {
    let link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    if address.is_loopback() {
        Some("loopback")
    } else if address.is_unspecified() {
        Some("unspecified")
    } else if address.is_multicast() {
        Some("multicast")
    } else if link_local {
        Some("link-local")
    } else if matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some()) {
        Some("IPv4-mapped")
    } else {
        None
    }
}

fn ports_problem(record: &ExportRecord) -> Option<String> {
    if record.ports.is_empty() && record.kind == ImportType::ClusterSetIp {
        return Some("a Service that is not headless needs a port".to_owned());
    }
    let mut names = BTreeSet::new();
    let mut numbers = BTreeSet::new();
    for port in &record.ports {
        if port.port == 0 {
            return Some(format!("port {port}: the number must be 1 to 65535"));
        }
        if port.name.is_empty() && record.ports.len() > 1 {
            return Some(format!(
                "port {port}: a Service of several ports needs names"
            ));
        }
        if !port.name.is_empty() && !is_label(&port.name) {
            return Some(format!(
                "port {:?}: the name is not an RFC 1123 label",
                port.name
            ));
        }
        if !names.insert(&port.name) {
            return Some(format!("port {port}: the name is there twice"));
        }
        if !numbers.insert((port.protocol, port.port)) {
            return Some(format!("port {port}: protocol and number are there twice"));
        }
        if let Some(problem) = app_protocol_problem(port) {
            return Some(problem);
        }
    }
    None
}

fn app_protocol_problem(port: &Port) -> Option<String> {
    let app_protocol = port.app_protocol.as_deref()?;
    (!is_qualified_name(app_protocol))
        .then(|| format!("port {port}: appProtocol {app_protocol:?} is not a qualified name"))
}

fn families_problem(record: &ExportRecord) -> Option<String> {
    let distinct: BTreeSet<_> = record.families.iter().collect();
    if record.families.is_empty() {
        Some("it has no IP family".to_owned())
    } else if distinct.len() != record.families.len() {
        Some("an IP family is there twice".to_owned())
    } else {
        None
    }
}

fn affinity_problem(record: &ExportRecord) -> Option<String> {
    match record.affinity {
        Affinity::ClientIp { timeout_secs }
            if timeout_secs == 0 || timeout_secs > AFFINITY_TIMEOUT_MAX_SECS =>
        {
            Some(format!(
                "the ClientIP timeout of {timeout_secs} s is not in 1 to 86400 s"
            ))
        }
        Affinity::ClientIp { .. } | Affinity::None => None,
    }
}

fn labels_problem(what: &str, labels: &Labels, values: bool) -> Option<String> {
    for (key, value) in labels {
        if !is_qualified_name(key) {
            return Some(format!("{what} {key:?}: the key is not a qualified name"));
        }
        if values && !is_label_value(value) {
            return Some(format!(
                "{what} {key}: the value {value:?} is not a label value"
            ));
        }
    }
    None
}

/// A DNS label of RFC 1123.
fn is_label(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    !text.is_empty()
        && text.len() <= LABEL_LEN_MAX
        && text.bytes().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// A label value of Kubernetes: up to 63 of `[A-Za-z0-9._-]`, alphanumeric at both ends.
fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_name_part(text)
}

/// A key of Kubernetes: a name, or a DNS subdomain, `/` and a name.
fn is_qualified_name(text: &str) -> bool {
    match text.split_once('/') {
        None => is_name_part(text),
        Some((prefix, name)) => {
            prefix.len() <= 253 && prefix.split('.').all(is_label) && is_name_part(name)
        }
    }
}

fn is_name_part(text: &str) -> bool {
    let ends = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= LABEL_LEN_MAX
        && ends(bytes.first())
        && ends(bytes.last())
        && bytes
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b))
}
