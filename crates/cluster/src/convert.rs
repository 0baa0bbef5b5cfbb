//! Kubernetes objects to model objects and back: pure, shared by directories and API servers.
//!
//! ```text
//! k8s-openapi, mcs-api ──observe──► model objects ──write──► k8s-openapi, mcs-api
//! ```
//!
//! Observing fills in what an API server would default, drops what no rule needs, and refuses what
//! the model cannot hold: a [`Rejected`] names the object and the field, and is data for the user,
//! not a failure of the reader.

mod export;
mod import;
mod meta;
mod service;
mod slice;
mod strings;

#[cfg(test)]
mod tests;

use serde_json::Value;
use tombolo_model::names::ServiceKey;
use tombolo_model::object::{Kind, Object};

pub use export::{observe_export, write_export};
pub use import::{observe_import, observe_import_json, write_import};
pub(crate) use meta::key_of;
pub use meta::{observe_namespace, write_namespace};
pub(crate) use service::check_ports;
pub use service::{families_named, observe_service, write_service};
pub use slice::{observe_slice, write_slice};
pub use strings::Strings;

/// Why an object cannot be used. It names the object, the field and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{object}: {field} {problem}")]
pub struct Rejected {
    /// Kind, namespace and name.
    pub object: String,
    /// The path of the field, such as `spec.ports[0].port`.
    pub field: String,
    /// What is wrong with it.
    pub problem: String,
}

impl Rejected {
    /// A word for metrics and events.
    pub const fn kind(&self) -> &'static str {
        "Rejected"
    }

    /// Never: the object has to change first.
    pub const fn is_retryable(&self) -> bool {
        false
    }
}

/// An object by kind and name, to say in messages what is wrong where.
#[derive(Clone, Copy)]
pub(crate) struct Subject<'a> {
    pub(crate) kind: Kind,
    pub(crate) key: &'a ServiceKey,
}

impl Subject<'_> {
    pub(crate) fn reject(self, field: impl Into<String>, problem: impl Into<String>) -> Rejected {
        let object = match self.kind {
            Kind::Namespace => format!("Namespace {}", self.key.name),
            kind => format!("{} {}", kind.as_str(), self.key),
        };
        Rejected {
            object,
            field: field.into(),
            problem: problem.into(),
        }
    }

    /// The value is not among those that the field can have.
    fn not_one_of(self, field: impl Into<String>, value: &str, known: &str) -> Rejected {
        self.reject(field, format!("is {value:?}, which is not one of {known}"))
    }

    /// A port number in its range.
    fn port(self, field: impl FnOnce() -> String, number: i32) -> Result<u16, Rejected> {
        match u16::try_from(number) {
            Ok(port) if port != 0 => Ok(port),
            _ => Err(self.reject(field(), format!("is {number}, ports go from 1 to 65535"))),
        }
    }
}

/// The `apiVersion` in which this release writes objects of a kind.
pub const fn api_version(kind: Kind) -> &'static str {
    match kind {
        Kind::Namespace | Kind::Service => "v1",
        Kind::EndpointSlice => "discovery.k8s.io/v1",
        Kind::ServiceExport | Kind::ServiceImport => "multicluster.x-k8s.io/v1beta1",
    }
}

/// An object as JSON, in the version of [`api_version`].
#[expect(
    clippy::missing_panics_doc,
    reason = "the types have string keys only, so it never does"
)]
pub fn write_json(object: &Object) -> Value {
    let written = match object {
        Object::Namespace(o) => serde_json::to_value(write_namespace(o)),
        Object::Service(o) => serde_json::to_value(write_service(o)),
        Object::EndpointSlice(o) => serde_json::to_value(write_slice(o)),
        Object::ServiceExport(o) => serde_json::to_value(write_export(o)),
        Object::ServiceImport(o) => serde_json::to_value(write_import(o)),
    };
    written.expect("API types have string keys only, so they always fit JSON")
}
