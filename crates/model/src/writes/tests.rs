//! Retries, servers that bend what is written, managers that insist.

use std::sync::Arc;

use super::*;
use crate::names::{Namespace, ObjectName};
use crate::object::{ImportObject, ImportStatus, Meta};

fn key(name: &str) -> ServiceKey {
    ServiceKey::new(Namespace::try_new("shop").unwrap(), ObjectName::new(name))
}

fn import(label: &str) -> Object {
    let mut meta = Meta::to_create(key("search"));
    meta.labels = Arc::new([("team".into(), label.into())].into());
    Object::ServiceImport(Arc::new(ImportObject {
        meta,
        spec: None,
        status: ImportStatus::default(),
    }))
}

fn target() -> Target {
    Target::Object(import("").reference(), Part::Body)
}

fn at(millis: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_millis(millis)
}

/// Milliseconds until the retry after this many failures.
fn wait_after(failures: u32) -> i64 {
    let mut writes = Writes::default();
    for _ in 0..failures {
        writes.failed(&target(), Some(&key("search")), &"no".into(), at(0));
    }
    let due = writes.retries[&target()].due;
    i64::try_from(due.duration_since(at(0)).as_millis()).unwrap()
}

#[test]
fn retries_come_ever_later_within_bounds() {
    for (failures, base) in [
        (1, 200),
        (2, 400),
        (3, 800),
        (8, 25_600),
        (9, 51_200),
        (10, 60_000),
        (99, 60_000),
    ] {
        let wait = wait_after(failures);
        assert!(
            (base * 3 / 4..=base * 5 / 4).contains(&wait),
            "{failures}: {wait} ms"
        );
    }
}

#[test]
fn a_target_waits_for_its_retry_and_is_planned_when_it_is_due() {
    let mut writes = Writes::default();
    writes.failed(&target(), Some(&key("search")), &"no".into(), at(0));
    let due = writes.next_due().unwrap();
    assert!(!writes.is_due(&target(), at(1)));
    assert!(writes.due(at(1)).is_empty());
    assert_eq!(writes.due(due), BTreeSet::from([key("search")]));
    assert!(writes.is_due(&target(), due));
}

#[test]
fn a_success_starts_the_waits_over() {
    let mut writes = Writes::default();
    for _ in 0..5 {
        writes.failed(&target(), Some(&key("search")), &"no".into(), at(0));
    }
    writes.succeeded(&target());
    assert!(writes.is_due(&target(), at(0)));
    assert!(writes.failure(&target()).is_none());
    writes.failed(&target(), Some(&key("search")), &"no".into(), at(0));
    assert_eq!(writes.retries[&target()].attempts, 1);
}

#[test]
fn the_first_lost_race_is_run_again_at_once() {
    let mut writes = Writes::default();
    writes.outdated(&target(), Some(&key("search")), at(0));
    assert!(writes.is_due(&target(), at(0)));
    writes.outdated(&target(), Some(&key("search")), at(0));
    assert!(!writes.is_due(&target(), at(0)));
}

#[test]
fn what_a_server_made_of_a_content_counts_as_that_content() {
    let mut writes = Writes::default();
    let (wanted, bent) = (import("asked"), import("pruned"));
    assert!(!writes.is_settled(&target(), &wanted, &bent));
    writes.note_result(&target(), &wanted, &bent);
    assert!(writes.is_settled(&target(), &wanted, &bent));
    // Neither another wish nor another state is settled by it.
    assert!(!writes.is_settled(&target(), &import("else"), &bent));
    assert!(!writes.is_settled(&target(), &wanted, &import("else")));
}

#[test]
fn what_is_as_it_should_be_has_not_failed() {
    let mut writes = Writes::default();
    writes.failed(&target(), Some(&key("search")), &"no".into(), at(0));
    assert!(writes.is_settled(&target(), &import("x"), &import("x")));
    assert!(writes.failure(&target()).is_none());
}

fn may_correct(writes: &mut Writes, secs: i64) -> bool {
    writes.may_correct(&target(), &import("x"), &key("search"), at(secs * 1000))
}

#[test]
fn three_corrections_in_a_minute_are_enough_for_ten() {
    let mut writes = Writes::default();
    assert!(
        [0, 20, 40]
            .into_iter()
            .all(|secs| may_correct(&mut writes, secs))
    );
    assert!(!may_correct(&mut writes, 50));
    assert!(writes.is_contended(&target(), at(50_000)));
    assert!(!may_correct(&mut writes, 649));
    assert!(may_correct(&mut writes, 650));
    assert!(!writes.is_contended(&target(), at(650_000)));
}

#[test]
fn corrections_of_different_contents_are_no_contest() {
    let mut writes = Writes::default();
    for label in ["a", "b", "c", "d", "e"] {
        assert!(writes.may_correct(&target(), &import(label), &key("search"), at(0)));
    }
}

#[test]
fn a_correction_that_failed_does_not_count() {
    let mut writes = Writes::default();
    for _ in 0..10 {
        assert!(may_correct(&mut writes, 0));
        writes.failed(&target(), Some(&key("search")), &"no".into(), at(0));
    }
}
