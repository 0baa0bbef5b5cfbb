//! The testbed of all tests, the `tombolo up` that joins its clusters, and what tests ask them.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use tombolo_testbed::{Cluster, ClusterSpec, Part, Progress, Spec, TEST_IMAGE, Testbed, wait_for};

/// Everything that Tombolo does takes less; kubelets and garbage collectors take their time.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(1);

/// The clusters' names.
pub(crate) const CLUSTERS: [&str; 2] = ["east", "west"];

/// Who the controller is in each cluster.
const ACCOUNT: [&str; 2] = ["tombolo-system", "tombolo-controller"];

/// Everything that runs.
pub(crate) struct World {
    pub(crate) testbed: Testbed,
    kubeconfig: PathBuf,
    tombolo: Part,
    started: u32,
}

impl World {
    /// Starts two clusters with a node each, and joins them.
    pub(crate) fn start() -> Result<Self> {
        let east = ClusterSpec::new(CLUSTERS[0]).nodes(1);
        let west = ClusterSpec::new(CLUSTERS[1])
            .nodes(1)
            .admission_plugin("OwnerReferencesPermissionEnforcement");
        let spec = Spec {
            clusters: vec![east, west],
            ..Spec::default()
        };
        let cache = tombolo_testbed::Cache::from_env()?;
        let testbed = Testbed::start_with(&spec, cache, Progress::stderr())?;
        for cluster in testbed.clusters() {
            install(cluster)?;
        }
        let kubeconfig = testbed.folder().join("controller.kubeconfig");
        fs::write(&kubeconfig, accounts(&testbed)?)?;
        let tombolo = launch(&testbed, &kubeconfig, 1)?;
        let world = Self {
            testbed,
            kubeconfig,
            tombolo,
            started: 1,
        };
        world.wait_ready()?;
        Ok(world)
    }

    /// Runs a test in a namespace that both clusters have, and removes it.
    pub(crate) fn in_namespace(
        &mut self,
        namespace: &str,
        test: fn(&mut Self, &str) -> Result<()>,
    ) -> Result<()> {
        for cluster in self.testbed.clusters() {
            cluster.create_namespace(namespace)?;
        }
        test(self, namespace)?;
        for cluster in self.testbed.clusters() {
            // Its end must not be counted as what the next test does.
            cluster.kubectl(&["delete", "namespace", namespace, "--timeout=120s"])?;
        }
        Ok(())
    }

    pub(crate) fn east(&self) -> &Cluster {
        &self.testbed.clusters()[0]
    }

    pub(crate) fn west(&self) -> &Cluster {
        &self.testbed.clusters()[1]
    }

    /// Ends the controller and starts another one.
    pub(crate) fn restart_tombolo(&mut self) -> Result<()> {
        self.tombolo.stop(TIMEOUT)?;
        self.started += 1;
        self.tombolo = launch(&self.testbed, &self.kubeconfig, self.started)?;
        self.wait_ready()
    }

    fn wait_ready(&self) -> Result<()> {
        wait_for("tombolo", TIMEOUT, || {
            self.tombolo.check_running()?;
            Ok(self.get("/readyz").is_ok().then_some(()))
        })
        .with_context(|| self.log_tail())
    }

    /// An answer of the admin endpoint.
    pub(crate) fn get(&self, path: &str) -> Result<String> {
        let log = fs::read_to_string(self.tombolo.log_file())?;
        let marker = "admin endpoint address=Ok(";
        let (_, rest) = log.split_once(marker).context("no admin endpoint yet")?;
        let (address, _) = rest.split_once(')').context("a half line")?;
        let output = Command::new("curl")
            .args(["-sf", "-m", "5", &format!("http://{address}{path}")])
            .output()?;
        ensure!(output.status.success(), "{path}: {:?}", output.status);
        Ok(String::from_utf8(output.stdout)?)
    }

    /// The end of the controller's log.
    pub(crate) fn log_tail(&self) -> String {
        format!("tombolo's log ends:\n{}", self.tombolo.log_tail())
    }
}

/// The CRDs, and exactly the rights that are shipped.
fn install(cluster: &Cluster) -> Result<()> {
    let kubeconfig = cluster.kubeconfig_file();
    for _ in 0..2 {
        let output = Command::new(env!("CARGO_BIN_EXE_tombolo"))
            .args(["crds", "apply", "--kubeconfig"])
            .arg(&kubeconfig)
            .output()?;
        let text = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "crds apply: {text}");
    }
    let base = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/base");
    for file in ["namespace.yaml", "rbac.yaml", "policy.yaml"] {
        cluster.apply(&fs::read_to_string(format!("{base}/{file}"))?)?;
    }
    Ok(())
}

/// A kubeconfig with a context for each cluster, as the controller's service account.
fn accounts(testbed: &Testbed) -> Result<String> {
    let [namespace, name] = ACCOUNT;
    let (mut clusters, mut users, mut contexts) = (Vec::new(), Vec::new(), Vec::new());
    for cluster in testbed.clusters() {
        let args = ["create", "token", name, "-n", namespace, "--duration=8h"];
        let token = cluster.kubectl(&args)?;
        let (id, server) = (cluster.name(), cluster.server());
        clusters.push(serde_json::json!({"name": id, "cluster": {
            "server": server,
            "certificate-authority-data": base64(cluster.authority().as_bytes()),
        }}));
        users.push(serde_json::json!({"name": id, "user": {"token": token.trim()}}));
        contexts.push(serde_json::json!({"name": id, "context": {"cluster": id, "user": id}}));
    }
    let config = serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "preferences": {},
        "clusters": clusters, "users": users, "contexts": contexts,
        "current-context": CLUSTERS[0],
    });
    Ok(config.to_string())
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let mut group = [0; 3];
        group[..chunk.len()].copy_from_slice(chunk);
        let number = u32::from_be_bytes([0, group[0], group[1], group[2]]);
        for place in 0..4 {
            let digit = (number >> (18 - 6 * place)) & 63;
            let is_padding = place > chunk.len();
            text.push(if is_padding {
                '='
            } else {
                char::from(DIGITS[digit as usize])
            });
        }
    }
    text
}

fn launch(testbed: &Testbed, kubeconfig: &PathBuf, number: u32) -> Result<Part> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tombolo"));
    command.arg("up");
    command.args(CLUSTERS.map(|name| format!("context:{name}")));
    command.arg("--kubeconfig").arg(kubeconfig);
    command.args(["--admin", "127.0.0.1:0", "--log", "info"]);
    testbed.start_program(&format!("tombolo-{number}"), &command, None)
}

/// Pods that answer on port 8080 with their name, a client among them, and a Service.
pub(crate) fn deploy(cluster: &Cluster, namespace: &str, name: &str, replicas: u8) -> Result<()> {
    apply(cluster, namespace, &deployment(name, replicas))?;
    apply(cluster, namespace, &service(name, ""))
}

pub(crate) fn deployment(name: &str, replicas: u8) -> String {
    format!(
        "apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{{name: answer, image: '{TEST_IMAGE}', command: [answer, '8080']}}]
"
    )
}

/// A Service of TCP and UDP port 80, with further lines of its spec.
pub(crate) fn service(name: &str, spec: &str) -> String {
    format!(
        "apiVersion: v1
kind: Service
metadata: {{name: {name}}}
spec:
  ipFamilyPolicy: PreferDualStack
  selector: {{app: {name}}}
  ports:
  - {{name: tcp, port: 80, targetPort: 8080}}
  - {{name: udp, protocol: UDP, port: 80, targetPort: 8080}}
{spec}"
    )
}

pub(crate) fn export(cluster: &Cluster, namespace: &str, name: &str) -> Result<()> {
    let yaml = format!(
        "apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceExport
metadata: {{name: {name}}}
"
    );
    apply(cluster, namespace, &yaml)
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

pub(crate) fn rollout(cluster: &Cluster, namespace: &str, name: &str) -> Result<()> {
    let deployment = format!("deployment/{name}");
    let args = ["rollout", "status", &deployment, "--timeout=60s"];
    kubectl(cluster, namespace, &args).map(drop)
}

/// An object as JSON; `None` where it is not there.
pub(crate) fn object(
    cluster: &Cluster,
    namespace: &str,
    kind: &str,
    name: &str,
) -> Result<Option<Value>> {
    let args = ["get", kind, name, "--ignore-not-found", "-o", "json"];
    let text = kubectl(cluster, namespace, &args)?;
    if text.trim().is_empty() {
        return Ok(None);
    }
    Ok(Some(serde_json::from_str(&text)?))
}

/// All objects of a kind with a label.
pub(crate) fn list(
    cluster: &Cluster,
    namespace: &str,
    kind: &str,
    selector: &str,
) -> Result<Vec<Value>> {
    let args = ["get", kind, "-l", selector, "-o", "json"];
    let json: Value = serde_json::from_str(&kubectl(cluster, namespace, &args)?)?;
    Ok(json["items"].as_array().cloned().unwrap_or_default())
}

/// Our slices of an import.
pub(crate) fn slices(cluster: &Cluster, namespace: &str, name: &str) -> Result<Vec<Value>> {
    let selector = format!("multicluster.kubernetes.io/service-name={name}");
    list(cluster, namespace, "endpointslices", &selector)
}

/// The pods of a Deployment that are not going away.
pub(crate) fn pods(cluster: &Cluster, namespace: &str, app: &str) -> Result<Vec<String>> {
    let pods = list(cluster, namespace, "pods", &format!("app={app}"))?;
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
    let result = wait_for(condition_kind, TIMEOUT, || {
        let Some(found) = object(cluster, namespace, kind, name)? else {
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
    let ips = import["spec"]["ips"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    Ok(ips.iter().map(text).collect())
}

/// Waits until something is so.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    wait_for(what, TIMEOUT, || Ok(is_so()?.then_some(())))
}

/// Who answers, asked `count` times by a client pod; `-` for no answer.
pub(crate) fn ask(
    cluster: &Cluster,
    namespace: &str,
    (protocol, address): (&str, &str),
    count: u8,
) -> Result<Vec<String>> {
    let clients = pods(cluster, namespace, "client")?;
    let client = clients.first().context("no client pod")?;
    let args = ["ask", protocol, address, "80", &count.to_string()];
    let output = cluster.exec(namespace, client, &args)?;
    let words = output
        .lines()
        .map(|line| line.split(' ').next().unwrap_or_default());
    Ok(words.map(str::to_owned).collect())
}

/// Waits until exactly these pods answer at an address, over TCP and UDP.
pub(crate) fn wait_answers(
    cluster: &Cluster,
    namespace: &str,
    address: &str,
    wanted: &[String],
) -> Result<()> {
    for protocol in ["tcp", "udp"] {
        let mut last = Vec::new();
        let result = eventually("answers", || {
            let mut answers = ask(cluster, namespace, (protocol, address), 20)?;
            answers.sort();
            answers.dedup();
            last = answers;
            Ok(last == wanted)
        });
        let name = cluster.name();
        result.with_context(|| {
            format!("from {name}, {protocol} {address}: {last:?} instead of {wanted:?}")
        })?;
    }
    Ok(())
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
