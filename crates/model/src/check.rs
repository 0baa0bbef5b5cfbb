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
        .or_else(|| size_problem(record))
}

/// The most that all annotations of an object may hold (the API server's limit), less some for
/// Tombolo's own.
const ANNOTATIONS_LEN_MAX: usize = (256 << 10) - (4 << 10);

/// The most that a record may hold in all: less than the registry's limit for a value, 512 KiB, by
/// what the encoding adds.
const RECORD_LEN_MAX: usize = 448 << 10;

/// What the encoding of a port or a label adds to its text, at most.
const FIELD_LEN_MAX: usize = 24;

fn size_problem(record: &ExportRecord) -> Option<String> {
    let text = |labels: &Labels| labels.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>();
    let annotations = text(&record.annotations);
    if annotations > ANNOTATIONS_LEN_MAX {
        return Some(format!(
            "the exported annotations hold {annotations} bytes, at most {ANNOTATIONS_LEN_MAX} are \
             allowed"
        ));
    }
    let port = |port: &Port| {
        port.name.len()
            + port
                .app_protocol
                .as_ref()
                .map_or(0, |protocol| protocol.len())
    };
    let ports: usize = record.ports.iter().map(port).sum();
    let fields = record.ports.len() + record.labels.len() + record.annotations.len();
    let all = ports + text(&record.labels) + annotations + fields * FIELD_LEN_MAX;
    (all > RECORD_LEN_MAX).then(|| {
        format!(
            "ports, labels and annotations hold {all} bytes, at most {RECORD_LEN_MAX} are allowed"
        )
    })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{Namespace, ObjectName};
    use crate::service::{InternalTrafficPolicy, IpFamily, Protocol};

    #[test]
    fn what_no_object_or_registry_could_hold_is_refused() {
        let key = ServiceKey::new(Namespace::try_new("shop").unwrap(), ObjectName::new("web"));
        let record = ExportRecord {
            created: jiff::Timestamp::UNIX_EPOCH,
            uid: "1".into(),
            kind: ImportType::ClusterSetIp,
            ports: vec![Port {
                name: "".into(),
                protocol: Protocol::Tcp,
                port: 80,
                app_protocol: None,
            }],
            families: vec![IpFamily::V4],
            affinity: Affinity::None,
            internal_traffic_policy: InternalTrafficPolicy::Cluster,
            traffic_distribution: None,
            labels: Labels::new(),
            annotations: Labels::new(),
        };
        assert_eq!(export_problem(&key, &record), None);

        let mut big = record.clone();
        big.annotations
            .insert("a".into(), "x".repeat(300_000).into());
        let problem = export_problem(&key, &big).unwrap();
        assert!(
            problem.contains("annotations hold 300001 bytes"),
            "{problem}"
        );

        let mut many = record;
        for i in 0..8_000 {
            many.labels
                .insert(format!("label-{i}").into(), "x".repeat(60).into());
        }
        let problem = export_problem(&key, &many).unwrap();
        assert!(
            problem.contains("ports, labels and annotations hold"),
            "{problem}"
        );
    }
}
