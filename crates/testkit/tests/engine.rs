//! The engine step by step: each test is one thing that went wrong once, or that must not.

use std::sync::Arc;

use tombolo_model::io::Effect;
use tombolo_model::names::DerivedNaming;
use tombolo_model::object::{GlobalMark, Kind, Meta, Object, ObjectRef};
use tombolo_model::service::ImportType;
use tombolo_model::service::IpFamily::{V4, V6};
use tombolo_testkit::build::{entries, export, port, record, service, slice};
use tombolo_testkit::ops::{Edit, NamespaceState, Op, PeerSession};
use tombolo_testkit::play::Play;
use tombolo_testkit::registry::Registry;
use tombolo_testkit::site::{Fate, Mail, Subject};

const SHOP: usize = 0;

#[test]
fn going_away_makes_no_namespace_global() {
    let mut play = Play::ready();
    play.service(service("shop/a"));
    play.export(export("shop/a", 1));
    let state = NamespaceState::There(GlobalMark::False);
    play.step(&Op::Namespace(SHOP, state));
    play.step(&Op::Namespace(SHOP, NamespaceState::Terminating));
    play.run();
    let valid = play.export_condition("shop/a", "Valid");
    assert_eq!(valid.as_deref(), Some("False NamespaceNotGlobal"));
}

#[test]
fn an_object_made_since_is_not_the_one_that_was_not_found() {
    let mut play = Play::ready();
    play.service(service("shop/a"));
    play.export(export("shop/a", 1));
    play.site.deliver(&play.registry, usize::MAX);
    play.delete(Kind::ServiceExport, "shop/a");
    // The status is written to nothing; before the answer comes, the export is made again.
    while play.site.pending().len() > 0 {
        play.site.perform(&mut play.registry, Fate::Done);
    }
    let answers = std::mem::take(&mut play.site.inbox);
    play.export(export("shop/a", 2));
    play.site.deliver(&play.registry, usize::MAX);
    play.site.inbox.extend(answers);
    play.run();
    let ready = play.export_condition("shop/a", "Ready");
    assert_eq!(ready.as_deref(), Some("True Exported"));
}

#[test]
fn a_publication_that_was_done_after_all_is_no_failure() {
    let mut play = Play::ready();
    play.service(service("shop/a"));
    play.export(export("shop/a", 1));
    play.site.deliver(&play.registry, usize::MAX);
    play.site.perform(&mut play.registry, Fate::UnknownDone);
    play.run();
    let ready = play.export_condition("shop/a", "Ready");
    assert_eq!(ready.as_deref(), Some("True Exported"));
}

#[test]
fn an_address_is_asked_for_again_when_its_family_comes_back() {
    let mut play = Play::with_network(vec![V4, V6]);
    let dual = || {
        let mut record = record(1);
        record.families = vec![V4, V6];
        record
    };
    play.states("k", "shop/a", dual(), &entries(&[]));
    play.run();
    let before = play.import("shop/a").unwrap().spec.clone();
    // A younger cluster narrows the import, and the derived Service is lost by hand meanwhile.
    play.states("z-9", "shop/a", record(2), &entries(&[]));
    let derived = play.derived_key("shop/a");
    play.delete(Kind::Service, &derived.to_string());
    play.run();
    assert_eq!(play.derived_service("shop/a").unwrap().families, [V4]);
    play.withdraws("z-9", "shop/a");
    play.run();
    assert_eq!(play.import("shop/a").unwrap().spec, before);
}

#[test]
fn a_family_comes_back_also_where_its_address_was_taken() {
    let mut play = Play::with_network(vec![V4, V6]);
    let mut dual = record(1);
    dual.families = vec![V4, V6];
    play.states("k", "shop/a", dual, &entries(&[]));
    play.run();
    let before = play.derived_service("shop/a").unwrap().clone();
    play.states("z-9", "shop/a", record(2), &entries(&[]));
    play.delete(Kind::Service, &before.meta.key.to_string());
    play.run();
    let mut thief = service("shop/thief");
    thief.families = vec![V6];
    thief.cluster_ips = vec![before.cluster_ips[1]];
    play.site.api.put_raw(Object::Service(Arc::new(thief)));
    play.withdraws("z-9", "shop/a");
    play.step(&Op::Settle);
    let after = play.derived_service("shop/a").unwrap();
    assert_eq!(after.families, [V4, V6]);
    assert_eq!(after.cluster_ips[0], before.cluster_ips[0]);
    assert_ne!(after.cluster_ips[1], before.cluster_ips[1]);
}

#[test]
fn a_service_that_is_made_again_leads_with_the_family_of_its_address() {
    let mut play = Play::with_network(vec![V6]);
    let mut dual = record(1);
    dual.families = vec![V4, V6];
    play.states("k", "shop/a", dual, &entries(&[]));
    play.run();
    let before = play.derived_service("shop/a").unwrap().clone();
    play.delete(Kind::Service, &before.meta.key.to_string());
    play.step(&Op::Families(vec![V4, V6]));
    play.run();
    let after = play.derived_service("shop/a").unwrap();
    assert_eq!(after.families, [V6, V4]);
    assert_eq!(after.cluster_ips[0], before.cluster_ips[0]);
}

#[test]
fn a_service_that_cannot_get_the_family_is_made_anew() {
    let mut play = Play::with_network(vec![V6]);
    let mut dual = record(1);
    dual.families = vec![V4, V6];
    play.states("k", "shop/a", dual, &entries(&[]));
    play.run();
    play.step(&Op::Families(vec![V4]));
    play.run();
    assert_eq!(play.derived_service("shop/a").unwrap().families, [V4]);
    assert_eq!(play.import_ready("shop/a").as_deref(), Some("True Ready"));
}

#[test]
fn an_import_has_no_address_while_a_stranger_has_its_name() {
    let mut play = Play::ready();
    play.service(service("shop/a"));
    play.export(export("shop/a", 1));
    play.endpoints(slice("shop/a", &["10.1.0.1"]));
    play.run();
    let before = play.import("shop/a").unwrap().spec.clone().unwrap();
    assert_eq!(before.ips.len(), 1);
    assert_eq!(play.mirrored("shop/a").len(), 1);
    let derived = play.derived_key("shop/a").to_string();
    play.delete(Kind::Service, &derived);
    play.service(service(&derived));
    play.run();
    let spec = play.import("shop/a").unwrap().spec.clone().unwrap();
    assert!(spec.ips.is_empty());
    assert!(play.mirrored("shop/a").is_empty());
    // The stranger goes, and with it what stood in the way of the old address.
    play.delete(Kind::Service, &derived);
    play.run();
    assert_eq!(play.import("shop/a").unwrap().spec.as_ref(), Some(&before));
}

#[test]
fn an_import_without_any_export_is_not_touched_unless_it_is_ours() {
    let mut play = Play::ready();
    play.step(&Op::ForeignImport((0, 0)));
    play.run();
    let before = play.import("shop/a").cloned();
    play.step(&Op::Settle);
    assert_eq!(play.import("shop/a").cloned(), before);
    // Once there is an export it is adopted, and goes with the last one.
    play.states("k", "shop/a", record(1), &entries(&["10.9.0.1"]));
    play.run();
    assert_eq!(play.import_ready("shop/a").as_deref(), Some("True Ready"));
    play.withdraws("k", "shop/a");
    play.run();
    assert_eq!(play.import("shop/a"), None);
}

#[test]
fn a_derived_service_that_lost_its_marks_is_known_by_its_owner() {
    let mut play = Play::ready();
    play.states("k", "shop/a", record(1), &entries(&["10.9.0.1"]));
    play.run();
    let before = play.derived_service("shop/a").unwrap().clone();
    let mut bare = before.clone();
    bare.meta.labels = Arc::default();
    play.site.api.put_raw(Object::Service(Arc::new(bare)));
    play.run();
    let after = play.derived_service("shop/a").unwrap();
    assert_eq!(after.meta.labels, before.meta.labels);
    assert_eq!(after.meta.uid, before.meta.uid);
}

#[test]
fn nothing_is_concluded_from_records_that_may_only_be_missing() {
    let mut play = Play::ready();
    play.states("k", "shop/a", record(1), &entries(&["10.9.0.1"]));
    let mut dual = record(2);
    dual.ports.push(port("metrics TCP/9100"));
    play.states("z-9", "shop/a", dual, &entries(&["10.9.0.2"]));
    play.run();
    let (import, service) = (
        play.import("shop/a").cloned(),
        play.derived_service("shop/a").cloned(),
    );
    assert_eq!(play.mirrored("shop/a").len(), 2);
    // The registry comes back empty but for k, and z-9 has not published anything yet.
    play.step(&Op::PeerSession(3, PeerSession::Unsynced));
    play.withdraws("z-9", "shop/a");
    play.step(&Op::Restart(0));
    play.states("k", "shop/a", record(1), &entries(&["10.9.0.3"]));
    play.run();
    assert_eq!(play.import("shop/a").cloned(), import);
    assert_eq!(play.derived_service("shop/a").cloned(), service);
    let addresses = |play: &Play| -> Vec<String> {
        let slices = play.mirrored("shop/a");
        let all = slices.iter().flat_map(|slice| slice.endpoints.iter());
        all.map(|endpoint| endpoint.address.to_string()).collect()
    };
    assert_eq!(addresses(&play), ["10.9.0.3", "10.9.0.2"]);
    // Once z-9 has published everything, it is known to export nothing.
    play.step(&Op::Settle);
    assert_eq!(addresses(&play), ["10.9.0.3"]);
    let import = play.import("shop/a").unwrap();
    assert_eq!(import.spec.as_ref().unwrap().ports, record(1).ports);
    assert_eq!(import.status.clusters, ["k".into()]);
}

#[test]
fn an_empty_registry_deletes_no_import() {
    let mut play = Play::ready();
    play.states("k", "shop/a", record(1), &entries(&["10.9.0.1"]));
    play.run();
    let before: Vec<Object> = play.site.api.objects().cloned().collect();
    play.registry = Registry::default();
    play.step(&Op::Restart(3));
    play.run();
    let after: Vec<Object> = play.site.api.objects().cloned().collect();
    assert_eq!(after, before);
}

#[test]
fn local_changes_take_effect_without_the_registry_and_are_published_later() {
    let mut play = Play::ready();
    play.step(&Op::Disconnect);
    play.service(service("shop/a"));
    play.export(export("shop/a", 1));
    play.endpoints(slice("shop/a", &["10.1.0.1"]));
    play.run();
    assert_eq!(play.import_ready("shop/a").as_deref(), Some("True Ready"));
    assert_eq!(play.mirrored("shop/a").len(), 1);
    let ready = |play: &Play| play.export_condition("shop/a", "Ready");
    assert_eq!(ready(&play).as_deref(), Some("False Pending"));
    play.step(&Op::Connect);
    play.run();
    assert_eq!(ready(&play).as_deref(), Some("True Exported"));
}

#[test]
fn an_import_comes_with_its_namespace_and_goes_with_the_last_export() {
    let mut play = Play::ready();
    play.step(&Op::Namespace(SHOP, NamespaceState::Gone));
    play.states("k", "shop/a", record(1), &entries(&["10.9.0.1"]));
    play.run();
    assert_eq!(play.import("shop/a"), None);
    play.step(&Op::Namespace(
        SHOP,
        NamespaceState::There(GlobalMark::Absent),
    ));
    play.run();
    assert_eq!(play.import_ready("shop/a").as_deref(), Some("True Ready"));
    play.withdraws("k", "shop/a");
    play.run();
    assert_eq!(play.import("shop/a"), None);
    assert_eq!(play.derived_service("shop/a"), None);
    assert!(play.mirrored("shop/a").is_empty());
}

#[test]
fn a_new_import_takes_five_writes_and_an_endpoint_one() {
    let mut play = Play::ready();
    let before = play.site.actions_total;
    play.states("k", "shop/a", record(1), &entries(&["10.9.0.1"]));
    play.run();
    assert_eq!(play.site.actions_total - before, 5);
    let before = play.site.actions_total;
    play.states(
        "k",
        "shop/a",
        record(1),
        &entries(&["10.9.0.1", "10.9.0.2"]),
    );
    play.run();
    assert_eq!(play.site.actions_total - before, 1);
}

#[test]
fn an_address_that_was_taken_meanwhile_is_replaced() {
    let mut play = Play::ready();
    play.states("k", "shop/a", record(1), &entries(&["10.9.0.1"]));
    play.run();
    let derived = play.derived_service("shop/a").unwrap().clone();
    play.delete(Kind::Service, &derived.meta.key.to_string());
    let mut thief = service("shop/thief");
    thief.cluster_ips.clone_from(&derived.cluster_ips);
    play.site.api.put_raw(Object::Service(Arc::new(thief)));
    play.run();
    let after = play.derived_service("shop/a").unwrap();
    assert_ne!(after.cluster_ips, derived.cluster_ips);
    assert_eq!(play.import_ready("shop/a").as_deref(), Some("True Ready"));
}

#[test]
fn a_headless_flip_and_back_keeps_the_address() {
    let mut play = Play::ready();
    play.states("k", "shop/a", record(1), &entries(&["10.9.0.1"]));
    play.run();
    let before = play.import("shop/a").unwrap().spec.clone();
    let mut headless = record(1);
    headless.kind = ImportType::Headless;
    play.states("k", "shop/a", headless, &entries(&["10.9.0.1"]));
    play.run();
    assert!(play.derived_service("shop/a").unwrap().headless);
    let slice = play.mirrored("shop/a")[0];
    assert_eq!(slice.meta.label("service.kubernetes.io/headless"), Some(""));
    play.states("k", "shop/a", record(1), &entries(&["10.9.0.1"]));
    play.run();
    assert_eq!(play.import("shop/a").unwrap().spec, before);
}

#[test]
fn another_naming_moves_the_service_but_not_the_address() {
    let mut play = Play::ready();
    play.states("k", "shop/a", record(1), &entries(&["10.9.0.1"]));
    play.run();
    let before = play.import("shop/a").unwrap().spec.clone();
    let old = play.derived_key("shop/a");
    play.site
        .reconfigure(|config| config.naming = DerivedNaming::Suffix);
    play.step(&Op::Restart(0));
    play.site.deliver(&play.registry, usize::MAX);
    // The new Service is not asked for before the old one has given its address back.
    play.site.overtake(1);
    play.step(&Op::Settle);
    assert_eq!(play.derived_key("shop/a").name.as_str(), "a-clusterset");
    assert_eq!(play.import("shop/a").unwrap().spec, before);
    let reference = ObjectRef {
        kind: Kind::Service,
        key: old,
    };
    assert_eq!(play.site.api.get(&reference), None);
}

#[test]
fn what_an_import_owned_is_taken_over_by_the_one_that_follows() {
    let mut play = Play::ready();
    play.states("k", "shop/a", record(1), &entries(&["10.9.0.1"]));
    play.run();
    let (service, import) = (
        play.derived_service("shop/a").cloned(),
        play.import("shop/a").cloned(),
    );
    play.delete(Kind::ServiceImport, "shop/a");
    play.run();
    // The garbage collector finds nothing whose owner is gone.
    play.site.api.collect_garbage();
    play.run();
    let after = play.import("shop/a").unwrap();
    assert_ne!(after.meta.uid, import.unwrap().meta.uid);
    let kept = play.derived_service("shop/a").unwrap();
    assert_eq!(kept.meta.uid, service.unwrap().meta.uid);
    for meta in [&kept.meta, &play.mirrored("shop/a")[0].meta] {
        let owners: Vec<_> = meta.owners.iter().map(|owner| &owner.uid).collect();
        assert_eq!(owners, [&after.meta.uid]);
    }
}

#[test]
fn what_other_tools_note_on_our_objects_stays_and_what_hands_add_goes() {
    let mut play = Play::ready();
    play.states("k", "shop/a", record(1), &entries(&["10.9.0.1"]));
    play.run();
    // The objects that carry our mark: Service, slice, import.
    for at in 0..3 {
        play.step(&Op::Hand(at, Edit::Decorate));
    }
    play.run();
    let notes = |meta: &Meta| -> Vec<bool> {
        let keys = ["argocd.argoproj.io/tracking-id", "example.org/note"];
        keys.iter()
            .map(|key| meta.annotation(key).is_some())
            .collect()
    };
    let (import, service) = (
        play.import("shop/a").unwrap(),
        play.derived_service("shop/a"),
    );
    assert_eq!(notes(&import.meta), [true, false]);
    assert_eq!(notes(&service.unwrap().meta), [true, false]);
    assert_eq!(import.meta.label("stray"), None);
}

#[test]
fn nothing_is_called_published_while_a_namespace_is_to_be_heard_of() {
    let mut play = Play::ready();
    play.service(service("shop/a"));
    play.export(export("shop/a", 1));
    play.run();
    // The namespace is gone, but of its export the end was not seen.
    play.step(&Op::Restart(0));
    play.step(&Op::Namespace(SHOP, NamespaceState::Gone));
    let export = |mail: &Mail| match &mail.subject {
        Some(Subject::Object(object)) => object.kind == Kind::ServiceExport,
        _ => false,
    };
    play.lose_all(export);
    play.site.deliver(&play.registry, usize::MAX);
    let asked: Vec<_> = play.site.pending().collect();
    let synced = |effect: &Effect| matches!(effect, Effect::Synced(_));
    assert!(
        !asked.iter().any(|action| synced(&action.effect)),
        "{asked:?}"
    );
    play.step(&Op::Settle);
}
