//! What tests do to clusters and ask them.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use tombolo_testbed::{Cluster, TEST_IMAGE, wait_for};

/// Everything that Tombolo does takes less; kubelets and garbage collectors take their time.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(5);

/// Between two looks at a cluster.
const BETWEEN_LOOKS: Duration = Duration::from_millis(200);

/// The label of what Tombolo made for an import.
pub(crate) const OF_IMPORT: &str = "multicluster.kubernetes.io/service-name";

/// Pods that answer on port 8080 with their name, and a Service.
pub(crate) fn deploy(cluster: &Cluster, namespace: &str, name: &str, replicas: u8) -> Result<()> {
    apply(cluster, namespace, &deployment(name, replicas))?;
    apply(cluster, namespace, &service(name, ""))
}

pub(crate) fn deployment(name: &str, replicas: u8) -> String {
    workload(name, name, replicas, "command: [answer, '8080']")
}

/// A Deployment of a name, whose pods have a label `app` and a container that is described so.
pub(crate) fn workload(name: &str, app: &str, replicas: u8, container: &str) -> String {
    format!(
        "apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{set: {name}}}}}
  template:
    metadata: {{labels: {{app: {app}, set: {name}}}}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{{name: answer, image: '{TEST_IMAGE}', {container}}}]
"
    )
}

/// A Service of TCP and UDP port 80, with further lines of its spec.
pub(crate) fn service(name: &str, spec: &str) -> String {
    let ports = "  - {name: tcp, port: 80, targetPort: 8080}
  - {name: udp, protocol: UDP, port: 80, targetPort: 8080}
";
    service_of(name, ports, &format!("  selector: {{app: {name}}}\n{spec}"))
}

/// A Service with these ports.
pub(crate) fn service_of(name: &str, ports: &str, spec: &str) -> String {
    format!(
        "apiVersion: v1
kind: Service
metadata: {{name: {name}}}
spec:
  ipFamilyPolicy: PreferDualStack
  ports:
{ports}{spec}"
    )
}

/// A Service without a selector, and endpoints of its own in these families.
pub(crate) fn by_hand(name: &str, families: &[&str], spec: &str) -> String {
    let ports = "  - {name: tcp, port: 80}\n";
    let mut yaml = service_of(name, ports, spec);
    for family in families {
        yaml += &slice_of(
            name,
            family,
            &[if *family == "IPv4" {
                "10.77.0.1"
            } else {
                "fd77::1"
            }],
        );
    }
    yaml
}

/// A document with an EndpointSlice of a Service.
pub(crate) fn slice_of(service: &str, family: &str, addresses: &[&str]) -> String {
    let endpoints: Vec<String> = addresses
        .iter()
        .map(|address| format!("{{addresses: ['{address}'], conditions: {{ready: true}}}}"))
        .collect();
    let (name, endpoints) = (family.to_lowercase(), endpoints.join(", "));
    format!(
        "
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: {service}-{name}, labels: {{kubernetes.io/service-name: {service}}}}}
addressType: {family}
ports: [{{name: tcp, port: 8080}}]
endpoints: [{endpoints}]
"
    )
}

pub(crate) fn export(cluster: &Cluster, namespace: &str, name: &str) -> Result<()> {
    apply(cluster, namespace, &export_of(name))
}

pub(crate) fn export_of(name: &str) -> String {
    format!(
        "
---
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceExport
metadata: {{name: {name}}}
"
    )
}

/// Documents with a Service of one endpoint, and its export.
pub(crate) fn exported(name: &str) -> String {
    let service = by_hand(name, &["IPv4"], "");
    format!("\n---\n{service}{}", export_of(name))
}

pub(crate) fn unexport(cluster: &Cluster, namespace: &str, name: &str) -> Result<()> {
    kubectl(cluster, namespace, &["delete", "serviceexport", name]).map(drop)
}

pub(crate) fn apply(cluster: &Cluster, namespace: &str, yaml: &str) -> Result<()> {
    let args = ["-n", namespace, "apply", "-f", "-"];
    cluster.kubectl_with_input(&args, yaml).map(drop)
}

pub(crate) fn kubectl(cluster: &Cluster, namespace: &str, args: &[&str]) -> Result<String> {
    let args = [&["-n", namespace], args].concat();
    cluster.kubectl(&args)
}

/// Waits until a Deployment or StatefulSet is as it was last described.
pub(crate) fn rollout(cluster: &Cluster, namespace: &str, name: &str) -> Result<()> {
    let kind = if name.contains('/') {
        ""
    } else {
        "deployment/"
    };
    let name = format!("{kind}{name}");
    let args = ["rollout", "status", &name, "--timeout=300s"];
    kubectl(cluster, namespace, &args).map(drop)
}

/// Our slices of an import.
pub(crate) fn slices(cluster: &Cluster, namespace: &str, name: &str) -> Result<Vec<Value>> {
    cluster.list(namespace, "endpointslices", &format!("{OF_IMPORT}={name}"))
}

/// The endpoints of an import's slices of one source cluster.
pub(crate) fn endpoints(
    cluster: &Cluster,
    namespace: &str,
    name: &str,
    source: &str,
) -> Result<Vec<Value>> {
    let selector = format!("{OF_IMPORT}={name},multicluster.kubernetes.io/source-cluster={source}");
    let slices = cluster.list(namespace, "endpointslices", &selector)?;
    let endpoints = slices
        .iter()
        .flat_map(|slice| slice["endpoints"].as_array().cloned().unwrap_or_default());
    Ok(endpoints.collect())
}

/// The derived Services of a namespace.
pub(crate) fn derived(cluster: &Cluster, namespace: &str) -> Result<Vec<Value>> {
    cluster.list(namespace, "services", OF_IMPORT)
}

/// The pods with a label `app` that are not going away.
pub(crate) fn pods(cluster: &Cluster, namespace: &str, app: &str) -> Result<Vec<String>> {
    let pods = cluster.list(namespace, "pods", &format!("app={app}"))?;
    let alive = pods
        .iter()
        .filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    let mut names: Vec<String> = alive.map(|pod| text(&pod["metadata"]["name"])).collect();
    names.sort();
    Ok(names)
}

pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The strings of a list.
pub(crate) fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().map(text).collect()
}

/// Status and reason of a condition.
pub(crate) fn condition(object: &Value, kind: &str) -> Option<(String, String)> {
    let conditions = object["status"]["conditions"].as_array()?;
    let found = conditions.iter().find(|c| c["type"] == kind)?;
    Some((text(&found["status"]), text(&found["reason"])))
}

/// Waits until an object has a condition.
pub(crate) fn wait_condition(
    cluster: &Cluster,
    namespace: &str,
    object_name: [&str; 2],
    wanted: [&str; 3],
) -> Result<Value> {
    let ([kind, name], [condition_kind, status, reason]) = (object_name, wanted);
    let mut last = None;
    let result = poll(condition_kind, || {
        let Some(found) = cluster.object(namespace, kind, name)? else {
            return Ok(None);
        };
        last = condition(&found, condition_kind);
        let is_it = last == Some((status.to_owned(), reason.to_owned()));
        Ok(is_it.then_some(found))
    });
    let cluster = cluster.name();
    result.with_context(|| format!("{kind} {name} in {cluster} has {condition_kind} {last:?}"))
}

/// Waits for an import that is ready; returns its addresses.
pub(crate) fn wait_import(cluster: &Cluster, namespace: &str, name: &str) -> Result<Vec<String>> {
    let wanted = ["Ready", "True", "Ready"];
    let import = wait_condition(cluster, namespace, ["serviceimport", name], wanted)?;
    Ok(texts(&import["spec"]["ips"]))
}

/// Waits until nothing of an import is left.
pub(crate) fn wait_gone(cluster: &Cluster, namespace: &str, name: &str) -> Result<()> {
    eventually(&format!("{name} goes from {}", cluster.name()), || {
        let derived = cluster.list(namespace, "services", &format!("{OF_IMPORT}={name}"))?;
        Ok(cluster.object(namespace, "serviceimport", name)?.is_none()
            && slices(cluster, namespace, name)?.is_empty()
            && derived.is_empty())
    })
}

/// Calls kubectl, mostly, until there is a value; not so often that the machine does nothing else.
pub(crate) fn poll<T>(what: &str, mut look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    wait_for(what, TIMEOUT, || {
        let found = look()?;
        if found.is_none() {
            rest(BETWEEN_LOOKS);
        }
        Ok(found)
    })
}

/// Waits until something is so.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    poll(what, || Ok(is_so()?.then_some(())))
}

/// The same for checks that may fail while an API server is away.
pub(crate) fn at_last(what: &str, mut check: impl FnMut() -> Result<()>) -> Result<()> {
    let mut last = None;
    let result = poll(what, || match check() {
        Ok(()) => Ok(Some(())),
        Err(error) => {
            last = Some(error);
            Ok(None)
        }
    });
    result.with_context(|| last.map_or_else(String::new, |error| format!("at last {error:#}")))
}

/// Gives whatever should not happen the time to happen.
#[expect(
    clippy::disallowed_methods,
    reason = "there is no runtime to be blocked"
)]
pub(crate) fn rest(time: Duration) {
    std::thread::sleep(time);
}

/// Where a client asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct To<'a> {
    pub(crate) protocol: &'a str,
    pub(crate) address: &'a str,
    pub(crate) port: u16,
}

/// The answers to a client pod, asked `count` times: `POD port=PORT`, or `-` for none.
pub(crate) fn ask(
    cluster: &Cluster,
    namespace: &str,
    to: To<'_>,
    count: u8,
) -> Result<Vec<String>> {
    let clients = pods(cluster, namespace, "client")?;
    let client = clients.first().context("no client pod")?;
    let (port, count) = (to.port.to_string(), count.to_string());
    let args = ["ask", to.protocol, to.address, &port, &count];
    let output = cluster.exec(namespace, client, &args)?;
    let two_words = |line: &str| {
        let words: Vec<&str> = line.split(' ').take(2).collect();
        words.join(" ")
    };
    Ok(output.lines().map(two_words).collect())
}

/// The distinct pods among answers, sorted.
pub(crate) fn names(answers: &[String]) -> Vec<String> {
    let name = |answer: &String| answer.split(' ').next().unwrap_or_default().to_owned();
    let mut names: Vec<String> = answers.iter().map(name).collect();
    names.sort();
    names.dedup();
    names
}

/// Waits until exactly these pods answer, over TCP and UDP.
pub(crate) fn wait_answers(
    cluster: &Cluster,
    namespace: &str,
    (address, port): (&str, u16),
    wanted: &[String],
) -> Result<()> {
    for protocol in ["tcp", "udp"] {
        let to = To {
            protocol,
            address,
            port,
        };
        wait_answers_of(cluster, namespace, to, wanted)?;
    }
    Ok(())
}

/// Waits until exactly these pods answer.
pub(crate) fn wait_answers_of(
    cluster: &Cluster,
    namespace: &str,
    to: To<'_>,
    wanted: &[String],
) -> Result<()> {
    let mut last = Vec::new();
    let result = eventually("answers", || {
        last = names(&ask(cluster, namespace, to, 20)?);
        Ok(last == wanted)
    });
    let name = cluster.name();
    result.with_context(|| format!("from {name}, {to:?}: {last:?} instead of {wanted:?}"))
}

/// The writes of the controller's kinds that an API server has answered since it started.
pub(crate) fn writes(cluster: &Cluster) -> Result<u64> {
    let metrics = cluster.kubectl(&["get", "--raw", "/metrics"])?;
    let mut sum = 0;
    for line in metrics
        .lines()
        .filter(|line| line.starts_with("apiserver_request_total{"))
    {
        let has = |label: &str, values: &[&str]| {
            values
                .iter()
                .any(|value| line.contains(&format!("{label}=\"{value}\"")))
        };
        let kinds = [
            "services",
            "endpointslices",
            "serviceimports",
            "serviceexports",
        ];
        if has("verb", &["POST", "PUT", "PATCH", "DELETE", "APPLY"]) && has("resource", &kinds) {
            let number = line.rsplit(' ').next().unwrap_or_default();
            let Ok(number) = number.parse::<f64>() else {
                bail!("no number: {line}");
            };
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a count"
            )]
            let number = number as u64;
            sum += number;
        }
    }
    Ok(sum)
}

/// An object of ours as it stands.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version {
    /// The import that it belongs to.
    pub(crate) import: String,
    kind: &'static str,
    name: String,
    revision: String,
}

/// The resource versions of all objects of ours in a namespace.
pub(crate) fn versions(cluster: &Cluster, namespace: &str) -> Result<BTreeSet<Version>> {
    let mut versions = BTreeSet::new();
    for kind in ["serviceimports", "services", "endpointslices"] {
        let ours = "app.kubernetes.io/managed-by=tombolo";
        for object in cluster.list(namespace, kind, ours)? {
            let meta = &object["metadata"];
            let name = text(&meta["name"]);
            versions.insert(Version {
                import: meta["labels"][OF_IMPORT]
                    .as_str()
                    .unwrap_or(&name)
                    .to_owned(),
                kind,
                revision: text(&meta["resourceVersion"]),
                name,
            });
        }
    }
    Ok(versions)
}
