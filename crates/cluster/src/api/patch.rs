//! The smallest patch from one state of an object to another: what neither state models is never
//! named, so that finalizers, fields of newer releases and other managers' fields stay.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use tombolo_model::object::{Kind, Meta, Object, OwnerRef};

use super::resource::Versions;
use crate::convert::write_json;

/// A JSON merge patch (RFC 7386).
pub(super) const MERGE_PATCH: &str = "application/merge-patch+json";
/// A patch that can add and remove single owner references, which built-in kinds take.
pub(super) const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";

/// A patch with its content type.
#[derive(Debug, PartialEq)]
pub(super) struct Patch {
    pub(super) content_type: &'static str,
    pub(super) body: Value,
}

/// An object as it is created.
pub(super) fn creation(versions: &Versions, object: &Object) -> Value {
    let mut json = body(versions, object);
    if let Value::Object(fields) = &mut json {
        fields.remove("status");
    }
    json
}

/// From `old` to `new` but for the status; only if the object still is `old`.
pub(super) fn update(versions: &Versions, old: &Object, new: &Object) -> Patch {
    let (mut before, mut after) = (body(versions, old), body(versions, new));
    for json in [&mut before, &mut after] {
        if let Value::Object(fields) = json {
            fields.remove("status");
        }
        if let Some(meta) = json.get_mut("metadata").and_then(Value::as_object_mut) {
            meta.remove("ownerReferences");
        }
    }
    let mut patch = difference(&before, &after).unwrap_or_else(|| json!({}));
    let owners = owner_changes(versions, old.meta(), new.meta());
    let content_type = if owners.is_empty() {
        MERGE_PATCH
    } else {
        // Lists with merge keys are replaced as a whole where they are named at all.
        if let Some(Value::Array(ports)) = patch.pointer_mut("/spec/ports") {
            ports.insert(0, json!({"$patch": "replace"}));
        }
        STRATEGIC_PATCH
    };
    let meta = metadata(&mut patch, old);
    if !owners.is_empty() {
        meta.insert("ownerReferences".to_owned(), Value::Array(owners));
    }
    Patch {
        content_type,
        body: patch,
    }
}

/// From the status of `old` to that of `new`; only if the object still is `old`.
pub(super) fn status(versions: &Versions, old: &Object, new: &Object) -> Patch {
    let pick = |object| {
        let mut json = body(versions, object);
        let status = json.get_mut("status").map(Value::take);
        json!({"status": status.unwrap_or_else(|| json!({}))})
    };
    let mut patch = difference(&pick(old), &pick(new)).unwrap_or_else(|| json!({}));
    metadata(&mut patch, old);
    Patch {
        content_type: MERGE_PATCH,
        body: patch,
    }
}

/// The object in the version that the server has.
fn body(versions: &Versions, object: &Object) -> Value {
    let mut json = write_json(object);
    let Value::Object(fields) = &mut json else {
        return json;
    };
    fields.insert(
        "apiVersion".to_owned(),
        versions.api_version(object.kind()).into(),
    );
    let owners = json
        .pointer_mut("/metadata/ownerReferences")
        .and_then(Value::as_array_mut);
    for owner in owners.into_iter().flatten() {
        if owner["kind"] == "ServiceImport" {
            let kind = Kind::ServiceImport;
            owner["apiVersion"] = versions.api_version(kind).into();
        }
    }
    json
}

/// The metadata of a patch, with what makes it fail on any other state than `old`.
fn metadata<'p>(patch: &'p mut Value, old: &Object) -> &'p mut Map<String, Value> {
    if !patch.is_object() {
        *patch = json!({});
    }
    let fields = patch.as_object_mut().expect("it was made one");
    let meta = fields
        .entry("metadata")
        .or_insert_with(|| json!({}))
        .as_object_mut()
        .expect("metadata are an object on both sides, so their difference is one");
    // What only a server sets is not patched.
    for field in ["generation", "creationTimestamp", "uid", "resourceVersion"] {
        meta.remove(field);
    }
    if let Some(old) = old.meta() {
        meta.insert("uid".to_owned(), (*old.uid).into());
        meta.insert("resourceVersion".to_owned(), (*old.resource_version).into());
    }
    meta
}

/// What has to be added to and removed from the owner references.
fn owner_changes(versions: &Versions, old: Option<&Meta>, new: Option<&Meta>) -> Vec<Value> {
    let (Some(old), Some(new)) = (old, new) else {
        return Vec::new();
    };
    let write = |owner: &OwnerRef| {
        let kind = Kind::ServiceImport;
        json!({
            "apiVersion": versions.api_version(kind),
            "kind": owner.kind,
            "name": owner.name.as_str(),
            "uid": owner.uid,
        })
    };
    let added = new
        .owners
        .iter()
        .filter(|owner| !old.owners.contains(owner));
    let removed = old.owners.iter().filter(|owner| {
        let uid = |other: &OwnerRef| Arc::clone(&other.uid);
        !new.owners.iter().any(|other| uid(other) == owner.uid)
    });
    let removed = removed.map(|owner| json!({"$patch": "delete", "uid": owner.uid}));
    added.map(write).chain(removed).collect()
}

/// The merge patch from `old` to `new`; `None` where they are equal.
fn difference(old: &Value, new: &Value) -> Option<Value> {
    match (old, new) {
        (old, new) if old == new => None,
        (Value::Object(old), Value::Object(new)) => {
            let mut patch = Map::new();
            for key in old.keys().filter(|key| !new.contains_key(*key)) {
                patch.insert(key.clone(), Value::Null);
            }
            for (key, value) in new {
                let changed = match old.get(key) {
                    Some(old) => difference(old, value),
                    None => Some(value.clone()),
                };
                if let Some(value) = changed {
                    patch.insert(key.clone(), value);
                }
            }
            Some(Value::Object(patch))
        }
        (_, new) => Some(new.clone()),
    }
}

#[cfg(test)]
mod tests;
