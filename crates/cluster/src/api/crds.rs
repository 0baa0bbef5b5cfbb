//! The CRDs of the Multi-Cluster Services API in a cluster: which version it has, and installing
//! them without ever replacing newer ones (BEHAVIOUR §4).

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use http::Method;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;
use mcs_api::GROUP;
use mcs_api::well_known::{LABEL_CRD_SCHEMA_REVISION, LABEL_RELEASE_VERSION};
use tokio::time::{sleep, timeout};
use tombolo_model::object::Kind;
use tombolo_model::own::FIELD_MANAGER;

use super::call::{Call, CallError, Server};
use super::resource::{ApiVersion, plural};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// A CRD is established within a second; a busy server takes a few.
const ESTABLISHED_WITHIN: Duration = Duration::from_mins(1);
/// How often that is looked for.
const ESTABLISHED_POLL: Duration = Duration::from_millis(200);

/// The best version of a kind that the server has; a 404 where it has none.
pub(super) async fn find_version(server: &Server, kind: Kind) -> Result<ApiVersion, CallError> {
    let mut missing = None;
    for version in ApiVersion::ALL {
        let path = format!("/apis/{GROUP}/{}", version.as_str());
        match server.read::<APIResourceList>(Call::get(&path)).await {
            Ok(list) if list.resources.iter().any(|r| r.name == plural(kind)) => {
                return Ok(version);
            }
            Ok(_) => {}
            Err(error) if error.code() == Some(404) => missing = Some(error),
            Err(error) => return Err(error),
        }
    }
    Err(missing.unwrap_or_else(|| {
        let message = format!("the server has no {}.{GROUP}", plural(kind));
        let status = kube::core::Status::failure(&message, "NotFound").with_code(404);
        CallError::Refused(Box::new(status))
    }))
}

/// A release of the CRDs, in the order of time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release {
    version: (u64, u64, u64),
    revision: u64,
}

impl Release {
    /// Of a CRD's labels. Releases that had no labels yet come before all others.
    fn of(crd: &CustomResourceDefinition) -> Self {
        let none = BTreeMap::new();
        let labels = crd.metadata.labels.as_ref().unwrap_or(&none);
        let text = |key: &str| labels.get(key).map(String::as_str).unwrap_or_default();
        let mut numbers = text(LABEL_RELEASE_VERSION)
            .trim_start_matches('v')
            .split(['.', '-', '+'])
            .map(|part| part.parse().unwrap_or_default());
        let mut next = || numbers.next().unwrap_or_default();
        Self {
            version: (next(), next(), next()),
            revision: text(LABEL_CRD_SCHEMA_REVISION).parse().unwrap_or_default(),
        }
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor, patch) = self.version;
        if self.version == (0, 0, 0) {
            return f.write_str("a release without a label");
        }
        write!(f, "v{major}.{minor}.{patch}, revision {}", self.revision)
    }
}

/// What became of one CRD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Installed {
    /// It is new.
    Created,
    /// It replaced this release.
    Upgraded(Release),
    /// It was there already.
    Unchanged,
    /// A newer one is there and stays.
    Newer(Release),
}

/// Why the CRDs cannot be installed.
#[derive(Debug, thiserror::Error)]
pub enum CrdsError {
    /// A call failed.
    #[error("cannot install {name}")]
    Call {
        /// The CRD.
        name: String,
        /// Why.
        source: CallError,
    },
    /// The server does not serve it.
    #[error("{name} was installed but is not established after {} s", ESTABLISHED_WITHIN.as_secs())]
    NotEstablished {
        /// The CRD.
        name: String,
    },
}

impl CrdsError {
    /// A word for metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Call { source, .. } => source.kind(),
            Self::NotEstablished { .. } => "not-established",
        }
    }

    /// Whether the same may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Call { source, .. } => source.is_retryable(),
            Self::NotEstablished { .. } => true,
        }
    }
}

/// Installs or upgrades both CRDs, never over newer ones, and waits until they are established.
///
/// # Errors
/// When a call is refused, or the server does not serve them.
pub async fn apply_crds(server: &Server) -> Result<Vec<(String, Installed)>, CrdsError> {
    let mut results = Vec::new();
    for crd in mcs_api::crds() {
        let name = crd.metadata.name.clone().unwrap_or_default();
        let failed = |source| CrdsError::Call {
            name: name.clone(),
            source,
        };
        let installed = apply(server, &name, crd).await.map_err(failed)?;
        let established = async {
            while !is_established(server, &name).await? {
                sleep(ESTABLISHED_POLL).await;
            }
            Ok::<_, CallError>(())
        };
        match timeout(ESTABLISHED_WITHIN, established).await {
            Ok(result) => result.map_err(failed)?,
            Err(_) => return Err(CrdsError::NotEstablished { name }),
        }
        results.push((name, installed));
    }
    Ok(results)
}

async fn apply(
    server: &Server,
    name: &str,
    mut crd: CustomResourceDefinition,
) -> Result<Installed, CallError> {
    let path = format!("{CRDS}/{name}");
    let present: CustomResourceDefinition = match server.read(Call::get(&path)).await {
        Ok(present) => present,
        Err(error) if error.code() == Some(404) => {
            let path = format!("{CRDS}?fieldManager={FIELD_MANAGER}");
            server
                .call(Call::with_body(Method::POST, &path, &json(&crd)))
                .await?;
            return Ok(Installed::Created);
        }
        Err(error) => return Err(error),
    };
    let (ours, theirs) = (Release::of(&crd), Release::of(&present));
    if theirs > ours {
        return Ok(Installed::Newer(theirs));
    }
    if theirs == ours {
        return Ok(Installed::Unchanged);
    }
    let labels = crd.metadata.labels.take();
    crd.metadata = present.metadata;
    crd.metadata.managed_fields = None;
    crd.metadata
        .labels
        .get_or_insert_default()
        .extend(labels.unwrap_or_default());
    let path = format!("{path}?fieldManager={FIELD_MANAGER}");
    server
        .call(Call::with_body(Method::PUT, &path, &json(&crd)))
        .await?;
    Ok(Installed::Upgraded(theirs))
}

fn json(crd: &CustomResourceDefinition) -> serde_json::Value {
    serde_json::to_value(crd).expect("API types have string keys only, so they always fit JSON")
}

async fn is_established(server: &Server, name: &str) -> Result<bool, CallError> {
    let crd: CustomResourceDefinition = server.read(Call::get(&format!("{CRDS}/{name}"))).await?;
    let conditions = crd.status.and_then(|status| status.conditions);
    let is_true = |c: &_| {
        let c: &k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinitionCondition = c;
        c.type_ == "Established" && c.status == "True"
    };
    Ok(conditions.iter().flatten().any(is_true))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn release(version: &str, revision: &str) -> Release {
        let mut crd = CustomResourceDefinition::default();
        crd.metadata.labels = Some(BTreeMap::from([
            (LABEL_RELEASE_VERSION.to_owned(), version.to_owned()),
            (LABEL_CRD_SCHEMA_REVISION.to_owned(), revision.to_owned()),
        ]));
        Release::of(&crd)
    }

    #[test]
    fn releases_are_compared_by_number() {
        assert!(release("v0.10.0", "0") > release("v0.9.9", "7"));
        assert!(release("v0.5.2", "1") > release("v0.5.2", "0"));
        assert_eq!(release("v0.5.2", ""), release("v0.5.2", "0"));
        let unlabelled = Release::of(&CustomResourceDefinition::default());
        assert!(unlabelled < release("v0.1.0", "0"));
        assert_eq!(unlabelled.to_string(), "a release without a label");
    }
}
