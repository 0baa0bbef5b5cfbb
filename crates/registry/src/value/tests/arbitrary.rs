//! Any record that the registry can hold.

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::string::string_regex;
use tombolo_model::endpoint::{Conditions, add_entry};
use tombolo_model::record::{Labels, ReportedCluster, ReportedService};
use tombolo_model::service::{ImportType, InternalTrafficPolicy, Port};

use super::*;

/// A key of each kind.
pub(super) fn keys() -> Vec<RecordKey> {
    vec![
        RecordKey::Owner,
        RecordKey::Left,
        RecordKey::Session,
        RecordKey::Synced,
        RecordKey::Report,
        export_key(),
        tcp(),
        endpoint_key(EntryProtocol::None),
    ]
}

pub(super) fn records() -> impl Strategy<Value = (RecordKey, Record)> {
    let config = RecordKey::Config {
        service: service(),
        kind: "kind".into(),
    };
    prop_oneof![
        owners().prop_map(|o| (RecordKey::Owner, Record::Owner(o))),
        owners().prop_map(|o| (RecordKey::Left, Record::Left(o))),
        sessions().prop_map(|s| (RecordKey::Session, Record::Session(s))),
        (1..=u64::MAX).prop_map(|e| (RecordKey::Synced, Record::Synced(e))),
        reports().prop_map(|r| (RecordKey::Report, Record::Report(r))),
        exports().prop_map(|e| (export_key(), Record::Export(e.into()))),
        entries(1..5).prop_map(|e| (tcp(), Record::Endpoint(e))),
        entries(0..1).prop_map(|e| (endpoint_key(EntryProtocol::None), Record::Endpoint(e))),
        vec(any::<u8>(), 0..100).prop_map(move |b| (config.clone(), Record::Config(b.into()))),
    ]
}

pub(super) fn members() -> impl Strategy<Value = Member> {
    let namespaces = vec(label().prop_map(|l| Namespace::try_new(&l).unwrap()), 0..3);
    (times(), cidrs(), namespaces, any::<bool>()).prop_map(
        |(joined, cidrs, namespaces, drained)| Member {
            joined,
            cidrs,
            namespaces,
            drained,
        },
    )
}

fn label() -> impl Strategy<Value = String> {
    string_regex("[a-z]([a-z0-9-]{0,20}[a-z0-9])?").unwrap()
}

fn text() -> impl Strategy<Value = Arc<str>> {
    string_regex(r"\PC{1,20}").unwrap().prop_map(Into::into)
}

fn times() -> impl Strategy<Value = Timestamp> {
    let (min, max) = (
        Timestamp::MIN.as_nanosecond(),
        Timestamp::MAX.as_nanosecond(),
    );
    prop_oneof![
        Just(Timestamp::MIN),
        Just(Timestamp::MAX),
        (min..=max).prop_map(|nanos| Timestamp::from_nanosecond(nanos).unwrap()),
        (-2_000_000_000_i128..2_000_000_000)
            .prop_map(|nanos| Timestamp::from_nanosecond(nanos).unwrap()),
    ]
}

fn families() -> impl Strategy<Value = Vec<IpFamily>> {
    let (v4, v6) = (IpFamily::V4, IpFamily::V6);
    prop_oneof![
        Just(vec![]),
        Just(vec![v4]),
        Just(vec![v6]),
        Just(vec![v4, v6]),
        Just(vec![v6, v4]),
    ]
}

fn cidrs() -> impl Strategy<Value = Vec<ipnet::IpNet>> {
    let network = (any::<std::net::IpAddr>(), 0_u8..=32)
        .prop_map(|(ip, len)| ipnet::IpNet::new(ip, len).unwrap());
    vec(network, 0..4)
}

fn owners() -> impl Strategy<Value = Owner> {
    text().prop_map(|uid| Owner { uid })
}

fn sessions() -> impl Strategy<Value = Session> {
    (
        (text(), 1..=u64::MAX, times(), text()),
        (1..=u32::MAX, families(), cidrs(), option::of(times())),
    )
        .prop_map(|(a, b)| Session {
            holder: a.0,
            epoch: a.1,
            started: a.2,
            software: a.3,
            schema: b.0,
            families: b.1,
            service_cidrs: b.2,
            blind_since: b.3,
        })
}

fn reports() -> impl Strategy<Value = Report> {
    let reported = (label(), label(), text(), times()).prop_map(|(ns, name, reason, since)| {
        let namespace = Namespace::try_new(&ns).unwrap();
        ReportedService {
            service: ServiceKey::new(namespace, ObjectName::new(&name)),
            reason,
            since,
        }
    });
    let cluster = (label(), any::<u64>()).prop_map(|(name, held_secs)| ReportedCluster {
        cluster: ClusterName::try_new(&name).unwrap(),
        held_secs,
    });
    (any::<u64>(), vec(reported, 0..4), vec(cluster, 0..4)).prop_map(
        |(applied_revision, not_in_order, missing)| Report {
            applied_revision,
            not_in_order,
            missing,
        },
    )
}

fn labels() -> impl Strategy<Value = Labels> {
    let value = string_regex(r"\PC{0,20}").unwrap().prop_map(Into::into);
    btree_map(text(), value, 0..4)
}

fn exports() -> impl Strategy<Value = ExportRecord> {
    let protocol = prop_oneof![
        Just(Protocol::Tcp),
        Just(Protocol::Udp),
        Just(Protocol::Sctp)
    ];
    let port = (protocol, 1..=u16::MAX, option::of(text()));
    // By name, so that each comes once; the empty one too.
    let names = string_regex("[a-z]{0,4}")
        .unwrap()
        .prop_map(Arc::<str>::from);
    let ports = btree_map(names, port, 0..5).prop_map(|ports| {
        let port = |(name, (protocol, port, app_protocol))| Port {
            name,
            protocol,
            port,
            app_protocol,
        };
        ports.into_iter().map(port).collect::<Vec<_>>()
    });
    let kind = prop_oneof![Just(ImportType::ClusterSetIp), Just(ImportType::Headless)];
    let affinity = prop_oneof![
        Just(Affinity::None),
        (1..=u32::MAX).prop_map(|timeout_secs| Affinity::ClientIp { timeout_secs }),
    ];
    let policy = prop_oneof![
        Just(InternalTrafficPolicy::Cluster),
        Just(InternalTrafficPolicy::Local)
    ];
    (
        (times(), text(), kind, ports.prop_shuffle(), families()),
        (affinity, policy, option::of(text()), labels(), labels()),
    )
        .prop_map(|(a, b)| ExportRecord {
            created: a.0,
            uid: a.1,
            kind: a.2,
            ports: a.3,
            families: a.4,
            affinity: b.0,
            internal_traffic_policy: b.1,
            traffic_distribution: b.2,
            labels: b.3,
            annotations: b.4,
        })
}

fn entries(ports: std::ops::Range<usize>) -> impl Strategy<Value = Arc<[Entry]>> {
    let names = string_regex("[a-z]{0,4}")
        .unwrap()
        .prop_map(Arc::<str>::from);
    let ports = btree_map(names, 1..=u16::MAX, ports).prop_map(|ports| {
        let port = |(name, port)| EntryPort { name, port };
        ports.into_iter().map(port).collect::<Arc<[_]>>()
    });
    let conditions = any::<[bool; 3]>().prop_map(|[ready, serving, terminating]| Conditions {
        ready,
        serving,
        terminating,
    });
    let entry = (ports, option::of(text()), option::of(text()), conditions).prop_map(
        |(ports, hostname, zone, conditions)| Entry {
            ports,
            hostname,
            zone,
            conditions,
        },
    );
    vec(entry, 1..5).prop_map(|all| {
        let mut distinct = Vec::new();
        for entry in all {
            add_entry(&mut distinct, entry);
        }
        distinct.into()
    })
}
