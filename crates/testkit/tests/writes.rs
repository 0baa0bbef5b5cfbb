//! Writes that a server bends, refuses or that another manager takes back: no loop, no standstill.

#![expect(clippy::unwrap_used, reason = "test crate")]

use std::sync::Arc;

use tombolo_model::io::Effect;
use tombolo_model::object::{Kind, Object};
use tombolo_testkit::build::{entries, record};
use tombolo_testkit::play::Play;
use tombolo_testkit::site::{Fate, written};

/// The site with one import in order.
fn with_import() -> Play {
    let mut play = Play::ready();
    play.states("k", "shop/a", record(1), &entries(&["10.9.0.1"]));
    play.run();
    play
}

/// An older schema: it knows nothing of the policy and of families.
fn prune(object: &mut Object) {
    if let Object::ServiceImport(import) = object
        && let Some(spec) = &mut Arc::make_mut(import).spec
    {
        spec.families.clear();
        spec.traffic_distribution = None;
    }
}

/// A manager that insists on its own affinity.
fn insist(play: &mut Play) {
    let mut service = play.derived_service("shop/a").unwrap().clone();
    service.has_selector = true;
    play.site.api.put_raw(Object::Service(Arc::new(service)));
    play.run();
}

fn is_corrected(play: &Play) -> bool {
    !play.derived_service("shop/a").unwrap().has_selector
}

#[test]
fn a_server_that_prunes_a_field_is_not_written_to_in_a_loop() {
    let mut play = Play::ready();
    play.site.api.mutation = Some(prune);
    let mut wanted = record(1);
    wanted.traffic_distribution = Some("PreferClose".into());
    play.states("k", "shop/a", wanted.clone(), &entries(&["10.9.0.1"]));
    play.run();
    assert_eq!(play.import_ready("shop/a").as_deref(), Some("True Ready"));
    let before = play.site.actions_total;
    play.site.relist(Kind::ServiceImport, &play.registry);
    play.run();
    assert_eq!(play.site.actions_total, before);
    // A change of what is wanted is written all the same.
    wanted.labels.insert("team".into(), "shop".into());
    play.states("k", "shop/a", wanted, &entries(&["10.9.0.1"]));
    play.run();
    assert_eq!(
        play.import("shop/a").unwrap().meta.label("team"),
        Some("shop")
    );
}

#[test]
fn an_object_that_another_manager_changes_back_is_left_alone_for_ten_minutes() {
    let mut play = with_import();
    play.site.wait(&play.registry, 61);
    for _ in 0..3 {
        insist(&mut play);
        assert!(is_corrected(&play));
        play.site.wait(&play.registry, 5);
    }
    insist(&mut play);
    assert!(!is_corrected(&play));
    assert_eq!(
        play.import_ready("shop/a").as_deref(),
        Some("False Pending")
    );
    let conditions = &play.import("shop/a").unwrap().status.conditions;
    let message = conditions[0].message.to_string();
    assert!(message.contains("Contended"), "{message}");
    assert!(
        message.contains(play.derived_key("shop/a").name.as_str()),
        "{message}"
    );
    play.site.wait(&play.registry, 590);
    play.run();
    assert!(!is_corrected(&play));
    play.site.wait(&play.registry, 15);
    play.run();
    assert!(is_corrected(&play));
    assert_eq!(play.import_ready("shop/a").as_deref(), Some("True Ready"));
}

#[test]
fn corrections_that_are_far_apart_go_on_for_ever() {
    let mut play = with_import();
    for _ in 0..20 {
        insist(&mut play);
        assert!(is_corrected(&play));
        play.site.wait(&play.registry, 30);
    }
}

#[test]
fn what_is_contended_holds_nothing_else_up() {
    let mut play = with_import();
    for _ in 0..4 {
        insist(&mut play);
    }
    assert!(!is_corrected(&play));
    play.states(
        "k",
        "shop/a",
        record(1),
        &entries(&["10.9.0.1", "10.9.0.2"]),
    );
    play.states("k", "shop/b", record(1), &entries(&["10.9.0.3"]));
    play.run();
    assert_eq!(play.mirrored("shop/a")[0].endpoints.len(), 2);
    assert_eq!(play.import_ready("shop/b").as_deref(), Some("True Ready"));
}

/// Carries everything out, but refuses what is about the import `refused`.
fn run_but(play: &mut Play, refused: &str) -> usize {
    let mut count = 0;
    play.site.deliver(&play.registry, usize::MAX);
    while let Some(action) = play.site.next_pending().cloned() {
        let is_refused = matches!(&action.effect, Effect::Create(Object::ServiceImport(_)))
            && written(&action.effect).is_some_and(|o| o.reference().key.to_string() == refused);
        count += usize::from(is_refused);
        let fate = if is_refused {
            Fate::Refused
        } else {
            Fate::Done
        };
        play.site.perform(&mut play.registry, fate);
        play.site.deliver(&play.registry, usize::MAX);
    }
    count
}

#[test]
fn a_write_that_fails_is_tried_again_ever_more_slowly_while_others_go_on() {
    let mut play = Play::ready();
    for name in ["shop/a", "shop/b"] {
        play.states("k", name, record(1), &entries(&["10.9.0.1"]));
    }
    let mut attempts = vec![run_but(&mut play, "shop/a")];
    assert_eq!(play.import_ready("shop/b").as_deref(), Some("True Ready"));
    // Each window is twice as long as the one before, so each holds one or two attempts.
    for secs in [1, 2, 4, 8, 16, 32] {
        let mut count = 0;
        for _ in 0..secs {
            play.site.wait(&play.registry, 1);
            count += run_but(&mut play, "shop/a");
        }
        attempts.push(count);
    }
    assert!(attempts.iter().all(|count| *count <= 3), "{attempts:?}");
    let mut last = 0;
    for _ in 0..3_600 {
        play.site.wait(&play.registry, 1);
        last += run_but(&mut play, "shop/a");
    }
    // Never more than 75 seconds apart, never less than 45.
    assert!((48..=80).contains(&last), "{last} attempts in an hour");
    play.site.wait(&play.registry, 75);
    play.run();
    assert_eq!(play.import_ready("shop/a").as_deref(), Some("True Ready"));
}

#[test]
fn a_lost_answer_costs_no_second_object() {
    let mut play = Play::ready();
    play.states("k", "shop/a", record(1), &entries(&["10.9.0.1"]));
    // The first answer to every write is lost although it was done.
    for fate in [Fate::UnknownDone, Fate::Done].repeat(6) {
        play.site.deliver(&play.registry, usize::MAX);
        play.site.perform(&mut play.registry, fate);
        play.site.wait(&play.registry, 1);
    }
    play.site.settle(&mut play.registry);
    assert_eq!(play.mirrored("shop/a").len(), 1);
    assert_eq!(play.import_ready("shop/a").as_deref(), Some("True Ready"));
}
