//! Builders: an object of each kind with nothing special about it. A test changes what it is about.

use std::net::IpAddr;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use tombolo_model::endpoint::{Conditions, Entries, Entry, EntryPort, EntryProtocol};
use tombolo_model::names::{ClusterName, Namespace, ObjectName, ServiceKey};
use tombolo_model::object::{
    AddressType, ExportObject, Meta, ServiceKind, ServiceObject, SliceEndpoint, SliceObject,
    SlicePort,
};
use tombolo_model::record::{ExportRecord, Labels};
use tombolo_model::service::{
    Affinity, ImportType, InternalTrafficPolicy, IpFamily, Port, Protocol,
};

/// The name of a cluster.
pub fn cluster(name: &str) -> ClusterName {
    ClusterName::try_new(name).expect("tests name clusters well")
}

/// `namespace/name`.
pub fn key(text: &str) -> ServiceKey {
    let (namespace, name) = text.split_once('/').expect("a key has two parts");
    let namespace = Namespace::try_new(namespace).expect("tests name namespaces well");
    ServiceKey::new(namespace, ObjectName::new(name))
}

/// An address.
pub fn ip(text: &str) -> IpAddr {
    text.parse().expect("tests write addresses well")
}

/// A point in time, by its seconds.
pub fn at(secs: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(secs)
}

/// Labels or annotations.
pub fn labels(pairs: &[(&str, &str)]) -> Labels {
    let pairs = pairs.iter();
    pairs
        .map(|&(key, value)| (key.into(), value.into()))
        .collect()
}

/// A port, written as `name TCP/80`; without a name, `TCP/80`.
pub fn port(text: &str) -> Port {
    let (name, number) = text.split_once(' ').unwrap_or(("", text));
    let (protocol, port) = number.split_once('/').expect("a port has a protocol");
    Port {
        name: name.into(),
        protocol: Protocol::parse(protocol).expect("tests know the protocols"),
        port: port.parse().expect("a port has a number"),
        app_protocol: None,
    }
}

/// A Service with a cluster IP, one port, IPv4.
pub fn service(name: &str) -> ServiceObject {
    ServiceObject {
        meta: Meta::to_create(key(name)),
        kind: ServiceKind::ClusterIp,
        headless: false,
        cluster_ips: Vec::new(),
        families: vec![IpFamily::V4],
        ports: vec![port("http TCP/80")],
        affinity: Affinity::None,
        internal_traffic_policy: InternalTrafficPolicy::Cluster,
        traffic_distribution: None,
        has_selector: true,
    }
}

/// A ServiceExport made at this second.
pub fn export(name: &str, created: i64) -> ExportObject {
    let mut meta = Meta::to_create(key(name));
    meta.created = Some(at(created));
    ExportObject {
        meta,
        labels: Labels::new(),
        annotations: Labels::new(),
        conditions: Vec::new(),
    }
}

/// A ready endpoint.
pub fn endpoint(address: &str) -> SliceEndpoint {
    SliceEndpoint {
        address: ip(address),
        conditions: Conditions::READY,
        hostname: None,
        zone: None,
        node: None,
        target: None,
        hints: None,
    }
}

/// A slice `<service>-0` of a Service with ready endpoints of one family at port http TCP/8080.
pub fn slice(service: &str, addresses: &[&str]) -> SliceObject {
    let service = key(service);
    let name = format!("{}-0", service.name);
    let mut meta = Meta::to_create(service.sibling(&ObjectName::new(&name)));
    meta.labels = Arc::new(labels(&[(
        "kubernetes.io/service-name",
        service.name.as_str(),
    )]));
    let family = addresses
        .first()
        .map_or(IpFamily::V4, |a| IpFamily::of(ip(a)));
    SliceObject {
        meta,
        address_type: AddressType::Ip(family),
        ports: Arc::new([SlicePort {
            name: "http".into(),
            protocol: Protocol::Tcp,
            port: 8080,
            app_protocol: None,
        }]),
        endpoints: addresses.iter().map(|a| endpoint(a)).collect(),
    }
}

/// A record with one port, IPv4, made at this second.
pub fn record(created: i64) -> ExportRecord {
    ExportRecord {
        created: at(created),
        uid: format!("uid-of-{created}").into(),
        kind: ImportType::ClusterSetIp,
        ports: vec![port("http TCP/80")],
        families: vec![IpFamily::V4],
        affinity: Affinity::None,
        internal_traffic_policy: InternalTrafficPolicy::Cluster,
        traffic_distribution: None,
        labels: Labels::new(),
        annotations: Labels::new(),
    }
}

/// Ready entries at port http TCP/8080.
pub fn entries(addresses: &[&str]) -> Entries {
    let entry = Entry {
        ports: Arc::new([EntryPort {
            name: "http".into(),
            port: 8080,
        }]),
        hostname: None,
        zone: None,
        conditions: Conditions::READY,
    };
    let protocol = EntryProtocol::Some(Protocol::Tcp);
    let addresses = addresses.iter();
    addresses
        .map(|a| ((ip(a), protocol), vec![entry.clone()].into()))
        .collect()
}
