//! The builder: what a change costs, what it changes, and what listings take away.

use std::sync::Arc;

use tombolo_model::service::ImportType;

use super::world::{NOW_SECS, World, ask, import, key, slice};
use crate::{Change, Listing, Snapshot, SnapshotBuilder};

const NAME: &str = "a.shop.svc.clusterset.local A";

fn world() -> World {
    World::default()
        .headless("shop/a", &["web TCP/80"])
        .slice("shop/a", "east", &["web TCP/80"], &["10.1.0.1"])
        .slice("shop/a", "west", &["web TCP/80"], &["10.2.0.1"])
        .cluster_set_ip("shop/b", &["10.96.0.1"], &["web TCP/80"])
}

fn service(snapshot: &Snapshot, labels: &[u8]) -> *const crate::snapshot::Service {
    std::ptr::from_ref(snapshot.service(labels).unwrap())
}

#[test]
fn a_change_shares_every_other_service_with_the_snapshot_before() {
    let mut builder = world().builder();
    let before = builder.publish(NOW_SECS);
    builder.apply(Change::SliceGone(&key("shop/slice-0")));
    let after = builder.publish(NOW_SECS);
    assert_eq!(ask(&before, NAME).1, ["10.1.0.1", "10.2.0.1"]);
    assert_eq!(ask(&after, NAME).1, ["10.2.0.1"]);
    assert_eq!(
        service(&before, b"\x01b\x04shop"),
        service(&after, b"\x01b\x04shop")
    );
}

#[test]
fn the_serial_grows_with_every_change_of_an_answer_and_only_then() {
    let mut builder = world().builder();
    let first = builder.publish(NOW_SECS);
    let mut other_name = slice("shop/a", "slice-0", "east", &["web TCP/80"], &["10.1.0.1"]);
    other_name.meta.resource_version = "7".into();
    builder.apply(Change::Slice(&other_name));
    let same = builder.publish(NOW_SECS + 60);
    assert!(Arc::ptr_eq(&first, &same));
    builder.apply(Change::ImportGone(&key("shop/b")));
    let second = builder.publish(NOW_SECS);
    assert!(second.serial() > first.serial());
    // An endpoint that is not ready is in no answer.
    let idle = slice(
        "shop/a",
        "slice-9",
        "east",
        &["web TCP/80"],
        &["10.1.0.9 !"],
    );
    builder.apply(Change::Slice(&idle));
    assert_eq!(builder.publish(NOW_SECS + 60).serial(), second.serial());
    builder.apply(Change::ImportGone(&key("shop/a")));
    assert_eq!(builder.publish(NOW_SECS + 60).serial(), NOW_SECS + 60);
}

#[test]
fn what_a_listing_does_not_show_is_gone() {
    let world = world();
    let mut builder = world.builder();
    builder.publish(NOW_SECS);
    builder.apply(Change::ListBegins(Listing::Slices));
    builder.apply(Change::Slice(&world.slices[1]));
    assert_eq!(ask(&builder.publish(NOW_SECS), NAME).1.len(), 2);
    builder.apply(Change::ListEnds(Listing::Slices));
    assert_eq!(ask(&builder.publish(NOW_SECS), NAME).1, ["10.2.0.1"]);
    builder.apply(Change::ListBegins(Listing::Imports));
    builder.apply(Change::ListEnds(Listing::Imports));
    let empty = builder.publish(NOW_SECS);
    assert_eq!(
        (ask(&empty, NAME).0, empty.service_count()),
        ("NXDOMAIN", 0)
    );
    assert_eq!(ask(&empty, "shop.svc.clusterset.local A").0, "NXDOMAIN");
}

#[test]
fn only_both_listings_make_it_synced() {
    let mut builder = SnapshotBuilder::new(world().zone_set(), NOW_SECS);
    assert!(!builder.is_dirty());
    builder.apply(Change::ListBegins(Listing::Imports));
    builder.apply(Change::ListEnds(Listing::Imports));
    assert!(!builder.publish(NOW_SECS).is_synced());
    builder.apply(Change::ListBegins(Listing::Slices));
    builder.apply(Change::ListEnds(Listing::Slices));
    assert!(builder.is_dirty());
    assert!(builder.publish(NOW_SECS).is_synced());
    // The next listing changes nothing until it ends.
    builder.apply(Change::ListBegins(Listing::Slices));
    assert!(builder.publish(NOW_SECS).is_synced());
}

#[test]
fn a_slice_that_moves_to_another_service_leaves_the_first() {
    let mut builder = world().headless("shop/c", &[]).builder();
    let moved = slice("shop/c", "slice-0", "east", &[], &["10.1.0.1"]);
    builder.apply(Change::Slice(&moved));
    let snapshot = builder.publish(NOW_SECS);
    assert_eq!(ask(&snapshot, NAME).1, ["10.2.0.1"]);
    assert_eq!(
        ask(&snapshot, "c.shop.svc.clusterset.local A").1,
        ["10.1.0.1"]
    );
}

#[test]
fn a_type_that_flips_needs_no_new_slices() {
    let mut builder = world().builder();
    let vip = import(
        "shop/a",
        ImportType::ClusterSetIp,
        &["10.96.0.2"],
        &["web TCP/80"],
    );
    builder.apply(Change::Import(&vip));
    assert_eq!(ask(&builder.publish(NOW_SECS), NAME).1, ["10.96.0.2"]);
    let headless = import("shop/a", ImportType::Headless, &[], &["web TCP/80"]);
    builder.apply(Change::Import(&headless));
    assert_eq!(
        ask(&builder.publish(NOW_SECS), NAME).1,
        ["10.1.0.1", "10.2.0.1"]
    );
}

#[test]
fn an_import_that_cannot_be_read_has_no_answer() {
    let mut builder = world().builder();
    let mut unreadable = import("shop/a", ImportType::Headless, &[], &[]);
    unreadable.spec = None;
    builder.apply(Change::Import(&unreadable));
    assert_eq!(ask(&builder.publish(NOW_SECS), NAME).0, "NXDOMAIN");
}

#[test]
fn an_import_whose_name_is_no_label_is_left_out() {
    let world = World::default().cluster_set_ip("shop/a.b", &["10.96.0.1"], &[]);
    assert_eq!(world.ask("a.b.shop.svc.clusterset.local A").0, "NXDOMAIN");
    assert_eq!(world.snapshot().service_count(), 0);
}
