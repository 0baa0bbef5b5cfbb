//! The world: the local cluster's objects as they were last observed, indexed by the service that
//! they are about, so that a change costs only its own keys.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use mcs_api::well_known::LABEL_SERVICE_NAME;

use crate::config::Config;
use crate::guard::Pods;
use crate::names::{ClusterName, Namespace, ObjectName, ServiceKey};
use crate::object::{
    ExportObject, ImportObject, Kind, NamespaceObject, Object, ObjectRef, ServiceObject,
    SliceEndpoint, SliceObject,
};
use crate::own::{
    FOREIGN_SLICE_MANAGERS, LABEL_MANAGED_BY, LABEL_SLICE_MANAGED_BY, LABEL_SLICE_SERVICE,
    MANAGED_BY, SLICE_MANAGED_BY, import_of,
};
use crate::service::IpFamily;

#[cfg(test)]
mod tests;

/// Prefix of the labels of mirrored slices, whoever made them.
const MULTICLUSTER_PREFIX: &str = "multicluster.kubernetes.io/";

/// Slices by name.
pub(crate) type Slices = BTreeMap<ObjectName, Arc<SliceObject>>;

/// What is known of the local cluster.
#[derive(Debug, Default)]
pub(crate) struct World {
    pub(crate) namespaces: HashMap<Namespace, Arc<NamespaceObject>>,
    pub(crate) services: HashMap<ServiceKey, Arc<ServiceObject>>,
    pub(crate) exports: HashMap<ServiceKey, Arc<ExportObject>>,
    pub(crate) imports: HashMap<ServiceKey, Arc<ImportObject>>,
    /// By the Service that they belong to: what may be exported.
    local_slices: HashMap<ServiceKey, Slices>,
    /// By the import that they were made for: what is ours.
    mirrored: HashMap<ServiceKey, Slices>,
    /// Where this cluster's Pods are.
    pub(crate) pods: Pods,
    /// Where each slice is filed.
    slice_places: HashMap<ServiceKey, SlicePlace>,
    /// The Services that carry our marks, by import.
    marked: HashMap<ServiceKey, BTreeSet<ObjectName>>,
    /// The import whose derived Service has this name, for every import that was ever planned.
    derived_of: HashMap<ServiceKey, ServiceKey>,
    /// What a listing under way has seen.
    listing: HashMap<Kind, HashSet<ServiceKey>>,
}

/// What a slice is to us.
#[derive(Clone, Debug, PartialEq, Eq)]
enum SlicePlace {
    /// A part of a Service of this cluster.
    Local(ServiceKey),
    /// Ours, for this import.
    Mirrored(ServiceKey),
    /// Another implementation's, or of no Service.
    Foreign,
}

/// What a change is about.
#[derive(Debug, Default)]
pub(crate) struct Dirty {
    pub(crate) services: BTreeSet<ServiceKey>,
    /// Namespaces of which every service is concerned.
    pub(crate) namespaces: BTreeSet<Namespace>,
    /// Addresses that have become a Pod's, or are none's any more.
    pub(crate) addresses: BTreeSet<IpAddr>,
}

impl World {
    /// Takes an object in; what it is about is added to `dirty`.
    pub(crate) fn apply(&mut self, config: &Config, object: &Object, dirty: &mut Dirty) {
        let reference = object.reference();
        if let Some(seen) = self.listing.get_mut(&reference.kind) {
            seen.insert(reference.key.clone());
        }
        if let Some(present) = self.resource_version(&reference)
            && !is_newer(object.resource_version(), present)
        {
            return;
        }
        match object {
            Object::Namespace(new) => {
                self.namespaces.insert(new.name.clone(), Arc::clone(new));
                dirty.namespaces.insert(new.name.clone());
            }
            Object::Service(new) => self.set_service(&reference.key, Some(new), dirty),
            Object::EndpointSlice(new) => {
                let place = place_of(config, new);
                self.set_slice(&reference.key, Some((Arc::clone(new), place)), dirty);
            }
            Object::ServiceExport(new) => {
                self.exports.insert(reference.key.clone(), Arc::clone(new));
                dirty.services.insert(reference.key);
            }
            Object::ServiceImport(new) => {
                self.imports.insert(reference.key.clone(), Arc::clone(new));
                dirty.services.insert(reference.key);
            }
        }
    }

    /// Takes the end of an object in. `resource_version` is that of its end: an object that was
    /// made since then stays.
    pub(crate) fn remove(
        &mut self,
        reference: &ObjectRef,
        resource_version: &str,
        dirty: &mut Dirty,
    ) {
        if let Some(present) = self.resource_version(reference)
            && !resource_version.is_empty()
            && is_newer(present, resource_version)
        {
            return;
        }
        let key = &reference.key;
        match reference.kind {
            Kind::Namespace => {
                self.namespaces.remove(&key.namespace);
                dirty.namespaces.insert(key.namespace.clone());
            }
            Kind::Service => self.set_service(key, None, dirty),
            Kind::EndpointSlice => self.set_slice(key, None, dirty),
            Kind::ServiceExport => {
                self.exports.remove(key);
                dirty.services.insert(key.clone());
            }
            Kind::ServiceImport => {
                self.imports.remove(key);
                dirty.services.insert(key.clone());
            }
        }
    }

    /// A full listing of a kind begins.
    pub(crate) fn list_began(&mut self, kind: Kind) {
        self.listing.insert(kind, HashSet::new());
    }

    /// A full listing ends: what it did not show is gone, save what was written after it.
    pub(crate) fn list_ended(&mut self, kind: Kind, revision: &str, dirty: &mut Dirty) {
        let Some(seen) = self.listing.remove(&kind) else {
            return;
        };
        let gone: Vec<ServiceKey> = self
            .keys_of(kind)
            .into_iter()
            .filter(|key| !seen.contains(key))
            .collect();
        for key in gone {
            self.remove(&ObjectRef { kind, key }, revision, dirty);
        }
    }

    /// The slices of a local Service that may be exported.
    pub(crate) fn local_slices(&self, service: &ServiceKey) -> Option<&Slices> {
        self.local_slices.get(service)
    }

    /// Our slices for an import.
    pub(crate) fn mirrored(&self, service: &ServiceKey) -> Option<&Slices> {
        self.mirrored.get(service)
    }

    /// The names of the Services that carry our marks for an import.
    pub(crate) fn marked(&self, service: &ServiceKey) -> impl Iterator<Item = &ObjectName> {
        self.marked.get(service).into_iter().flatten()
    }

    /// Whether any slice has this name.
    pub(crate) fn has_slice(&self, key: &ServiceKey) -> bool {
        self.slice_places.contains_key(key)
    }

    /// From now on, a change of the Service `derived` is about `service`.
    pub(crate) fn derives(&mut self, service: &ServiceKey, derived: &ServiceKey) {
        if !self.derived_of.contains_key(derived) {
            self.derived_of.insert(derived.clone(), service.clone());
        }
    }

    /// Whether a Service is derived from an import: it carries our mark, or it is owned by one.
    pub(crate) fn is_derived(service: &ServiceObject) -> bool {
        service.meta.label(LABEL_SERVICE_NAME).is_some()
            || service
                .meta
                .owners
                .iter()
                .any(|owner| owner.kind.as_ref() == "ServiceImport")
    }

    /// Whether nothing here is about this service.
    pub(crate) fn is_empty_of(&self, service: &ServiceKey) -> bool {
        !self.exports.contains_key(service)
            && !self.imports.contains_key(service)
            && !self.mirrored.contains_key(service)
            && !self.marked.contains_key(service)
    }

    /// Forgets the derived name of a service that is gone.
    pub(crate) fn forget_derived(&mut self, derived: &ServiceKey) {
        self.derived_of.remove(derived);
    }

    fn resource_version(&self, reference: &ObjectRef) -> Option<&Arc<str>> {
        let key = &reference.key;
        match reference.kind {
            Kind::Namespace => self
                .namespaces
                .get(&key.namespace)
                .map(|o| &o.resource_version),
            Kind::Service => self.services.get(key).map(|o| &o.meta.resource_version),
            Kind::EndpointSlice => self.slice(key).map(|o| &o.meta.resource_version),
            Kind::ServiceExport => self.exports.get(key).map(|o| &o.meta.resource_version),
            Kind::ServiceImport => self.imports.get(key).map(|o| &o.meta.resource_version),
        }
    }

    /// A slice by its own name. Foreign ones are only remembered by name.
    fn slice(&self, key: &ServiceKey) -> Option<&Arc<SliceObject>> {
        let slices = match self.slice_places.get(key)? {
            SlicePlace::Local(service) => self.local_slices.get(service)?,
            SlicePlace::Mirrored(service) => self.mirrored.get(service)?,
            SlicePlace::Foreign => return None,
        };
        slices.get(&key.name)
    }

    fn keys_of(&self, kind: Kind) -> Vec<ServiceKey> {
        match kind {
            Kind::Namespace => self
                .namespaces
                .keys()
                .map(|ns| ServiceKey::new(ns.clone(), ObjectName::new(ns.as_str())))
                .collect(),
            Kind::Service => self.services.keys().cloned().collect(),
            Kind::EndpointSlice => self.slice_places.keys().cloned().collect(),
            Kind::ServiceExport => self.exports.keys().cloned().collect(),
            Kind::ServiceImport => self.imports.keys().cloned().collect(),
        }
    }

    fn set_service(
        &mut self,
        key: &ServiceKey,
        new: Option<&Arc<ServiceObject>>,
        dirty: &mut Dirty,
    ) {
        let old = match new {
            Some(new) => self.services.insert(key.clone(), Arc::clone(new)),
            None => self.services.remove(key),
        };
        if let Some(import) = old.as_deref().and_then(marked_for) {
            if let Some(names) = self.marked.get_mut(&import) {
                names.remove(&key.name);
                if names.is_empty() {
                    self.marked.remove(&import);
                }
            }
            dirty.services.insert(import);
        }
        if let Some(import) = new.map(|s| &**s).and_then(marked_for) {
            self.marked
                .entry(import.clone())
                .or_default()
                .insert(key.name.clone());
            dirty.services.insert(import);
        }
        dirty.services.extend(self.derived_of.get(key).cloned());
        // Of all others nobody asks: an export that comes is planned for itself.
        if self.exports.contains_key(key) {
            dirty.services.insert(key.clone());
        }
    }

    fn set_slice(
        &mut self,
        key: &ServiceKey,
        new: Option<(Arc<SliceObject>, SlicePlace)>,
        dirty: &mut Dirty,
    ) {
        let before = self.stating_pods(key);
        if let Some(old) = self.slice_places.remove(key)
            && let Some((all, service)) = self.shelf(&old)
        {
            if let Some(slices) = all.get_mut(service) {
                slices.remove(&key.name);
                if slices.is_empty() {
                    all.remove(service);
                }
            }
            dirty.services.insert(service.clone());
        }
        if let Some((slice, place)) = new {
            if let Some((all, service)) = self.shelf(&place) {
                all.entry(service.clone())
                    .or_default()
                    .insert(key.name.clone(), slice);
                dirty.services.insert(service.clone());
            }
            self.slice_places.insert(key.clone(), place);
        }
        let after = self.stating_pods(key);
        let changed = self.pods.replace(
            before.as_deref().unwrap_or_default(),
            after.as_deref().unwrap_or_default(),
        );
        dirty.addresses.extend(changed);
    }

    /// The endpoints of a slice, if it says where Pods of this cluster are.
    fn stating_pods(&self, key: &ServiceKey) -> Option<Arc<[SliceEndpoint]>> {
        let is_local = matches!(self.slice_places.get(key)?, SlicePlace::Local(_));
        let slice = self.slice(key).filter(|_| is_local)?;
        Some(Arc::clone(&slice.endpoints))
    }

    /// Where slices of a place are filed, and under which service.
    fn shelf<'p>(
        &mut self,
        place: &'p SlicePlace,
    ) -> Option<(&mut HashMap<ServiceKey, Slices>, &'p ServiceKey)> {
        match place {
            SlicePlace::Local(service) => Some((&mut self.local_slices, service)),
            SlicePlace::Mirrored(service) => Some((&mut self.mirrored, service)),
            SlicePlace::Foreign => None,
        }
    }
}

/// The import that a Service says it is derived from, under our mark.
fn marked_for(service: &ServiceObject) -> Option<ServiceKey> {
    if service.meta.label(LABEL_MANAGED_BY) != Some(MANAGED_BY) {
        return None;
    }
    let name = service.meta.label(LABEL_SERVICE_NAME)?;
    Some(service.meta.key.sibling(&ObjectName::new(name)))
}

/// Whether `new` is a later resource version than `old`. Versions that are no numbers cannot be
/// ordered: then whatever is heard last counts.
pub(crate) fn is_newer(new: &str, old: &str) -> bool {
    match (new.parse::<u64>(), old.parse::<u64>()) {
        (Ok(new), Ok(old)) => new > old,
        _ => new != old,
    }
}

/// Where a slice belongs.
fn place_of(config: &Config, slice: &SliceObject) -> SlicePlace {
    let key = &slice.meta.key;
    // The owner and the name tell our slices even where somebody took the labels off.
    for owner in slice
        .meta
        .owners
        .iter()
        .filter(|owner| owner.kind.as_ref() == "ServiceImport")
    {
        let import = key.sibling(&owner.name);
        let derived = config.naming.name(&import);
        if derived.is_ok_and(|d| parse_slice_name(key.name.as_str(), d.as_str()).is_some()) {
            return SlicePlace::Mirrored(import);
        }
    }
    let manager = slice.meta.label(LABEL_SLICE_MANAGED_BY);
    if manager == Some(SLICE_MANAGED_BY) {
        return import_of(slice).map_or(SlicePlace::Foreign, SlicePlace::Mirrored);
    }
    let foreign_manager = manager.is_some_and(|manager| {
        FOREIGN_SLICE_MANAGERS.contains(&manager)
            || config
                .foreign_slice_managers
                .iter()
                .any(|m| m.as_ref() == manager)
    });
    if foreign_manager
        || slice
            .meta
            .labels
            .keys()
            .any(|k| k.starts_with(MULTICLUSTER_PREFIX))
    {
        return SlicePlace::Foreign;
    }
    match slice.meta.label(LABEL_SLICE_SERVICE) {
        Some(service) => SlicePlace::Local(key.sibling(&ObjectName::new(service))),
        None => SlicePlace::Foreign,
    }
}

/// The name of a mirrored slice: `<derived>.<cluster>-<4|6>-<number>`. The derived name has no
/// dot, and what follows the cluster has a fixed form, so no two clusters or imports share one.
pub(crate) fn slice_name(
    derived: &ObjectName,
    cluster: &ClusterName,
    family: IpFamily,
    number: usize,
) -> ObjectName {
    let digit = if family == IpFamily::V4 { 4 } else { 6 };
    ObjectName::new(&format!("{derived}.{cluster}-{digit}-{number}"))
}

/// Reads what [`slice_name`] writes for this derived name.
pub(crate) fn parse_slice_name(name: &str, derived: &str) -> Option<(ClusterName, IpFamily)> {
    let rest = name.strip_prefix(derived)?.strip_prefix('.')?;
    let (rest, number) = rest.rsplit_once('-')?;
    let (cluster, digit) = rest.rsplit_once('-')?;
    number.parse::<usize>().ok()?;
    let family = match digit {
        "4" => IpFamily::V4,
        "6" => IpFamily::V6,
        _ => return None,
    };
    Some((ClusterName::try_new(cluster).ok()?, family))
}
