//! Several engines over one registry: each cluster decides alone, and all decide the same.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use tombolo_model::config::Config;
use tombolo_model::object::{Object, ServiceObject};
use tombolo_model::service::IpFamily;
use tombolo_testkit::apiserver::namespace;
use tombolo_testkit::build::cluster;
use tombolo_testkit::ops::{CLUSTERS, Key, key};
use tombolo_testkit::oracle::{Truth, differences, expect};
use tombolo_testkit::play::service;
use tombolo_testkit::registry::Registry;
use tombolo_testkit::shapes::{ExportShape, ServiceShape, SliceShape};
use tombolo_testkit::site::Site;
use tombolo_testkit::tries;

/// What happens in one of the clusters.
#[derive(Clone, Debug)]
enum Change {
    Service(Key, ServiceShape),
    Export(Key, ExportShape),
    NoExport(Key),
    Slice(Key, SliceShape),
    /// The registry is lost, or back.
    Registry(bool),
    Restart(usize),
    Run,
}

fn change() -> impl Strategy<Value = (usize, Change)> {
    let change = prop_oneof![
        4 => (key(), ServiceShape::any()).prop_map(|(k, s)| Change::Service(k, s)),
        4 => (key(), ExportShape::any()).prop_map(|(k, s)| Change::Export(k, s)),
        1 => key().prop_map(Change::NoExport),
        4 => (key(), SliceShape::any()).prop_map(|(k, s)| Change::Slice(k, s)),
        1 => any::<bool>().prop_map(Change::Registry),
        1 => (0..8_usize).prop_map(Change::Restart),
        3 => Just(Change::Run),
    ];
    (0..CLUSTERS.len(), change)
}

struct Clusters {
    sites: Vec<Site>,
    registry: Registry,
}

impl Clusters {
    fn new() -> Self {
        let mut registry = Registry::default();
        let sites = CLUSTERS.iter().map(|name| {
            let families = vec![IpFamily::V4, IpFamily::V6];
            let mut site = Site::new(Config::new(cluster(name)), families);
            site.api.put(namespace("shop"));
            site.api.put(namespace("web"));
            site.restart(&mut registry, 0);
            site
        });
        let sites = sites.collect();
        Self { sites, registry }
    }

    fn apply(&mut self, at: usize, change: &Change) {
        let number = u8::try_from(at).expect("few clusters");
        let Self { sites, registry } = self;
        let site = &mut sites[at];
        match change {
            Change::Service(key, shape) => {
                site.api
                    .put(Object::Service(Arc::new(shape.object(service(*key)))));
            }
            Change::Export(key, shape) => {
                let object = shape.object(service(*key));
                site.api.put(Object::ServiceExport(Arc::new(object)));
            }
            Change::NoExport(key) => {
                let export = ExportShape::bare().object(service(*key));
                site.api
                    .remove(&Object::ServiceExport(Arc::new(export)).reference());
            }
            Change::Slice(key, shape) => {
                let of = service(*key);
                let ports = ports_of(site, &of);
                let object = shape.object(of.clone(), of.name.as_str(), &ports, number);
                site.api.put(Object::EndpointSlice(Arc::new(object)));
            }
            Change::Registry(true) => site.connect(registry),
            Change::Registry(false) => site.disconnect(),
            Change::Restart(rotation) => site.restart(registry, *rotation),
            Change::Run => site.run(registry),
        }
    }

    /// Until no cluster has anything to say to the others.
    fn settle(&mut self) {
        loop {
            let before = self.registry.revision();
            for site in &mut self.sites {
                site.settle(&mut self.registry);
            }
            if self.registry.revision() == before {
                return;
            }
        }
    }

    fn differences(&self, site: &Site) -> Vec<String> {
        let mut truth = Truth::new(site.config().clone(), site.api.families().to_vec());
        for object in site.api.objects() {
            truth.put(object);
        }
        truth.peers = self.registry.stated();
        let mut lines = differences(&expect(&truth), &truth);
        lines.extend(site.violations.lines().iter().cloned());
        lines
    }

    /// What a cluster's imports say that must be the same everywhere.
    fn imports(site: &Site) -> BTreeMap<String, String> {
        let mut imports = BTreeMap::new();
        for object in site.api.objects() {
            if let Object::ServiceImport(import) = object {
                let mut spec = import.spec.clone();
                if let Some(spec) = &mut spec {
                    spec.ips.clear();
                }
                let clusters = &import.status.clusters;
                let text = format!("{spec:?} {clusters:?} {:?}", import.meta.labels);
                imports.insert(import.meta.key.to_string(), text);
            }
        }
        imports
    }
}

fn ports_of(
    site: &Site,
    key: &tombolo_model::names::ServiceKey,
) -> Vec<tombolo_model::service::Port> {
    let service: Option<&ServiceObject> = site.api.objects().find_map(|object| match object {
        Object::Service(service) if service.meta.key == *key => Some(&**service),
        _ => None,
    });
    service
        .map(|service| service.ports.clone())
        .unwrap_or_default()
}

proptest! {
    #![proptest_config(tries(120))]

    #[test]
    fn all_clusters_come_to_the_same(changes in vec(change(), 1..50)) {
        let mut clusters = Clusters::new();
        for (at, change) in &changes {
            clusters.apply(*at, change);
        }
        clusters.settle();
        let first = Clusters::imports(&clusters.sites[0]);
        for site in &clusters.sites {
            let lines = clusters.differences(site);
            prop_assert!(lines.is_empty(), "{}: {}", site.config().cluster, lines.join("\n"));
            prop_assert_eq!(&Clusters::imports(site), &first);
        }
    }
}
