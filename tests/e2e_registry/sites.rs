//! The testbed of all tests: four API servers, an etcd of three members, a controller for each of
//! the first three clusters, and what tests ask and do.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use anyhow::{Context as _, Result, bail, ensure};
use etcd_client::{Client, ConnectOptions};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::json;
use tombolo_testbed::{
    Cluster, ClusterSpec, Etcd, EtcdSpec, Part, Progress, Spec, Testbed, wait_for,
};

use crate::kit::TIMEOUT;
use crate::regions::Far;

/// The clusters that take part.
pub(crate) const CLUSTERS: [&str; 3] = ["east", "west", "north"];
/// One that does not, unless a test lets it.
pub(crate) const OTHER: &str = "other";
/// How long endpoints of a cluster that is not heard of stay.
pub(crate) const HOLD_SECS: u64 = 8;
/// The lease of a session.
pub(crate) const LEASE_SECS: u64 = 30;

const ACCOUNT: [&str; 2] = ["tombolo-system", "tombolo-controller"];
const ROOT_PASSWORD: &str = "root-password";

/// A controller that runs, or did.
pub(crate) struct Controller {
    pub(crate) part: Part,
    /// How often it was started.
    started: u32,
}

/// Everything that runs.
pub(crate) struct Sites {
    pub(crate) testbed: Testbed,
    pub(crate) etcd: Etcd,
    pub(crate) controllers: BTreeMap<&'static str, Controller>,
    /// A second region, once a test needs it.
    pub(crate) far: Option<Far>,
    runtime: tokio::runtime::Runtime,
    folder: PathBuf,
}

impl Sites {
    pub(crate) fn start() -> Result<Self> {
        let clusters = CLUSTERS.iter().chain([&OTHER]);
        let spec = Spec {
            clusters: clusters.map(|name| ClusterSpec::new(*name)).collect(),
            ..Spec::default()
        };
        let cache = tombolo_testbed::Cache::from_env()?;
        let mut testbed = Testbed::start_with(&spec, cache, Progress::stderr())?;
        let etcd = testbed.start_etcd("registry", &EtcdSpec::members(3))?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let folder = testbed.folder().join("sites");
        fs::create_dir_all(&folder)?;
        let mut sites = Self {
            testbed,
            etcd,
            controllers: BTreeMap::new(),
            far: None,
            runtime,
            folder,
        };
        sites.grant()?;
        for name in CLUSTERS.iter().chain([&OTHER]) {
            let cluster = sites.cluster(name);
            install(cluster)?;
            fs::write(sites.kubeconfig(name), account(cluster, &sites.folder)?)?;
        }
        for name in CLUSTERS {
            sites.launch(name, name, &[])?;
        }
        for name in CLUSTERS {
            sites.wait_ready(name)?;
        }
        Ok(sites)
    }

    /// An etcd user for each cluster, then the rules are turned on.
    fn grant(&self) -> Result<()> {
        let grants = CLUSTERS.map(|name| vec!["--cluster", name]);
        self.secure(&self.etcd, &grants)
    }

    /// Gives access to an etcd, to each cluster or replicator that is named, and turns the rules on.
    pub(crate) fn secure(&self, etcd: &Etcd, grants: &[Vec<&str>]) -> Result<()> {
        fs::write(self.password("root"), ROOT_PASSWORD)?;
        let url = etcd.endpoints().join(",");
        for grant in grants {
            let name = grant[1];
            fs::write(self.password(name), format!("password of {name}"))?;
            let output = tombolo(&["registry", "grant", "--registry", &url])
                .args(grant)
                .arg("--password-file")
                .arg(self.password(name))
                .output()?;
            ensure!(output.status.success(), "grant: {}", text_of(&output));
        }
        let mut client = self.wait(Client::connect(etcd.endpoints(), None))?;
        self.wait(client.user_add("root", ROOT_PASSWORD, None))?;
        self.wait(client.role_add("root")).ok();
        self.wait(client.user_grant_role("root", "root"))?;
        self.wait(client.auth_enable())?;
        Ok(())
    }

    /// Waits for an answer of etcd.
    pub(crate) fn wait<T, E>(&self, call: impl Future<Output = Result<T, E>>) -> Result<T>
    where
        E: std::error::Error + Send + Sync + 'static,
    {
        Ok(self.runtime.block_on(call)?)
    }

    /// Lets something go on beside the test.
    pub(crate) fn beside<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> tokio::task::JoinHandle<T> {
        self.runtime.spawn(task)
    }

    /// A client of an API server that may do everything.
    pub(crate) fn kube(&self, cluster: &Cluster) -> Result<kube::Client> {
        let kubeconfig = Kubeconfig::from_yaml(&cluster.kubeconfig())?;
        let options = KubeConfigOptions::default();
        let config = self.wait(kube::Config::from_custom_kubeconfig(kubeconfig, &options))?;
        let _in_runtime = self.runtime.enter();
        Ok(kube::Client::try_from(config)?)
    }

    /// A client of etcd that may do everything.
    pub(crate) fn client(&self) -> Result<Client> {
        self.client_of(&self.etcd)
    }

    /// The same, of any etcd.
    pub(crate) fn client_of(&self, etcd: &Etcd) -> Result<Client> {
        let options = ConnectOptions::new().with_user("root", ROOT_PASSWORD);
        self.wait(Client::connect(etcd.endpoints(), Some(options)))
    }

    /// The revision of the registry.
    pub(crate) fn revision(&self) -> Result<i64> {
        self.revision_of(&self.etcd)
    }

    /// The revision of any etcd.
    pub(crate) fn revision_of(&self, etcd: &Etcd) -> Result<i64> {
        let mut client = self.client_of(etcd)?;
        let answer = self.wait(client.get("x", None))?;
        Ok(answer
            .header()
            .map_or(0, etcd_client::ResponseHeader::revision))
    }

    pub(crate) fn password(&self, user: &str) -> PathBuf {
        self.folder.join(format!("{user}.password"))
    }

    fn kubeconfig(&self, cluster: &str) -> PathBuf {
        self.folder.join(format!("{cluster}.kubeconfig"))
    }

    pub(crate) fn cluster(&self, name: &str) -> &Cluster {
        let found = self.testbed.clusters().iter().find(|c| c.name() == name);
        found.expect("the testbed has all clusters")
    }

    /// Starts a controller on an API server, under a name in the registry.
    pub(crate) fn launch(&mut self, on: &'static str, name: &str, args: &[&str]) -> Result<()> {
        let urls = self.etcd.endpoints().join(",");
        self.launch_at(&urls, on, name, args)
    }

    /// The same, at any etcd.
    pub(crate) fn launch_at(
        &mut self,
        urls: &str,
        on: &'static str,
        name: &str,
        args: &[&str],
    ) -> Result<()> {
        let mut command = tombolo(&["controller", "--cluster", name, "--kubeconfig"]);
        command.arg(self.kubeconfig(on));
        command.args(["--registry", urls]);
        command.args(["--registry-user", &format!("tombolo-cluster-{name}")]);
        command
            .arg("--registry-password-file")
            .arg(self.password(name));
        command.args(args);
        self.run(on, command)
    }

    /// `tombolo up` on the cluster that has no controller, as the registry's root user.
    pub(crate) fn visit(&mut self, args: &[&str]) -> Result<()> {
        let mut command = tombolo(&["up", &format!("context:{OTHER}"), "--kubeconfig"]);
        command.arg(self.cluster(OTHER).kubeconfig_file());
        command.args(["--registry", &self.etcd.endpoints().join(",")]);
        command.args(["--registry-user", "root", "--registry-password-file"]);
        command.arg(self.password("root")).args(args);
        self.run(OTHER, command)
    }

    fn run(&mut self, on: &'static str, mut command: Command) -> Result<()> {
        command.args(["--hold", &format!("{HOLD_SECS}s"), "--admin", "127.0.0.1:0"]);
        let started = self.controllers.get(on).map_or(0, |c| c.started) + 1;
        let part = self
            .testbed
            .start_program(&format!("{on}-{started}"), &command, None)?;
        self.controllers.insert(on, Controller { part, started });
        Ok(())
    }

    pub(crate) fn part(&self, on: &str) -> &Part {
        &self.controllers[on].part
    }

    /// Ends a controller and starts another.
    pub(crate) fn restart(&mut self, on: &'static str) -> Result<()> {
        self.part(on).stop(TIMEOUT)?;
        self.launch(on, on, &[])?;
        self.wait_ready(on)
    }

    pub(crate) fn wait_ready(&self, on: &str) -> Result<()> {
        wait_for("a controller", TIMEOUT, || {
            self.part(on).check_running()?;
            Ok(self.get(on, "/readyz").is_ok().then_some(()))
        })
        .with_context(|| format!("{on}: {}", self.part(on).log_tail()))
    }

    /// An answer of a controller's admin endpoint.
    pub(crate) fn get(&self, on: &str, path: &str) -> Result<String> {
        let (status, body) = self.ask(on, path)?;
        ensure!(status == 200, "{path}: {status} {body}");
        Ok(body)
    }

    /// Status and body.
    pub(crate) fn ask(&self, on: &str, path: &str) -> Result<(u16, String)> {
        let log = fs::read_to_string(self.part(on).log_file())?;
        let marker = "admin endpoint address=Ok(";
        let (_, rest) = log.rsplit_once(marker).context("no admin endpoint yet")?;
        let (address, _) = rest.split_once(')').context("a half line")?;
        let url = format!("http://{address}{path}");
        let output = Command::new("curl")
            .args(["-s", "-m", "5", "-w", "\n%{http_code}", &url])
            .output()?;
        let text = String::from_utf8(output.stdout)?;
        let (body, status) = text.rsplit_once('\n').context("no status")?;
        Ok((status.trim().parse()?, body.to_owned()))
    }

    /// Runs `tombolo` against the registry as its root user.
    pub(crate) fn operate(&self, args: &[&str]) -> Result<Output> {
        self.operate_at(&self.etcd, args)
    }

    /// The same, at any etcd.
    pub(crate) fn operate_at(&self, etcd: &Etcd, args: &[&str]) -> Result<Output> {
        let mut command = tombolo(args);
        command.args(["--registry", &etcd.endpoints().join(",")]);
        command.args(["--registry-user", "root", "--registry-password-file"]);
        command.arg(self.password("root"));
        Ok(command.output()?)
    }

    /// The same, that has to succeed.
    pub(crate) fn must(&self, args: &[&str]) -> Result<String> {
        let output = self.operate(args)?;
        ensure!(output.status.success(), "{args:?}: {}", text_of(&output));
        Ok(text_of(&output))
    }

    /// Everything of a cluster in the registry but its report, as lines.
    pub(crate) fn partition(&self, cluster: &str) -> Result<Vec<String>> {
        let text = self.must(&["registry", "get", "--cluster", cluster])?;
        let lines = text
            .lines()
            .skip(1)
            .filter(|line| !line.contains("/report "));
        Ok(lines.map(str::to_owned).collect())
    }

    /// Runs a test in a namespace that all clusters have, and removes it.
    pub(crate) fn in_namespace(
        &mut self,
        namespace: &str,
        test: fn(&mut Self, &str) -> Result<()>,
    ) -> Result<()> {
        self.mend()?;
        for cluster in self.testbed.clusters() {
            cluster.create_namespace(namespace)?;
        }
        test(self, namespace)?;
        for name in CLUSTERS {
            self.wait_ready(name)?;
        }
        // What is left of this test must not meet the next one.
        let args = ["delete", "namespace", namespace];
        for wait in ["--wait=false", "--timeout=120s"] {
            for cluster in self.testbed.clusters() {
                cluster.kubectl(&[&args[..], &[wait, "--ignore-not-found"]].concat())?;
            }
        }
        Ok(())
    }

    /// Starts what an earlier test has left stopped.
    fn mend(&mut self) -> Result<()> {
        for cluster in self.testbed.clusters() {
            if !cluster.apiserver().is_running() {
                cluster.apiserver().restart()?;
                cluster.wait_apiserver()?;
            }
        }
        for member in self.etcd.members() {
            if !member.part().is_running() {
                member.part().restart()?;
            }
        }
        self.etcd.wait_healthy()?;
        if let Some(other) = self.controllers.get(OTHER) {
            other.part.stop(TIMEOUT)?;
        }
        for name in CLUSTERS {
            if !self.part(name).is_running() {
                self.launch(name, name, &[])?;
            }
            self.wait_ready(name)?;
        }
        Ok(())
    }

    pub(crate) fn log_tails(&self) -> String {
        let parts = self.controllers.iter();
        let tails = parts.map(|(name, c)| format!("{name}'s log ends:\n{}", c.part.log_tail()));
        tails.collect::<Vec<_>>().join("\n")
    }
}

pub(crate) fn tombolo(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tombolo"));
    command.args(args);
    command
}

pub(crate) fn text_of(output: &Output) -> String {
    let both = [&*output.stdout, &*output.stderr].concat();
    String::from_utf8_lossy(&both).into_owned()
}

/// The CRDs, and exactly the rights that are shipped.
fn install(cluster: &Cluster) -> Result<()> {
    let output = tombolo(&["crds", "apply", "--kubeconfig"])
        .arg(cluster.kubeconfig_file())
        .output()?;
    ensure!(output.status.success(), "crds apply: {}", text_of(&output));
    let base = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/base");
    for file in ["namespace.yaml", "rbac.yaml", "policy.yaml"] {
        cluster.apply(&fs::read_to_string(format!("{base}/{file}"))?)?;
    }
    Ok(())
}

/// A kubeconfig of the controller's service account.
fn account(cluster: &Cluster, folder: &std::path::Path) -> Result<String> {
    let [namespace, name] = ACCOUNT;
    let args = ["create", "token", name, "-n", namespace, "--duration=8h"];
    let token = cluster.kubectl(&args)?;
    let id = cluster.name();
    let authority = folder.join(format!("{id}.crt"));
    fs::write(&authority, cluster.authority())?;
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "preferences": {}, "current-context": id,
        "clusters": [{"name": id, "cluster": {
            "server": cluster.server(), "certificate-authority": authority}}],
        "users": [{"name": id, "user": {"token": token.trim()}}],
        "contexts": [{"name": id, "context": {"cluster": id, "user": id}}],
    });
    Ok(config.to_string())
}

/// A number of a controller's metrics; the sum over all series that contain a text.
pub(crate) fn metric(sites: &Sites, on: &str, name: &str, part: &str) -> Result<u64> {
    let text = sites.get(on, "/metrics")?;
    let mut sum = 0;
    let lines = text.lines().filter(|line| line.starts_with(name));
    for line in lines.filter(|line| line.contains(part)) {
        let number = line.rsplit(' ').next().unwrap_or_default();
        let Ok(number) = number.parse::<u64>() else {
            bail!("no whole number: {line}");
        };
        sum += number;
    }
    Ok(sum)
}
