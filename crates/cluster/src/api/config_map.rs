//! One text of a ConfigMap, and a Service's addresses: what it takes to tell a cluster's CoreDNS
//! where a zone is answered.

use std::collections::BTreeMap;
use std::net::IpAddr;

use http::Method;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use serde_json::json;

use super::call::{Call, CallError, Server};
use super::patch::MERGE_PATCH;

/// Who is shown as the one that wrote it.
const FIELD_MANAGER: &str = "tombolo-dns-stub";

/// A text of a ConfigMap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigMapText {
    /// The text.
    pub text: String,
    resource_version: String,
}

/// How a write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigMapWrite {
    /// It was done.
    Done,
    /// Somebody else wrote since it was read: read it again.
    Outdated,
}

fn path(namespace: &str, name: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/configmaps/{name}")
}

/// Reads the text under a key of a ConfigMap; `None` where there is none.
///
/// # Errors
/// When the server refuses it or cannot be reached.
pub async fn read_config_map(
    server: &Server,
    namespace: &str,
    name: &str,
    key: &str,
) -> Result<Option<ConfigMapText>, CallError> {
    let path = path(namespace, name);
    let map = match server.read::<ConfigMap>(Call::get(&path)).await {
        Ok(map) => map,
        Err(error) if error.code() == Some(404) => return Ok(None),
        Err(error) => return Err(error),
    };
    let text = map
        .data
        .and_then(|mut data: BTreeMap<_, _>| data.remove(key));
    let resource_version = map.metadata.resource_version.unwrap_or_default();
    Ok(text.map(|text| ConfigMapText {
        text,
        resource_version,
    }))
}

/// Replaces the text that was read, and nothing else of the ConfigMap, unless it changed since.
///
/// # Errors
/// When the server refuses it or cannot be reached.
pub async fn write_config_map(
    server: &Server,
    namespace: &str,
    name: &str,
    key: &str,
    write: (&ConfigMapText, &str),
) -> Result<ConfigMapWrite, CallError> {
    let (read, text) = write;
    let body = json!({
        "metadata": {"resourceVersion": read.resource_version},
        "data": {key: text},
    });
    let path = format!("{}?fieldManager={FIELD_MANAGER}", path(namespace, name));
    let mut call = Call::with_body(Method::PATCH, &path, &body);
    call.content_type = MERGE_PATCH;
    match server.call(call).await {
        Ok(_) => Ok(ConfigMapWrite::Done),
        Err(error) if error.code() == Some(409) => Ok(ConfigMapWrite::Outdated),
        Err(error) => Err(error),
    }
}

/// The cluster IPs of a Service; none where there is no such Service, or it is headless.
///
/// # Errors
/// When the server refuses it or cannot be reached.
pub async fn service_ips(
    server: &Server,
    namespace: &str,
    name: &str,
) -> Result<Vec<IpAddr>, CallError> {
    let path = format!("/api/v1/namespaces/{namespace}/services/{name}");
    let service = match server.read::<Service>(Call::get(&path)).await {
        Ok(service) => service,
        Err(error) if error.code() == Some(404) => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let ips = service.spec.and_then(|spec| spec.cluster_ips);
    let ips = ips.unwrap_or_default().into_iter();
    Ok(ips.filter_map(|ip| ip.parse().ok()).collect())
}
