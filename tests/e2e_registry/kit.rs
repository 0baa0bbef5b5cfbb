//! What tests do to clusters and ask them.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use tombolo_testbed::{Cluster, wait_for};

use crate::sites::CLUSTERS;

/// Everything takes less, a lease of 30 s and a hold among it.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(4);

/// The label of what Tombolo made for an import.
const OF_IMPORT: &str = "multicluster.kubernetes.io/service-name";

/// A Service with endpoints at these addresses, not yet exported.
pub(crate) fn serve(
    cluster: &Cluster,
    namespace: &str,
    name: &str,
    addresses: &[String],
) -> Result<()> {
    let port = json!({"name": "http", "port": 80});
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"ports": [port], "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack"},
    });
    apply(cluster, namespace, &service)?;
    endpoints(cluster, namespace, name, addresses)
}

/// Sets the endpoints of a Service.
pub(crate) fn endpoints(
    cluster: &Cluster,
    namespace: &str,
    name: &str,
    addresses: &[String],
) -> Result<()> {
    apply(cluster, namespace, &slice(name, addresses))
}

/// A slice of a Service.
pub(crate) fn slice(name: &str, addresses: &[String]) -> Value {
    let endpoints: Vec<Value> = addresses
        .iter()
        .map(|a| json!({"addresses": [a]}))
        .collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": format!("{name}-1"), "labels": {"kubernetes.io/service-name": name}},
        "ports": [{"name": "http", "port": 8080}], "endpoints": endpoints,
    })
}

/// The resource versions of an import and all that hangs on it.
pub(crate) fn versions(cluster: &Cluster, namespace: &str, name: &str) -> Result<Vec<String>> {
    let selector = format!("{OF_IMPORT}={name}");
    let mut objects: Vec<Value> = Vec::new();
    objects.extend(cluster.object(namespace, "serviceimport", name)?);
    for kind in ["services", "endpointslices"] {
        objects.extend(cluster.list(namespace, kind, &selector)?);
    }
    let versions = objects.iter();
    Ok(versions
        .map(|object| string(&object["metadata"]["resourceVersion"]))
        .collect())
}

pub(crate) fn export(cluster: &Cluster, namespace: &str, name: &str) -> Result<()> {
    let export = json!({
        "apiVersion": "multicluster.x-k8s.io/v1beta1", "kind": "ServiceExport",
        "metadata": {"name": name},
    });
    apply(cluster, namespace, &export)
}

pub(crate) fn unexport(cluster: &Cluster, namespace: &str, name: &str) -> Result<()> {
    let args = ["-n", namespace, "delete", "serviceexport", name];
    cluster.kubectl(&args).map(drop)
}

pub(crate) fn apply(cluster: &Cluster, namespace: &str, object: &Value) -> Result<()> {
    let args = [
        "-n",
        namespace,
        "apply",
        "--server-side",
        "--force-conflicts",
        "-f",
        "-",
    ];
    cluster
        .kubectl_with_input(&args, &object.to_string())
        .map(drop)
}

/// The slices of an import: the addresses by source cluster.
pub(crate) fn imported(
    cluster: &Cluster,
    namespace: &str,
    name: &str,
) -> Result<BTreeMap<String, Vec<String>>> {
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let selector = format!("{OF_IMPORT}={name}");
    for slice in cluster.list(namespace, "endpointslices", &selector)? {
        let labels = &slice["metadata"]["labels"];
        let source = &labels["multicluster.kubernetes.io/source-cluster"];
        let found = all.entry(string(source)).or_default();
        for endpoint in slice["endpoints"].as_array().into_iter().flatten() {
            found.push(string(&endpoint["addresses"][0]));
        }
        found.sort();
    }
    Ok(all)
}

pub(crate) fn string(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// `status.clusters` of an import.
pub(crate) fn clusters(import: &Value) -> Vec<String> {
    let clusters = import["status"]["clusters"].as_array();
    let names = clusters
        .into_iter()
        .flatten()
        .map(|c| string(&c["cluster"]));
    names.collect()
}

/// Waits until the slices of an import hold exactly these addresses.
pub(crate) fn wait_imported(
    cluster: &Cluster,
    namespace: &str,
    name: &str,
    wanted: &[(&str, &[String])],
) -> Result<()> {
    let wanted: BTreeMap<String, Vec<String>> = wanted
        .iter()
        .map(|(source, addresses)| {
            let mut addresses = addresses.to_vec();
            addresses.sort();
            ((*source).to_owned(), addresses)
        })
        .collect();
    let mut last = BTreeMap::new();
    let result = eventually("endpoints", || {
        last = imported(cluster, namespace, name)?;
        Ok(last == wanted)
    });
    let on = cluster.name();
    result.with_context(|| format!("{namespace}/{name} in {on} has {last:?}, wanted {wanted:?}"))
}

/// Waits until something is so.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    wait_for(what, TIMEOUT, || Ok(is_so()?.then_some(())))
}

/// Says what was measured.
pub(crate) fn say(text: &str) {
    use std::io::Write as _;
    writeln!(std::io::stderr(), "{text}").ok();
}

/// Gives whatever should not happen the time to happen.
pub(crate) fn rest(secs: u64) {
    pause_for(Duration::from_secs(secs));
}

#[expect(
    clippy::disallowed_methods,
    reason = "there is no runtime to be blocked"
)]
pub(crate) fn pause_for(time: Duration) {
    std::thread::sleep(time);
}

/// An address of a cluster.
pub(crate) fn address(cluster: &str, number: u32) -> String {
    let place = CLUSTERS.iter().position(|name| *name == cluster);
    let place = place.map_or(9, |at| at + 1);
    format!("10.{place}.{}.{}", number / 250, number % 250 + 1)
}
