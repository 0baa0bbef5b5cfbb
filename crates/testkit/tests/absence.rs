//! Clusters that are not heard of, blind, drained or gone (BEHAVIOUR §6): each test is one rule.

use tombolo_model::io::Effect;
use tombolo_model::object::Kind;
use tombolo_model::record::{Record, RecordKey, Report};
use tombolo_testkit::build::{cluster, entries, export, key, port, record, service, slice};
use tombolo_testkit::ops::{Op, PeerSession};
use tombolo_testkit::play::Play;
use tombolo_testkit::registry::origin;

const OWN: usize = 1;
const K: usize = 2;
const Z: usize = 3;

/// The addresses in the slices of shop/a, those that are kept as the last with a mark.
fn addresses(play: &Play) -> Vec<String> {
    let slices = play.mirrored("shop/a").into_iter();
    let mut all: Vec<String> = slices
        .flat_map(|slice| {
            let is_kept = slice.meta.label("tombolo.dev/kept-last") == Some("true");
            let mark = if is_kept { " kept" } else { "" };
            let endpoints = slice.endpoints.iter();
            endpoints.map(move |endpoint| format!("{}{mark}", endpoint.address))
        })
        .collect();
    all.sort();
    all
}

fn clusters(play: &Play) -> Vec<String> {
    let import = play.import("shop/a").expect("it is imported");
    let clusters = import.status.clusters.iter();
    clusters.map(ToString::to_string).collect()
}

fn ready_message(play: &Play) -> String {
    let import = play.import("shop/a").expect("it is imported");
    let mut conditions = import.status.conditions.iter();
    let ready = conditions.find(|c| &*c.kind == "Ready");
    ready.expect("it has a condition").message.to_string()
}

fn report(play: &Play) -> Report {
    let own = origin(&play.site.config().cluster);
    match play.registry.partition(&own).remove(&RecordKey::Report) {
        Some(Record::Report(report)) => report,
        _ => Report::default(),
    }
}

fn held_secs(play: &Play) -> Vec<u64> {
    let missing = report(play).missing.into_iter();
    missing.map(|missing| missing.held_secs).collect()
}

fn wait(play: &mut Play, secs: i64) {
    play.step(&Op::Wait(secs));
    play.run();
}

/// shop/a, exported by k and z-9 with an endpoint each.
fn two_exporters() -> Play {
    let mut play = Play::ready();
    play.states("k", "shop/a", record(1), &entries(&["10.9.0.1"]));
    play.states("z-9", "shop/a", record(2), &entries(&["10.9.0.2"]));
    play.run();
    assert_eq!(addresses(&play), ["10.9.0.1", "10.9.0.2"]);
    play
}

fn goes(play: &mut Play, at: usize) {
    play.step(&Op::PeerSession(at, PeerSession::Gone));
    play.run();
}

#[test]
fn endpoints_stay_for_the_hold_and_are_back_at_once() {
    let mut play = two_exporters();
    let spec = play.import("shop/a").unwrap().spec.clone();
    goes(&mut play, K);
    wait(&mut play, 599);
    assert_eq!(addresses(&play), ["10.9.0.1", "10.9.0.2"]);
    assert_eq!(clusters(&play), ["k", "z-9"]);
    let held = "the service can be used; cluster k is not heard of, its endpoints are still used";
    assert_eq!(ready_message(&play), held);
    wait(&mut play, 1);
    assert_eq!(addresses(&play), ["10.9.0.2"]);
    assert_eq!(clusters(&play), ["z-9"]);
    let over = "cluster k is not heard of, its endpoints are not used any more";
    assert!(ready_message(&play).ends_with(over));
    // Ports and address do not move: its record stays in the merge.
    assert_eq!(play.import("shop/a").unwrap().spec, spec);
    play.step(&Op::PeerSession(K, PeerSession::Synced));
    play.run();
    assert_eq!(addresses(&play), ["10.9.0.1", "10.9.0.2"]);
    assert_eq!(clusters(&play), ["k", "z-9"]);
    assert_eq!(ready_message(&play), "the service can be used");
}

#[test]
fn the_last_endpoints_of_a_port_stay_until_a_live_cluster_has_some() {
    let mut play = Play::ready();
    let mut both = record(1);
    both.ports.push(port("metrics TCP/9100"));
    let mut k = entries(&["10.9.0.1"]);
    for list in k.values_mut() {
        let mut entry = list[0].clone();
        let mut ports = entry.ports.to_vec();
        ports.push(tombolo_model::endpoint::EntryPort {
            name: "metrics".into(),
            port: 9100,
        });
        entry.ports = ports.into();
        *list = vec![entry].into();
    }
    play.states("k", "shop/a", both, &k);
    play.run();
    goes(&mut play, K);
    wait(&mut play, 600);
    assert_eq!(addresses(&play), ["10.9.0.1 kept"]);
    assert_eq!(clusters(&play), ["k"]);
    assert!(ready_message(&play).ends_with("its endpoints are kept as they are the last"));
    // Another has one for http: what is left is metrics.
    play.states("z-9", "shop/a", record(2), &entries(&["10.9.0.2"]));
    play.run();
    assert_eq!(addresses(&play), ["10.9.0.1 kept", "10.9.0.2"]);
    let kept = play.mirrored("shop/a");
    let kept = kept
        .iter()
        .find(|slice| slice.endpoints[0].address.to_string() == "10.9.0.1");
    let ports: Vec<&str> = kept.unwrap().ports.iter().map(|p| &*p.name).collect();
    assert_eq!(ports, ["metrics"]);
    // That one goes too: the ones that were withdrawn come back.
    play.withdraws("z-9", "shop/a");
    play.run();
    assert_eq!(addresses(&play), ["10.9.0.1 kept"]);
    let slices = play.mirrored("shop/a");
    assert_eq!(slices[0].ports.len(), 2);
}

#[test]
fn endpoints_that_are_not_ready_let_nobody_go() {
    let mut play = Play::ready();
    play.states("k", "shop/a", record(1), &entries(&["10.9.0.1"]));
    let mut unready = entries(&["10.9.0.2"]);
    for list in unready.values_mut() {
        let mut entry = list[0].clone();
        entry.conditions.ready = false;
        *list = vec![entry].into();
    }
    play.states("z-9", "shop/a", record(2), &unready);
    goes(&mut play, K);
    wait(&mut play, 600);
    assert_eq!(addresses(&play), ["10.9.0.1 kept", "10.9.0.2"]);
    // This cluster's own count as a live one's.
    play.service(service("shop/a"));
    play.export(export("shop/a", 3));
    play.endpoints(slice("shop/a", &["10.1.0.1"]));
    play.run();
    assert_eq!(addresses(&play), ["10.1.0.1", "10.9.0.2"]);
    play.step(&Op::Settle);
}

#[test]
fn without_keep_last_even_the_last_go() {
    let mut play = Play::ready();
    play.site.reconfigure(|config| config.keep_last = false);
    play.step(&Op::Restart(0));
    play.states("k", "shop/a", record(1), &entries(&["10.9.0.1"]));
    play.run();
    goes(&mut play, K);
    wait(&mut play, 600);
    assert_eq!(addresses(&play), Vec::<String>::new());
    assert_eq!(clusters(&play), Vec::<String>::new());
    assert_eq!(play.import_ready("shop/a").as_deref(), Some("True Ready"));
}

#[test]
fn the_hold_goes_on_after_a_restart_and_stays_over() {
    let mut play = two_exporters();
    goes(&mut play, K);
    for _ in 0..5 {
        wait(&mut play, 70);
    }
    assert_eq!(held_secs(&play), [350]);
    play.step(&Op::Restart(0));
    play.run();
    wait(&mut play, 249);
    assert_eq!(addresses(&play), ["10.9.0.1", "10.9.0.2"]);
    wait(&mut play, 1);
    assert_eq!(addresses(&play), ["10.9.0.2"]);
    // Known at once: a restart must not use the endpoints again.
    assert_eq!(held_secs(&play), [600]);
    play.step(&Op::Restart(0));
    play.site.deliver(&play.registry, usize::MAX);
    let written: Vec<&Effect> = play.site.under_way().collect();
    assert!(
        written
            .iter()
            .all(|effect| matches!(effect, Effect::Synced(_))),
        "{written:?}"
    );
    play.run();
    assert_eq!(addresses(&play), ["10.9.0.2"]);
}

#[test]
fn while_the_registry_is_away_no_hold_ends() {
    let mut play = two_exporters();
    goes(&mut play, K);
    play.step(&Op::Heard(false));
    play.run();
    wait(&mut play, 100_000);
    assert_eq!(addresses(&play), ["10.9.0.1", "10.9.0.2"]);
    play.step(&Op::Heard(true));
    play.run();
    wait(&mut play, 600);
    assert_eq!(addresses(&play), ["10.9.0.2"]);
}

#[test]
fn the_endpoints_of_a_drained_cluster_are_out_even_the_last_ones_and_its_own() {
    let mut play = two_exporters();
    play.service(service("shop/a"));
    play.export(export("shop/a", 3));
    play.endpoints(slice("shop/a", &["10.1.0.1"]));
    for at in [K, OWN] {
        play.step(&Op::Drain(at, true));
    }
    play.run();
    assert_eq!(addresses(&play), ["10.9.0.2"]);
    assert_eq!(clusters(&play), ["z-9"]);
    play.step(&Op::Drain(Z, true));
    play.run();
    assert_eq!(addresses(&play), Vec::<String>::new());
    // What it exports stays exported.
    assert_eq!(
        play.export_condition("shop/a", "Ready").as_deref(),
        Some("True Exported")
    );
    play.step(&Op::Drain(K, false));
    play.run();
    assert_eq!(addresses(&play), ["10.9.0.1"]);
    play.step(&Op::Settle);
}

#[test]
fn a_blind_cluster_counts_without_limit_and_says_since_when() {
    let mut play = two_exporters();
    play.step(&Op::PeerSession(K, PeerSession::Blind));
    play.run();
    wait(&mut play, 100_000);
    assert_eq!(addresses(&play), ["10.9.0.1", "10.9.0.2"]);
    assert_eq!(clusters(&play), ["k", "z-9"]);
    let message = ready_message(&play);
    assert!(
        message.contains("cluster k cannot see its own objects since 20"),
        "{message}"
    );
}

#[test]
fn a_cluster_that_has_left_is_out_at_once_with_all_that_stands_there() {
    let mut play = two_exporters();
    let left = Record::Left(tombolo_model::record::Owner { uid: "u".into() });
    let k = origin(&cluster("k"));
    play.registry.put(&k, RecordKey::Left, Some(left));
    play.run();
    assert_eq!(addresses(&play), ["10.9.0.2"]);
    assert_eq!(clusters(&play), ["z-9"]);
    // It comes back under another owner.
    play.registry.put(&k, RecordKey::Left, None);
    play.run();
    assert_eq!(addresses(&play), ["10.9.0.1", "10.9.0.2"]);
}

#[test]
fn a_report_is_put_on_change_and_while_a_hold_runs_each_minute() {
    let mut play = two_exporters();
    assert_eq!(report(&play), Report::default(), "nothing is amiss");
    let puts = |play: &Play| {
        let own = origin(&play.site.config().cluster);
        let log = play.registry.log.iter();
        log.filter(|change| change.origin == own && change.key == RecordKey::Report)
            .count()
    };
    wait(&mut play, 3600);
    assert_eq!(puts(&play), 0);
    goes(&mut play, K);
    assert_eq!((puts(&play), held_secs(&play)), (1, vec![0]));
    goes(&mut play, Z);
    assert_eq!(puts(&play), 1, "at most each 10 s");
    wait(&mut play, 10);
    assert_eq!((puts(&play), held_secs(&play)), (2, vec![10, 10]));
    for _ in 0..60 {
        wait(&mut play, 1);
    }
    assert_eq!((puts(&play), held_secs(&play)), (3, vec![70, 70]));
    wait(&mut play, 530);
    wait(&mut play, 60);
    let after = puts(&play);
    assert_eq!(held_secs(&play), [600, 600]);
    wait(&mut play, 3600);
    assert_eq!(puts(&play), after, "nothing runs any more");
    // A stranger's Service is in the way.
    play.step(&Op::PeerSession(K, PeerSession::Synced));
    play.step(&Op::PeerSession(Z, PeerSession::Synced));
    let derived = play.derived_key("shop/a");
    play.delete(Kind::Service, &derived.to_string());
    play.service(service(&derived.to_string()));
    play.run();
    wait(&mut play, 10);
    let said = report(&play);
    assert_eq!(said.missing, []);
    let told: Vec<_> = said
        .not_in_order
        .iter()
        .map(|t| (&t.service, &*t.reason))
        .collect();
    assert_eq!(told, [(&key("shop/a"), "Pending")]);
    play.delete(Kind::Service, &derived.to_string());
    play.run();
    wait(&mut play, 10);
    assert_eq!(report(&play).not_in_order, []);
}

#[test]
fn a_clock_that_is_set_ends_no_hold_and_is_told() {
    let mut play = two_exporters();
    goes(&mut play, K);
    wait(&mut play, 100);
    for hours in [1, -2] {
        play.site.set_clock(hours * 3600);
        wait(&mut play, 1);
        assert_eq!(addresses(&play), ["10.9.0.1", "10.9.0.2"]);
        // What begins now, begins at the time of day.
        let name = format!("shop/b{}", hours.abs());
        play.states("z-9", &name, record(1), &entries(&["10.9.0.3"]));
        play.run();
        let import = play.import(&name).unwrap();
        let told = import.status.conditions[0].last_transition;
        assert_eq!(told.as_second() - play.site.now.as_second(), hours * 3600);
    }
    wait(&mut play, 497);
    assert_eq!(addresses(&play), ["10.9.0.1", "10.9.0.2"]);
    wait(&mut play, 1);
    assert_eq!(addresses(&play), ["10.9.0.2"]);
}
