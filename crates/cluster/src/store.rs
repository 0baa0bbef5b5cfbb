//! The API server of a directory cluster, in memory.
//!
//! It holds the objects that manifests declare and those that the engine writes, gives them UIDs
//! and resource versions, gives Services their addresses, and refuses what an API server would
//! refuse. Every change comes back as an [`Input`] for the engine. All content is shared, so that
//! many clusters fit in one process. Not done: garbage collection, finalizers, admission webhooks.

mod address;
mod effect;
mod pool;
mod service;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use ipnet::IpNet;
use jiff::Timestamp;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tombolo_model::io::{Event, Input, Source};
use tombolo_model::names::{ClusterName, Namespace, ObjectName, ServiceKey};
use tombolo_model::object::{
    ExportObject, ImportStatus, Kind, Meta, Object, ObjectRef, ServiceObject,
};
use tombolo_model::service::IpFamily;

pub use address::{VIP_CIDR_V4, VIP_CIDR_V6, VipRanges, VipRangesError};
pub use effect::Reply;
pub use pool::Pool;

use self::address::{Addresses, Part};
use crate::convert::{Rejected, Strings, Subject, check_ports, observe_service};
use crate::manifest::{Change, Declared, DeclaredExport};

/// Events beyond this many push out the oldest: they are for people to read.
const EVENTS_MAX: usize = 1_000;

/// The kinds in the order in which they are listed and applied.
pub const KINDS: [Kind; 5] = [
    Kind::Namespace,
    Kind::Service,
    Kind::EndpointSlice,
    Kind::ServiceExport,
    Kind::ServiceImport,
];

/// The objects of one cluster.
#[derive(Debug)]
pub struct Store {
    cluster: ClusterName,
    families: Vec<IpFamily>,
    objects: BTreeMap<ObjectRef, Object>,
    /// The ServiceExports of manifests as the user wrote them.
    exports: HashMap<ServiceKey, Arc<DeclaredExport>>,
    /// How often an object of a name was deleted, so that the next one gets another UID.
    incarnations: HashMap<ObjectRef, u32>,
    /// Grows with every write.
    revision: u64,
    addresses: Addresses,
    events: VecDeque<Event>,
    strings: Strings,
    pool: Pool,
}

impl Store {
    /// An empty cluster whose network has these families, in its order.
    pub fn new(cluster: ClusterName, families: Vec<IpFamily>, vips: &VipRanges) -> Self {
        Self {
            cluster,
            families,
            objects: BTreeMap::new(),
            exports: HashMap::new(),
            incarnations: HashMap::new(),
            revision: 0,
            addresses: Addresses::new(vips),
            events: VecDeque::new(),
            strings: Strings::default(),
            pool: Pool::default(),
        }
    }

    /// The same cluster, whose objects have labels and annotations in common with those of others.
    #[must_use]
    pub fn with_pool(self, pool: Pool) -> Self {
        Self { pool, ..self }
    }

    /// The cluster's name.
    pub fn cluster(&self) -> &ClusterName {
        &self.cluster
    }

    /// The families of the cluster's network, in its order.
    pub fn families(&self) -> &[IpFamily] {
        &self.families
    }

    /// Changes the families. Services that are there keep theirs until they are applied again.
    pub fn set_families(&mut self, families: Vec<IpFamily>) -> Input {
        self.families.clone_from(&families);
        Input::Families(families)
    }

    /// The networks from which Services get addresses, of the cluster's families.
    pub fn service_cidrs(&self) -> Vec<IpNet> {
        self.addresses.ranges(&self.families)
    }

    /// All objects, ordered by kind, namespace and name.
    pub fn objects(&self) -> impl Iterator<Item = &Object> {
        self.objects.values()
    }

    /// One object.
    pub fn get(&self, reference: &ObjectRef) -> Option<&Object> {
        self.objects.get(reference)
    }

    /// A ServiceExport as the user wrote it.
    pub fn export_json(&self, key: &ServiceKey) -> Option<&Value> {
        self.exports.get(key).map(|export| &export.json)
    }

    /// The Events that were sent and not taken, at most 1,000.
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.events.iter()
    }

    /// Takes the Events that were sent since the last time, at most 1,000.
    pub fn take_events(&mut self) -> Vec<Event> {
        self.events.drain(..).collect()
    }

    /// All objects of a kind as a full listing.
    pub fn list(&self, kind: Kind) -> Vec<Input> {
        let source = Source::Objects(kind);
        let of_kind = self.objects().filter(|object| object.kind() == kind);
        let applied = of_kind.cloned().map(Input::Applied);
        let ended = Input::ListEnded {
            source,
            revision: self.revision.to_string().into(),
        };
        let began = std::iter::once(Input::ListBegan(source));
        began.chain(applied).chain([ended]).collect()
    }

    /// Makes the user's changes; those that an API server would refuse are left out and told.
    pub fn change(&mut self, changes: &[Change], now: Timestamp) -> (Vec<Input>, Vec<Rejected>) {
        let (mut inputs, mut rejected) = (Vec::new(), Vec::new());
        for change in changes {
            match change {
                Change::Apply(declared) => match self.apply(declared, now) {
                    Ok(input) => inputs.extend(input),
                    Err(error) => rejected.push(error),
                },
                Change::Delete(reference) => inputs.extend(self.delete(reference)),
                Change::Erase(reference) => match self.erase(reference) {
                    Ok(gone) => inputs.extend(gone),
                    Err(error) => rejected.push(error),
                },
            }
        }
        (inputs, rejected)
    }

    /// Creates a user's object or replaces the one of its name; UID, creation time, addresses and
    /// status of that one stay. `None`: nothing has changed.
    pub fn apply(
        &mut self,
        declared: &Declared,
        now: Timestamp,
    ) -> Result<Option<Input>, Rejected> {
        let reference = declared.reference();
        let subject = Subject {
            kind: reference.kind,
            key: &reference.key,
        };
        if reference.kind != Kind::Namespace
            && self.namespace(&reference.key.namespace) == NamespaceState::Missing
        {
            return Err(subject.reject("metadata.namespace", "does not exist in this cluster"));
        }
        let new = self.declared_object(declared, subject)?;
        let current = self.objects.get(&reference).cloned();
        let mut new = match &current {
            Some(current) => with_status_of(new, current),
            None => new,
        };
        let current_meta = current.as_ref().and_then(Object::meta).cloned();
        let generation = generation(current.as_ref(), &new);
        let uid = self.uid(&reference);
        change_meta(&mut new, |meta| {
            let current = current_meta.as_ref();
            if meta.uid.is_empty() {
                meta.uid = current.map_or(uid, |current| Arc::clone(&current.uid));
            }
            meta.created = meta
                .created
                .or_else(|| current.and_then(|m| m.created))
                .or(Some(now));
            // What was read from a server counts on from there.
            meta.generation = if generation == 0 {
                0
            } else {
                generation.max(meta.generation)
            };
        });
        if let Declared::ServiceExport(export) = declared {
            self.exports
                .insert(reference.key.clone(), Arc::clone(export));
        }
        if let Some(current) = &current {
            set_resource_version(&mut new, current.resource_version());
            if new == *current {
                return Ok(None);
            }
        }
        let written = self.put(reference, new);
        Ok(Some(Input::Applied(written)))
    }

    /// Deletes an object, a Namespace with everything in it. Nothing comes back where it is not.
    pub fn delete(&mut self, reference: &ObjectRef) -> Vec<Input> {
        if !self.objects.contains_key(reference) {
            return Vec::new();
        }
        let mut gone = vec![reference.clone()];
        if reference.kind == Kind::Namespace {
            let namespace = &reference.key.namespace;
            let inside = self
                .objects
                .keys()
                .filter(|other| other.kind != Kind::Namespace && other.key.namespace == *namespace);
            // The namespace itself goes last, as on a server.
            gone.splice(0..0, inside.cloned());
        }
        gone.into_iter()
            .map(|reference| self.remove(reference))
            .collect()
    }

    /// Deletes an object that must be there: a user names one that no manifest declares.
    pub fn erase(&mut self, reference: &ObjectRef) -> Result<Vec<Input>, Rejected> {
        if self.objects.contains_key(reference) {
            return Ok(self.delete(reference));
        }
        let subject = Subject {
            kind: reference.kind,
            key: &reference.key,
        };
        Err(subject.reject("metadata.name", "is not there to be deleted"))
    }

    /// The model's object of a declared one, with addresses.
    fn declared_object(
        &mut self,
        declared: &Declared,
        subject: Subject<'_>,
    ) -> Result<Object, Rejected> {
        Ok(match declared {
            Declared::Namespace(o) => Object::Namespace(Arc::clone(o)),
            Declared::EndpointSlice(o) => Object::EndpointSlice(Arc::clone(o)),
            Declared::ServiceExport(o) => Object::ServiceExport(Arc::new(o.object.clone())),
            Declared::ServiceImport(o) => Object::ServiceImport(Arc::clone(o)),
            Declared::Service(o) => {
                let mut service = observe_service(&o.object, &self.families, &mut self.strings)?;
                check_ports(&service.ports)
                    .map_err(|(field, problem)| subject.reject(field, problem))?;
                self.give_addresses(&mut service, subject)?;
                Object::Service(Arc::new(service))
            }
        })
    }

    /// The addresses of a user's Service: those it names, else those it has, else free ones, apart
    /// from the clusterset's.
    fn give_addresses(
        &mut self,
        service: &mut ServiceObject,
        subject: Subject<'_>,
    ) -> Result<(), Rejected> {
        let key = service.meta.key.clone();
        let before = self.addresses.release(&key);
        for (i, address) in service.cluster_ips.iter().enumerate() {
            if let Err(owner) = self.addresses.reserve(*address, &key) {
                self.addresses.release(&key);
                for address in before {
                    // They were this Service's a moment ago.
                    self.addresses.reserve(address, &key).ok();
                }
                let problem = format!("is {address}, which Service {owner} has already");
                return Err(subject.reject(format!("spec.clusterIPs[{i}]"), problem));
            }
        }
        let needs_addresses = service::needs_addresses(service);
        let missing = service.families.get(service.cluster_ips.len()..);
        for family in missing.into_iter().flatten().copied() {
            if !needs_addresses || !self.families.contains(&family) {
                continue;
            }
            let old = before
                .iter()
                .find(|address| IpFamily::of(**address) == family);
            let kept = old.filter(|old| self.addresses.reserve(**old, &key).is_ok());
            let address = kept
                .copied()
                .or_else(|| self.addresses.allocate(Part::Local, family, &key));
            service.cluster_ips.extend(address);
        }
        Ok(())
    }

    /// Stores an object under the next resource version.
    fn put(&mut self, reference: ObjectRef, mut object: Object) -> Object {
        self.revision += 1;
        set_resource_version(&mut object, &self.revision.to_string().into());
        change_meta(&mut object, |meta| {
            meta.labels = self.pool.share(&meta.labels);
            meta.annotations = self.pool.share(&meta.annotations);
        });
        self.objects.insert(reference, object.clone());
        object
    }

    fn remove(&mut self, reference: ObjectRef) -> Input {
        self.objects.remove(&reference);
        self.revision += 1;
        match reference.kind {
            Kind::Service => {
                self.addresses.release(&reference.key);
            }
            Kind::ServiceExport => {
                self.exports.remove(&reference.key);
            }
            Kind::Namespace | Kind::EndpointSlice | Kind::ServiceImport => {}
        }
        *self.incarnations.entry(reference.clone()).or_default() += 1;
        Input::Deleted {
            object: reference,
            resource_version: self.revision.to_string().into(),
        }
    }

    fn namespace(&self, namespace: &Namespace) -> NamespaceState {
        let reference = ObjectRef {
            kind: Kind::Namespace,
            key: ServiceKey::new(namespace.clone(), ObjectName::new(namespace.as_str())),
        };
        match self.objects.get(&reference) {
            Some(Object::Namespace(o)) if o.terminating => NamespaceState::Terminating,
            Some(_) => NamespaceState::Active,
            None => NamespaceState::Missing,
        }
    }

    /// The UID of the next object of this name: the same in every run of the same input.
    fn uid(&self, reference: &ObjectRef) -> Arc<str> {
        let incarnation = self
            .incarnations
            .get(reference)
            .copied()
            .unwrap_or_default();
        let (kind, key) = (reference.kind.as_str(), &reference.key);
        let text = format!("{}\n{kind}\n{key}\n{incarnation}", self.cluster);
        let hash = Sha256::digest(text);
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hash[..16]);
        // RFC 9562, version 8: a UUID of one's own making.
        bytes[6] = bytes[6] & 0x0f | 0x80;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        let hex = format!("{:032x}", u128::from_be_bytes(bytes));
        let parts = [
            &hex[..8],
            &hex[8..12],
            &hex[12..16],
            &hex[16..20],
            &hex[20..],
        ];
        parts.join("-").into()
    }
}

/// Whether objects can be in a namespace.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NamespaceState {
    Missing,
    Active,
    Terminating,
}

/// Changes an object's metadata; a Namespace has none of that shape.
fn change_meta(object: &mut Object, change: impl FnOnce(&mut Meta)) {
    match object {
        Object::Namespace(_) => {}
        Object::Service(o) => change(&mut Arc::make_mut(o).meta),
        Object::EndpointSlice(o) => change(&mut Arc::make_mut(o).meta),
        Object::ServiceExport(o) => change(&mut Arc::make_mut(o).meta),
        Object::ServiceImport(o) => change(&mut Arc::make_mut(o).meta),
    }
}

fn set_resource_version(object: &mut Object, version: &Arc<str>) {
    if let Object::Namespace(o) = object {
        Arc::make_mut(o).resource_version = Arc::clone(version);
    }
    change_meta(object, |meta| meta.resource_version = Arc::clone(version));
}

/// The same object with another's status, where its kind has one.
fn with_status_of(mut object: Object, other: &Object) -> Object {
    match (&mut object, other) {
        (Object::ServiceExport(o), Object::ServiceExport(other)) => {
            Arc::make_mut(o).conditions.clone_from(&other.conditions);
        }
        (Object::ServiceImport(o), Object::ServiceImport(other)) => {
            Arc::make_mut(o).status.clone_from(&other.status);
        }
        (_, _) => {}
    }
    object
}

/// The same object without a status, as a new one has none whatever is sent.
fn without_status(mut object: Object) -> Object {
    match &mut object {
        Object::ServiceExport(o) => Arc::make_mut(o).conditions.clear(),
        Object::ServiceImport(o) => Arc::make_mut(o).status = ImportStatus::default(),
        Object::Namespace(_) | Object::Service(_) | Object::EndpointSlice(_) => {}
    }
    object
}

/// The generation of an object that comes after `current`: counts changes of what is wanted, for
/// the kinds that have it.
fn generation(current: Option<&Object>, new: &Object) -> i64 {
    let same = match (current, new) {
        (_, Object::Namespace(_) | Object::Service(_)) => return 0,
        (None, _) => return 1,
        (Some(Object::EndpointSlice(a)), Object::EndpointSlice(b)) => {
            (a.address_type, &a.ports, &a.endpoints) == (b.address_type, &b.ports, &b.endpoints)
        }
        (Some(Object::ServiceExport(a)), Object::ServiceExport(b)) => {
            let spec = |o: &Arc<ExportObject>| (o.labels.clone(), o.annotations.clone());
            spec(a) == spec(b)
        }
        (Some(Object::ServiceImport(a)), Object::ServiceImport(b)) => a.spec == b.spec,
        (Some(_), _) => false,
    };
    let before = current
        .and_then(Object::meta)
        .map_or(0, |meta| meta.generation);
    before + i64::from(!same)
}
