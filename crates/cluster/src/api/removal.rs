//! Removing everything that Tombolo made in a cluster, when it leaves.

use http::Method;
use serde::Deserialize;
use serde_json::json;
use tombolo_model::names::{Namespace, ObjectName, ServiceKey};
use tombolo_model::object::{Kind, ObjectRef};
use tombolo_model::own::{LABEL_MANAGED_BY, MANAGED_BY};

use super::call::{Call, CallError, Server};

/// The kinds that Tombolo makes; what owns the others comes first, so that nothing is made again
/// by whoever sees a part of it.
const MADE: [Kind; 3] = [Kind::ServiceImport, Kind::Service, Kind::EndpointSlice];

#[derive(Deserialize)]
struct List {
    items: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    metadata: Meta,
}

#[derive(Deserialize)]
struct Meta {
    namespace: String,
    name: String,
    uid: String,
}

/// Deletes all objects that carry Tombolo's mark; says how many there were.
///
/// # Errors
/// When the API server refuses, or cannot be reached: what was deleted by then is gone.
pub async fn remove_managed(server: &Server) -> Result<usize, CallError> {
    let mut removed = 0;
    for kind in MADE {
        let path = server.versions().everywhere(kind);
        let path = format!("{path}?labelSelector={LABEL_MANAGED_BY}%3D{MANAGED_BY}");
        let list: List = match server.read(Call::get(&path)).await {
            Ok(list) => list,
            Err(error) if error.code() == Some(404) => continue,
            Err(error) => return Err(error),
        };
        for Item { metadata } in list.items {
            let Meta {
                namespace,
                name,
                uid,
            } = metadata;
            let Ok(namespace) = Namespace::try_new(&namespace) else {
                continue;
            };
            let key = ServiceKey::new(namespace, ObjectName::new(&name));
            let path = server.versions().object(&ObjectRef { kind, key });
            let body = json!({
                "apiVersion": "v1",
                "kind": "DeleteOptions",
                "propagationPolicy": "Background",
                "preconditions": {"uid": uid},
            });
            match server
                .call(Call::with_body(Method::DELETE, &path, &body))
                .await
            {
                Ok(_) => removed += 1,
                // It went with its owner.
                Err(error) if matches!(error.code(), Some(404 | 409)) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(removed)
}
