//! A Kubernetes cluster: its parts, and ways to use it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::{
    clock::wait_for,
    command,
    control_plane::{self, Place},
    kubeconfig::{Access, kubeconfig},
    node::{Node, NodePlan},
    part::Part,
    spec::ClusterSpec,
};

/// Until an API server that was just started is ready, on a busy machine.
const READY_TIMEOUT: Duration = Duration::from_mins(3);
/// Until a new namespace has its service account, and other things a controller does at once.
const SOON: Duration = Duration::from_secs(30);

/// A running cluster.
#[derive(Debug)]
pub struct Cluster {
    spec: ClusterSpec,
    folder: PathBuf,
    kubectl: PathBuf,
    access: Access,
    apiserver: Part,
    controller_manager: Part,
    /// Only with nodes: without, there is nothing to schedule.
    scheduler: Option<Part>,
    nodes: Vec<Node>,
}

impl Cluster {
    /// Starts the control plane and then, when it is ready, what needs it on the nodes; the nodes
    /// themselves are made meanwhile.
    pub(crate) fn start(place: &Place<'_>) -> Result<Self> {
        let plans = NodePlan::all(place);
        let (control, nodes) = std::thread::scope(|scope| {
            let nodes: Vec<_> = plans
                .iter()
                .map(|plan| scope.spawn(|| plan.prepare()))
                .collect();
            let control = Self::start_control_plane(place);
            let nodes: Vec<_> = nodes
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|_| anyhow::bail!("panic")))
                .collect();
            (control, nodes)
        });
        let mut cluster = control?;
        for (plan, prepared) in plans.iter().zip(nodes) {
            cluster.nodes.push(plan.start(prepared?)?);
        }
        cluster.wait_ready()?;
        Ok(cluster)
    }

    fn start_control_plane(place: &Place<'_>) -> Result<Self> {
        let folder = place.folder();
        fs::create_dir_all(&folder)?;
        let apiserver = Part::start(&place.state.folder, control_plane::apiserver(place))?;
        let authority_file = folder.join("certs/apiserver.crt");
        let authority = wait_for("the API server's certificate", READY_TIMEOUT, || {
            apiserver.check_running()?;
            let text = fs::read_to_string(&authority_file).unwrap_or_default();
            Ok(text
                .ends_with("-----END CERTIFICATE-----\n")
                .then_some(text))
        })?;
        let access = place.access(authority)?;
        fs::write(
            place.kubeconfig_file(),
            kubeconfig(std::slice::from_ref(&access)),
        )?;
        let kubectl = place.programs.join("kubectl");
        wait_for(
            &format!("{}: API server ready", access.name),
            READY_TIMEOUT,
            || {
                apiserver.check_running()?;
                let mut ready = kubectl_command(&kubectl, &place.kubeconfig_file());
                Ok(command::output(ready.args(["get", "--raw=/readyz"]))
                    .ok()
                    .map(drop))
            },
        )?;
        let part = |launch| Part::start(&place.state.folder, launch);
        let has_nodes = place.spec.nodes > 0;
        Ok(Self {
            spec: place.spec.clone(),
            kubectl,
            access,
            apiserver,
            controller_manager: part(control_plane::controller_manager(place))?,
            scheduler: has_nodes
                .then(|| part(control_plane::scheduler(place)))
                .transpose()?,
            nodes: Vec::new(),
            folder,
        })
    }

    /// A cluster of a testbed that another process started.
    pub(crate) fn attach(place: &Place<'_>) -> Result<Self> {
        let folder = place.folder();
        let authority = fs::read_to_string(folder.join("certs/apiserver.crt"))?;
        let part = |part: &str| Part::attach(&place.state.folder, &place.part_name(part));
        Ok(Self {
            spec: place.spec.clone(),
            kubectl: place.programs.join("kubectl"),
            access: place.access(authority)?,
            apiserver: part("apiserver")?,
            controller_manager: part("controller-manager")?,
            scheduler: (place.spec.nodes > 0)
                .then(|| part("scheduler"))
                .transpose()?,
            nodes: NodePlan::all(place)
                .iter()
                .map(NodePlan::attach)
                .collect::<Result<_>>()?,
            folder,
        })
    }

    /// Its name, which is also its context in the testbed's kubeconfig.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// What it was started as.
    pub fn spec(&self) -> &ClusterSpec {
        &self.spec
    }

    /// A kubeconfig file with this cluster alone, as its administrator.
    pub fn kubeconfig_file(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }

    /// The text of [`Cluster::kubeconfig_file`].
    pub fn kubeconfig(&self) -> String {
        kubeconfig(std::slice::from_ref(&self.access))
    }

    pub(crate) fn access(&self) -> &Access {
        &self.access
    }

    /// URL of the API server.
    pub fn server(&self) -> &str {
        &self.access.server
    }

    /// The API server's authority as PEM.
    pub fn authority(&self) -> &str {
        &self.access.authority
    }

    /// Bearer token of the administrator.
    pub fn admin_token(&self) -> &str {
        &self.access.token
    }

    /// The API server.
    pub fn apiserver(&self) -> &Part {
        &self.apiserver
    }

    /// The controller manager.
    pub fn controller_manager(&self) -> &Part {
        &self.controller_manager
    }

    /// The scheduler; a cluster without nodes has none.
    pub fn scheduler(&self) -> Option<&Part> {
        self.scheduler.as_ref()
    }

    /// The nodes.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Waits until the API server says that it is ready: after a restart.
    ///
    /// # Errors
    /// When that takes long, or it ended.
    pub fn wait_apiserver(&self) -> Result<()> {
        wait_for(
            &format!("{}: API server ready", self.name()),
            READY_TIMEOUT,
            || {
                self.apiserver.check_running()?;
                Ok(self.kubectl(&["get", "--raw=/readyz"]).ok().map(drop))
            },
        )
    }

    /// Waits until the API server and all nodes are ready.
    ///
    /// # Errors
    /// When that takes long, or a part ended.
    pub fn wait_ready(&self) -> Result<()> {
        self.wait_apiserver()?;
        if self.nodes.is_empty() {
            return Ok(());
        }
        let query =
            "jsonpath={range .items[*].status.conditions[?(@.type=='Ready')]}{.status} {end}";
        let ready = "True ".repeat(self.nodes.len());
        wait_for(
            &format!("{}: nodes ready", self.name()),
            READY_TIMEOUT,
            || {
                self.nodes.iter().try_for_each(Node::wait_ready)?;
                Ok((self.kubectl(&["get", "nodes", "-o", query])? == ready).then_some(()))
            },
        )?;
        self.wait_service_account("default")
    }

    /// Runs kubectl in this cluster and returns what it prints.
    ///
    /// # Errors
    /// When kubectl fails; the message has what it wrote.
    pub fn kubectl(&self, args: &[&str]) -> Result<String> {
        command::output(self.kubectl_command().args(args))
    }

    /// [`Cluster::kubectl`] with `input` on its standard input.
    ///
    /// # Errors
    /// As [`Cluster::kubectl`].
    pub fn kubectl_with_input(&self, args: &[&str], input: &str) -> Result<String> {
        command::output_with_input(self.kubectl_command().args(args), input)
    }

    /// A kubectl command for this cluster, to add arguments to.
    pub fn kubectl_command(&self) -> Command {
        kubectl_command(&self.kubectl, &self.kubeconfig_file())
    }

    /// An object as JSON; `None` where it is not there.
    ///
    /// # Errors
    /// As [`Cluster::kubectl`].
    pub fn object(&self, namespace: &str, kind: &str, name: &str) -> Result<Option<Value>> {
        let of = ["-n", namespace, "get", kind, name];
        let text = self.kubectl(&[&of[..], &["--ignore-not-found", "-o", "json"]].concat())?;
        if text.trim().is_empty() {
            return Ok(None);
        }
        Ok(Some(serde_json::from_str(&text)?))
    }

    /// All objects of a kind that a label selector matches, as JSON.
    ///
    /// # Errors
    /// As [`Cluster::kubectl`].
    pub fn list(&self, namespace: &str, kind: &str, selector: &str) -> Result<Vec<Value>> {
        let of = ["-n", namespace, "get", kind, "-l", selector, "-o", "json"];
        let mut json: Value = serde_json::from_str(&self.kubectl(&of)?)?;
        match json["items"].take() {
            Value::Array(items) => Ok(items),
            other => bail!("no list: {other}"),
        }
    }

    /// Applies manifests.
    ///
    /// # Errors
    /// As [`Cluster::kubectl`].
    pub fn apply(&self, yaml: &str) -> Result<String> {
        self.kubectl_with_input(&["apply", "--server-side", "-f", "-"], yaml)
    }

    /// Applies CRDs and waits until they are served.
    ///
    /// # Errors
    /// As [`Cluster::kubectl`].
    pub fn apply_crds(&self, yaml: &str) -> Result<()> {
        self.apply(yaml)?;
        let args = [
            "wait",
            "--for=condition=Established",
            "--timeout=30s",
            "-f",
            "-",
        ];
        self.kubectl_with_input(&args, yaml).map(drop)
    }

    /// Makes a namespace and waits until pods can be created in it.
    ///
    /// # Errors
    /// As [`Cluster::kubectl`], or when its service account does not come.
    pub fn create_namespace(&self, name: &str) -> Result<()> {
        self.kubectl(&["create", "namespace", name])?;
        self.wait_service_account(name)
    }

    /// Runs a command in a pod and returns what it prints.
    ///
    /// # Errors
    /// When it fails; the message has what it wrote.
    pub fn exec(&self, namespace: &str, pod: &str, args: &[&str]) -> Result<String> {
        let mut all = vec!["exec", "-n", namespace, pod, "--"];
        all.extend_from_slice(args);
        self.kubectl(&all)
    }

    /// Waits until kubectl prints what `wanted` accepts; failures of kubectl count as "not yet".
    ///
    /// # Errors
    /// When the time is over: the message has the last answer.
    pub fn wait_until(
        &self,
        args: &[&str],
        timeout: Duration,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<String> {
        let mut last = String::new();
        let what = format!("{}: kubectl {}", self.name(), args.join(" "));
        wait_for(&what, timeout, || {
            last = self
                .kubectl(args)
                .unwrap_or_else(|error| format!("{error:#}"));
            Ok(wanted(&last).then(|| last.clone()))
        })
        .with_context(|| format!("the last answer was: {last}"))
    }

    fn wait_service_account(&self, namespace: &str) -> Result<()> {
        let args = [
            "get",
            "serviceaccount",
            "default",
            "-o",
            "name",
            "-n",
            namespace,
        ];
        self.wait_until(&args, SOON, |text| text.starts_with("serviceaccount/"))
            .map(drop)
    }

    /// Where its files are: certificates, kubeconfig, nodes.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

fn kubectl_command(kubectl: &Path, kubeconfig: &Path) -> Command {
    let mut command = Command::new(kubectl);
    // Beside the kubeconfig and not in the home folder: it goes with the testbed.
    command.env("KUBECACHEDIR", kubeconfig.with_file_name("kubectl-cache"));
    command.arg("--kubeconfig").arg(kubeconfig);
    command
}
