//! Every kind and field of the documents, as names and kinds are an API.

use std::sync::Arc;

use jiff::Timestamp;
use tombolo_model::endpoint::{Conditions, EntryPort, EntryProtocol};
use tombolo_model::names::{ClusterName, ObjectName, Region};
use tombolo_model::record::{Owner, ReportedCluster, ReportedService};
use tombolo_model::service::{ImportType, InternalTrafficPolicy, IpFamily, Port, Protocol};

use super::*;
use crate::print;

fn time(secs: i64) -> Timestamp {
    Timestamp::from_second(1_767_600_000 + secs).unwrap()
}

fn origin() -> Origin {
    Origin {
        region: Region::try_new("eu").unwrap(),
        cluster: ClusterName::try_new("east").unwrap(),
    }
}

fn service() -> ServiceKey {
    let namespace = Namespace::try_new("shop").unwrap();
    ServiceKey::new(namespace, ObjectName::new("checkout"))
}

fn session() -> Session {
    Session {
        holder: "pod-1".into(),
        epoch: 7,
        started: time(0),
        software: "0.1.0".into(),
        schema: 1,
        families: vec![IpFamily::V4, IpFamily::V6],
        service_cidrs: vec!["10.96.0.0/16".parse().unwrap()],
        blind_since: Some(time(60)),
    }
}

fn report() -> Report {
    Report {
        applied_revision: 9,
        not_in_order: vec![ReportedService {
            service: service(),
            reason: "Pending".into(),
            since: time(5),
        }],
        missing: vec![ReportedCluster {
            cluster: ClusterName::try_new("west").unwrap(),
            held_secs: 60,
        }],
    }
}

fn export() -> ExportRecord {
    ExportRecord {
        created: time(1),
        uid: "uid-2".into(),
        kind: ImportType::Headless,
        ports: vec![Port {
            name: "http".into(),
            protocol: Protocol::Tcp,
            port: 80,
            app_protocol: Some("h2c".into()),
        }],
        families: vec![IpFamily::V4],
        affinity: Affinity::ClientIp { timeout_secs: 60 },
        internal_traffic_policy: InternalTrafficPolicy::Local,
        traffic_distribution: Some("PreferClose".into()),
        labels: [("team".into(), "shop".into())].into(),
        annotations: [("note".into(), "x".into())].into(),
    }
}

fn entry() -> Entry {
    Entry {
        ports: Arc::new([EntryPort {
            name: "http".into(),
            port: 8080,
        }]),
        hostname: Some("db-0".into()),
        zone: Some("a".into()),
        conditions: Conditions::READY,
    }
}

fn records() -> Vec<(RecordKey, State<Record>)> {
    let owner = || Owner {
        uid: "uid-1".into(),
    };
    let rejected = Rejection {
        kind: "value-schema",
        reason: "it is written for readers of schema version 2".into(),
    };
    let endpoint = |address: &str| RecordKey::Endpoint {
        service: service(),
        protocol: EntryProtocol::Some(Protocol::Tcp),
        address: address.parse().unwrap(),
    };
    let config = RecordKey::Config {
        service: service(),
        kind: "retries".into(),
    };
    let present = [
        (RecordKey::Owner, Record::Owner(owner())),
        (RecordKey::Session, Record::Session(session())),
        (RecordKey::Synced, Record::Synced(7)),
        (RecordKey::Left, Record::Left(owner())),
        (RecordKey::Report, Record::Report(report())),
        (
            RecordKey::Export(service()),
            Record::Export(export().into()),
        ),
        (endpoint("10.0.0.1"), Record::Endpoint([entry()].into())),
        (config, Record::Config(Arc::new([0, 255]))),
    ];
    let present = present.map(|(key, record)| (key, State::Present(record)));
    let others = [
        (endpoint("10.0.0.2"), State::Gone),
        (endpoint("10.0.0.3"), State::Rejected(rejected)),
    ];
    present.into_iter().chain(others).collect()
}

fn events() -> Vec<Event> {
    let member = Member {
        joined: time(2),
        cidrs: vec!["10.0.0.0/8".parse().unwrap()],
        namespaces: vec![service().namespace],
        drained: true,
    };
    let settings = Settings {
        precedence_from_join: true,
    };
    let stray = Rejection {
        kind: "key-unknown",
        reason: "it is no key of the layout".into(),
    };
    let records = records().into_iter().map(|(key, state)| Event::Record {
        origin: origin(),
        key,
        state,
        revision: 12,
    });
    let others = [
        Event::Member {
            origin: origin(),
            state: State::Present(member),
            revision: 13,
        },
        Event::Settings {
            region: origin().region,
            state: State::Present(settings),
            revision: 14,
        },
        Event::Stray {
            key: "eu/nothing".into(),
            rejection: Some(stray),
            revision: 15,
        },
        Event::Heard(true),
    ];
    records.chain(others).collect()
}

#[test]
fn the_documents_of_every_kind() {
    let layout = Layout::default();
    let events = events();
    let documents = events.iter().filter_map(|e| Document::of(&layout, e));
    let documents: Vec<Document> = documents.collect();
    let text = print::json_text(&documents).unwrap();
    assert!(text == include_str!("golden.json"), "it is now:\n{text}");
    for document in &documents {
        let line = serde_json::to_string(document).unwrap();
        assert!(!line.contains('\n'), "{line}");
        assert!(print::yaml_text(document).is_ok());
    }
}

#[test]
fn a_line_of_the_table_is_the_value_or_why_there_is_none() {
    let layout = Layout::default();
    let events = events();
    let documents = events.iter().filter_map(|e| Document::of(&layout, e));
    let lines: Vec<String> = documents.map(|document| document.line()).collect();
    assert_eq!(lines[2], r#"{"epoch":7}"#);
    assert_eq!(lines[8], "");
    assert_eq!(lines[9], "it is written for readers of schema version 2");
}
