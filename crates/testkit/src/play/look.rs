//! Short ways for a test to set something up and to look at what came of it.

use std::sync::Arc;

use tombolo_model::endpoint::Entries;
use tombolo_model::names::ServiceKey;
use tombolo_model::object::{
    Condition, ExportObject, ImportObject, Kind, Object, ObjectRef, ServiceObject, SliceObject,
};
use tombolo_model::record::{ExportRecord, Record, RecordKey};
use tombolo_model::service::IpFamily;

use super::{Play, config};
use crate::build;
use crate::registry::origin;

impl Play {
    /// The site of the pool with an IPv4 network, its engine at rest.
    pub fn ready() -> Self {
        Self::with_network(vec![IpFamily::V4])
    }

    /// The same with a network of these families.
    pub fn with_network(families: Vec<IpFamily>) -> Self {
        let mut play = Self::new(config(), families);
        play.run();
        play
    }

    /// Delivers and carries out until nothing is left.
    pub fn run(&mut self) {
        self.site.run(&mut self.registry);
    }

    /// A user creates or replaces a Service.
    pub fn service(&mut self, object: ServiceObject) {
        self.site.api.put(Object::Service(Arc::new(object)));
    }

    /// A user creates or replaces a ServiceExport.
    pub fn export(&mut self, object: ExportObject) {
        self.site.api.put(Object::ServiceExport(Arc::new(object)));
    }

    /// An EndpointSlice is created or replaced.
    pub fn endpoints(&mut self, object: SliceObject) {
        self.site.api.put(Object::EndpointSlice(Arc::new(object)));
    }

    /// An object is deleted.
    pub fn delete(&mut self, kind: Kind, name: &str) {
        self.remove(kind, build::key(name));
    }

    /// Another cluster states a service, in place of what it stated before.
    pub fn states(&mut self, cluster: &str, name: &str, record: ExportRecord, entries: &Entries) {
        let origin = origin(&build::cluster(cluster));
        let service = build::key(name);
        self.withdraw_endpoints(&origin, &service);
        for (&(address, protocol), list) in entries {
            let key = RecordKey::Endpoint {
                service: service.clone(),
                protocol,
                address,
            };
            let record = Some(Record::Endpoint(Arc::clone(list)));
            self.registry.put(&origin, key, record);
        }
        let record = Some(Record::Export(Arc::new(record)));
        self.registry
            .put(&origin, RecordKey::Export(service), record);
    }

    /// Another cluster withdraws a service.
    pub fn withdraws(&mut self, cluster: &str, name: &str) {
        let origin = origin(&build::cluster(cluster));
        let service = build::key(name);
        self.registry
            .put(&origin, RecordKey::Export(service.clone()), None);
        self.withdraw_endpoints(&origin, &service);
    }

    fn find(&self, kind: Kind, key: ServiceKey) -> Option<&Object> {
        self.site.api.get(&ObjectRef { kind, key })
    }

    /// A ServiceImport.
    pub fn import(&self, name: &str) -> Option<&ImportObject> {
        match self.find(Kind::ServiceImport, build::key(name)) {
            Some(Object::ServiceImport(object)) => Some(object),
            _ => None,
        }
    }

    /// The Service under an import's derived name.
    pub fn derived_service(&self, name: &str) -> Option<&ServiceObject> {
        match self.find(Kind::Service, self.derived_key(name)) {
            Some(Object::Service(object)) => Some(object),
            _ => None,
        }
    }

    /// The name of an import's derived Service.
    pub fn derived_key(&self, name: &str) -> ServiceKey {
        let key = build::key(name);
        let derived = self.site.config().naming.name(&key);
        key.sibling(&derived.expect("tests have short names"))
    }

    /// Our slices of an import.
    pub fn mirrored(&self, name: &str) -> Vec<&SliceObject> {
        let derived = self.derived_key(name);
        let ours = |slice: &&SliceObject| {
            slice.meta.key.namespace == derived.namespace
                && slice.meta.label("kubernetes.io/service-name") == Some(derived.name.as_str())
        };
        let slices = self.site.api.objects().filter_map(|object| match object {
            Object::EndpointSlice(slice) => Some(&**slice),
            _ => None,
        });
        slices.filter(ours).collect()
    }

    /// A condition of a ServiceExport, as `status reason`.
    pub fn export_condition(&self, name: &str, kind: &str) -> Option<String> {
        match self.find(Kind::ServiceExport, build::key(name)) {
            Some(Object::ServiceExport(object)) => short(&object.conditions, kind),
            _ => None,
        }
    }

    /// The condition Ready of a ServiceImport, as `status reason`.
    pub fn import_ready(&self, name: &str) -> Option<String> {
        short(&self.import(name)?.status.conditions, "Ready")
    }
}

fn short(conditions: &[Condition], kind: &str) -> Option<String> {
    let condition = conditions
        .iter()
        .find(|condition| &*condition.kind == kind)?;
    Some(format!("{} {}", condition.status, condition.reason))
}
