//! The tables of BEHAVIOUR §2, row by row.

use jiff::SignedDuration;
use jiff::Timestamp;

use super::*;

fn cluster(name: &str) -> ClusterName {
    ClusterName::try_new(name).unwrap()
}

/// `http TCP/80 =h2c` is a port with its application protocol; `TCP/80` has no name.
fn port(text: &str) -> Port {
    let (text, app_protocol) = match text.split_once(" =") {
        Some((text, app)) => (text, Some(app.into())),
        None => (text, None),
    };
    let (name, number) = text.split_once(' ').unwrap_or(("", text));
    let (protocol, port) = number.split_once('/').unwrap();
    Port {
        name: name.into(),
        protocol: Protocol::parse(protocol).unwrap(),
        port: port.parse().unwrap(),
        app_protocol,
    }
}

fn record(secs: i64, ports: &[&str]) -> ExportRecord {
    ExportRecord {
        created: Timestamp::UNIX_EPOCH + SignedDuration::from_secs(secs),
        uid: "uid".into(),
        kind: ImportType::ClusterSetIp,
        ports: ports.iter().map(|text| port(text)).collect(),
        families: vec![IpFamily::V4],
        affinity: Affinity::None,
        internal_traffic_policy: InternalTrafficPolicy::Cluster,
        traffic_distribution: None,
        labels: Labels::new(),
        annotations: Labels::new(),
    }
}

fn merged(records: &[(&str, ExportRecord)]) -> Merged {
    let claims: Vec<(ClusterName, &ExportRecord)> = records
        .iter()
        .map(|(name, record)| (cluster(name), record))
        .collect();
    merge(claims.iter().map(|(name, record)| (name, *record))).unwrap()
}

/// What the ports of an older `east` and a younger `west` come to: the accepted ports, as what
/// each of west's own is served, and the message.
fn ports_of(east: &[&str], west: &[&str]) -> (Vec<String>, Vec<String>, String) {
    let merged = merged(&[("east", record(1, east)), ("west", record(2, west))]);
    let accepted = merged.ports.iter().map(show).collect();
    let served = merged.parts["west"].serves.iter();
    let served = served.map(|((name, protocol), index)| {
        format!("{name}/{protocol} as {}", show(&merged.ports[*index]))
    });
    (accepted, served.collect(), merged.conflict_message())
}

fn show(port: &Port) -> String {
    match &port.app_protocol {
        Some(app) => format!("{port} ={app}"),
        None => port.to_string(),
    }
}

/// One row of the table of ports.
struct Row {
    east: &'static [&'static str],
    west: &'static [&'static str],
    accepted: &'static [&'static str],
    served: &'static [&'static str],
    message: &'static str,
}

const ROWS: [Row; 9] = [
    // Same name, protocol, number and application protocol: the same port.
    Row {
        east: &["http TCP/80"],
        west: &["http TCP/80"],
        accepted: &["http TCP/80"],
        served: &["http/TCP as http TCP/80"],
        message: "",
    },
    // Another application protocol: the accepted one.
    Row {
        east: &["http TCP/80 =http"],
        west: &["http TCP/80"],
        accepted: &["http TCP/80 =http"],
        served: &["http/TCP as http TCP/80 =http"],
        message: "ports: http TCP/80 are used (union, east first); west has http TCP/80 with \
                  appProtocol none instead of http; 1/2 clusters disagree.",
    },
    // Same name, another number: dropped, and it reserves nothing.
    Row {
        east: &["http TCP/80"],
        west: &["http TCP/8080", "web TCP/8080"],
        accepted: &["http TCP/80", "web TCP/8080"],
        served: &["web/TCP as web TCP/8080"],
        message: "ports: http TCP/80, web TCP/8080 are used (union, east first); east lacks web \
                  TCP/8080; west has http TCP/8080, dropped as http TCP/80 is there, lacks http \
                  TCP/80; 2/2 clusters disagree.",
    },
    // Same name, another protocol: dropped.
    Row {
        east: &["dns UDP/53"],
        west: &["dns TCP/53"],
        accepted: &["dns UDP/53"],
        served: &[],
        message: "ports: dns UDP/53 are used (union, east first); west has dns TCP/53, dropped as \
                  dns UDP/53 is there, lacks dns UDP/53; 1/2 clusters disagree.",
    },
    // Another name for the same protocol and number: served under the accepted one.
    Row {
        east: &["http TCP/80"],
        west: &["web TCP/80"],
        accepted: &["http TCP/80"],
        served: &["web/TCP as http TCP/80"],
        message: "ports: http TCP/80 are used (union, east first); west has web TCP/80, served as \
                  http; 1/2 clusters disagree.",
    },
    // The first row that fits counts: the name decides before the number.
    Row {
        east: &["http TCP/80", "web TCP/8080"],
        west: &["http TCP/8080"],
        accepted: &["http TCP/80", "web TCP/8080"],
        served: &[],
        message: "ports: http TCP/80, web TCP/8080 are used (union, east first); west has http \
                  TCP/8080, dropped as http TCP/80 is there, lacks http TCP/80, web TCP/8080; 1/2 \
                  clusters disagree.",
    },
    // Unnamed, and something is accepted already.
    Row {
        east: &["http TCP/80"],
        west: &["TCP/81"],
        accepted: &["http TCP/80"],
        served: &[],
        message: "ports: http TCP/80 are used (union, east first); west has TCP/81, dropped as \
                  several ports need names, lacks http TCP/80; 1/2 clusters disagree.",
    },
    // Something unnamed is accepted already; what has its number is served all the same.
    Row {
        east: &["TCP/80"],
        west: &["http TCP/80", "dns UDP/53"],
        accepted: &["TCP/80"],
        served: &["http/TCP as TCP/80"],
        message: "ports: TCP/80 are used (union, east first); west has http TCP/80, served as the \
                  unnamed port, has dns UDP/53, dropped as several ports need names; 1/2 clusters \
                  disagree.",
    },
    // None of these: accepted. A set that is not the accepted one is a conflict.
    Row {
        east: &["http TCP/80"],
        west: &["http TCP/80", "metrics TCP/9100"],
        accepted: &["http TCP/80", "metrics TCP/9100"],
        served: &["http/TCP as http TCP/80", "metrics/TCP as metrics TCP/9100"],
        message: "ports: http TCP/80, metrics TCP/9100 are used (union, east first); east lacks \
                  metrics TCP/9100; 1/2 clusters disagree.",
    },
];

#[test]
fn each_row_of_the_table_of_ports() {
    for row in ROWS {
        let (accepted, served, message) = ports_of(row.east, row.west);
        assert_eq!(accepted, row.accepted, "{:?} and {:?}", row.east, row.west);
        assert_eq!(served, row.served, "{:?} and {:?}", row.east, row.west);
        assert_eq!(message, row.message);
    }
}

#[test]
fn the_order_of_ports_is_no_conflict() {
    let (accepted, _, message) = ports_of(
        &["http TCP/80", "dns UDP/53"],
        &["dns UDP/53", "http TCP/80"],
    );
    assert_eq!(accepted, ["http TCP/80", "dns UDP/53"]);
    assert_eq!(message, "");
}

#[test]
fn the_older_record_is_first_and_of_equal_ones_the_smaller_name() {
    let first = |records: &[(&str, ExportRecord)]| merged(records).ports[0].port;
    let by_time = [
        ("a", record(2, &["http TCP/80"])),
        ("b", record(1, &["http TCP/81"])),
    ];
    assert_eq!(first(&by_time), 81);
    let by_name = [
        ("b", record(1, &["http TCP/81"])),
        ("a", record(1, &["http TCP/80"])),
    ];
    assert_eq!(first(&by_name), 80);
}

#[test]
fn nothing_is_merged_from_nothing() {
    assert_eq!(merge(std::iter::empty::<Claim<'_>>()), None);
}

/// One record that differs from the oldest in one field, the reason and the message of it.
type FieldRow = (fn(&mut ExportRecord), ConflictReason, &'static str);

const FIELDS: [FieldRow; 9] = [
    (
        |r| r.kind = ImportType::Headless,
        ConflictReason::Type,
        "type: ClusterSetIP of east is used; west has Headless; 1/2 clusters disagree.",
    ),
    (
        |r| r.affinity = Affinity::None,
        ConflictReason::SessionAffinity,
        "session affinity: ClientIP of east is used; west has None; 1/2 clusters disagree.",
    ),
    (
        |r| r.affinity = Affinity::ClientIp { timeout_secs: 60 },
        ConflictReason::SessionAffinityConfig,
        "session affinity timeout: 600 s of east is used; west has 60 s; 1/2 clusters disagree.",
    ),
    (
        |r| r.annotations = Labels::new(),
        ConflictReason::Annotations,
        "exported annotations: {note=x} of east is used; west has {}; 1/2 clusters disagree.",
    ),
    (
        |r| {
            r.labels.insert("team".into(), "web".into());
        },
        ConflictReason::Labels,
        "exported labels: {team=shop} of east is used; west has {team=web}; 1/2 clusters disagree.",
    ),
    (
        |r| r.internal_traffic_policy = InternalTrafficPolicy::Local,
        ConflictReason::InternalTrafficPolicy,
        "internal traffic policy: Cluster of east is used; west has Local; 1/2 clusters disagree.",
    ),
    (
        |r| r.traffic_distribution = None,
        ConflictReason::TrafficDistribution,
        "traffic distribution: PreferClose of east is used; west has unset; 1/2 clusters disagree.",
    ),
    (
        |r| r.families = vec![IpFamily::V6],
        ConflictReason::IpFamily,
        "IP families: IPv4 of east is used; west has IPv6 (its endpoints are not used); 1/2 \
         clusters disagree.",
    ),
    (
        |r| r.ports[0].port = 81,
        ConflictReason::Port,
        "ports: http TCP/80 are used (union, east first); west has http TCP/81, dropped as http \
         TCP/80 is there, lacks http TCP/80; 1/2 clusters disagree.",
    ),
];

fn rich(secs: i64) -> ExportRecord {
    let mut record = record(secs, &["http TCP/80"]);
    record.affinity = Affinity::ClientIp { timeout_secs: 600 };
    record.labels.insert("team".into(), "shop".into());
    record.annotations.insert("note".into(), "x".into());
    record.traffic_distribution = Some("PreferClose".into());
    record
}

#[test]
fn in_every_field_but_ports_and_families_the_oldest_counts_whole() {
    let alone = merged(&[("east", rich(1))]);
    for (change, reason, message) in FIELDS {
        let mut other = rich(2);
        change(&mut other);
        let merged = merged(&[("west", other), ("east", rich(1))]);
        let reasons: Vec<ConflictReason> = merged.conflicts.iter().map(|c| c.reason).collect();
        assert_eq!(reasons, [reason]);
        assert_eq!(merged.conflict_message(), message);
        let same_but_for_parts = Merged {
            parts: alone.parts.clone(),
            conflicts: Vec::new(),
            ..merged
        };
        assert_eq!(same_but_for_parts, alone);
    }
}

#[test]
fn all_conflicts_are_found_in_the_order_of_the_table() {
    let mut other = record(2, &["web TCP/81"]);
    other.kind = ImportType::Headless;
    other.internal_traffic_policy = InternalTrafficPolicy::Local;
    other.families = vec![IpFamily::V6];
    let merged = merged(&[("east", rich(1)), ("west", other)]);
    let reasons: Vec<&str> = merged.conflicts.iter().map(|c| c.reason.as_str()).collect();
    assert_eq!(
        reasons,
        [
            "PortConflict",
            "TypeConflict",
            "SessionAffinityConflict",
            "AnnotationsConflict",
            "LabelsConflict",
            "InternalTrafficPolicyConflict",
            "TrafficDistributionConflict",
            "IPFamilyConflict",
        ]
    );
}

#[test]
fn families_are_folded_oldest_first() {
    use IpFamily::{V4, V6};
    type Fold<'a> = (&'a [&'a [IpFamily]], &'a [IpFamily], &'a [bool]);
    let rows: [Fold<'_>; 6] = [
        (&[&[V4, V6], &[V6, V4]], &[V4, V6], &[true, true]),
        (&[&[V6, V4], &[V4]], &[V4], &[true, true]),
        (&[&[V4], &[V6, V4]], &[V4], &[true, true]),
        (&[&[V4], &[V6]], &[V4], &[true, false]),
        // What is left decides, not what the oldest had.
        (&[&[V4, V6], &[V6], &[V4]], &[V6], &[true, true, false]),
        (&[&[V4, V6], &[V4], &[V6]], &[V4], &[true, true, false]),
    ];
    for (lists, families, used) in rows {
        let names = ["a", "b", "c"];
        let records: Vec<_> = lists
            .iter()
            .zip(names)
            .map(|(list, name)| {
                let mut record = record(1, &["http TCP/80"]);
                record.families = list.to_vec();
                (name, record)
            })
            .collect();
        let merged = merged(&records);
        assert_eq!(merged.families, families, "{lists:?}");
        let counts: Vec<bool> = merged
            .parts
            .values()
            .map(|part| part.endpoints_used)
            .collect();
        assert_eq!(counts, used, "{lists:?}");
        let has_conflict = merged
            .conflicts
            .iter()
            .any(|c| c.reason == ConflictReason::IpFamily);
        assert_eq!(has_conflict, used.contains(&false), "{lists:?}");
    }
}

#[test]
fn the_ports_of_a_cluster_that_shares_no_family_still_count() {
    let mut other = record(2, &["http TCP/80", "metrics TCP/9100"]);
    other.families = vec![IpFamily::V6];
    let merged = merged(&[("east", record(1, &["http TCP/80"])), ("west", other)]);
    assert_eq!(
        merged.ports,
        [port("http TCP/80"), port("metrics TCP/9100")]
    );
}

#[test]
fn a_message_names_five_clusters_and_cuts_long_values() {
    let mut records = vec![("a0".to_owned(), record(0, &["http TCP/80"]))];
    for at in 1..=7 {
        let mut other = record(at, &["http TCP/80"]);
        other.labels.insert("note".into(), "x".repeat(70).into());
        records.push((format!("c{at}"), other));
    }
    let records: Vec<_> = records
        .iter()
        .map(|(n, r)| (n.as_str(), r.clone()))
        .collect();
    let cut = format!("{{note={}…", "x".repeat(57));
    assert_eq!(
        merged(&records).conflict_message(),
        format!(
            "exported labels: {{}} of a0 is used; c1 has {cut}; c2 has {cut}; c3 has {cut}; c4 \
             has {cut}; c5 has {cut}; 2 more; 7/8 clusters disagree."
        )
    );
}

#[test]
fn a_message_tells_five_differences_of_a_cluster() {
    let names: Vec<String> = (0..8).map(|at| format!("p{at} TCP/8{at}")).collect();
    let others: Vec<String> = (0..8).map(|at| format!("p{at} UDP/9{at}")).collect();
    let ports = |texts: &[String]| {
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        record(1, &texts)
    };
    let east = ("east", ports(&names));
    let west = ("west", ports(&others));
    let message = merged(&[east, west]).conflict_message();
    let used = "p0 TCP/80, p1 TCP/81, p2 TCP/82, p3 TCP/83, p4 TCP/84, p5 TCP/8…";
    let dropped: Vec<String> = (0..5)
        .map(|at| format!("has p{at} UDP/9{at}, dropped as p{at} TCP/8{at} is there"))
        .collect();
    assert_eq!(
        message,
        format!(
            "ports: {used} are used (union, east first); west {}, 4 more; 1/2 clusters disagree.",
            dropped.join(", ")
        )
    );
}

#[test]
fn onto_an_import_that_stays_nothing_is_added() {
    let spec = ImportSpec {
        kind: ImportType::ClusterSetIp,
        ports: vec![port("http TCP/80")],
        ips: Vec::new(),
        families: vec![IpFamily::V4],
        affinity: Affinity::None,
        internal_traffic_policy: InternalTrafficPolicy::Cluster,
        traffic_distribution: None,
    };
    let (name, west) = (
        cluster("west"),
        record(1, &["web TCP/80", "metrics TCP/9100"]),
    );
    let merged = onto(&spec, [Claim::from((&name, &west))]);
    assert_eq!(merged.ports, spec.ports);
    let serves = BTreeMap::from([(("web".into(), Protocol::Tcp), 0)]);
    let part = Part {
        endpoints_used: true,
        serves,
    };
    assert_eq!(merged.parts, BTreeMap::from([(name, part)]));
}

/// What `west`, the younger member that says it is older, and `east` come to.
fn merged_by_members(joined: [Option<Joined>; 2]) -> Merged {
    let (east, west) = (cluster("east"), cluster("west"));
    let mut older = record(2, &["TCP/80"]);
    older.kind = ImportType::Headless;
    let records = [record(5, &["TCP/80"]), older];
    let claims = [
        (&east, &records[0], joined[0]),
        (&west, &records[1], joined[1]),
    ];
    let claims = claims.map(|(cluster, record, joined)| Claim {
        cluster,
        record,
        joined,
    });
    merge(claims).unwrap()
}

fn joined(secs: i64, counts: bool) -> Joined {
    let at = Timestamp::UNIX_EPOCH + SignedDuration::from_secs(secs);
    Joined { at, counts }
}

#[test]
fn a_cluster_that_joined_later_is_told_with_both_times() {
    let merged = merged_by_members([Some(joined(1, false)), Some(joined(9, false))]);
    assert_eq!(merged.kind, ImportType::Headless);
    assert_eq!(
        merged.conflict_message(),
        "type: Headless of west (created 1970-01-01T00:00:02Z, joined 1970-01-01T00:00:09Z) is \
         used; east has ClusterSetIP; 1/2 clusters disagree."
    );
}

#[test]
fn where_joining_counts_the_later_time_does() {
    let merged = merged_by_members([Some(joined(1, true)), Some(joined(9, true))]);
    assert_eq!(merged.kind, ImportType::ClusterSetIp);
    assert_eq!(
        merged.conflict_message(),
        "type: ClusterSetIP of east is used; west (created 1970-01-01T00:00:02Z, joined \
         1970-01-01T00:00:09Z) has Headless; 1/2 clusters disagree."
    );
    // Who joined before it exported counts from its export; and so does who is not recorded.
    for east in [Some(joined(9, true)), Some(joined(4, true)), None] {
        let merged = merged_by_members([east, Some(joined(3, true))]);
        assert_eq!(merged.kind, ImportType::Headless, "{east:?}");
    }
    // Where both joined at one time, names decide.
    let merged = merged_by_members([Some(joined(9, true)); 2]);
    assert_eq!(merged.kind, ImportType::ClusterSetIp);
}
