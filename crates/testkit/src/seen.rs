//! What one engine has been shown so far: the ground on which its actions are judged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ipnet::IpNet;
use tombolo_model::config::Config;
use tombolo_model::endpoint::Endpoint;
use tombolo_model::fleet::{FleetService, Recorded};
use tombolo_model::io::{Effect, Input, Outcome, Source};
use tombolo_model::names::{ObjectName, ServiceKey};
use tombolo_model::object::{Kind, Object, ObjectRef, SliceObject};
use tombolo_model::service::IpFamily;

use crate::apiserver::version_of;
use crate::oracle::{Truth, expect, joined};

/// Objects by their newest version, and the fleet.
#[derive(Debug)]
pub struct Seen {
    config: Config,
    families: Vec<IpFamily>,
    service_cidrs: Vec<IpNet>,
    recorded: Arc<Recorded>,
    /// The newest version heard of, and the object unless it is gone.
    objects: BTreeMap<ObjectRef, (u64, Option<Object>)>,
    listing: BTreeMap<Kind, BTreeSet<ObjectRef>>,
    fleet: BTreeMap<ServiceKey, Arc<FleetService>>,
}

impl Seen {
    /// Nothing yet.
    pub fn new(config: Config, families: Vec<IpFamily>) -> Self {
        Self {
            config,
            families,
            service_cidrs: Vec::new(),
            recorded: Arc::default(),
            objects: BTreeMap::new(),
            listing: BTreeMap::new(),
            fleet: BTreeMap::new(),
        }
    }

    /// Takes in what the engine is about to take in; `effect` is what an outcome answers.
    pub fn observe(&mut self, input: &Input, effect: Option<&Effect>) {
        match input {
            Input::Applied(object) => self.applied(object),
            Input::Deleted {
                object,
                resource_version,
            } => self.removed(object, version_of(resource_version)),
            Input::ListBegan(Source::Objects(kind)) => {
                self.listing.insert(*kind, BTreeSet::new());
            }
            Input::ListEnded {
                source: Source::Objects(kind),
                revision,
            } => self.list_ended(*kind, version_of(revision)),
            Input::Families(families) => self.families.clone_from(families),
            Input::Recorded(recorded) => self.recorded = Arc::clone(recorded),
            Input::ServiceCidrs(cidrs) => self.service_cidrs.clone_from(cidrs),
            Input::Fleet { service, state } => {
                match state {
                    Some(state) => self.fleet.insert(service.clone(), Arc::clone(state)),
                    None => self.fleet.remove(service),
                };
            }
            Input::Outcome { outcome, .. } => match (outcome, effect) {
                (Outcome::Written(object) | Outcome::Outdated(Some(object)), _) => {
                    self.applied(object);
                }
                (Outcome::Deleted, Some(Effect::Delete(object))) => {
                    self.removed(&object.reference(), version_of(object.resource_version()));
                }
                (
                    Outcome::Outdated(None),
                    Some(
                        Effect::Update { old, .. }
                        | Effect::UpdateStatus { old, .. }
                        | Effect::Delete(old),
                    ),
                ) => self.removed(&old.reference(), version_of(old.resource_version())),
                _ => {}
            },
            Input::ListBegan(Source::OwnRecords)
            | Input::ListEnded { .. }
            | Input::Trusted(_)
            | Input::Peers(_)
            | Input::Claims(_)
            | Input::Heard(_)
            | Input::Revision(_)
            | Input::Regressed
            | Input::OwnRecord { .. }
            | Input::Session(_)
            | Input::TimeOfDay(_)
            | Input::Tick => {}
        }
    }

    fn applied(&mut self, object: &Object) {
        let reference = object.reference();
        if let Some(seen) = self.listing.get_mut(&reference.kind) {
            seen.insert(reference.clone());
        }
        let version = version_of(object.resource_version());
        let known = self
            .objects
            .get(&reference)
            .map_or(0, |(version, _)| *version);
        if version > known {
            self.objects
                .insert(reference, (version, Some(object.clone())));
        }
    }

    fn removed(&mut self, reference: &ObjectRef, version: u64) {
        let known = self
            .objects
            .get(reference)
            .map_or(0, |(version, _)| *version);
        if version >= known {
            self.objects.insert(reference.clone(), (version, None));
        }
    }

    fn list_ended(&mut self, kind: Kind, version: u64) {
        let seen = self.listing.remove(&kind).unwrap_or_default();
        for (reference, (known, object)) in &mut self.objects {
            if reference.kind == kind && !seen.contains(reference) && *known <= version {
                *object = None;
            }
        }
    }

    /// The objects, without what other clusters state.
    pub fn truth(&self) -> Truth {
        let mut truth = Truth::new(self.config.clone(), self.families.clone());
        truth.service_cidrs.clone_from(&self.service_cidrs);
        truth.members.clone_from(&self.recorded.members);
        truth.settings = self.recorded.settings;
        let objects = self.objects.values();
        for object in objects.filter_map(|(_, object)| object.as_ref()) {
            truth.put(object);
        }
        truth
    }

    /// What a cluster says of a service, as far as this engine can know.
    fn endpoints(&self, service: &ServiceKey, cluster: &str) -> Vec<Endpoint> {
        if cluster == self.config.cluster.as_str() {
            let records = expect(&self.truth()).records;
            return records
                .get(service)
                .map_or_else(Vec::new, |own| joined(&own.entries));
        }
        let fleet = self.fleet.get(service);
        let stated = fleet.and_then(|fleet| fleet.clusters().get(cluster));
        stated.map_or_else(Vec::new, |stated| stated.endpoints.to_vec())
    }

    /// What a slice that is about to be written holds although it is not exported.
    pub fn not_exported(&self, slice: &SliceObject) -> Option<String> {
        let label = |key| slice.meta.label(key).unwrap_or_default();
        let name = label("multicluster.kubernetes.io/service-name");
        let cluster = label("multicluster.kubernetes.io/source-cluster");
        let service = slice.meta.key.sibling(&ObjectName::new(name));
        let stated = self.endpoints(&service, cluster);
        let numbers: BTreeSet<_> = slice.ports.iter().map(|p| (p.protocol, p.port)).collect();
        let is_stated = |address| {
            stated.iter().any(|endpoint| {
                let served: BTreeSet<_> = endpoint
                    .ports
                    .iter()
                    .map(|p| (p.protocol, p.port))
                    .collect();
                endpoint.address == address && numbers.is_subset(&served)
            })
        };
        let stray = slice.endpoints.iter().find(|e| !is_stated(e.address))?;
        Some(format!(
            "{} is written with {} of {cluster}, which {cluster} does not export in {service}",
            slice.meta.key, stray.address
        ))
    }
}
