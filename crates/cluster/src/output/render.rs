//! Objects as an API server shows them.

use std::collections::BTreeMap;

use mcs_api::well_known::LABEL_SERVICE_NAME;
use serde_json::{Value, json};
use tombolo_model::names::{ObjectName, ServiceKey};
use tombolo_model::object::{ExportObject, Kind, Meta, Object};
use tombolo_model::own::{LABEL_MANAGED_BY, LABEL_SLICE_MANAGED_BY, MANAGED_BY, SLICE_MANAGED_BY};

use crate::convert::{api_version, write_export, write_json};
use crate::store::Store;

/// What Tombolo wrote or would write of each service: its ServiceExport first, then the
/// ServiceImport, the derived Service and the slices by name.
pub(super) fn by_service(store: &Store) -> BTreeMap<ServiceKey, Vec<&Object>> {
    let mut services: BTreeMap<ServiceKey, Vec<&Object>> = BTreeMap::new();
    for object in store.objects() {
        if let Some(service) = service_of(object) {
            services.entry(service).or_default().push(object);
        }
    }
    for objects in services.values_mut() {
        objects.sort_by_key(|object| match object.kind() {
            Kind::ServiceExport => 0,
            Kind::ServiceImport => 1,
            Kind::Namespace | Kind::Service => 2,
            Kind::EndpointSlice => 3,
        });
    }
    services
}

/// The service that an object belongs to, if it is one of Tombolo's or has a status of it.
fn service_of(object: &Object) -> Option<ServiceKey> {
    let is_ours = |meta: &Meta| meta.label(LABEL_MANAGED_BY) == Some(MANAGED_BY);
    let by_label = |meta: &Meta| {
        let name = meta.label(LABEL_SERVICE_NAME)?;
        Some(meta.key.sibling(&ObjectName::new(name)))
    };
    match object {
        Object::Namespace(_) => None,
        Object::ServiceExport(o) => Some(o.meta.key.clone()),
        Object::ServiceImport(o) => is_ours(&o.meta).then(|| o.meta.key.clone()),
        Object::Service(o) => by_label(&o.meta).filter(|_| is_ours(&o.meta)),
        Object::EndpointSlice(o) => by_label(&o.meta).filter(|_| {
            is_ours(&o.meta) || o.meta.label(LABEL_SLICE_MANAGED_BY) == Some(SLICE_MANAGED_BY)
        }),
    }
}

/// A file of these objects.
pub(super) fn render(store: &Store, objects: &[&Object]) -> String {
    let documents = objects.iter().map(|object| yaml(&show(store, object)));
    documents.collect::<Vec<_>>().join("---\n")
}

fn show(store: &Store, object: &Object) -> Value {
    if let Object::ServiceExport(export) = object {
        return match store.export_json(&export.meta.key) {
            Some(json) => show_export(json.clone(), export),
            None => write_json(object),
        };
    }
    let mut json = write_json(object);
    json["apiVersion"] = api_version(object.kind()).into();
    json["kind"] = object.kind().as_str().into();
    if object.kind() == Kind::Service {
        // What a server fills in that the model has no need of.
        let ports = json
            .pointer_mut("/spec/ports")
            .and_then(Value::as_array_mut);
        for port in ports.into_iter().flatten() {
            port["targetPort"] = port["port"].clone();
        }
        json["status"] = json!({"loadBalancer": {}});
    }
    json
}

/// The ServiceExport as the user wrote it, with what a server adds and its status.
fn show_export(mut json: Value, export: &ExportObject) -> Value {
    let shown = serde_json::to_value(write_export(export)).unwrap_or_default();
    for field in ["uid", "resourceVersion", "generation", "creationTimestamp"] {
        if let Some(value) = shown["metadata"].get(field) {
            json["metadata"][field] = value.clone();
        }
    }
    if let Some(conditions) = shown.pointer("/status/conditions") {
        if !json["status"].is_object() {
            json["status"] = json!({});
        }
        json["status"]["conditions"] = conditions.clone();
    }
    json
}

pub(super) fn yaml(json: &Value) -> String {
    let options = serde_saphyr::ser_options! {
        // One line for one value, so that a change of a message is one line of a diff.
        prefer_block_scalars: false,
    };
    serde_saphyr::to_string_with_options(json, options)
        .expect("JSON has no value that YAML cannot say")
}
