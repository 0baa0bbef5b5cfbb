//! Metadata and Namespaces.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Namespace as K8sNamespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use tombolo_model::names::{Namespace, ObjectName, ServiceKey};
use tombolo_model::object::{GlobalMark, Kind, Meta, NamespaceObject, OwnerRef};
use tombolo_model::own::{
    ANNOTATION_GLOBAL, LABEL_MANAGED_BY, LABEL_SLICE_MANAGED_BY, MANAGED_BY, SLICE_MANAGED_BY,
};
use tombolo_model::record::Labels;

use super::{Rejected, Strings, api_version};

/// Namespace and name of an object; its other metadata is not looked at.
pub(crate) fn key_of(kind: Kind, meta: &ObjectMeta) -> Result<ServiceKey, Rejected> {
    let name = meta.name.as_deref().unwrap_or_default();
    let reject = |field: &str, problem: String| Rejected {
        object: match meta.namespace.as_deref() {
            Some(namespace) => format!("{} {namespace}/{name}", kind.as_str()),
            None => format!("{} {name}", kind.as_str()),
        },
        field: field.to_owned(),
        problem,
    };
    if name.is_empty() {
        return Err(reject("metadata.name", "is missing".to_owned()));
    }
    let namespace = match kind {
        Kind::Namespace => name,
        Kind::Service | Kind::EndpointSlice | Kind::ServiceExport | Kind::ServiceImport => {
            meta.namespace.as_deref().unwrap_or_default()
        }
    };
    match Namespace::try_new(namespace) {
        Ok(namespace) => Ok(ServiceKey::new(namespace, ObjectName::new(name))),
        Err(error) => Err(reject("metadata.namespace", format!("is wrong: {error}"))),
    }
}

/// The metadata that the model keeps. Annotations of Services and EndpointSlices that are not
/// Tombolo's are left out: nothing reads them, and they may be large.
pub(super) fn observe(
    kind: Kind,
    meta: &ObjectMeta,
    strings: &mut Strings,
) -> Result<Meta, Rejected> {
    let key = key_of(kind, meta)?;
    let labels = labels(meta.labels.as_ref(), strings);
    let owners = owners(meta, strings);
    let keep_annotations = match kind {
        Kind::Service | Kind::EndpointSlice => is_ours(&labels, &owners),
        Kind::Namespace | Kind::ServiceExport | Kind::ServiceImport => true,
    };
    let annotations = match &meta.annotations {
        Some(annotations) if keep_annotations => self::labels(Some(annotations), strings),
        Some(_) | None => Labels::new(),
    };
    Ok(Meta {
        key,
        uid: meta.uid.as_deref().unwrap_or_default().into(),
        resource_version: meta.resource_version.as_deref().unwrap_or_default().into(),
        generation: meta.generation.unwrap_or_default(),
        created: meta.creation_timestamp.as_ref().map(|time| time.0),
        terminating: meta.deletion_timestamp.is_some(),
        labels: Arc::new(labels),
        annotations: Arc::new(annotations),
        owners,
    })
}

/// Whether a Service or EndpointSlice may be one that Tombolo made.
fn is_ours(labels: &Labels, owners: &[OwnerRef]) -> bool {
    let has = |key: &str, value: &str| labels.get(key).is_some_and(|have| **have == *value);
    has(LABEL_MANAGED_BY, MANAGED_BY)
        || has(LABEL_SLICE_MANAGED_BY, SLICE_MANAGED_BY)
        || owners
            .iter()
            .any(|owner| *owner.kind == *Kind::ServiceImport.as_str())
}

pub(super) fn labels(map: Option<&BTreeMap<String, String>>, strings: &mut Strings) -> Labels {
    map.into_iter()
        .flatten()
        .map(|(key, value)| (strings.share(key), strings.share(value)))
        .collect()
}

fn owners(meta: &ObjectMeta, strings: &mut Strings) -> Vec<OwnerRef> {
    meta.owner_references
        .iter()
        .flatten()
        .map(|owner| OwnerRef {
            kind: strings.share(&owner.kind),
            name: ObjectName::new(&owner.name),
            uid: strings.share(&owner.uid),
        })
        .collect()
}

/// The metadata to send or to show. A deletion timestamp is not written: only a server sets it.
pub(super) fn write(meta: &Meta) -> ObjectMeta {
    let Meta {
        key,
        uid,
        resource_version,
        generation,
        created,
        terminating: _,
        labels,
        annotations,
        owners,
    } = meta;
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    ObjectMeta {
        name: Some(key.name.as_str().to_owned()),
        namespace: Some(key.namespace.as_str().to_owned()),
        uid: some(uid),
        resource_version: some(resource_version),
        generation: (*generation != 0).then_some(*generation),
        creation_timestamp: created.map(Time),
        labels: write_labels(labels),
        annotations: write_labels(annotations),
        owner_references: (!owners.is_empty()).then(|| owners.iter().map(write_owner).collect()),
        ..ObjectMeta::default()
    }
}

pub(super) fn write_labels(labels: &Labels) -> Option<BTreeMap<String, String>> {
    (!labels.is_empty()).then(|| {
        let entries = labels.iter();
        entries
            .map(|(k, v)| (k.to_string(), v.to_string()))
            .collect()
    })
}

/// Not as controller and without blocking the owner's deletion: several writers may own an object
/// together, and `blockOwnerDeletion` needs a right that Tombolo does not ask for.
fn write_owner(owner: &OwnerRef) -> OwnerReference {
    let api_version = match &*owner.kind {
        "ServiceImport" => api_version(Kind::ServiceImport),
        "ServiceExport" => api_version(Kind::ServiceExport),
        "EndpointSlice" => api_version(Kind::EndpointSlice),
        "Deployment" | "StatefulSet" | "ReplicaSet" | "DaemonSet" => "apps/v1",
        _ => "v1",
    };
    OwnerReference {
        api_version: api_version.to_owned(),
        kind: owner.kind.to_string(),
        name: owner.name.as_str().to_owned(),
        uid: owner.uid.to_string(),
        controller: None,
        block_owner_deletion: None,
    }
}

/// A Namespace: it is going away once it has a deletion timestamp or says so in its phase.
pub fn observe_namespace(
    object: &K8sNamespace,
    strings: &mut Strings,
) -> Result<NamespaceObject, Rejected> {
    let key = key_of(Kind::Namespace, &object.metadata)?;
    let annotations = object.metadata.annotations.as_ref();
    let global = match annotations.and_then(|a| a.get(ANNOTATION_GLOBAL)) {
        None => GlobalMark::Absent,
        Some(value) => match value.as_str() {
            "true" => GlobalMark::True,
            "false" => GlobalMark::False,
            other => GlobalMark::Other(other.into()),
        },
    };
    let phase = object.status.as_ref().and_then(|s| s.phase.as_deref());
    let meta = &object.metadata;
    Ok(NamespaceObject {
        name: key.namespace,
        labels: Arc::new(labels(meta.labels.as_ref(), strings)),
        global,
        terminating: meta.deletion_timestamp.is_some() || phase == Some("Terminating"),
        resource_version: meta.resource_version.as_deref().unwrap_or_default().into(),
    })
}

/// A Namespace to show.
pub fn write_namespace(object: &NamespaceObject) -> K8sNamespace {
    let NamespaceObject {
        name,
        labels,
        global,
        terminating,
        resource_version,
    } = object;
    let mark = match global {
        GlobalMark::Absent => None,
        GlobalMark::True => Some("true".to_owned()),
        GlobalMark::False => Some("false".to_owned()),
        GlobalMark::Other(value) => Some(value.to_string()),
    };
    let phase = if *terminating {
        "Terminating"
    } else {
        "Active"
    };
    K8sNamespace {
        metadata: ObjectMeta {
            name: Some(name.as_str().to_owned()),
            labels: write_labels(labels),
            annotations: mark.map(|mark| BTreeMap::from([(ANNOTATION_GLOBAL.to_owned(), mark)])),
            resource_version: (!resource_version.is_empty()).then(|| resource_version.to_string()),
            ..ObjectMeta::default()
        },
        status: Some(k8s_openapi::api::core::v1::NamespaceStatus {
            phase: Some(phase.to_owned()),
            conditions: None,
        }),
        spec: None,
    }
}
