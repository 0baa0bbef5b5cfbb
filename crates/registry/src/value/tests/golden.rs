//! The bytes of one record of each kind. They are what older and newer releases have written:
//! where one of these changes, clusters of two releases no longer understand each other.

use std::fmt::Write as _;

use tombolo_model::endpoint::Conditions;
use tombolo_model::record::{ReportedCluster, ReportedService};
use tombolo_model::service::{ImportType, InternalTrafficPolicy, Port};

use super::*;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn time(nanos: i128) -> Timestamp {
    Timestamp::from_nanosecond(nanos).unwrap()
}

/// What is written stays, byte for byte, and is read. Where a release writes something else, its
/// bytes come beside these, which a reader has to understand as long as a release before it wrote
/// them.
fn assert_golden(key: &RecordKey, record: &Record, bytes: &str) {
    let encoded = encode_record(key, record).unwrap();
    assert_eq!(hex(&encoded), bytes);
    assert_eq!(decode_record(&origin(), key, &encoded).as_ref(), Ok(record));
}

#[test]
fn owner_left_and_synced_bytes_stay() {
    let owner = Owner {
        uid: "uid-1".into(),
    };
    assert_golden(
        &RecordKey::Owner,
        &Record::Owner(owner.clone()),
        "0a057569642d31",
    );
    assert_golden(&RecordKey::Left, &Record::Left(owner), "0a057569642d31");
    assert_golden(&RecordKey::Synced, &Record::Synced(300), "08ac02");
}

#[test]
fn session_bytes_stay() {
    let session = Session {
        holder: "pod-1".into(),
        epoch: 7,
        started: time(1_500_000_000),
        software: "0.1.0".into(),
        schema: 1,
        families: vec![IpFamily::V6, IpFamily::V4],
        service_cidrs: vec!["10.96.0.0/16".parse().unwrap()],
        blind_since: Some(time(-1)),
    };
    assert_golden(
        &RecordKey::Session,
        &Record::Session(session),
        "0a05706f642d3110071a0808011080cab5ee012205302e312e302801320202013a0c31302e39362e302e302f3136421108ffffffffffffffffff0110ff93ebdc03",
    );
}

#[test]
fn report_bytes_stay() {
    let report = Report {
        applied_revision: 9,
        not_in_order: vec![ReportedService {
            service: service(),
            reason: "Pending".into(),
            since: time(0),
        }],
        missing: vec![ReportedCluster {
            cluster: ClusterName::try_new("west").unwrap(),
            held_secs: 60,
        }],
    };
    assert_golden(
        &RecordKey::Report,
        &Record::Report(report),
        "0809121b0a0473686f701208636865636b6f75741a0750656e64696e6722001a080a0477657374103c",
    );
}

#[test]
fn export_bytes_stay() {
    let map = |key: &str, value: &str| [(key.into(), value.into())].into();
    let export = ExportRecord {
        created: time(5_000_000_000),
        uid: "u".into(),
        kind: ImportType::Headless,
        ports: vec![Port {
            name: "dns".into(),
            protocol: Protocol::Udp,
            port: 53,
            app_protocol: Some("dns".into()),
        }],
        families: vec![IpFamily::V4],
        affinity: Affinity::ClientIp { timeout_secs: 60 },
        internal_traffic_policy: InternalTrafficPolicy::Local,
        traffic_distribution: Some("PreferClose".into()),
        labels: map("l", "1"),
        annotations: map("a", "2"),
    };
    assert_golden(
        &export_key(),
        &Record::Export(export.into()),
        "0a0208051201751802220e0a03646e73100218352203646e732a01013002383c40024a0b507265666572436c6f736552060a016c1201315a060a0161120132",
    );
}

#[test]
fn endpoint_bytes_stay() {
    let entry = Entry {
        ports: Arc::new([EntryPort {
            name: "http".into(),
            port: 8080,
        }]),
        hostname: Some("db-0".into()),
        zone: Some("a".into()),
        conditions: Conditions::READY,
    };
    assert_golden(
        &tcp(),
        &Record::Endpoint(Arc::new([entry])),
        "0a180a090a046874747010903f120464622d301a016120012801",
    );
}

#[test]
fn configuration_bytes_are_those_of_the_tool() {
    let key = RecordKey::Config {
        service: service(),
        kind: "retries".into(),
    };
    assert_golden(&key, &Record::Config(Arc::new([0, 255])), "00ff");
}

#[test]
fn member_and_settings_bytes_stay() {
    let member = Member {
        joined: time(0),
        cidrs: vec!["10.0.0.0/8".parse().unwrap()],
        namespaces: vec![service().namespace],
        drained: true,
    };
    assert_eq!(
        hex(&encode_member(&member).unwrap()),
        "0a00120a31302e302e302e302f381a0473686f702001"
    );
    let settings = Settings {
        precedence_from_join: true,
    };
    assert_eq!(hex(&encode_settings(&settings)), "0801");
}
