//! Tombolo as a process beside the clusters, with exactly the rights that are shipped.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result, ensure};
use tombolo_testbed::{Cluster, Part, Testbed};

use crate::kit::{TIMEOUT, poll};

/// Who the controller is in each cluster.
pub(crate) const ACCOUNT: [&str; 2] = ["tombolo-system", "tombolo-controller"];
/// The same, as the API server calls it.
pub(crate) const USER: &str = "system:serviceaccount:tombolo-system:tombolo-controller";

/// The program under test.
pub(crate) const TOMBOLO: &str = env!("CARGO_BIN_EXE_tombolo");

/// A running `tombolo up` or `tombolo controller`.
pub(crate) struct Process {
    pub(crate) part: Part,
}

impl Process {
    /// Starts it with an admin endpoint on a free port.
    pub(crate) fn start(testbed: &Testbed, args: &[String]) -> Result<Self> {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let mut command = Command::new(TOMBOLO);
        command.args(args);
        command.args(["--admin", "127.0.0.1:0"]);
        if !args.iter().any(|arg| arg == "--log") {
            command.args(["--log", "info"]);
        }
        let name = format!("tombolo-{number}");
        let part = testbed.start_program(&name, &command, None)?;
        Ok(Self { part })
    }

    /// `tombolo up` on contexts of a kubeconfig.
    pub(crate) fn up(testbed: &Testbed, kubeconfig: &Path, contexts: &[&str]) -> Result<Self> {
        Self::up_with(testbed, kubeconfig, contexts, &[])
    }

    /// The same with more arguments.
    pub(crate) fn up_with(
        testbed: &Testbed,
        kubeconfig: &Path,
        contexts: &[&str],
        more: &[&str],
    ) -> Result<Self> {
        let mut args = vec!["up".to_owned()];
        args.extend(contexts.iter().map(|context| format!("context:{context}")));
        args.extend(["--kubeconfig".to_owned(), kubeconfig.display().to_string()]);
        args.extend(more.iter().map(|&arg| arg.to_owned()));
        Self::start(testbed, &args)
    }

    /// Ends it as a person would, and waits until it has ended.
    pub(crate) fn stop(&self) -> Result<()> {
        self.part.stop(TIMEOUT)
    }

    pub(crate) fn wait_ready(&self) -> Result<()> {
        poll("tombolo", || {
            self.part.check_running()?;
            Ok(self.get("/readyz").is_ok().then_some(()))
        })
        .with_context(|| self.log_tail())
    }

    /// An answer of the admin endpoint.
    pub(crate) fn get(&self, path: &str) -> Result<String> {
        let output = self.curl(&["-f"], path)?;
        ensure!(output.status.success(), "{path}: {:?}", output.status);
        Ok(String::from_utf8(output.stdout)?)
    }

    /// What it says of its readiness, ready or not.
    pub(crate) fn readiness(&self) -> Result<String> {
        Ok(String::from_utf8(self.curl(&[], "/readyz")?.stdout)?)
    }

    fn curl(&self, args: &[&str], path: &str) -> Result<std::process::Output> {
        let log = self.log()?;
        let marker = "admin endpoint address=Ok(";
        // The last one: a process that was started again listens elsewhere.
        let (_, rest) = log.rsplit_once(marker).context("no admin endpoint yet")?;
        let (address, _) = rest.split_once(')').context("a half line")?;
        let mut command = Command::new("curl");
        command.args(args).args(["-s", "-m", "5"]);
        Ok(command.arg(format!("http://{address}{path}")).output()?)
    }

    /// Whether it leads in a cluster.
    pub(crate) fn leads(&self, cluster: &str) -> Result<bool> {
        let wanted = format!("tombolo_leading{{cluster=\"{cluster}\"}} 1");
        Ok(self.get("/metrics")?.contains(&wanted))
    }

    pub(crate) fn log(&self) -> Result<String> {
        Ok(fs::read_to_string(self.part.log_file())?)
    }

    /// The end of its log, for messages.
    pub(crate) fn log_tail(&self) -> String {
        format!("tombolo's log ends:\n{}", self.part.log_tail())
    }
}

impl Drop for Process {
    /// A test that fails leaves nothing that disturbs the next one.
    fn drop(&mut self) {
        // The end of the testbed ends it anyway.
        self.part.kill().ok();
    }
}

/// `tombolo crds apply`; returns what it says.
pub(crate) fn apply_crds(cluster: &Cluster) -> Result<String> {
    let output = Command::new(TOMBOLO)
        .args(["crds", "apply", "--kubeconfig"])
        .arg(cluster.kubeconfig_file())
        .output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "crds apply: {text}");
    Ok(String::from_utf8(output.stdout)?)
}

/// Exactly the rights that are shipped.
pub(crate) fn apply_rights(cluster: &Cluster) -> Result<()> {
    let base = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/base");
    for file in ["namespace.yaml", "rbac.yaml", "policy.yaml"] {
        cluster.apply(&fs::read_to_string(format!("{base}/{file}"))?)?;
    }
    Ok(())
}

/// A token of a service account.
pub(crate) fn token(cluster: &Cluster, [namespace, name]: [&str; 2]) -> Result<String> {
    let args = ["create", "token", name, "-n", namespace, "--duration=8h"];
    Ok(cluster.kubectl(&args)?.trim().to_owned())
}

/// A context of a kubeconfig: its name, where it leads and the token that it shows there.
pub(crate) struct Context<'a> {
    pub(crate) name: &'a str,
    pub(crate) cluster: &'a Cluster,
    pub(crate) token: &'a str,
}

/// Writes a kubeconfig into the testbed's folder.
pub(crate) fn kubeconfig(
    testbed: &Testbed,
    file: &str,
    contexts: &[Context<'_>],
) -> Result<PathBuf> {
    let (mut clusters, mut users, mut named) = (Vec::new(), Vec::new(), Vec::new());
    for context in contexts {
        let (name, cluster) = (context.name, context.cluster);
        let authority = data_encoding::BASE64.encode(cluster.authority().as_bytes());
        clusters.push(serde_json::json!({"name": name, "cluster": {
            "server": cluster.server(), "certificate-authority-data": authority,
        }}));
        users.push(serde_json::json!({"name": name, "user": {"token": context.token}}));
        named.push(serde_json::json!({"name": name, "context": {"cluster": name, "user": name}}));
    }
    let config = serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "preferences": {},
        "clusters": clusters, "users": users, "contexts": named,
        "current-context": contexts.first().map(|context| context.name),
    });
    let path = testbed.folder().join(file);
    fs::write(&path, config.to_string())?;
    Ok(path)
}
