//! What hands do to derived objects, and strangers to their names.

use std::sync::Arc;

use tombolo_model::config::SliceMode;
use tombolo_model::names::{DerivedNaming, ServiceKey};
use tombolo_model::object::{
    ImportObject, ImportSpec, ImportStatus, Kind, Meta, Object, ObjectRef,
};
use tombolo_model::service::{Affinity, ImportType, InternalTrafficPolicy, IpFamily};

use super::{Play, service};
use crate::apiserver::edit_meta;
use crate::ops::{Edit, Key};

impl Play {
    fn derived(&self, key: Key) -> ServiceKey {
        let key = service(key);
        let naming: DerivedNaming = self.site.config().naming;
        let name = naming.name(&key).expect("names of the pool are short");
        key.sibling(&name)
    }

    /// A Service of somebody else under the derived name, with the address that the import had.
    pub(super) fn stranger(&mut self, key: Key) {
        let derived = self.derived(key);
        let reference = ObjectRef {
            kind: Kind::Service,
            key: derived.clone(),
        };
        self.excused.insert(service(key));
        let shape = crate::shapes::ServiceShape {
            kind: Some(tombolo_model::object::ServiceKind::ClusterIp),
            ports: Vec::new(),
            families: vec![self.site.api.families()[0]],
            affinity: None,
            is_local: false,
            distribution: None,
        };
        if self.site.api.get(&reference).is_some() {
            self.site.api.remove(&reference);
        }
        self.put(Object::Service(Arc::new(shape.object(derived))));
    }

    /// The stranger goes; a Service of ours stays.
    pub(super) fn no_stranger(&mut self, key: Key) {
        let reference = ObjectRef {
            kind: Kind::Service,
            key: self.derived(key),
        };
        let object = self.site.api.get(&reference).and_then(Object::meta);
        if object.is_some_and(|meta| meta.labels.is_empty()) {
            self.site.api.remove(&reference);
        }
    }

    /// A ServiceImport made by hand, unless there is one.
    pub(super) fn foreign_import(&mut self, key: Key) {
        let key = service(key);
        let reference = ObjectRef {
            kind: Kind::ServiceImport,
            key: key.clone(),
        };
        if self.site.api.get(&reference).is_some() {
            return;
        }
        let mut meta = Meta::to_create(key);
        Arc::make_mut(&mut meta.labels).insert("by".into(), "hand".into());
        self.put(Object::ServiceImport(Arc::new(ImportObject {
            meta,
            spec: Some(ImportSpec {
                kind: ImportType::ClusterSetIp,
                ports: Vec::new(),
                ips: Vec::new(),
                families: vec![IpFamily::V4],
                affinity: Affinity::default(),
                internal_traffic_policy: InternalTrafficPolicy::default(),
                traffic_distribution: None,
            }),
            status: ImportStatus::default(),
        })));
    }

    /// A hand edits one of the objects that carry our mark.
    pub(super) fn hand(&mut self, at: usize, edit: Edit) {
        let is_ours = |object: &&Object| {
            object
                .meta()
                .and_then(|meta| meta.label("app.kubernetes.io/managed-by"))
                == Some("tombolo")
        };
        let ours: Vec<Object> = self.site.api.objects().filter(is_ours).cloned().collect();
        if ours.is_empty() {
            return;
        }
        let mut object = ours[at % ours.len()].clone();
        let reference = object.reference();
        match edit {
            Edit::Delete => return self.site.api.remove(&reference),
            Edit::Stick => {
                self.site.api.sticky.insert(reference);
                return;
            }
            Edit::Unlabel => edit_meta(&mut object, |meta| {
                Arc::make_mut(&mut meta.labels).remove("app.kubernetes.io/managed-by");
            }),
            Edit::Decorate => edit_meta(&mut object, |meta| {
                let annotations = Arc::make_mut(&mut meta.annotations);
                annotations.insert("argocd.argoproj.io/tracking-id".into(), "x".into());
                annotations.insert("example.org/note".into(), "y".into());
                Arc::make_mut(&mut meta.labels).insert("stray".into(), "z".into());
            }),
            Edit::Disown => edit_meta(&mut object, |meta| meta.owners.clear()),
            Edit::Spec => spoil(&mut object),
        }
        self.site.api.put_raw(object);
    }
}

/// Changes what an object says.
fn spoil(object: &mut Object) {
    match object {
        Object::Service(service) => {
            let service = Arc::make_mut(service);
            service.ports.reverse();
            service.affinity = Affinity::ClientIp { timeout_secs: 7 };
            service.has_selector = true;
        }
        Object::EndpointSlice(slice) => {
            let slice = Arc::make_mut(slice);
            slice.endpoints = slice.endpoints.iter().skip(1).cloned().collect();
        }
        Object::ServiceImport(import) => {
            let import = Arc::make_mut(import);
            import.status.clusters.clear();
            if let Some(spec) = &mut import.spec {
                spec.ports.clear();
                spec.ips.clear();
            }
        }
        Object::Namespace(_) | Object::ServiceExport(_) => {}
    }
}

/// Which imports get slices, by number.
pub fn slice_mode(at: usize) -> SliceMode {
    [
        SliceMode::All,
        SliceMode::All,
        SliceMode::Headless,
        SliceMode::None,
    ][at % 4]
}
