//! A cluster as it stands, read once: for plans, which write nothing.

use serde_json::Value;
use tombolo_model::object::Kind;
use tombolo_model::service::IpFamily;

use super::call::{Call, CallError, Server};
use super::crds::find_version;
use super::network;
use super::resource::is_custom;
use super::watch::{PAGE_LEN, escape};
use crate::store::KINDS;

/// What a cluster holds.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// All objects of the kinds that count, each with version and kind.
    pub documents: Vec<Value>,
    /// The families of its network, in its order.
    pub families: Vec<IpFamily>,
}

/// Why a cluster cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// Objects cannot be listed.
    #[error("cannot list {}s", kind.as_str())]
    List {
        /// Of which kind.
        kind: Kind,
        /// Why.
        source: CallError,
    },
    /// The families of its network cannot be found out.
    #[error("cannot find out the families of the network")]
    Network {
        /// Why.
        source: CallError,
    },
}

impl SnapshotError {
    /// A word for metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::List { source, .. } | Self::Network { source } => source.kind(),
        }
    }

    /// Whether the same may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::List { source, .. } | Self::Network { source } => source.is_retryable(),
        }
    }
}

/// Reads a cluster. One without the CRDs has no exports and imports.
///
/// # Errors
/// When something cannot be read.
pub async fn snapshot(server: &Server) -> Result<Snapshot, SnapshotError> {
    let mut documents = Vec::new();
    for kind in KINDS {
        let listed = list(server, kind, &mut documents).await;
        listed.map_err(|source| SnapshotError::List { kind, source })?;
    }
    let network = network::look(server).await;
    let families = network.map_err(|source| SnapshotError::Network { source })?;
    Ok(Snapshot {
        documents,
        families: families.families,
    })
}

async fn list(server: &Server, kind: Kind, documents: &mut Vec<Value>) -> Result<(), CallError> {
    if is_custom(kind) {
        match find_version(server, kind).await {
            Ok(version) => server.versions().set(kind, version),
            Err(error) if error.code() == Some(404) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    let api_version = server.versions().api_version(kind);
    let mut token = String::new();
    loop {
        let path = server.versions().everywhere(kind);
        let path = format!("{path}?limit={PAGE_LEN}&continue={}", escape(&token));
        let mut page: Value = server.read(Call::get(&path)).await?;
        if let Some(items) = page.get_mut("items").and_then(Value::as_array_mut) {
            for mut item in items.drain(..) {
                // Items of a list do not say what they are.
                item["apiVersion"] = api_version.as_str().into();
                item["kind"] = kind.as_str().into();
                documents.push(item);
            }
        }
        let next = page.pointer("/metadata/continue").and_then(Value::as_str);
        next.unwrap_or_default().clone_into(&mut token);
        if token.is_empty() {
            return Ok(());
        }
    }
}
