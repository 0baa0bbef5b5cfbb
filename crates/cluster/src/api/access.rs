//! How an API server is reached: from inside the cluster, or by a context of a kubeconfig.

use std::path::PathBuf;

use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};

use super::call::Server;

/// Where credentials and address come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// The service account of the pod that this process runs in.
    InCluster,
    /// A kubeconfig.
    Kubeconfig {
        /// The file; `None`: `$KUBECONFIG`, else `~/.kube/config`.
        file: Option<PathBuf>,
        /// The context; `None`: the current one.
        context: Option<String>,
    },
}

/// Why an API server cannot even be called.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// This process runs in no pod.
    #[error("no service account: this process runs in no pod, give --kubeconfig or --context")]
    InCluster {
        /// Why.
        source: kube::config::InClusterError,
    },
    /// The kubeconfig cannot be used.
    #[error("cannot use the kubeconfig{}", context.as_deref().map(|c| format!(", context {c:?}")).unwrap_or_default())]
    Kubeconfig {
        /// The context that was asked for.
        context: Option<String>,
        /// Why.
        source: Box<KubeconfigError>,
    },
    /// Its credentials cannot be used.
    #[error("cannot use the credentials of the API server's user")]
    Client {
        /// Why.
        source: Box<kube::Error>,
    },
}

impl AccessError {
    /// A word for metrics.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::InCluster { .. } => "in-cluster",
            Self::Kubeconfig { .. } => "kubeconfig",
            Self::Client { .. } => "client",
        }
    }

    /// Never: the configuration has to change first.
    pub const fn is_retryable(&self) -> bool {
        false
    }
}

impl Access {
    /// A server to call. Nothing is called yet.
    ///
    /// # Errors
    /// When there is no such context, or its credentials cannot be read.
    pub async fn server(&self) -> Result<Server, AccessError> {
        let mut config = match self {
            Self::InCluster => {
                Config::incluster().map_err(|source| AccessError::InCluster { source })?
            }
            Self::Kubeconfig { file, context } => {
                let failed = |source| AccessError::Kubeconfig {
                    context: context.clone(),
                    source: Box::new(source),
                };
                let kubeconfig = read(file.as_ref()).map_err(failed)?;
                let options = KubeConfigOptions {
                    context: context.clone(),
                    ..KubeConfigOptions::default()
                };
                Config::from_custom_kubeconfig(kubeconfig, &options)
                    .await
                    .map_err(failed)?
            }
        };
        // A retry that nobody sees could be sent after this process has lost its leadership.
        config.default_retry = false;
        let client = Client::try_from(config).map_err(|source| AccessError::Client {
            source: Box::new(source),
        })?;
        Ok(Server::new(client))
    }
}

/// The contexts of a kubeconfig.
///
/// # Errors
/// When it cannot be read.
pub fn context_names(file: Option<&PathBuf>) -> Result<Vec<String>, AccessError> {
    let kubeconfig = read(file).map_err(|source| AccessError::Kubeconfig {
        context: None,
        source: Box::new(source),
    })?;
    let contexts = kubeconfig.contexts.into_iter();
    Ok(contexts.map(|context| context.name).collect())
}

fn read(file: Option<&PathBuf>) -> Result<Kubeconfig, KubeconfigError> {
    match file {
        Some(file) => Kubeconfig::read_from(file),
        None => Kubeconfig::read(),
    }
}
