//! Values: what is written is read, what cannot be held is refused by name, and nothing panics.

use std::sync::Arc;

use jiff::Timestamp;
use proptest::prelude::*;
use prost::Message;
use tombolo_model::names::{ClusterName, Namespace, ObjectName, Region, ServiceKey};
use tombolo_model::record::{Member, Origin, Settings};
use tombolo_model::service::Protocol;

use super::*;

mod arbitrary;
mod frozen;
mod golden;

fn origin() -> Origin {
    Origin {
        region: Region::try_new("eu").unwrap(),
        cluster: ClusterName::try_new("east").unwrap(),
    }
}

fn service() -> ServiceKey {
    ServiceKey::new(
        Namespace::try_new("shop").unwrap(),
        ObjectName::new("checkout"),
    )
}

fn export_key() -> RecordKey {
    RecordKey::Export(service())
}

fn endpoint_key(protocol: EntryProtocol) -> RecordKey {
    RecordKey::Endpoint {
        service: service(),
        protocol,
        address: [10, 0, 0, 1].into(),
    }
}

fn tcp() -> RecordKey {
    endpoint_key(EntryProtocol::Some(Protocol::Tcp))
}

/// A good export, to be spoilt.
fn export() -> wire::Export {
    wire::Export {
        created: Some(wire::Timestamp {
            seconds: 1,
            nanos: 0,
        }),
        uid: "uid-1".into(),
        r#type: wire::ServiceType::ClusterSetIp.into(),
        ports: vec![port("http", 80)],
        families: vec![wire::Family::Ipv4.into()],
        affinity: wire::Affinity::None.into(),
        internal_traffic_policy: wire::TrafficPolicy::Cluster.into(),
        ..wire::Export::default()
    }
}

fn port(name: &str, port: u32) -> wire::Port {
    wire::Port {
        name: name.into(),
        protocol: wire::Protocol::Tcp.into(),
        port,
        app_protocol: String::new(),
    }
}

fn entry(ports: &[(&str, u32)]) -> wire::Entry {
    let port = |(name, port): &(&str, u32)| wire::EntryPort {
        name: (*name).into(),
        port: *port,
    };
    wire::Entry {
        ports: ports.iter().map(port).collect(),
        ready: true,
        ..wire::Entry::default()
    }
}

fn endpoints(entries: Vec<wire::Entry>) -> wire::Endpoints {
    wire::Endpoints {
        entries,
        ..wire::Endpoints::default()
    }
}

fn refused(key: &RecordKey, message: &impl Message) -> String {
    match decode_record(&origin(), key, &message.encode_to_vec()) {
        Err(error) => error.to_string(),
        Ok(record) => panic!("taken: {record:?}"),
    }
}

/// A change that spoils an export.
type Spoil = fn(&mut wire::Export);

fn assert_refused(cases: &[(&str, Spoil)]) {
    for (problem, spoil) in cases {
        let mut message = export();
        spoil(&mut message);
        assert_eq!(&refused(&export_key(), &message), problem);
    }
}

#[test]
fn an_export_is_refused_by_the_name_of_a_spoilt_field() {
    let good = export().encode_to_vec();
    assert!(decode_record(&origin(), &export_key(), &good).is_ok());
    assert_refused(&[
        ("created is missing", |e| e.created = None),
        (
            "created is 1 s and 1000000000 ns, which is no point in time",
            |e| {
                let (seconds, nanos) = (1, 1_000_000_000);
                e.created = Some(wire::Timestamp { seconds, nanos });
            },
        ),
        (
            "created is 9223372036854775807 s and 0 ns, which is no point in time",
            |e| {
                let (seconds, nanos) = (i64::MAX, 0);
                e.created = Some(wire::Timestamp { seconds, nanos });
            },
        ),
        ("uid is missing", |e| e.uid.clear()),
        ("type is missing", |e| e.r#type = 0),
        ("type is number 9, which this release does not know", |e| {
            e.r#type = 9;
        }),
        (
            "families[1] is number 3, which this release does not know",
            |e| {
                e.families.push(3);
            },
        ),
        ("families[0] is missing", |e| e.families = vec![0]),
        ("families names a family twice", |e| e.families = vec![1, 1]),
        ("affinity is missing", |e| e.affinity = 0),
        ("affinity_timeout_secs is missing", |e| {
            e.affinity = wire::Affinity::ClientIp.into();
        }),
        (
            "affinity_timeout_secs is set without client IP affinity",
            |e| {
                e.affinity_timeout_secs = 1;
            },
        ),
        ("internal_traffic_policy is missing", |e| {
            e.internal_traffic_policy = 0;
        }),
        ("labels has an empty key", |e| {
            e.labels.insert(String::new(), "x".into());
        }),
        ("annotations has an empty key", |e| {
            e.annotations.insert(String::new(), "x".into());
        }),
    ]);
}

#[test]
fn an_export_is_refused_by_the_name_of_a_spoilt_port() {
    assert_refused(&[
        ("ports[0].protocol is missing", |e| e.ports[0].protocol = 0),
        (
            "ports[0].protocol is number -1, which this release does not know",
            |e| {
                e.ports[0].protocol = -1;
            },
        ),
        ("ports[0].port is 0, which is no port number", |e| {
            e.ports[0].port = 0;
        }),
        ("ports[0].port is 65536, which is no port number", |e| {
            e.ports[0].port = 65_536;
        }),
        (
            "ports[1].name \"http\" is the name of an earlier port too",
            |e| {
                e.ports.push(port("http", 81));
            },
        ),
        (
            "ports[2].name \"\" is the name of an earlier port too",
            |e| {
                e.ports = vec![port("a", 1), port("", 2), port("", 3)];
            },
        ),
    ]);
}

#[test]
fn spoilt_endpoints_are_refused_by_the_name_of_their_field() {
    let a = || entry(&[("a", 1)]);
    let ready_or_not = wire::Entry {
        ready: false,
        ..a()
    };
    for (problem, entries) in [
        ("entries is missing", vec![]),
        (
            "entries has 1025 entries, at most 1024 are allowed",
            vec![a(); 1025],
        ),
        ("entries[1].ports is missing", vec![a(), entry(&[])]),
        (
            "entries[0].ports[0].port is 0, which is no port number",
            vec![entry(&[("a", 0)])],
        ),
        (
            "entries[0].ports[1].port is 70000, which is no port number",
            vec![entry(&[("a", 1), ("b", 70_000)])],
        ),
        (
            "entries[0].ports has two ports of the name \"a\"",
            vec![entry(&[("a", 1), ("b", 1), ("a", 2)])],
        ),
        (
            "entries[1] has the ports and hostname of an earlier one",
            vec![a(), ready_or_not],
        ),
    ] {
        assert_eq!(refused(&tcp(), &endpoints(entries)), problem);
    }
    let none = endpoint_key(EntryProtocol::None);
    let problem = refused(&none, &endpoints(vec![a()]));
    assert_eq!(problem, "entries[0].ports stands under the protocol NONE");
    let without = endpoints(vec![entry(&[])]).encode_to_vec();
    assert!(decode_record(&origin(), &none, &without).is_ok());
}

#[test]
fn ports_of_an_entry_are_sorted_on_both_ways() {
    let unsorted = endpoints(vec![entry(&[("b", 2), ("a", 1)])]).encode_to_vec();
    let sorted = endpoints(vec![entry(&[("a", 1), ("b", 2)])]).encode_to_vec();
    let record = decode_record(&origin(), &tcp(), &unsorted).unwrap();
    assert_eq!(
        Ok(&record),
        decode_record(&origin(), &tcp(), &sorted).as_ref()
    );
    assert_eq!(encode_record(&tcp(), &record).as_ref(), Ok(&sorted));
    let Record::Endpoint(entries) = record else {
        panic!("an endpoint's record");
    };
    let reversed: Arc<[Entry]> = entries
        .iter()
        .map(|entry| Entry {
            ports: entry.ports.iter().rev().cloned().collect(),
            ..entry.clone()
        })
        .collect();
    assert_eq!(
        encode_record(&tcp(), &Record::Endpoint(reversed)),
        Ok(sorted)
    );
}

#[test]
fn what_readers_refuse_is_not_written() {
    let empty = Record::Endpoint(Arc::new([]));
    assert_eq!(
        encode_record(&tcp(), &empty).unwrap_err().to_string(),
        "entries is missing"
    );
    let large = Record::Config(vec![0; VALUE_LEN_MAX + 1].into());
    let key = RecordKey::Config {
        service: service(),
        kind: "x".into(),
    };
    let error = encode_record(&key, &large).unwrap_err();
    assert_eq!(
        error,
        ValueError::TooLong {
            len: VALUE_LEN_MAX + 1
        }
    );
    assert_eq!(encode_record(&tcp(), &large), Err(ValueError::Kind));
    assert_eq!(
        encode_record(&RecordKey::Synced, &Record::Synced(0))
            .unwrap_err()
            .kind(),
        "value-missing"
    );
}

#[test]
fn a_value_over_the_limit_is_refused_before_it_is_read() {
    let bytes = vec![0xff; VALUE_LEN_MAX + 1];
    for key in [export_key(), tcp(), RecordKey::Session, RecordKey::Owner] {
        let error = decode_record(&origin(), &key, &bytes).unwrap_err();
        assert_eq!(error.kind(), "value-too-long");
    }
    assert_eq!(decode_member(&bytes).unwrap_err().kind(), "value-too-long");
    assert_eq!(
        decode_settings(&bytes).unwrap_err().kind(),
        "value-too-long"
    );
}

#[test]
fn a_value_that_claims_another_origin_is_refused() {
    let claim = |region: &str, cluster: &str| {
        let mut message = export();
        message.origin = Some(wire::Origin {
            region: region.into(),
            cluster: cluster.into(),
        });
        message
    };
    assert_eq!(
        refused(&export_key(), &claim("eu", "west")),
        "the value claims to be of \"eu/west\", its key is of \"eu/east\""
    );
    assert!(refused(&export_key(), &claim("us", "east")).contains("us/east"));
    let own = claim("eu", "east").encode_to_vec();
    assert!(decode_record(&origin(), &export_key(), &own).is_ok());
}

#[test]
fn a_value_of_a_newer_meaning_is_refused() {
    let mut message = export();
    message.requires_schema = SCHEMA;
    let known = message.encode_to_vec();
    assert!(decode_record(&origin(), &export_key(), &known).is_ok());
    message.requires_schema = SCHEMA + 1;
    let problem = refused(&export_key(), &message);
    assert!(
        problem.contains("schema version 2, this release has 1"),
        "{problem}"
    );
    let member = wire::Member {
        requires_schema: SCHEMA + 1,
        ..wire::Member::default()
    };
    assert_eq!(
        decode_member(&member.encode_to_vec()).unwrap_err().kind(),
        "value-schema"
    );
}

#[test]
fn names_and_networks_in_values_are_checked() {
    let member = |cidr: &str, namespace: &str| wire::Member {
        joined: Some(wire::Timestamp::default()),
        cidrs: vec![cidr.into()],
        namespaces: vec![namespace.into()],
        ..wire::Member::default()
    };
    let problem = |m: wire::Member| decode_member(&m.encode_to_vec()).unwrap_err().to_string();
    assert_eq!(
        problem(member("10.0.0.0/33", "shop")),
        "cidrs[0] is \"10.0.0.0/33\", which is no network in CIDR notation"
    );
    assert_eq!(
        problem(member("10.0.0.0/8", "Shop")),
        "namespaces[0] cannot be used"
    );
    let report = wire::Report {
        missing: vec![wire::ReportedCluster {
            cluster: "a.b.c".into(),
            held_secs: 1,
        }],
        ..wire::Report::default()
    };
    assert_eq!(
        refused(&RecordKey::Report, &report),
        "missing[0].cluster cannot be used"
    );
    let reported = wire::ReportedService {
        namespace: "shop".into(),
        name: "checkout".into(),
        reason: "Pending".into(),
        since: Some(wire::Timestamp::default()),
    };
    let report = wire::Report {
        not_in_order: vec![reported; 1001],
        ..wire::Report::default()
    };
    assert_eq!(
        refused(&RecordKey::Report, &report),
        "not_in_order names 1001 services, at most 1000 are allowed"
    );
}

/// A field of each wire type that no release has.
const UNKNOWN_FIELDS: &[u8] = &[
    0x98, 0x7d, 0x2a, // field 2003, varint
    0xa2, 0x7d, 0x03, b'n', b'e', b'w', // field 2004, bytes
    0xad, 0x7d, 1, 2, 3, 4, // field 2005, fixed 32
    0xb1, 0x7d, 1, 2, 3, 4, 5, 6, 7, 8, // field 2006, fixed 64
];

/// Field 14, of every message: a schema version that no release has yet.
const NEEDS_A_NEWER_READER: &[u8] = &[0x70, 99];

proptest! {
    #[test]
    fn every_record_comes_back((key, record) in arbitrary::records()) {
        let bytes = encode_record(&key, &record).unwrap();
        prop_assert_eq!(decode_record(&origin(), &key, &bytes), Ok(record.clone()));
        prop_assert_eq!(encode_record(&key, &record), Ok(bytes));
    }

    #[test]
    fn a_reader_ignores_fields_that_it_does_not_know((key, record) in arbitrary::records()) {
        prop_assume!(!matches!(key, RecordKey::Config { .. }));
        let mut bytes = encode_record(&key, &record).unwrap();
        bytes.extend_from_slice(UNKNOWN_FIELDS);
        prop_assert_eq!(decode_record(&origin(), &key, &bytes), Ok(record));
    }

    /// Of every kind: what needs a newer reader says so, and is not half understood.
    #[test]
    fn what_needs_a_newer_reader_is_refused((key, record) in arbitrary::records()) {
        prop_assume!(!matches!(key, RecordKey::Config { .. }));
        let mut bytes = encode_record(&key, &record).unwrap();
        bytes.extend_from_slice(UNKNOWN_FIELDS);
        bytes.extend_from_slice(NEEDS_A_NEWER_READER);
        let refused = decode_record(&origin(), &key, &bytes);
        prop_assert_eq!(refused.unwrap_err().kind(), "value-schema");
    }

    #[test]
    fn every_member_and_settings_come_back(member in arbitrary::members(), join in any::<bool>()) {
        let mut bytes = encode_member(&member).unwrap();
        prop_assert_eq!(decode_member(&bytes), Ok(member.clone()));
        bytes.extend_from_slice(UNKNOWN_FIELDS);
        prop_assert_eq!(decode_member(&bytes), Ok(member));
        let settings = Settings { precedence_from_join: join };
        let mut bytes = encode_settings(&settings);
        prop_assert_eq!(decode_settings(&bytes), Ok(settings));
        bytes.extend_from_slice(UNKNOWN_FIELDS);
        prop_assert_eq!(decode_settings(&bytes), Ok(settings));
        bytes.extend_from_slice(NEEDS_A_NEWER_READER);
        prop_assert_eq!(decode_settings(&bytes).unwrap_err().kind(), "value-schema");
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        for key in arbitrary::keys() {
            if let Ok(record) = decode_record(&origin(), &key, &bytes) {
                // What is taken can be written and is read again as the same.
                let again = encode_record(&key, &record).unwrap();
                prop_assert_eq!(decode_record(&origin(), &key, &again), Ok(record));
            }
        }
        drop(decode_member(&bytes));
        drop(decode_settings(&bytes));
    }

    #[test]
    fn no_damaged_value_panics(
        (key, record) in arbitrary::records(), at in any::<prop::sample::Index>(), byte in any::<u8>(),
    ) {
        let mut bytes = encode_record(&key, &record).unwrap();
        if !bytes.is_empty() {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(record) = decode_record(&origin(), &key, &bytes) {
            let again = encode_record(&key, &record).unwrap();
            prop_assert_eq!(decode_record(&origin(), &key, &again), Ok(record));
        }
    }
}
