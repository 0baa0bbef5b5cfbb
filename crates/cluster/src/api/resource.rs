//! Where objects are in the API: paths by kind, and the versions of the Multi-Cluster Services API
//! that a server has.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};

use mcs_api::{GROUP, v1alpha1, v1beta1};
use parking_lot::RwLock;
use tombolo_model::names::ServiceKey;
use tombolo_model::object::{Kind, ObjectRef};

use super::exports::Resource;

/// A version of the Multi-Cluster Services API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiVersion {
    /// v1alpha1, where a cluster has only that.
    V1Alpha1,
    /// v1beta1.
    V1Beta1,
}

impl ApiVersion {
    /// Both, the preferred one first.
    pub(super) const ALL: [Self; 2] = [Self::V1Beta1, Self::V1Alpha1];

    /// As Kubernetes writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V1Alpha1 => v1alpha1::VERSION,
            Self::V1Beta1 => v1beta1::VERSION,
        }
    }
}

/// The versions in use; v1beta1 until something else is found.
#[derive(Debug, Default)]
pub(super) struct Versions {
    exports_are_alpha: AtomicBool,
    imports_are_alpha: AtomicBool,
    /// The ServiceExports that are another resource of the API, and which.
    places: RwLock<HashMap<ServiceKey, Resource>>,
    /// The fields of this API that the server was seen to drop.
    dropped: RwLock<HashSet<(Kind, String)>>,
}

impl Versions {
    fn flag(&self, kind: Kind) -> Option<&AtomicBool> {
        match kind {
            Kind::ServiceExport => Some(&self.exports_are_alpha),
            Kind::ServiceImport => Some(&self.imports_are_alpha),
            Kind::Namespace | Kind::Service | Kind::EndpointSlice => None,
        }
    }

    /// The version in which objects of a kind of this API are read and written.
    pub(super) fn get(&self, kind: Kind) -> ApiVersion {
        match self.flag(kind) {
            Some(alpha) if alpha.load(Ordering::Relaxed) => ApiVersion::V1Alpha1,
            Some(_) | None => ApiVersion::V1Beta1,
        }
    }

    pub(super) fn set(&self, kind: Kind, version: ApiVersion) {
        if let Some(alpha) = self.flag(kind) {
            alpha.store(version == ApiVersion::V1Alpha1, Ordering::Relaxed);
        }
    }
}

/// The kind as it is written in paths.
pub(super) const fn plural(kind: Kind) -> &'static str {
    match kind {
        Kind::Namespace => "namespaces",
        Kind::Service => "services",
        Kind::EndpointSlice => "endpointslices",
        Kind::ServiceExport => "serviceexports",
        Kind::ServiceImport => "serviceimports",
    }
}

/// Whether the kind comes with a CRD.
pub(super) const fn is_custom(kind: Kind) -> bool {
    match kind {
        Kind::ServiceExport | Kind::ServiceImport => true,
        Kind::Namespace | Kind::Service | Kind::EndpointSlice => false,
    }
}

impl Versions {
    /// `apiVersion` of a kind.
    pub(super) fn api_version(&self, kind: Kind) -> String {
        match kind {
            Kind::Namespace | Kind::Service => "v1".to_owned(),
            Kind::EndpointSlice => "discovery.k8s.io/v1".to_owned(),
            Kind::ServiceExport | Kind::ServiceImport => {
                format!("{GROUP}/{}", self.get(kind).as_str())
            }
        }
    }

    fn group_path(&self, kind: Kind) -> String {
        match kind {
            Kind::Namespace | Kind::Service => "/api/v1".to_owned(),
            Kind::EndpointSlice | Kind::ServiceExport | Kind::ServiceImport => {
                format!("/apis/{}", self.api_version(kind))
            }
        }
    }

    /// All objects of a kind.
    pub(super) fn everywhere(&self, kind: Kind) -> String {
        format!("{}/{}", self.group_path(kind), plural(kind))
    }

    /// The objects of a kind in the namespace of a key.
    pub(super) fn beside(&self, kind: Kind, key: &ServiceKey) -> String {
        let (group, plural) = (self.group_path(kind), plural(kind));
        format!("{group}/namespaces/{}/{plural}", key.namespace)
    }

    /// Notes fields that the server drops; says whether any of them was not known.
    pub(super) fn note_dropped(&self, kind: Kind, fields: &[String]) -> bool {
        if fields.is_empty() {
            return false;
        }
        let mut dropped = self.dropped.write();
        // All are noted, whichever of them is new.
        let new = fields
            .iter()
            .filter(|field| dropped.insert((kind, (*field).clone())));
        new.count() > 0
    }

    /// Notes where a ServiceExport is; `None`: in the place of its kind.
    pub(super) fn set_place(&self, key: ServiceKey, resource: Option<Resource>) {
        let mut places = self.places.write();
        match resource {
            Some(resource) => places.insert(key, resource),
            None => places.remove(&key),
        };
    }

    /// One object.
    pub(super) fn object(&self, object: &ObjectRef) -> String {
        let ObjectRef { kind, key } = object;
        if *kind == Kind::ServiceExport
            && let Some(resource) = self.places.read().get(key)
        {
            return resource.object(key);
        }
        match kind {
            Kind::Namespace => format!("/api/v1/namespaces/{}", key.name),
            Kind::Service | Kind::EndpointSlice | Kind::ServiceExport | Kind::ServiceImport => {
                format!("{}/{}", self.beside(*kind, key), key.name)
            }
        }
    }
}
