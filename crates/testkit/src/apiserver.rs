//! A small API server over the model's objects: versions, UIDs, preconditions, cluster IPs,
//! finalizers, garbage collection and a queue of watch events.
//!
//! It refuses what a real one refuses, so that a test sees an object that could never be written.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnet::IpNet;
use jiff::{SignedDuration, Timestamp};
use tombolo_model::io::{Effect, Input, Outcome, Refusal, RefusalKind};
use tombolo_model::names::{Namespace, ObjectName, ServiceKey};
use tombolo_model::object::{
    GlobalMark, ImportStatus, Kind, Meta, NamespaceObject, Object, ObjectRef, ServiceKind,
};
use tombolo_model::service::IpFamily;

mod validate;

/// Changes what is about to be stored: an older schema that prunes, an admission webhook.
pub type Mutation = fn(&mut Object);

/// The server of one cluster.
#[derive(Clone, Debug)]
pub struct ApiServer {
    families: Vec<IpFamily>,
    /// The networks of its Services, as it tells them.
    pub service_cidrs: Vec<IpNet>,
    objects: BTreeMap<ObjectRef, Object>,
    /// Watch events that no watcher has taken yet.
    pub events: VecDeque<Input>,
    /// Objects that stay, terminating, when they are deleted.
    pub sticky: BTreeSet<ObjectRef>,
    /// What happens to every write of the engine.
    pub mutation: Option<Mutation>,
    version: u64,
    hosts: u16,
}

/// Applies a change to an object's metadata; a Namespace has none of this shape.
pub fn edit_meta(object: &mut Object, edit: impl FnOnce(&mut Meta)) {
    match object {
        Object::Namespace(_) => {}
        Object::Service(o) => edit(&mut Arc::make_mut(o).meta),
        Object::EndpointSlice(o) => edit(&mut Arc::make_mut(o).meta),
        Object::ServiceExport(o) => edit(&mut Arc::make_mut(o).meta),
        Object::ServiceImport(o) => edit(&mut Arc::make_mut(o).meta),
    }
}

/// The number in a resource version of this server.
pub fn version_of(text: &str) -> u64 {
    text.parse().unwrap_or(0)
}

impl ApiServer {
    /// An empty server whose network has these families.
    pub const fn new(families: Vec<IpFamily>) -> Self {
        Self {
            families,
            service_cidrs: Vec::new(),
            objects: BTreeMap::new(),
            events: VecDeque::new(),
            sticky: BTreeSet::new(),
            mutation: None,
            version: 0,
            hosts: 0,
        }
    }

    /// The families of its network.
    pub fn families(&self) -> &[IpFamily] {
        &self.families
    }

    /// Changes the families of its network, for what is written from now on.
    pub fn set_families(&mut self, families: Vec<IpFamily>) {
        self.families = families;
    }

    /// All objects.
    pub fn objects(&self) -> impl Iterator<Item = &Object> {
        self.objects.values()
    }

    /// One object.
    pub fn get(&self, reference: &ObjectRef) -> Option<&Object> {
        self.objects.get(reference)
    }

    /// All objects of a kind, and the version of this listing.
    pub fn list(&self, kind: Kind) -> (Vec<Object>, Arc<str>) {
        let objects = self.objects.values().filter(|o| o.kind() == kind);
        (objects.cloned().collect(), self.version.to_string().into())
    }

    /// Creates or replaces an object as a user does, without preconditions. The status is kept
    /// unless the object brings one.
    pub fn put(&mut self, mut object: Object) {
        let reference = object.reference();
        let old = self.objects.get(&reference).cloned();
        if old
            .as_ref()
            .is_some_and(|old| !validate::can_become(old, &object))
        {
            self.sticky.remove(&reference);
            self.remove(&reference);
            self.put(object);
            return;
        }
        self.keep(old.as_ref(), &mut object);
        if let Object::Service(service) = &mut object {
            Arc::make_mut(service).cluster_ips.clear();
            if let Some(Object::Service(old)) = &old {
                let ips = old.cluster_ips.clone();
                Arc::make_mut(service).cluster_ips = ips;
            }
        }
        if self.allocate(&mut object).is_ok() {
            self.store(object);
        }
    }

    /// Stores an object as it is, but for its version: a hand that edits anything.
    pub fn put_raw(&mut self, mut object: Object) {
        let old = self.objects.get(&object.reference()).cloned();
        self.keep(old.as_ref(), &mut object);
        self.store(object);
    }

    /// Deletes an object; one with a finalizer stays, terminating.
    pub fn remove(&mut self, reference: &ObjectRef) {
        if self.sticky.contains(reference) {
            if let Some(mut object) = self.objects.get(reference).cloned() {
                edit_meta(&mut object, |meta| meta.terminating = true);
                self.store(object);
            }
            return;
        }
        if self.objects.remove(reference).is_some() {
            self.version += 1;
            self.events.push_back(Input::Deleted {
                object: reference.clone(),
                resource_version: self.version.to_string().into(),
            });
        }
    }

    /// Lets go of everything that a finalizer held.
    pub fn release(&mut self) {
        for reference in std::mem::take(&mut self.sticky) {
            let object = self.objects.get(&reference);
            if object.and_then(Object::meta).is_some_and(|m| m.terminating) {
                self.remove(&reference);
            }
        }
    }

    /// Removes a namespace with everything in it.
    pub fn remove_namespace(&mut self, namespace: &Namespace) {
        let inside: Vec<ObjectRef> = self
            .objects
            .keys()
            .filter(|r| r.key.namespace == *namespace && r.kind != Kind::Namespace)
            .cloned()
            .collect();
        for reference in inside {
            self.sticky.remove(&reference);
            self.remove(&reference);
        }
        self.remove(&namespace_ref(namespace));
    }

    /// Deletes what is owned by ServiceImports of which none is there any more.
    pub fn collect_garbage(&mut self) {
        let imports: BTreeSet<Arc<str>> = self
            .objects
            .values()
            .filter(|o| o.kind() == Kind::ServiceImport)
            .filter_map(|o| o.meta().map(|meta| Arc::clone(&meta.uid)))
            .collect();
        let orphans: Vec<ObjectRef> = self
            .objects
            .values()
            .filter(|o| {
                o.meta().is_some_and(|meta| {
                    !meta.owners.is_empty()
                        && meta
                            .owners
                            .iter()
                            .all(|owner| !imports.contains(&owner.uid))
                })
            })
            .map(Object::reference)
            .collect();
        for reference in orphans {
            self.remove(&reference);
        }
    }

    /// Carries an effect of the engine out, if it is one of Kubernetes.
    pub fn perform(&mut self, effect: &Effect) -> Option<Outcome> {
        let outcome = match effect {
            Effect::Create(object) => self.create(object),
            Effect::Update { old, new } => self.update(old, new, false),
            Effect::UpdateStatus { old, new } => self.update(old, new, true),
            Effect::Delete(object) => self.delete(object),
            Effect::Publish { .. } | Effect::Synced(_) | Effect::Report(_) | Effect::Event(_) => {
                return None;
            }
        };
        Some(outcome.unwrap_or_else(|refused| refused))
    }

    fn create(&mut self, object: &Object) -> Result<Outcome, Outcome> {
        let reference = object.reference();
        if let Some(current) = self.objects.get(&reference) {
            return Ok(Outcome::Outdated(Some(current.clone())));
        }
        self.check_namespace(&reference.key.namespace)?;
        let mut object = object.clone();
        match &mut object {
            // A create drops the status, which is a subresource.
            Object::ServiceImport(o) => Arc::make_mut(o).status = ImportStatus::default(),
            Object::ServiceExport(o) => Arc::make_mut(o).conditions.clear(),
            Object::Namespace(_) | Object::Service(_) | Object::EndpointSlice(_) => {}
        }
        self.mutate(&mut object);
        self.keep(None, &mut object);
        self.accept(object)
    }

    fn update(&mut self, old: &Object, new: &Object, status: bool) -> Result<Outcome, Outcome> {
        let current = self.precondition(old)?;
        if !validate::can_become(&current, new) {
            return Err(refused(RefusalKind::Invalid, "a field is immutable"));
        }
        let mut object = if status {
            validate::with_status_of(&current, new)
        } else {
            validate::with_status_of(new, &current)
        };
        self.mutate(&mut object);
        self.keep(Some(&current), &mut object);
        if object == current {
            return Ok(Outcome::Written(current));
        }
        self.accept(object)
    }

    fn delete(&mut self, object: &Object) -> Result<Outcome, Outcome> {
        self.precondition(object)?;
        self.remove(&object.reference());
        Ok(Outcome::Deleted)
    }

    /// The object as it is, if UID and version are those of the one that the writer saw.
    fn precondition(&self, seen: &Object) -> Result<Object, Outcome> {
        let Some(current) = self.objects.get(&seen.reference()) else {
            return Err(Outcome::Outdated(None));
        };
        let is_same = current.resource_version() == seen.resource_version()
            && current.meta().map(|m| &m.uid) == seen.meta().map(|m| &m.uid);
        if is_same {
            Ok(current.clone())
        } else {
            Err(Outcome::Outdated(Some(current.clone())))
        }
    }

    fn check_namespace(&self, namespace: &Namespace) -> Result<(), Outcome> {
        match self.objects.get(&namespace_ref(namespace)) {
            Some(Object::Namespace(o)) if o.terminating => Err(refused(
                RefusalKind::NamespaceTerminating,
                "the namespace is going away",
            )),
            Some(_) => Ok(()),
            None => Err(refused(RefusalKind::Other, "namespace not found")),
        }
    }

    fn accept(&mut self, mut object: Object) -> Result<Outcome, Outcome> {
        if let Some(problem) = validate::problem(&object) {
            return Err(refused(RefusalKind::Invalid, &problem));
        }
        self.allocate(&mut object)?;
        Ok(Outcome::Written(self.store(object)))
    }

    /// Gives a Service the cluster IPs that it lacks.
    fn allocate(&mut self, object: &mut Object) -> Result<(), Outcome> {
        let Object::Service(service) = object else {
            return Ok(());
        };
        let service = Arc::make_mut(service);
        if service.headless || service.kind == ServiceKind::ExternalName {
            service.cluster_ips.clear();
            return Ok(());
        }
        let key = &service.meta.key;
        let reference = ObjectRef {
            kind: Kind::Service,
            key: key.clone(),
        };
        let old = match self.objects.get(&reference) {
            Some(Object::Service(old)) => old.families.clone(),
            _ => Vec::new(),
        };
        // A Service keeps a family that the network has lost, but gets no other beside it.
        let grows = service.families.iter().any(|f| !old.contains(f));
        let mut families = service.families.iter();
        if let Some(unknown) = families.find(|f| grows && !self.families.contains(f)) {
            let message = format!("{unknown} is not configured on this cluster");
            return Err(refused(RefusalKind::Invalid, &message));
        }
        for (at, family) in service.families.iter().enumerate() {
            match service.cluster_ips.get(at) {
                Some(ip) if IpFamily::of(*ip) != *family => {
                    return Err(refused(RefusalKind::Invalid, "an IP of another family"));
                }
                Some(ip) if self.is_taken(*ip, key) => {
                    // Of an update, adapters cannot tell this from another bad field.
                    let is_update = self.objects.contains_key(&reference);
                    let kind = if is_update {
                        RefusalKind::Invalid
                    } else {
                        RefusalKind::AddressTaken
                    };
                    return Err(refused(kind, "already allocated"));
                }
                Some(_) => {}
                None => service.cluster_ips.push(next_ip(&mut self.hosts, *family)),
            }
        }
        Ok(())
    }

    /// Whether another Service than `key` has this address.
    pub fn is_taken(&self, ip: IpAddr, key: &ServiceKey) -> bool {
        self.objects.values().any(
            |o| matches!(o, Object::Service(s) if s.meta.key != *key && s.cluster_ips.contains(&ip)),
        )
    }

    fn mutate(&self, object: &mut Object) {
        if let Some(mutation) = self.mutation {
            mutation(object);
        }
    }

    /// Fills in what the server knows: UID, time and generation.
    fn keep(&self, old: Option<&Object>, object: &mut Object) {
        let next = self.version + 1;
        let spec_changed = old.is_none_or(|old| validate::spec_differs(old, object));
        let old_meta = old.and_then(Object::meta).cloned();
        if let Some(old) = old.filter(|_| object.kind() == Kind::ServiceExport) {
            let has_status = matches!(object, Object::ServiceExport(o) if !o.conditions.is_empty());
            if !has_status {
                *object = validate::with_status_of(object, old);
            }
        }
        edit_meta(object, |meta| {
            if let Some(old) = old_meta {
                meta.uid = old.uid;
                meta.created = old.created;
                meta.terminating |= old.terminating;
                meta.resource_version = old.resource_version;
                meta.generation = old.generation + i64::from(spec_changed);
            } else {
                meta.uid = format!("uid-{next}").into();
                meta.generation = 1;
                let age = SignedDuration::from_secs(i64::try_from(next).unwrap_or(0));
                meta.created = meta.created.or(Some(Timestamp::UNIX_EPOCH + age));
            }
        });
    }

    fn store(&mut self, mut object: Object) -> Object {
        self.version += 1;
        let version: Arc<str> = self.version.to_string().into();
        edit_meta(&mut object, |meta| {
            meta.resource_version = Arc::clone(&version);
        });
        if let Object::Namespace(namespace) = &mut object {
            Arc::make_mut(namespace).resource_version = version;
        }
        self.objects.insert(object.reference(), object.clone());
        self.events.push_back(Input::Applied(object.clone()));
        object
    }
}

/// Names a Namespace.
pub fn namespace_ref(namespace: &Namespace) -> ObjectRef {
    ObjectRef {
        kind: Kind::Namespace,
        key: ServiceKey::new(namespace.clone(), ObjectName::new(namespace.as_str())),
    }
}

/// A Namespace without marks.
pub fn namespace(name: &str) -> Object {
    Object::Namespace(Arc::new(NamespaceObject {
        name: Namespace::try_new(name).expect("tests name namespaces well"),
        labels: Arc::default(),
        global: GlobalMark::default(),
        terminating: false,
        resource_version: "".into(),
    }))
}

fn refused(kind: RefusalKind, message: &str) -> Outcome {
    Outcome::Refused(Refusal {
        kind,
        message: message.into(),
    })
}

/// Addresses are never given twice, so that a test sees every change.
fn next_ip(hosts: &mut u16, family: IpFamily) -> IpAddr {
    *hosts += 1;
    let [high, low] = hosts.to_be_bytes();
    match family {
        IpFamily::V4 => Ipv4Addr::new(10, 96, high, low).into(),
        IpFamily::V6 => Ipv6Addr::new(0xfd00, 0x96, 0, 0, 0, 0, 0, *hosts).into(),
    }
}
