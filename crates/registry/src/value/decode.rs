//! Bytes to records. The bytes are another cluster's, so everything in them is checked.

use std::sync::Arc;

use ipnet::IpNet;
use jiff::Timestamp;
use prost::Message;
use tombolo_model::endpoint::{Conditions, Entry, EntryPort};
use tombolo_model::names::{ClusterName, NameError, Namespace, ObjectName, ServiceKey};
use tombolo_model::record::{
    ExportRecord, Member, Origin, Owner, Record, RecordKey, Report, ReportedCluster,
    ReportedService, Session, Settings,
};
use tombolo_model::service::{
    Affinity, ImportType, InternalTrafficPolicy, IpFamily, Port, Protocol,
};

use super::encode::sorted_ports;
use super::{SCHEMA, ValueError, check, check_len, wire};

/// What a problem shows of a hostile text.
const SHOWN_LEN_MAX: usize = 64;

/// The record that these bytes are at a key of `origin`.
pub fn record(origin: &Origin, key: &RecordKey, bytes: &[u8]) -> Result<Record, ValueError> {
    check_len(bytes.len())?;
    let record = match key {
        RecordKey::Owner => Record::Owner(owner(origin, bytes)?),
        RecordKey::Left => Record::Left(owner(origin, bytes)?),
        RecordKey::Session => Record::Session(session(origin, bytes)?),
        RecordKey::Synced => Record::Synced(synced(origin, bytes)?),
        RecordKey::Report => Record::Report(report(origin, bytes)?),
        RecordKey::Export(_) => Record::Export(export(origin, bytes)?.into()),
        RecordKey::Endpoint { .. } => Record::Endpoint(entries(origin, bytes)?),
        RecordKey::Config { .. } => Record::Config(bytes.into()),
    };
    check(key, &record)?;
    Ok(record)
}

/// What the operator recorded for a cluster.
pub fn member(bytes: &[u8]) -> Result<Member, ValueError> {
    check_len(bytes.len())?;
    let wire::Member {
        joined,
        cidrs: networks,
        namespaces,
        drained,
        requires_schema,
    } = message(bytes)?;
    check_schema(requires_schema)?;
    let namespaces = namespaces
        .iter()
        .enumerate()
        .map(|(i, name)| Namespace::try_new(name).map_err(named(|| format!("namespaces[{i}]"))));
    Ok(Member {
        joined: required_timestamp("joined", joined)?,
        cidrs: cidrs("cidrs", &networks)?,
        namespaces: namespaces.collect::<Result<_, _>>()?,
        drained,
    })
}

/// The settings of a region.
pub fn settings(bytes: &[u8]) -> Result<Settings, ValueError> {
    check_len(bytes.len())?;
    let wire::Settings {
        precedence_from_join,
        requires_schema,
    } = message(bytes)?;
    check_schema(requires_schema)?;
    Ok(Settings {
        precedence_from_join,
    })
}

fn message<M: Message + Default>(bytes: &[u8]) -> Result<M, ValueError> {
    M::decode(bytes).map_err(|source| ValueError::Malformed { source })
}

fn check_schema(needed: u32) -> Result<(), ValueError> {
    if needed > SCHEMA {
        return Err(ValueError::Schema { needed });
    }
    Ok(())
}

/// The fields 14 and 15, which every message of a partition has.
fn check_common(
    origin: &Origin,
    requires_schema: u32,
    claimed: Option<wire::Origin>,
) -> Result<(), ValueError> {
    check_schema(requires_schema)?;
    let Some(wire::Origin { region, cluster }) = claimed else {
        return Ok(());
    };
    if region == origin.region.as_str() && cluster == origin.cluster.as_str() {
        return Ok(());
    }
    Err(ValueError::Origin {
        claimed: shown(&format!("{region}/{cluster}")),
        actual: format!("{}/{}", origin.region, origin.cluster),
    })
}

fn owner(origin: &Origin, bytes: &[u8]) -> Result<Owner, ValueError> {
    let wire::Owner {
        uid,
        requires_schema,
        origin: claimed,
    } = message(bytes)?;
    check_common(origin, requires_schema, claimed)?;
    Ok(Owner { uid: uid.into() })
}

fn synced(origin: &Origin, bytes: &[u8]) -> Result<u64, ValueError> {
    let wire::Synced {
        epoch,
        requires_schema,
        origin: claimed,
    } = message(bytes)?;
    check_common(origin, requires_schema, claimed)?;
    Ok(epoch)
}

fn session(origin: &Origin, bytes: &[u8]) -> Result<Session, ValueError> {
    let wire::Session {
        holder,
        epoch,
        started,
        software,
        schema,
        families: network,
        service_cidrs,
        blind_since,
        requires_schema,
        origin: claimed,
    } = message(bytes)?;
    check_common(origin, requires_schema, claimed)?;
    let blind_since = blind_since
        .map(|time| timestamp("blind_since", time))
        .transpose()?;
    Ok(Session {
        holder: holder.into(),
        epoch,
        started: required_timestamp("started", started)?,
        software: software.into(),
        schema,
        families: families(&network)?,
        service_cidrs: cidrs("service_cidrs", &service_cidrs)?,
        blind_since,
    })
}

fn report(origin: &Origin, bytes: &[u8]) -> Result<Report, ValueError> {
    let wire::Report {
        applied_revision,
        not_in_order,
        missing,
        requires_schema,
        origin: claimed,
    } = message(bytes)?;
    check_common(origin, requires_schema, claimed)?;
    let services = not_in_order.into_iter().enumerate().map(|(i, reported)| {
        let wire::ReportedService {
            namespace,
            name,
            reason,
            since,
        } = reported;
        let field = |name| format!("not_in_order[{i}].{name}");
        let namespace = Namespace::try_new(&namespace).map_err(named(|| field("namespace")))?;
        let since = since.ok_or_else(|| ValueError::missing(field("since")))?;
        Ok(ReportedService {
            service: ServiceKey::new(namespace, ObjectName::new(&name)),
            reason: reason.into(),
            since: timestamp(field("since"), since)?,
        })
    });
    let clusters = missing.into_iter().enumerate().map(|(i, reported)| {
        let wire::ReportedCluster { cluster, held_secs } = reported;
        let field = || format!("missing[{i}].cluster");
        let cluster = ClusterName::try_new(&cluster).map_err(named(field))?;
        Ok(ReportedCluster { cluster, held_secs })
    });
    Ok(Report {
        applied_revision,
        not_in_order: services.collect::<Result<_, _>>()?,
        missing: clusters.collect::<Result<_, _>>()?,
    })
}

fn export(origin: &Origin, bytes: &[u8]) -> Result<ExportRecord, ValueError> {
    let wire::Export {
        created,
        uid,
        r#type,
        ports,
        families: service_families,
        affinity,
        affinity_timeout_secs,
        internal_traffic_policy,
        traffic_distribution,
        labels,
        annotations,
        requires_schema,
        origin: claimed,
    } = message(bytes)?;
    check_common(origin, requires_schema, claimed)?;
    let kind = match wire::ServiceType::try_from(r#type) {
        Ok(wire::ServiceType::ClusterSetIp) => ImportType::ClusterSetIp,
        Ok(wire::ServiceType::Headless) => ImportType::Headless,
        Ok(wire::ServiceType::Unspecified) | Err(_) => return Err(number("type", r#type)),
    };
    let internal_traffic_policy = match wire::TrafficPolicy::try_from(internal_traffic_policy) {
        Ok(wire::TrafficPolicy::Cluster) => InternalTrafficPolicy::Cluster,
        Ok(wire::TrafficPolicy::Local) => InternalTrafficPolicy::Local,
        Ok(wire::TrafficPolicy::Unspecified) | Err(_) => {
            return Err(number("internal_traffic_policy", internal_traffic_policy));
        }
    };
    let ports = ports.into_iter().enumerate().map(|(i, wire)| port(i, wire));
    let labels = labels.into_iter().map(|(k, v)| (k.into(), v.into()));
    let annotations = annotations.into_iter().map(|(k, v)| (k.into(), v.into()));
    Ok(ExportRecord {
        created: required_timestamp("created", created)?,
        uid: uid.into(),
        kind,
        ports: ports.collect::<Result<_, _>>()?,
        families: families(&service_families)?,
        affinity: session_affinity(affinity, affinity_timeout_secs)?,
        internal_traffic_policy,
        traffic_distribution: text(traffic_distribution),
        labels: labels.collect(),
        annotations: annotations.collect(),
    })
}

fn session_affinity(affinity: i32, timeout_secs: u32) -> Result<Affinity, ValueError> {
    match wire::Affinity::try_from(affinity) {
        Ok(wire::Affinity::None) if timeout_secs != 0 => Err(ValueError::field(
            "affinity_timeout_secs",
            "is set without client IP affinity",
        )),
        Ok(wire::Affinity::None) => Ok(Affinity::None),
        Ok(wire::Affinity::ClientIp) => Ok(Affinity::ClientIp { timeout_secs }),
        Ok(wire::Affinity::Unspecified) | Err(_) => Err(number("affinity", affinity)),
    }
}

fn port(index: usize, port: wire::Port) -> Result<Port, ValueError> {
    let wire::Port {
        name,
        protocol,
        port,
        app_protocol,
    } = port;
    let protocol = match wire::Protocol::try_from(protocol) {
        Ok(wire::Protocol::Tcp) => Protocol::Tcp,
        Ok(wire::Protocol::Udp) => Protocol::Udp,
        Ok(wire::Protocol::Sctp) => Protocol::Sctp,
        Ok(wire::Protocol::Unspecified) | Err(_) => {
            return Err(number(format!("ports[{index}].protocol"), protocol));
        }
    };
    Ok(Port {
        name: name.into(),
        protocol,
        port: port_number(|| format!("ports[{index}].port"), port)?,
        app_protocol: text(app_protocol),
    })
}

fn entries(origin: &Origin, bytes: &[u8]) -> Result<Arc<[Entry]>, ValueError> {
    let wire::Endpoints {
        entries,
        requires_schema,
        origin: claimed,
    } = message(bytes)?;
    check_common(origin, requires_schema, claimed)?;
    entries
        .into_iter()
        .enumerate()
        .map(|(i, wire)| entry(i, wire))
        .collect()
}

fn entry(index: usize, entry: wire::Entry) -> Result<Entry, ValueError> {
    let wire::Entry {
        ports,
        hostname,
        zone,
        ready,
        serving,
        terminating,
    } = entry;
    let ports = ports.into_iter().enumerate().map(|(i, wire)| {
        let wire::EntryPort { name, port } = wire;
        let field = || format!("entries[{index}].ports[{i}].port");
        Ok(EntryPort {
            name: name.into(),
            port: port_number(field, port)?,
        })
    });
    Ok(Entry {
        ports: sorted_ports(ports.collect::<Result<_, ValueError>>()?),
        hostname: text(hostname),
        zone: text(zone),
        conditions: Conditions {
            ready,
            serving,
            terminating,
        },
    })
}

/// Zero is refused with everything else that only the types allow.
fn port_number(field: impl FnOnce() -> String, port: u32) -> Result<u16, ValueError> {
    u16::try_from(port)
        .map_err(|_| ValueError::field(field(), format!("is {port}, which is no port number")))
}

fn families(families: &[i32]) -> Result<Vec<IpFamily>, ValueError> {
    let family = |(i, family): (usize, &i32)| match wire::Family::try_from(*family) {
        Ok(wire::Family::Ipv4) => Ok(IpFamily::V4),
        Ok(wire::Family::Ipv6) => Ok(IpFamily::V6),
        Ok(wire::Family::Unspecified) | Err(_) => Err(number(format!("families[{i}]"), *family)),
    };
    families.iter().enumerate().map(family).collect()
}

fn cidrs(field: &'static str, networks: &[String]) -> Result<Vec<IpNet>, ValueError> {
    let network = |(i, text): (usize, &String)| {
        text.parse().map_err(|_| {
            let problem = format!("is {:?}, which is no network in CIDR notation", shown(text));
            ValueError::field(format!("{field}[{i}]"), problem)
        })
    };
    networks.iter().enumerate().map(network).collect()
}

fn required_timestamp(
    field: &'static str,
    time: Option<wire::Timestamp>,
) -> Result<Timestamp, ValueError> {
    let time = time.ok_or_else(|| ValueError::missing(field))?;
    timestamp(field, time)
}

fn timestamp(field: impl Into<String>, time: wire::Timestamp) -> Result<Timestamp, ValueError> {
    let wire::Timestamp { seconds, nanos } = time;
    i32::try_from(nanos)
        .ok()
        .filter(|nanos| *nanos < 1_000_000_000)
        .and_then(|nanos| Timestamp::new(seconds, nanos).ok())
        .ok_or_else(|| {
            let problem = format!("is {seconds} s and {nanos} ns, which is no point in time");
            ValueError::field(field, problem)
        })
}

/// An empty text is an absent one in the schema.
fn text(text: String) -> Option<Arc<str>> {
    (!text.is_empty()).then(|| text.into())
}

fn number(field: impl Into<String>, number: i32) -> ValueError {
    if number == 0 {
        return ValueError::missing(field);
    }
    let problem = format!("is number {number}, which this release does not know");
    ValueError::field(field, problem)
}

fn named(field: impl FnOnce() -> String) -> impl FnOnce(NameError) -> ValueError {
    |source| ValueError::Name {
        field: field(),
        source,
    }
}

fn shown(text: &str) -> String {
    text.chars().take(SHOWN_LEN_MAX).collect()
}
