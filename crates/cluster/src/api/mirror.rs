//! The imports of Tombolo once more, as another resource of the API (`--import-gvr`), for programs
//! that still read that one.
//!
//! ```text
//! ServiceImports ─watch─► wanted ─┐
//!                                 ├─► one object at a time: get, compare, write what differs
//! the copies ──────list, at times─┘
//! ```
//!
//! A copy carries Tombolo's mark and belongs to its ServiceImport, so that it goes with it. What
//! its schema drops is not written again: an annotation says what it was made from.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tombolo_model::io::Input;
use tombolo_model::names::{Namespace, ObjectName, ServiceKey};
use tombolo_model::object::{Kind, Object};
use tombolo_model::own::{FIELD_MANAGER, LABEL_MANAGED_BY, MANAGED_BY};
use tracing::{debug, warn};

use super::call::{Call, CallError, Server};
use super::exports::Resource;
use super::lease::Fence;
use super::patch::creation;
use super::report::Report;
use super::watch::watch_selected;
use crate::convert::write_json;

/// What a copy was made from.
const ANNOTATION_MADE_FROM: &str = "tombolo.dev/made-from";
/// How often the copies are looked at, in case somebody has changed them.
const LOOK_EVERY: Duration = Duration::from_mins(5);
/// After a failure, and until it is seen that this process leads.
const RETRY: Duration = Duration::from_secs(2);
/// Reports that wait.
const QUEUE_LEN: usize = 16;

/// What the API says of a group and version.
#[derive(Deserialize)]
struct Resources {
    resources: Vec<Known>,
}

#[derive(Deserialize)]
struct Known {
    name: String,
    kind: String,
}

#[derive(Deserialize)]
struct Copies {
    items: Vec<Value>,
}

/// The resource as the server has it.
struct Target {
    kind: String,
    /// Whether its status is written apart from the rest.
    has_status: bool,
}

/// Writes every ServiceImport of Tombolo as that resource too, until it is dropped; only while the
/// fence stands.
pub async fn mirror_imports(server: Server, resource: Resource, fence: Arc<Fence>) {
    let (tx, reports) = mpsc::channel(QUEUE_LEN);
    let ours = format!("{LABEL_MANAGED_BY}={MANAGED_BY}");
    let watch = watch_selected(server.clone(), Kind::ServiceImport, &ours, tx);
    let mirror = Mirror {
        server,
        resource,
        fence,
        target: None,
        imports: Imports::default(),
        dirty: BTreeSet::new(),
        look_at: Instant::now(),
    };
    tokio::select! {
        () = watch => {}
        () = mirror.run(reports) => {}
    }
}

/// The imports that are to be copied.
#[derive(Default)]
struct Imports {
    objects: HashMap<ServiceKey, Object>,
    /// What a listing under way has seen.
    listing: Option<HashSet<ServiceKey>>,
    /// Whether all are known.
    listed: bool,
}

struct Mirror {
    server: Server,
    resource: Resource,
    fence: Arc<Fence>,
    target: Option<Target>,
    imports: Imports,
    /// What has to be looked at.
    dirty: BTreeSet<ServiceKey>,
    /// When all copies are looked at next.
    look_at: Instant,
}

// === impl Imports ===

impl Imports {
    /// Takes an input in; says which imports it is about.
    fn take(&mut self, input: Input) -> Vec<ServiceKey> {
        match input {
            Input::Applied(object) => {
                let key = object.reference().key;
                if let Some(seen) = &mut self.listing {
                    seen.insert(key.clone());
                }
                self.objects.insert(key.clone(), object);
                vec![key]
            }
            Input::Deleted { object, .. } => {
                self.objects.remove(&object.key);
                vec![object.key]
            }
            Input::ListBegan(_) => {
                self.listing = Some(HashSet::new());
                Vec::new()
            }
            Input::ListEnded { .. } => {
                self.listed = true;
                let seen = self.listing.take().unwrap_or_default();
                let gone = self.objects.keys().filter(|key| !seen.contains(*key));
                let gone: Vec<ServiceKey> = gone.cloned().collect();
                self.objects.retain(|key, _| seen.contains(key));
                gone
            }
            _ => Vec::new(),
        }
    }
}

// === impl Mirror ===

impl Mirror {
    async fn run(mut self, mut reports: mpsc::Receiver<Report>) {
        let mut due = Instant::now();
        loop {
            let is_busy = !self.dirty.is_empty() && self.imports.listed;
            let wake = if is_busy { due } else { self.look_at.max(due) };
            tokio::select! {
                biased;
                report = reports.recv() => match report {
                    Some(Report::Inputs(inputs)) => {
                        for input in inputs {
                            self.dirty.extend(self.imports.take(input));
                        }
                    }
                    Some(_) => {}
                    None => return,
                },
                () = sleep_until(wake) => {
                    if let Err(error) = self.work().await {
                        warn!(
                            resource = %self.resource,
                            error = &error as &dyn std::error::Error,
                            "imports are not copied"
                        );
                        self.target = None;
                        due = Instant::now() + RETRY;
                    } else if !self.fence.stands() {
                        due = Instant::now() + RETRY;
                    }
                }
            }
        }
    }

    /// Does one thing.
    async fn work(&mut self) -> Result<(), CallError> {
        if !self.fence.stands() || !self.imports.listed {
            // A successor looks at everything once it leads.
            self.look_at = Instant::now() + RETRY;
            return Ok(());
        }
        let target = match self.target.take() {
            Some(target) => target,
            None => self.discover().await?,
        };
        if self.look_at <= Instant::now() {
            self.look().await?;
            self.look_at = Instant::now() + LOOK_EVERY;
        } else if let Some(key) = self.dirty.first().cloned() {
            self.settle(&key, &target).await?;
            self.dirty.remove(&key);
        }
        self.target = Some(target);
        Ok(())
    }

    /// Finds out what the resource is called.
    async fn discover(&self) -> Result<Target, CallError> {
        let path = self.resource.group_path();
        let Resources { resources } = self.server.read(Call::get(&path)).await?;
        let plural = self.resource.plural();
        let status = format!("{plural}/status");
        let has_status = resources.iter().any(|known| known.name == status);
        let found = resources.into_iter().find(|known| known.name == plural);
        let found = found.ok_or_else(|| {
            let message = format!("the server has no {}", self.resource);
            let status = kube::core::Status::failure(&message, "NotFound").with_code(404);
            CallError::Refused(Box::new(status))
        })?;
        Ok(Target {
            kind: found.kind,
            has_status,
        })
    }

    /// Looks at all copies: what there is without an import, or not as it was made, is dirty.
    async fn look(&mut self) -> Result<(), CallError> {
        let all = self.resource.everywhere();
        let path = format!("{all}?labelSelector={LABEL_MANAGED_BY}%3D{MANAGED_BY}");
        let Copies { items } = self.server.read(Call::get(&path)).await?;
        let mut missing: BTreeSet<ServiceKey> = self.imports.objects.keys().cloned().collect();
        for copy in items {
            let text = |pointer: &str| copy.pointer(pointer).and_then(Value::as_str);
            let namespace = text("/metadata/namespace").unwrap_or_default();
            let Ok(namespace) = Namespace::try_new(namespace) else {
                continue;
            };
            let name = ObjectName::new(text("/metadata/name").unwrap_or_default());
            let key = ServiceKey::new(namespace, name);
            missing.remove(&key);
            let is_right = self.imports.objects.get(&key).is_some_and(|import| {
                let wanted = self.wanted(import, "");
                agrees(&wanted, &copy)
            });
            if !is_right {
                self.dirty.insert(key);
            }
        }
        self.dirty.extend(missing);
        Ok(())
    }

    /// The copy of an import.
    fn wanted(&self, import: &Object, kind: &str) -> Value {
        let mut body = creation(self.server.versions(), import);
        let status = write_json(import).get_mut("status").map(Value::take);
        body["status"] = status.unwrap_or_else(|| json!({}));
        let made_from = fingerprint(&body);
        body["apiVersion"] = self.resource.api_version().into();
        body["kind"] = kind.into();
        let meta = import.meta();
        body["metadata"] = json!({
            "name": body["metadata"]["name"],
            "namespace": body["metadata"]["namespace"],
            "labels": body["metadata"]["labels"],
            "annotations": body["metadata"]["annotations"],
            "ownerReferences": [{
                "apiVersion": self.server.versions().api_version(Kind::ServiceImport),
                "kind": Kind::ServiceImport.as_str(),
                "name": body["metadata"]["name"],
                "uid": meta.map_or("", |meta| &*meta.uid),
            }],
        });
        body["metadata"]["annotations"][ANNOTATION_MADE_FROM] = made_from.into();
        body
    }

    /// Brings one copy in order.
    async fn settle(&self, key: &ServiceKey, target: &Target) -> Result<(), CallError> {
        let path = self.resource.object(key);
        let present: Option<Value> = match self.server.read(Call::get(&path)).await {
            Ok(present) => Some(present),
            Err(error) if error.code() == Some(404) => None,
            Err(error) => return Err(error),
        };
        let is_ours = |copy: &Value| copy["metadata"]["labels"][LABEL_MANAGED_BY] == MANAGED_BY;
        match (self.imports.objects.get(key), present) {
            (None, Some(copy)) if is_ours(&copy) => self.delete(&path, &copy).await,
            (None, _) => Ok(()),
            (Some(_), Some(copy)) if !is_ours(&copy) => {
                debug!(%key, resource = %self.resource, "not ours, left alone");
                Ok(())
            }
            (Some(import), present) => {
                let wanted = self.wanted(import, &target.kind);
                if present.as_ref().is_some_and(|copy| agrees(&wanted, copy)) {
                    return Ok(());
                }
                self.write(key, target, wanted, present).await
            }
        }
    }

    async fn delete(&self, path: &str, copy: &Value) -> Result<(), CallError> {
        let body = json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": copy["metadata"]["uid"]},
        });
        match self
            .server
            .call(Call::with_body(Method::DELETE, path, &body))
            .await
        {
            // It went with its owner.
            Err(error) if matches!(error.code(), Some(404 | 409)) => Ok(()),
            result => result.map(drop),
        }
    }

    async fn write(
        &self,
        key: &ServiceKey,
        target: &Target,
        mut wanted: Value,
        present: Option<Value>,
    ) -> Result<(), CallError> {
        let path = self.resource.object(key);
        let query = format!("?fieldManager={FIELD_MANAGER}");
        let (method, place) = if let Some(present) = &present {
            let version = &present["metadata"]["resourceVersion"];
            wanted["metadata"]["resourceVersion"] = version.clone();
            (Method::PUT, format!("{path}{query}"))
        } else {
            let end = path.rfind('/').unwrap_or(path.len());
            (Method::POST, format!("{}{query}", &path[..end]))
        };
        let call = Call::with_body(method, &place, &wanted);
        let written: Value = match self.server.read(call).await {
            Ok(written) => written,
            // The namespace is going away, and the import with it.
            Err(error) if present.is_none() && matches!(error.code(), Some(403 | 404)) => {
                debug!(%key, error = &error as &dyn std::error::Error, "not copied");
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        if !target.has_status {
            return Ok(());
        }
        wanted["metadata"]["resourceVersion"] = written["metadata"]["resourceVersion"].clone();
        let place = format!("{path}/status{query}");
        let call = Call::with_body(Method::PUT, &place, &wanted);
        self.server.call(call).await.map(drop)
    }
}

/// A number for a content, as text.
fn fingerprint(body: &Value) -> String {
    let mut hasher = DefaultHasher::new();
    body["spec"].to_string().hash(&mut hasher);
    body["status"].to_string().hash(&mut hasher);
    body["metadata"]["labels"].to_string().hash(&mut hasher);
    body["metadata"]["annotations"]
        .to_string()
        .hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// Whether a copy was made from this, and what its schema has kept of it is still so.
fn agrees(wanted: &Value, copy: &Value) -> bool {
    let made_from =
        |object: &Value| object["metadata"]["annotations"][ANNOTATION_MADE_FROM].clone();
    let owner = |object: &Value| object["metadata"]["ownerReferences"][0]["uid"].clone();
    made_from(wanted) == made_from(copy)
        && owner(wanted) == owner(copy)
        && ["spec", "status"]
            .into_iter()
            .all(|part| copy[part].is_null() || overlap(&copy[part], &wanted[part]))
}

/// Whether two values agree in what both have: a schema drops fields, and adds defaults.
fn overlap(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => one
            .iter()
            .all(|(key, value)| other.get(key).is_none_or(|other| overlap(value, other))),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(a, b)| overlap(a, b))
        }
        (one, other) => one == other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(made_from: &str, spec: &Value) -> Value {
        json!({
            "metadata": {
                "annotations": {ANNOTATION_MADE_FROM: made_from},
                "ownerReferences": [{"uid": "u"}],
            },
            "spec": spec,
            "status": {"clusters": [{"cluster": "east"}]},
        })
    }

    #[test]
    fn what_a_schema_drops_or_adds_is_no_difference() {
        let full = json!({"ips": ["10.0.0.1"], "ipFamilies": ["IPv4"], "ports": [{"port": 80}]});
        let wanted = copy("a", &full);
        for kept in [
            full.clone(),
            json!({"ips": ["10.0.0.1"], "ports": [{"port": 80, "protocol": "TCP"}]}),
            json!({"ips": ["10.0.0.1"], "timeout": 5}),
        ] {
            assert!(agrees(&wanted, &copy("a", &kept)), "{kept}");
        }
        let mut without_status = copy("a", &full);
        without_status["status"] = Value::Null;
        assert!(agrees(&wanted, &without_status));
    }

    #[test]
    fn what_somebody_changed_is_a_difference() {
        let wanted = copy("a", &json!({"ips": ["10.0.0.1"], "ports": [{"port": 80}]}));
        for changed in [
            copy("b", &wanted["spec"]),
            copy("a", &json!({"ips": ["10.0.0.2"]})),
            copy("a", &json!({"ips": []})),
            copy("a", &json!({"ports": [{"port": 81}]})),
        ] {
            assert!(!agrees(&wanted, &changed), "{changed}");
        }
        let mut other = wanted.clone();
        other["metadata"]["ownerReferences"] = json!([{"uid": "of another import"}]);
        assert!(!agrees(&wanted, &other));
    }
}
