//! A directory of manifests as a cluster.
//!
//! ```text
//! directory ─tree─► files ─document─► JSON values ─object─► declared objects ─┐
//!                                         steps ──────────────────────────────┴► Manifests
//! ```
//!
//! What is wrong in a file is a [`Problem`] with file, document and line, and the rest counts.
//! What nobody needs (Pods, Deployments, …) is passed over. [`Manifests`] are what an API
//! server would hold after `kubectl apply`: each object once, in a namespace that exists.

mod cluster;
mod document;
mod object;
mod sources;
mod tree;
mod words;

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use serde_json::Value;
use tombolo_model::names::{ObjectName, ServiceKey};
use tombolo_model::object::{
    ExportObject, ImportObject, Kind, NamespaceObject, ObjectRef, SliceObject,
};

pub use cluster::{Change, ClusterStep, Manifests};
pub use sources::{SourceError, find_clusters};
pub use tree::{Scan, Tree, TreeError};

pub(crate) use object::{Found, Stub};
pub(crate) use tree::{FoundIn, read_once};

/// A file in this directory says that Tombolo wrote what else is in it; such a directory is never
/// read as manifests.
pub(crate) const OUTPUT_MARKER: &str = ".tombolo-output";

/// Something wrong in a file or directory. The rest of it counts all the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The file or directory.
    pub file: Arc<Path>,
    /// Where in the file, if it is about a part of it.
    pub place: Option<Place>,
    /// What is wrong.
    pub reason: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(Place { document, line }) = self.place {
            write!(f, ", document {document}, line {line}")?;
        }
        write!(f, ": {}", self.reason)
    }
}

/// A place in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The document, counted from 1; empty ones do not count.
    pub document: usize,
    /// The line in the file, counted from 1: of the fault where that is known, else of the
    /// document's beginning.
    pub line: usize,
}

/// An object of a manifest.
#[derive(Clone, Debug, PartialEq)]
pub enum Declared {
    /// A Namespace.
    Namespace(Arc<NamespaceObject>),
    /// A Service, not yet with a cluster's defaults, since they depend on the cluster's families.
    Service(Arc<DeclaredService>),
    /// An EndpointSlice.
    EndpointSlice(Arc<SliceObject>),
    /// A ServiceExport.
    ServiceExport(Arc<DeclaredExport>),
    /// A ServiceImport.
    ServiceImport(Arc<ImportObject>),
}

/// A Service of a manifest.
#[derive(Clone, Debug, PartialEq)]
pub struct DeclaredService {
    /// Its namespace and name.
    pub key: ServiceKey,
    /// As the user wrote it.
    pub object: Service,
}

/// A ServiceExport of a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredExport {
    /// As the model sees it.
    pub object: ExportObject,
    /// As the user wrote it, its API version included, so that it can be shown with its status.
    pub json: Value,
}

impl Declared {
    /// Names the object.
    pub fn reference(&self) -> ObjectRef {
        let (kind, key) = match self {
            Self::Namespace(o) => (
                Kind::Namespace,
                ServiceKey::new(o.name.clone(), ObjectName::new(o.name.as_str())),
            ),
            Self::Service(o) => (Kind::Service, o.key.clone()),
            Self::EndpointSlice(o) => (Kind::EndpointSlice, o.meta.key.clone()),
            Self::ServiceExport(o) => (Kind::ServiceExport, o.object.meta.key.clone()),
            Self::ServiceImport(o) => (Kind::ServiceImport, o.meta.key.clone()),
        };
        ObjectRef { kind, key }
    }
}

/// An object's name for messages: `Service shop/checkout`, `Namespace shop`.
pub(crate) fn describe(reference: &ObjectRef) -> String {
    match reference.kind {
        Kind::Namespace => format!("Namespace {}", reference.key.name),
        Kind::Service | Kind::EndpointSlice | Kind::ServiceExport | Kind::ServiceImport => {
            format!("{} {}", reference.kind.as_str(), reference.key)
        }
    }
}
