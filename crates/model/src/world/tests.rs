//! What is observed, and where it is filed.

use super::*;
use crate::object::{AddressType, Meta, OwnerRef};
use crate::record::Labels;

fn key(name: &str) -> ServiceKey {
    ServiceKey::new(Namespace::try_new("shop").unwrap(), ObjectName::new(name))
}

fn config() -> Config {
    let mut config = Config::new(ClusterName::try_new("m").unwrap());
    config.foreign_slice_managers = vec!["mesh.example.org".into()];
    config
}

fn slice(labels: &[(&str, &str)]) -> SliceObject {
    let mut meta = Meta::to_create(key("slice"));
    let labels: Labels = labels.iter().map(|&(k, v)| (k.into(), v.into())).collect();
    meta.labels = Arc::new(labels);
    SliceObject {
        meta,
        address_type: AddressType::Ip(IpFamily::V4),
        ports: [].into(),
        endpoints: [].into(),
    }
}

fn export(version: &str) -> Object {
    let mut meta = Meta::to_create(key("search"));
    meta.resource_version = version.into();
    Object::ServiceExport(Arc::new(ExportObject {
        meta,
        labels: Labels::new(),
        annotations: Labels::new(),
        conditions: Vec::new(),
    }))
}

/// A world that holds the export at this version.
fn world(version: &str) -> World {
    let mut world = World::default();
    world.apply(&config(), &export(version), &mut Dirty::default());
    world
}

fn version(world: &World) -> Option<&str> {
    let export = world.exports.get(&key("search"))?;
    Some(&export.meta.resource_version)
}

#[test]
fn a_slice_is_filed_by_whose_it_is() {
    const SERVICE: (&str, &str) = ("kubernetes.io/service-name", "search");
    const MANAGER: &str = "endpointslice.kubernetes.io/managed-by";
    let local = SlicePlace::Local(key("search"));
    let mirrored = SlicePlace::Mirrored(key("search"));
    let rows: [(&[(&str, &str)], SlicePlace); 8] = [
        (&[SERVICE], local.clone()),
        (
            &[SERVICE, (MANAGER, "endpointslice-controller.k8s.io")],
            local,
        ),
        (&[], SlicePlace::Foreign),
        (
            &[SERVICE, (MANAGER, "lighthouse-agent.submariner.io")],
            SlicePlace::Foreign,
        ),
        (
            &[
                SERVICE,
                (MANAGER, "endpointslice-mesh-controller.cilium.io"),
            ],
            SlicePlace::Foreign,
        ),
        (
            &[SERVICE, (MANAGER, "mesh.example.org")],
            SlicePlace::Foreign,
        ),
        (
            &[SERVICE, ("multicluster.kubernetes.io/source-cluster", "k")],
            SlicePlace::Foreign,
        ),
        (
            &[
                ("kubernetes.io/service-name", "derived-x"),
                ("multicluster.kubernetes.io/service-name", "search"),
                (MANAGER, "controller.tombolo.dev"),
            ],
            mirrored,
        ),
    ];
    for (labels, place) in rows {
        assert_eq!(place_of(&config(), &slice(labels)), place, "{labels:?}");
    }
}

#[test]
fn a_slice_of_ours_without_labels_is_known_by_owner_and_name() {
    let config = config();
    let derived = config.naming.name(&key("search")).unwrap();
    let mut ours = slice(&[]);
    ours.meta.owners.push(OwnerRef {
        kind: "ServiceImport".into(),
        name: ObjectName::new("search"),
        uid: "uid".into(),
    });
    assert_eq!(place_of(&config, &ours), SlicePlace::Foreign);
    ours.meta.key.name = ObjectName::new(&format!("{derived}.b.east-4-0"));
    assert_eq!(
        place_of(&config, &ours),
        SlicePlace::Mirrored(key("search"))
    );
}

#[test]
fn the_name_of_a_slice_tells_cluster_and_family() {
    let derived = ObjectName::new("derived-3nu2t9bf4f");
    for (cluster, family) in [
        ("k", IpFamily::V4),
        ("b.east", IpFamily::V6),
        ("z-4-9", IpFamily::V4),
    ] {
        let cluster = ClusterName::try_new(cluster).unwrap();
        let name = slice_name(&derived, &cluster, family, 17);
        let read = parse_slice_name(name.as_str(), derived.as_str());
        assert_eq!(read, Some((cluster, family)), "{name}");
    }
    for other in [
        "derived-3nu2t9bf4f.k-5-0",
        "derived-3nu2t9bf4f.k-4-x",
        "derived-other.k-4-0",
        "derived-3nu2t9bf4f",
    ] {
        assert_eq!(parse_slice_name(other, derived.as_str()), None, "{other}");
    }
}

#[test]
fn the_longest_slice_name_is_a_name() {
    let (derived, cluster) = (ObjectName::new(&"d".repeat(63)), "c".repeat(63));
    let cluster = ClusterName::try_new(&cluster).unwrap();
    let name = slice_name(&derived, &cluster, IpFamily::V4, usize::MAX);
    assert!(name.as_str().len() <= 253);
}

#[test]
fn an_older_version_never_replaces_a_newer_one() {
    let mut world = world("10");
    world.apply(&config(), &export("9"), &mut Dirty::default());
    assert_eq!(version(&world), Some("10"));
    world.apply(&config(), &export("11"), &mut Dirty::default());
    assert_eq!(version(&world), Some("11"));
}

#[test]
fn a_late_deletion_does_not_remove_what_was_made_since() {
    let mut world = world("10");
    world.remove(&export("").reference(), "9", &mut Dirty::default());
    assert_eq!(version(&world), Some("10"));
    world.remove(&export("").reference(), "12", &mut Dirty::default());
    assert_eq!(version(&world), None);
}

#[test]
fn what_a_listing_does_not_show_is_gone_unless_it_was_written_after_it() {
    for (revision, there) in [("9", Some("10")), ("10", None), ("", None)] {
        let mut world = world("10");
        world.list_began(Kind::ServiceExport);
        let mut dirty = Dirty::default();
        world.list_ended(Kind::ServiceExport, revision, &mut dirty);
        assert_eq!(version(&world), there, "listed at {revision:?}");
        assert_eq!(dirty.services.contains(&key("search")), there.is_none());
    }
}

#[test]
fn what_a_listing_shows_stays_although_it_is_not_newer() {
    let mut world = world("10");
    world.list_began(Kind::ServiceExport);
    world.apply(&config(), &export("10"), &mut Dirty::default());
    world.list_ended(Kind::ServiceExport, "20", &mut Dirty::default());
    assert_eq!(version(&world), Some("10"));
}
