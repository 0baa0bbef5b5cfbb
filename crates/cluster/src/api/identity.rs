//! Who a cluster is: its name in the clusterset, and what tells it from every other cluster.

use std::sync::Arc;

use http::Method;
use k8s_openapi::api::core::v1::Namespace;
use mcs_api::well_known::PROPERTY_CLUSTER_ID;
use serde::Deserialize;
use serde_json::json;
use tombolo_model::names::{ClusterName, NameError};
use tombolo_model::own::FIELD_MANAGER;

use super::call::{Call, CallError, Server};

/// The versions in which ClusterProperty (KEP-2149) was published, the latest first.
const VERSIONS: [&str; 3] = ["v1", "v1beta1", "v1alpha1"];

/// Why a cluster's name is not known.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// It says none.
    #[error(
        "the cluster has no ClusterProperty {PROPERTY_CLUSTER_ID} that names it: create one, or \
         give --cluster"
    )]
    Missing,
    /// It says one that cannot be used.
    #[error("the ClusterProperty {PROPERTY_CLUSTER_ID} cannot be used")]
    Name {
        /// Why.
        source: NameError,
    },
    /// It cannot be asked.
    #[error("cannot read the ClusterProperty {PROPERTY_CLUSTER_ID}")]
    Call {
        /// Why.
        source: CallError,
    },
}

impl IdentityError {
    /// A word for metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Name { .. } => "name",
            Self::Call { source } => source.kind(),
        }
    }

    /// Whether asking again may help.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Missing | Self::Name { .. } => false,
            Self::Call { source } => source.is_retryable(),
        }
    }
}

#[derive(Deserialize)]
struct Property {
    #[serde(default)]
    spec: PropertySpec,
}

#[derive(Default, Deserialize)]
struct PropertySpec {
    #[serde(default)]
    value: String,
}

/// The cluster's name by its ClusterProperty.
///
/// # Errors
/// When there is none, or it is no name of a cluster.
pub async fn identify(server: &Server) -> Result<ClusterName, IdentityError> {
    for version in VERSIONS {
        let path = format!("/apis/about.k8s.io/{version}/clusterproperties/{PROPERTY_CLUSTER_ID}");
        match server.read::<Property>(Call::get(&path)).await {
            Ok(property) => {
                let name = ClusterName::try_new(&property.spec.value);
                return name.map_err(|source| IdentityError::Name { source });
            }
            Err(error) if error.code() == Some(404) => {}
            Err(source) => return Err(IdentityError::Call { source }),
        }
    }
    Err(IdentityError::Missing)
}

/// The UID of the namespace `kube-system`, which stands for the cluster.
///
/// # Errors
/// When it cannot be read.
pub async fn system_uid(server: &Server) -> Result<Arc<str>, CallError> {
    let path = "/api/v1/namespaces/kube-system";
    let namespace: Namespace = server.read(Call::get(path)).await?;
    Ok(namespace.metadata.uid.unwrap_or_default().into())
}

/// Makes a namespace where it is not there.
///
/// # Errors
/// When it can be neither read nor made.
pub async fn ensure_namespace(server: &Server, name: &str) -> Result<(), CallError> {
    let path = format!("/api/v1/namespaces/{name}");
    match server.call(Call::get(&path)).await {
        Err(error) if error.code() == Some(404) => {}
        result => return result.map(drop),
    }
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let path = format!("/api/v1/namespaces?fieldManager={FIELD_MANAGER}");
    let call = Call::with_body(Method::POST, &path, &body);
    match server.call(call).await {
        // Somebody else was faster.
        Err(error) if error.code() == Some(409) => Ok(()),
        result => result.map(drop),
    }
}
