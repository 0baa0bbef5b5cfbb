//! What a cluster refuses or doubts of what others state (BEHAVIOUR §7), however late it learns of
//! that, and what it does not publish itself, as they would refuse it.

use std::sync::Arc;

use tombolo_model::config::Config;
use tombolo_model::names::ServiceKey;
use tombolo_model::object::{Kind, SliceObject, TargetRef};
use tombolo_model::service::ImportType;
use tombolo_model::service::IpFamily::V4;
use tombolo_testkit::build::{at, cluster, entries, export, key, record, service, slice};
use tombolo_testkit::ops::Op;
use tombolo_testkit::play::{Play, config};
use tombolo_testkit::registry::origin;

/// A slice whose endpoints stand for Pods.
fn pods(service: &str, addresses: &[&str]) -> SliceObject {
    let mut slice = slice(service, addresses);
    let target = Arc::new(TargetRef {
        kind: "Pod".into(),
        namespace: "shop".into(),
        name: "web".into(),
        uid: "1".into(),
    });
    let endpoints = slice.endpoints.iter().cloned();
    slice.endpoints = endpoints
        .map(|mut endpoint| {
            endpoint.target = Some(Arc::clone(&target));
            endpoint
        })
        .collect();
    slice
}

/// The addresses that an import's slices hold.
fn held(play: &Play, name: &str) -> Vec<String> {
    let slices = play.mirrored(name);
    let endpoints = slices.iter().flat_map(|slice| slice.endpoints.iter());
    let mut held: Vec<String> = endpoints.map(|e| e.address.to_string()).collect();
    held.sort();
    held
}

/// How often which rule refused something of cluster k.
fn counts(play: &Play) -> Vec<(&'static str, u64)> {
    let counts = play.site.engine().refused_total().iter();
    counts
        .map(|((cluster, rule), count)| {
            assert_eq!(cluster.as_str(), "k");
            (rule.as_str(), *count)
        })
        .collect()
}

/// What the condition Ready of an import says.
fn said(play: &Play, name: &str) -> String {
    let import = play.import(name).expect("it is there");
    let conditions = import.status.conditions.iter();
    let mut ready = conditions.filter(|c| c.kind.as_ref() == "Ready");
    let ready = ready.next().expect("its status is written");
    ready.message.to_string()
}

#[test]
fn an_address_of_a_pod_here_is_no_endpoint_elsewhere() {
    let mut play = Play::ready();
    play.service(service("shop/local"));
    play.states(
        "k",
        "shop/a",
        record(1),
        &entries(&["10.0.0.1", "10.0.0.2"]),
    );
    play.states("k", "shop/b", record(1), &entries(&["10.0.0.9"]));
    play.run();
    let before = play.site.engine().planned_total();
    assert_eq!(held(&play, "shop/a"), ["10.0.0.1", "10.0.0.2"]);
    // The Pod is behind a Service that is not exported.
    play.endpoints(pods("shop/local", &["10.0.0.2", "10.0.0.3"]));
    play.run();
    assert_eq!(held(&play, "shop/a"), ["10.0.0.1"]);
    assert_eq!(held(&play, "shop/b"), ["10.0.0.9"]);
    assert_eq!(counts(&play), [("local-pod", 1)]);
    let refused = "endpoints of cluster k at addresses of Pods of this cluster";
    assert!(said(&play, "shop/a").contains(refused));
    let told: Vec<_> = play.site.told.iter().filter(|e| e.warning).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0].reason, "EndpointsRefused");
    assert!(
        told[0]
            .message
            .contains("1 endpoints of shop/a in cluster k, 10.0.0.2 the first")
    );
    let notes: Vec<_> = play.site.engine().notes().collect();
    assert_eq!(notes.len(), 1, "{notes:?}");
    // The slice's own Service, the import, and the answers to its two writes.
    let planned = play.site.engine().planned_total() - before;
    assert!(planned <= 6, "{planned} services planned");
    // The Pod is gone.
    play.endpoints(pods("shop/local", &["10.0.0.3"]));
    play.run();
    assert_eq!(held(&play, "shop/a"), ["10.0.0.1", "10.0.0.2"]);
    assert!(!said(&play, "shop/a").contains("refused"));
    assert_eq!(play.site.engine().notes().count(), 0);
    assert_eq!(counts(&play), [("local-pod", 1)], "it counts what happened");
    // Another one gets its address.
    play.endpoints(pods("shop/local", &["10.0.0.1"]));
    play.run();
    assert_eq!(held(&play, "shop/a"), ["10.0.0.2"]);
    play.delete(Kind::EndpointSlice, "shop/local-0");
    play.run();
    assert_eq!(held(&play, "shop/a"), ["10.0.0.1", "10.0.0.2"]);
    assert_eq!(counts(&play), [("local-pod", 2)]);
}

#[test]
fn many_pods_that_no_peer_claims_plan_nothing_of_peers() {
    let mut play = Play::ready();
    play.service(service("shop/local"));
    for name in ["shop/a", "shop/b"] {
        play.states("k", name, record(1), &entries(&["10.0.0.1"]));
    }
    play.run();
    let before = play.site.engine().planned_total();
    let addresses: Vec<String> = (1..100).map(|n| format!("10.1.0.{n}")).collect();
    let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
    play.endpoints(pods("shop/local", &addresses));
    play.run();
    assert_eq!(play.site.engine().planned_total() - before, 1);
}

#[test]
fn own_endpoints_are_no_peers() {
    let mut play = Play::ready();
    play.service(service("shop/a"));
    play.export(export("shop/a", 1));
    play.endpoints(pods("shop/a", &["10.0.0.1"]));
    play.run();
    assert_eq!(held(&play, "shop/a"), ["10.0.0.1"]);
    assert_eq!(counts(&play), []);
}

#[test]
fn no_endpoint_is_in_the_service_networks_of_this_cluster() {
    let mut play = Play::ready();
    play.states(
        "k",
        "shop/a",
        record(1),
        &entries(&["10.9.0.4", "10.9.0.8"]),
    );
    play.run();
    assert_eq!(held(&play, "shop/a"), ["10.9.0.4", "10.9.0.8"]);
    play.step(&Op::ServiceCidrs(true));
    play.run();
    assert_eq!(held(&play, "shop/a"), ["10.9.0.8"]);
    assert_eq!(counts(&play), [("service-cidr", 1)]);
    play.step(&Op::ServiceCidrs(false));
    play.run();
    assert_eq!(held(&play, "shop/a"), ["10.9.0.4", "10.9.0.8"]);
}

#[test]
fn an_address_of_a_service_is_not_published() {
    let mut play = Play::ready();
    play.service(service("shop/a"));
    play.export(export("shop/a", 1));
    play.endpoints(slice("shop/a", &["10.9.0.4", "10.9.0.8"]));
    play.step(&Op::ServiceCidrs(true));
    play.run();
    assert_eq!(
        published(&play, "shop/a"),
        Some(vec!["10.9.0.8".to_owned()])
    );
    assert!(play.site.told.iter().any(|e| e.reason == "EndpointSkipped"));
}

#[test]
fn the_own_pod_networks_are_nobody_elses_unless_they_are_shared() {
    let change = |config: &mut Config| {
        config.pod_cidrs = vec!["10.4.0.0/14".parse().unwrap()];
        config.shared_cidrs = vec!["10.5.0.0/16".parse().unwrap()];
    };
    let mut config = config();
    change(&mut config);
    let mut play = Play::new(config, vec![V4]);
    let addresses = ["10.4.0.1", "10.5.0.1", "10.8.0.1"];
    play.states("k", "shop/a", record(1), &entries(&addresses));
    play.run();
    assert_eq!(held(&play, "shop/a"), ["10.5.0.1", "10.8.0.1"]);
    assert_eq!(counts(&play), [("pod-cidr", 1)]);
}

#[test]
fn a_change_of_what_is_refused_is_counted_and_told_once() {
    let mut play = Play::ready();
    play.step(&Op::ServiceCidrs(true));
    play.states("k", "shop/a", record(1), &entries(&["10.9.0.4"]));
    play.run();
    play.states(
        "k",
        "shop/a",
        record(1),
        &entries(&["10.9.0.4", "10.9.0.5"]),
    );
    play.run();
    assert_eq!(counts(&play), [("service-cidr", 2)]);
    let events = play.site.told.iter();
    let told = events.filter(|e| e.reason == "EndpointsRefused").count();
    assert_eq!(told, 1);
}

#[test]
fn where_a_service_takes_no_part_nothing_is_refused() {
    let mut play = Play::ready();
    play.step(&Op::ServiceCidrs(true));
    play.states("k", "nowhere/a", record(1), &entries(&["10.9.0.4"]));
    play.run();
    assert_eq!(counts(&play), []);
    let nowhere: ServiceKey = key("nowhere/a");
    assert!(play.site.engine().merge_of(&nowhere).is_some());
}

/// The addresses that the site has published for a service.
fn published(play: &Play, name: &str) -> Option<Vec<String>> {
    let stated = play.registry.stated();
    let service = stated.get(&play.site.config().cluster)?.get(&key(name))?;
    let addresses = service.entries.keys();
    Some(addresses.map(|(address, _)| address.to_string()).collect())
}

#[test]
fn what_the_operator_does_not_allow_is_not_published() {
    let mut play = Play::ready();
    let own = play.site.origin();
    for name in ["shop/a", "web/a"] {
        play.service(service(name));
        play.export(export(name, 1));
        play.endpoints(slice(name, &["10.9.0.1", "10.9.0.5"]));
    }
    play.run();
    let both = ["10.9.0.1", "10.9.0.5"].map(str::to_owned).to_vec();
    assert_eq!(published(&play, "shop/a"), Some(both.clone()));
    assert_eq!(published(&play, "web/a"), Some(both.clone()));
    play.registry.edit_member(&own, |member| {
        member.cidrs = vec!["10.9.0.0/30".parse().unwrap()];
        member.namespaces = vec![key("shop/a").namespace];
    });
    play.run();
    let within = vec!["10.9.0.1".to_owned()];
    assert_eq!(published(&play, "shop/a"), Some(within));
    assert_eq!(published(&play, "web/a"), None);
    let ready = play.export_condition("web/a", "Ready");
    assert_eq!(ready.as_deref(), Some("False Failed"));
    play.registry.edit_member(&own, |member| {
        member.cidrs.clear();
        member.namespaces.clear();
    });
    play.run();
    assert_eq!(published(&play, "shop/a"), Some(both.clone()));
    assert_eq!(published(&play, "web/a"), Some(both));
}

#[test]
fn a_time_before_joining_or_in_the_future_is_doubtful() {
    let mut play = Play::ready();
    let k = origin(&cluster("k"));
    play.registry
        .edit_member(&k, |member| member.joined = at(100));
    play.states("k", "shop/a", record(50), &entries(&["10.0.0.1"]));
    play.run();
    assert_eq!(counts(&play), [("created-before-join", 1)]);
    assert_eq!(
        held(&play, "shop/a"),
        ["10.0.0.1"],
        "it is used all the same"
    );
    let doubts = |play: &Play| -> Vec<String> {
        let events = play.site.told.iter();
        let doubts = events.filter(|e| e.reason == "CreationTimeDoubtful");
        doubts.map(|event| event.message.to_string()).collect()
    };
    assert_eq!(
        doubts(&play),
        [
            "the export of shop/a in cluster k was created at 1970-01-01T00:00:50Z, before the \
          cluster joined at 1970-01-01T00:01:40Z: the earlier time decides conflicts"
        ]
    );
    let now = play.site.now.as_second();
    play.states("k", "shop/b", record(now + 30), &entries(&[]));
    play.run();
    assert_eq!(doubts(&play).len(), 1, "clocks differ");
    play.states("k", "shop/c", record(now + 90), &entries(&[]));
    play.run();
    assert_eq!(doubts(&play).len(), 2);
    let expected = [("created-before-join", 1), ("created-in-future", 1)];
    assert_eq!(counts(&play), expected);
}

#[test]
fn the_setting_makes_joining_count_also_for_the_own_export() {
    let mut play = Play::ready();
    let own = play.site.origin();
    play.service(service("shop/a"));
    play.export(export("shop/a", 10));
    let mut headless = record(20);
    headless.kind = ImportType::Headless;
    play.states("k", "shop/a", headless, &entries(&[]));
    play.registry
        .edit_member(&own, |member| member.joined = at(30));
    play.run();
    let kind = |play: &Play| play.import("shop/a").unwrap().spec.as_ref().unwrap().kind;
    assert_eq!(kind(&play), ImportType::ClusterSetIp);
    play.step(&Op::FromJoin(true));
    play.run();
    assert_eq!(kind(&play), ImportType::Headless);
    play.step(&Op::FromJoin(false));
    play.run();
    assert_eq!(kind(&play), ImportType::ClusterSetIp);
}
