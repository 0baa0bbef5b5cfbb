//! The oracle: what BEHAVIOUR §1–§3 say must be there, computed plainly from the whole truth.
//!
//! It is slow and holds no state: everything is computed again from everything. It shares nothing
//! with the model but the types of its data, so that a mistake must be made twice to go unseen.
//!
//! ```text
//! Truth (objects, families, what other clusters state) ─► expect() ─► Expected
//!                                        Expected + objects there ─► differences()
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use tombolo_model::config::{Config, SliceMode};
use tombolo_model::endpoint::{Conditions, Entries};
use tombolo_model::names::{ClusterName, Namespace, ServiceKey};
use tombolo_model::object::{
    ExportObject, GlobalMark, ImportObject, ImportSpec, NamespaceObject, Object, ServiceObject,
    SliceObject, SlicePort,
};
use tombolo_model::record::{ExportRecord, Labels, Member, Settings};
use tombolo_model::service::IpFamily;

mod absence;
mod endpoints;
mod export;
mod import;
mod merge;
mod refused;
mod verdict;

pub use endpoints::{Statement, joined, to_entries};
pub use merge::{Combined, combine};
pub use verdict::differences;

/// What one cluster states of one service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stated {
    /// The export.
    pub export: Arc<ExportRecord>,
    /// The endpoints, as they stand in the registry.
    pub entries: Entries,
}

/// Everything that one cluster's objects must follow from.
#[derive(Clone, Debug)]
pub struct Truth {
    /// How that cluster is set up.
    pub config: Config,
    /// The families of its network.
    pub families: Vec<IpFamily>,
    /// The networks of its Services.
    pub service_cidrs: Vec<IpNet>,
    /// Its namespaces.
    pub namespaces: BTreeMap<Namespace, Arc<NamespaceObject>>,
    /// Its Services.
    pub services: BTreeMap<ServiceKey, Arc<ServiceObject>>,
    /// Its EndpointSlices.
    pub slices: BTreeMap<ServiceKey, Arc<SliceObject>>,
    /// Its ServiceExports.
    pub exports: BTreeMap<ServiceKey, Arc<ExportObject>>,
    /// Its ServiceImports.
    pub imports: BTreeMap<ServiceKey, Arc<ImportObject>>,
    /// What the other clusters state.
    pub peers: BTreeMap<ClusterName, BTreeMap<ServiceKey, Stated>>,
    /// What the operator recorded for clusters, this one included.
    pub members: BTreeMap<ClusterName, Member>,
    /// The settings of the whole registry.
    pub settings: Settings,
    /// The clusters whose session is missing, for longer than the hold.
    pub missing: BTreeSet<ClusterName>,
    /// The clusters that the operator has drained.
    pub drained: BTreeSet<ClusterName>,
}

impl Truth {
    /// A cluster with nothing in it.
    pub const fn new(config: Config, families: Vec<IpFamily>) -> Self {
        Self {
            config,
            families,
            service_cidrs: Vec::new(),
            namespaces: BTreeMap::new(),
            services: BTreeMap::new(),
            slices: BTreeMap::new(),
            exports: BTreeMap::new(),
            imports: BTreeMap::new(),
            peers: BTreeMap::new(),
            members: BTreeMap::new(),
            settings: Settings {
                precedence_from_join: false,
            },
            missing: BTreeSet::new(),
            drained: BTreeSet::new(),
        }
    }

    /// Puts an object in.
    pub fn put(&mut self, object: &Object) {
        match object {
            Object::Namespace(o) => {
                self.namespaces.insert(o.name.clone(), Arc::clone(o));
            }
            Object::Service(o) => {
                self.services.insert(o.meta.key.clone(), Arc::clone(o));
            }
            Object::EndpointSlice(o) => {
                self.slices.insert(o.meta.key.clone(), Arc::clone(o));
            }
            Object::ServiceExport(o) => {
                self.exports.insert(o.meta.key.clone(), Arc::clone(o));
            }
            Object::ServiceImport(o) => {
                self.imports.insert(o.meta.key.clone(), Arc::clone(o));
            }
        }
    }

    /// Whether a namespace is there and takes part (BEHAVIOUR §7).
    fn is_global(&self, namespace: &Namespace) -> bool {
        let Some(object) = self.namespaces.get(namespace) else {
            return false;
        };
        let marked = match &object.global {
            GlobalMark::Absent => self.config.global_by_default,
            GlobalMark::True => true,
            GlobalMark::False | GlobalMark::Other(_) => false,
        };
        marked && self.config.namespaces.matches(&object.labels)
    }

    fn is_terminating(&self, namespace: &Namespace) -> bool {
        self.namespaces
            .get(namespace)
            .is_some_and(|object| object.terminating)
    }

    /// Everything that every cluster, this one included, states of a service.
    fn stated(&self, key: &ServiceKey) -> BTreeMap<ClusterName, Stated> {
        let mut all: BTreeMap<ClusterName, Stated> = self
            .peers
            .iter()
            .filter(|(cluster, _)| **cluster != self.config.cluster)
            .filter_map(|(cluster, services)| Some((cluster.clone(), services.get(key)?.clone())))
            .filter_map(|(cluster, stated)| {
                let within = refused::within_limits(self.members.get(&cluster), key, stated)?;
                Some((cluster, within))
            })
            .collect();
        if let Some(own) = export::stated(self, key) {
            all.insert(self.config.cluster.clone(), own);
        }
        all
    }

    /// Whether slices are made for an import of this kind.
    fn slices_wanted(&self, headless: bool) -> bool {
        match self.config.slices {
            SliceMode::All => true,
            SliceMode::Headless => headless,
            SliceMode::None => false,
        }
    }
}

/// What must be there.
#[derive(Clone, Debug, Default)]
pub struct Expected {
    /// What each ServiceExport shows; those that are going away are left out.
    pub exports: BTreeMap<ServiceKey, ExpectedExport>,
    /// What this cluster states in the registry.
    pub records: BTreeMap<ServiceKey, Stated>,
    /// The ServiceImports.
    pub imports: BTreeMap<ServiceKey, ExpectedImport>,
    /// ServiceImports that must stay as they are, as they are nothing to Tombolo.
    pub strangers: BTreeMap<ServiceKey, Arc<ImportObject>>,
}

/// The conditions of a ServiceExport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedExport {
    /// The reason of Valid; it is True with `Valid` only.
    pub valid: &'static str,
    /// The reason of Ready once the registry has acknowledged all; True with `Exported` only.
    pub ready: &'static str,
    /// The conflicts; `None` where the condition must not be there, or is left open.
    pub conflicts: Option<Vec<Disagreement>>,
}

/// One field on which clusters disagree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disagreement {
    /// The reason.
    pub reason: &'static str,
    /// The clusters that differ.
    pub clusters: BTreeSet<ClusterName>,
    /// Of how many.
    pub of: usize,
}

/// A ServiceImport with all that hangs on it.
#[derive(Clone, Debug)]
pub struct ExpectedImport {
    /// The spec; its `ips` are those of the derived Service.
    pub spec: ImportSpec,
    /// The exact labels.
    pub labels: Labels,
    /// The exact annotations but for remembered addresses and those of other tools.
    pub annotations: Labels,
    /// `status.clusters`.
    pub clusters: Vec<Arc<str>>,
    /// Whether `status.endpointSliceObjects` is Present.
    pub slices_present: bool,
    /// The reason of the condition Ready; it is True with `Ready` only.
    pub ready: &'static str,
    /// The derived Service's name.
    pub derived: ServiceKey,
    /// The derived Service; `None` where there is none of ours.
    pub service: Option<ExpectedService>,
    /// Every endpoint that some slice of ours holds.
    pub endpoints: BTreeSet<ExpectedEndpoint>,
    /// The clusters that are missing and whose last endpoints are kept.
    pub kept: BTreeSet<ClusterName>,
    /// The clusters that the condition Ready has to name, as something about them is amiss.
    pub amiss: BTreeSet<ClusterName>,
}

/// A derived Service.
#[derive(Clone, Debug)]
pub struct ExpectedService {
    /// It has at least these families, and exactly these if it is new.
    pub families: Vec<IpFamily>,
    /// The exact labels.
    pub labels: Labels,
    /// The exact annotations but for those of other tools.
    pub annotations: Labels,
    /// The traffic distribution, as far as this cluster's release knows it.
    pub traffic_distribution: Option<Arc<str>>,
}

/// An endpoint in a slice.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExpectedEndpoint {
    /// The source cluster.
    pub cluster: Arc<str>,
    /// The address.
    pub address: IpAddr,
    /// The slice's ports, sorted.
    pub ports: Vec<SlicePort>,
    /// The host name.
    pub hostname: Option<Arc<str>>,
    /// The zone.
    pub zone: Option<Arc<str>>,
    /// The conditions.
    pub conditions: Conditions,
    /// The node, of own endpoints.
    pub node: Option<Arc<str>>,
    /// What it stands for, of own endpoints, as text.
    pub target: Option<String>,
    /// Zones and nodes of its hints.
    pub hints: Option<ExpectedHints>,
}

/// Zones and nodes whose traffic an endpoint is for.
pub type ExpectedHints = (Vec<Arc<str>>, Vec<Arc<str>>);

/// What a cluster states that has this Service with this ServiceExport, and no endpoints.
pub fn stated_by(
    cluster: ClusterName,
    service: ServiceObject,
    export: ExportObject,
) -> Option<Stated> {
    let key = export.meta.key.clone();
    let mut truth = Truth::new(Config::new(cluster), vec![IpFamily::V4, IpFamily::V6]);
    truth.put(&crate::apiserver::namespace(key.namespace.as_str()));
    truth.put(&Object::Service(Arc::new(service)));
    truth.put(&Object::ServiceExport(Arc::new(export)));
    expect(&truth).records.remove(&key)
}

/// Everything that must follow from a truth.
pub fn expect(truth: &Truth) -> Expected {
    let mut expected = Expected::default();
    let mut keys: BTreeSet<ServiceKey> = truth.exports.keys().cloned().collect();
    keys.extend(truth.imports.keys().cloned());
    keys.extend(truth.peers.values().flat_map(BTreeMap::keys).cloned());
    for key in keys {
        let stated = truth.stated(&key);
        if let Some(own) = stated.get(&truth.config.cluster) {
            expected.records.insert(key.clone(), own.clone());
        }
        let combined = combine(stated.iter().map(|(cluster, stated)| {
            let mut record = (*stated.export).clone();
            if let Some(member) = truth.members.get(cluster)
                && truth.settings.precedence_from_join
            {
                record.created = record.created.max(member.joined);
            }
            (cluster.clone(), record)
        }));
        if let Some(export) = export::conditions(truth, &key, combined.as_ref()) {
            expected.exports.insert(key.clone(), export);
        }
        let is_here = truth.is_global(&key.namespace) && !truth.is_terminating(&key.namespace);
        match combined.filter(|_| is_here) {
            Some(combined) => {
                let import = import::import(truth, &key, &combined, &stated);
                expected.imports.insert(key, import);
            }
            None => {
                if let Some(there) = truth.imports.get(&key).filter(|o| !import::is_ours(o)) {
                    expected.strangers.insert(key, Arc::clone(there));
                }
            }
        }
    }
    expected
}
