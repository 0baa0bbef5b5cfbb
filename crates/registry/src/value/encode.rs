//! Records to bytes.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use ipnet::IpNet;
use jiff::Timestamp;
use prost::Message;
use tombolo_model::endpoint::{Entry, EntryPort};
use tombolo_model::record::{
    ExportRecord, Labels, Member, Owner, Record, RecordKey, Report, Session, Settings,
};
use tombolo_model::service::{
    Affinity, ImportType, InternalTrafficPolicy, IpFamily, Port, Protocol,
};

use super::{ValueError, check, check_len, wire};

/// The nanoseconds of a second.
const NANOS: i128 = 1_000_000_000;

/// The bytes of a record at its key.
pub fn record(key: &RecordKey, record: &Record) -> Result<Vec<u8>, ValueError> {
    let record = normal(record);
    check(key, &record)?;
    let bytes = match &*record {
        Record::Owner(value) | Record::Left(value) => owner(value).encode_to_vec(),
        Record::Session(value) => session(value).encode_to_vec(),
        Record::Synced(epoch) => wire::Synced {
            epoch: *epoch,
            ..wire::Synced::default()
        }
        .encode_to_vec(),
        Record::Report(value) => report(value).encode_to_vec(),
        Record::Export(value) => export(value).encode_to_vec(),
        Record::Endpoint(entries) => wire::Endpoints {
            entries: entries.iter().map(entry).collect(),
            ..wire::Endpoints::default()
        }
        .encode_to_vec(),
        Record::Config(bytes) => bytes.to_vec(),
    };
    check_len(bytes.len())?;
    Ok(bytes)
}

/// The bytes of what the operator recorded for a cluster.
pub fn member(member: &Member) -> Result<Vec<u8>, ValueError> {
    let Member {
        joined,
        cidrs: networks,
        namespaces,
        drained,
    } = member;
    let bytes = wire::Member {
        joined: Some(timestamp(*joined)),
        cidrs: cidrs(networks),
        namespaces: namespaces.iter().map(ToString::to_string).collect(),
        drained: *drained,
        requires_schema: 0,
    }
    .encode_to_vec();
    check_len(bytes.len())?;
    Ok(bytes)
}

/// The bytes of a region's settings.
pub fn settings(settings: &Settings) -> Vec<u8> {
    let Settings {
        precedence_from_join,
    } = settings;
    wire::Settings {
        precedence_from_join: *precedence_from_join,
        requires_schema: 0,
    }
    .encode_to_vec()
}

/// The record with each entry's ports sorted, as the schema wants them.
fn normal(record: &Record) -> Cow<'_, Record> {
    let Record::Endpoint(entries) = record else {
        return Cow::Borrowed(record);
    };
    if entries.iter().all(|entry| entry.ports.is_sorted()) {
        return Cow::Borrowed(record);
    }
    let sorted = entries.iter().cloned().map(|mut entry| {
        entry.ports = sorted_ports(entry.ports.to_vec());
        entry
    });
    Cow::Owned(Record::Endpoint(sorted.collect()))
}

pub(super) fn sorted_ports(mut ports: Vec<EntryPort>) -> Arc<[EntryPort]> {
    ports.sort();
    ports.into()
}

fn owner(owner: &Owner) -> wire::Owner {
    let Owner { uid } = owner;
    wire::Owner {
        uid: uid.to_string(),
        ..wire::Owner::default()
    }
}

fn session(session: &Session) -> wire::Session {
    let Session {
        holder,
        epoch,
        started,
        software,
        schema,
        families: network,
        service_cidrs,
        blind_since,
    } = session;
    wire::Session {
        holder: holder.to_string(),
        epoch: *epoch,
        started: Some(timestamp(*started)),
        software: software.to_string(),
        schema: *schema,
        families: families(network),
        service_cidrs: cidrs(service_cidrs),
        blind_since: blind_since.map(timestamp),
        requires_schema: 0,
        origin: None,
    }
}

fn report(report: &Report) -> wire::Report {
    let Report {
        applied_revision,
        not_in_order,
        missing,
    } = report;
    let services = not_in_order.iter().map(|reported| wire::ReportedService {
        namespace: reported.service.namespace.to_string(),
        name: reported.service.name.to_string(),
        reason: reported.reason.to_string(),
        since: Some(timestamp(reported.since)),
    });
    let clusters = missing.iter().map(|reported| wire::ReportedCluster {
        cluster: reported.cluster.to_string(),
        held_secs: reported.held_secs,
    });
    wire::Report {
        applied_revision: *applied_revision,
        not_in_order: services.collect(),
        missing: clusters.collect(),
        requires_schema: 0,
        origin: None,
    }
}

fn export(export: &ExportRecord) -> wire::Export {
    let ExportRecord {
        created,
        uid,
        kind,
        ports,
        families: service_families,
        affinity,
        internal_traffic_policy,
        traffic_distribution,
        labels,
        annotations,
    } = export;
    let (affinity, affinity_timeout_secs) = match affinity {
        Affinity::None => (wire::Affinity::None, 0),
        Affinity::ClientIp { timeout_secs } => (wire::Affinity::ClientIp, *timeout_secs),
    };
    let kind = match kind {
        ImportType::ClusterSetIp => wire::ServiceType::ClusterSetIp,
        ImportType::Headless => wire::ServiceType::Headless,
    };
    let policy = match internal_traffic_policy {
        InternalTrafficPolicy::Cluster => wire::TrafficPolicy::Cluster,
        InternalTrafficPolicy::Local => wire::TrafficPolicy::Local,
    };
    wire::Export {
        created: Some(timestamp(*created)),
        uid: uid.to_string(),
        r#type: kind.into(),
        ports: ports.iter().map(port).collect(),
        families: families(service_families),
        affinity: affinity.into(),
        affinity_timeout_secs,
        internal_traffic_policy: policy.into(),
        traffic_distribution: text(traffic_distribution.as_ref()),
        labels: map(labels),
        annotations: map(annotations),
        requires_schema: 0,
        origin: None,
    }
}

fn port(port: &Port) -> wire::Port {
    let Port {
        name,
        protocol,
        port,
        app_protocol,
    } = port;
    let protocol = match protocol {
        Protocol::Tcp => wire::Protocol::Tcp,
        Protocol::Udp => wire::Protocol::Udp,
        Protocol::Sctp => wire::Protocol::Sctp,
    };
    wire::Port {
        name: name.to_string(),
        protocol: protocol.into(),
        port: (*port).into(),
        app_protocol: text(app_protocol.as_ref()),
    }
}

fn entry(entry: &Entry) -> wire::Entry {
    let Entry {
        ports,
        hostname,
        zone,
        conditions,
    } = entry;
    let ports = ports.iter().map(|port| wire::EntryPort {
        name: port.name.to_string(),
        port: port.port.into(),
    });
    wire::Entry {
        ports: ports.collect(),
        hostname: text(hostname.as_ref()),
        zone: text(zone.as_ref()),
        ready: conditions.ready,
        serving: conditions.serving,
        terminating: conditions.terminating,
    }
}

/// An absent text is an empty one in the schema.
fn text(text: Option<&Arc<str>>) -> String {
    text.map(ToString::to_string).unwrap_or_default()
}

fn map(labels: &Labels) -> BTreeMap<String, String> {
    labels
        .iter()
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .collect()
}

fn families(families: &[IpFamily]) -> Vec<i32> {
    let number = |family: &IpFamily| match family {
        IpFamily::V4 => wire::Family::Ipv4.into(),
        IpFamily::V6 => wire::Family::Ipv6.into(),
    };
    families.iter().map(number).collect()
}

fn cidrs(networks: &[IpNet]) -> Vec<String> {
    networks.iter().map(ToString::to_string).collect()
}

fn timestamp(time: Timestamp) -> wire::Timestamp {
    let nanos = time.as_nanosecond();
    wire::Timestamp {
        seconds: i64::try_from(nanos.div_euclid(NANOS)).expect("the seconds of a Timestamp fit"),
        nanos: u32::try_from(nanos.rem_euclid(NANOS)).expect("a remainder of 10^9 fits"),
    }
}
