//! The engine's effects as calls: each carries what it expects, and its answer says what became
//! of it. Order and number are the engine's and the shell's.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::time::sleep;
use tombolo_model::io::{Effect, Outcome};
use tombolo_model::object::{Kind, Object, ObjectRef};
use tombolo_model::own::FIELD_MANAGER;
use tracing::warn;

use super::answer::{Verdict, Write, is_address_taken, judge};
use super::call::{Call, CallError, Server};
use super::decode::{Decoder, Read};
use super::lease::Fence;
use super::patch::{self, Patch};
use super::resource::is_custom;
use super::watch::chain;

/// The most writes at a time. An API server with its defaults gives all controllers together about
/// two hundred seats (priority and fairness), and one etcd takes a few hundred writes a second:
/// more would only queue there.
pub const WRITES_MAX: usize = 48;

/// How long a Service waits for addresses that it had before: an API server frees those of a
/// deleted Service after the deletion was seen, within a few tens of milliseconds.
const ADDRESS_WAITS: [Duration; 5] = [
    Duration::from_millis(25),
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
];

/// Writes objects of one cluster, as long as the fence stands.
#[derive(Clone, Debug)]
pub struct Writer {
    server: Server,
    fence: Arc<Fence>,
}

impl Writer {
    /// A writer that sends nothing once the fence has fallen.
    pub fn new(server: Server, fence: Arc<Fence>) -> Self {
        Self { server, fence }
    }

    /// Whether anything is sent now.
    pub fn may_write(&self) -> bool {
        self.fence.stands()
    }

    /// Carries an effect out. `None`: it is not one on an object.
    pub async fn execute(&self, effect: &Effect) -> Option<Outcome> {
        if !self.fence.stands() {
            return Some(fallen());
        }
        let outcome = match effect {
            Effect::Create(object) => self.create(object).await,
            Effect::Update { old, new } => {
                let patch = patch::update(self.server.versions(), old, new);
                self.change(&old.reference(), "", patch).await
            }
            Effect::UpdateStatus { old, new } => {
                let patch = patch::status(self.server.versions(), old, new);
                self.change(&old.reference(), "/status", patch).await
            }
            Effect::Delete(object) => self.delete(object).await,
            Effect::Publish { .. } | Effect::Synced(_) | Effect::Report(_) | Effect::Event(_) => {
                return None;
            }
        };
        Some(outcome)
    }

    async fn create(&self, object: &Object) -> Outcome {
        let reference = object.reference();
        let versions = self.server.versions();
        let path = versions.beside(reference.kind, &reference.key);
        let path = format!("{path}?fieldManager={FIELD_MANAGER}");
        let json = patch::creation(versions, object);
        let call = Call::with_body(Method::POST, &path, &json);
        let asks_addresses = match object {
            Object::Service(service) => !service.cluster_ips.is_empty(),
            Object::Namespace(_)
            | Object::EndpointSlice(_)
            | Object::ServiceExport(_)
            | Object::ServiceImport(_) => false,
        };
        let write = Write::Create { asks_addresses };
        let sent = Sent {
            write,
            object: &reference,
            body: &json,
        };
        let mut answer = self.server.call(call).await;
        // The addresses of a Service that was just deleted are freed a moment after it is gone.
        for wait in ADDRESS_WAITS {
            if !answer
                .as_ref()
                .is_err_and(|error| is_address_taken(write, error))
            {
                break;
            }
            sleep(wait).await;
            if !self.fence.stands() {
                return fallen();
            }
            let call = Call::with_body(Method::POST, &path, &json);
            answer = self.server.call(call).await;
        }
        self.written(sent, answer).await
    }

    async fn change(&self, object: &ObjectRef, part: &str, patch: Patch) -> Outcome {
        let path = self.server.versions().object(object);
        let path = format!("{path}{part}?fieldManager={FIELD_MANAGER}");
        let mut call = Call::with_body(Method::PATCH, &path, &patch.body);
        call.content_type = patch.content_type;
        let answer = self.server.call(call).await;
        let sent = Sent {
            write: Write::Change,
            object,
            body: &patch.body,
        };
        self.written(sent, answer).await
    }

    async fn delete(&self, object: &Object) -> Outcome {
        let reference = object.reference();
        let path = self.server.versions().object(&reference);
        let uid = object.meta().map(|meta| Arc::clone(&meta.uid));
        let json = json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
            "preconditions": {"uid": uid, "resourceVersion": object.resource_version()},
        });
        let call = Call::with_body(Method::DELETE, &path, &json);
        match self.server.call(call).await {
            Ok(_) => Outcome::Deleted,
            Err(error) => self.failed(Write::Delete, &reference, &error).await,
        }
    }

    async fn written(&self, sent: Sent<'_>, answer: Result<Vec<u8>, CallError>) -> Outcome {
        let Sent {
            write,
            object,
            body: wanted,
        } = sent;
        match answer {
            Ok(body) => {
                if is_custom(object.kind) {
                    self.note_dropped(object.kind, wanted, &body);
                }
                match decode(object, &body) {
                    Ok(object) => Outcome::Written(object),
                    Err(problem) => Outcome::Unknown(problem),
                }
            }
            Err(error) => self.failed(write, object, &error).await,
        }
    }

    /// Says which fields the CRD has dropped, each once.
    fn note_dropped(&self, kind: Kind, wanted: &Value, answer: &[u8]) {
        // What cannot be read is told by whoever reads it next.
        let answer = serde_json::from_slice(answer).unwrap_or_default();
        let dropped = dropped(wanted, &answer);
        if self.server.versions().note_dropped(kind, &dropped) {
            warn!(
                kind = kind.as_str(),
                fields = dropped.join(", "),
                "the CRD drops fields: it is of an older release, tombolo crds apply raises it"
            );
        }
    }

    async fn failed(&self, write: Write, object: &ObjectRef, error: &CallError) -> Outcome {
        match judge(write, error) {
            Verdict::Is(outcome) => outcome,
            Verdict::Look => self.look(object).await,
        }
    }

    /// How an object stands that is not as it was thought to be.
    async fn look(&self, object: &ObjectRef) -> Outcome {
        let path = self.server.versions().object(object);
        match self.server.call(Call::get(&path)).await {
            Ok(body) => match decode(object, &body) {
                Ok(current) => Outcome::Outdated(Some(current)),
                Err(problem) => Outcome::Unknown(problem),
            },
            Err(error) if error.code() == Some(404) => Outcome::Outdated(None),
            Err(error) => Outcome::Unknown(chain(&error).into()),
        }
    }
}

/// What was sent.
struct Sent<'a> {
    write: Write,
    object: &'a ObjectRef,
    body: &'a Value,
}

/// The fields that were written and are not in the answer.
fn dropped(wanted: &Value, answer: &Value) -> Vec<String> {
    let mut dropped = Vec::new();
    for part in ["spec", "status"] {
        for (field, value) in wanted[part].as_object().into_iter().flatten() {
            let is_nothing = match value {
                Value::Null => true,
                Value::Array(list) => list.is_empty(),
                Value::Object(fields) => fields.is_empty(),
                Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
            };
            // A part that is written apart from the other is no part of the answer at times.
            if !is_nothing && answer[part].is_object() && answer[part][field].is_null() {
                dropped.push(format!("{part}.{field}"));
            }
        }
    }
    dropped
}

fn decode(object: &ObjectRef, body: &[u8]) -> Result<Object, Arc<str>> {
    let text = String::from_utf8_lossy(body);
    match Decoder::new(object.kind).object(&text) {
        Ok(Read { object, problem: _ }) => Ok(object),
        Err(unreadable) => Err(unreadable.rejected.to_string().into()),
    }
}

/// The answer of a writer that may not write any more.
fn fallen() -> Outcome {
    Outcome::Unknown("this process does not lead any more".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_crd_drops_is_named() {
        let wanted = json!({"spec": {"ips": ["10.0.0.1"], "ipFamilies": ["IPv4"],
            "ports": [], "sessionAffinity": null}, "status": {"conditions": [{}]}});
        let answer = json!({"spec": {"ips": ["10.0.0.1"]}, "status": {"clusters": []}});
        let both = ["spec.ipFamilies", "status.conditions"];
        assert_eq!(dropped(&wanted, &answer), both);
        // A status is not written with the rest, and may not be there yet.
        let answer = json!({"spec": {"ips": ["10.0.0.1"], "ipFamilies": ["IPv4"]}});
        assert_eq!(dropped(&wanted, &answer), [""; 0]);
    }
}
