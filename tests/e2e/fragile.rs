//! Two clusters without nodes whose API servers, CRDs, rights and controllers are killed, paused
//! and taken away. Their audit logs tell who wrote what.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::Value;
use tempfile::TempDir;
use tombolo_testbed::{Cache, Cluster, ClusterSpec, Progress, Spec, Testbed};

use crate::process::{
    ACCOUNT, Context, Process, USER, apply_crds, apply_rights, kubeconfig, token,
};

/// The clusters' names.
pub(crate) const CLUSTERS: [&str; 2] = ["left", "right"];

/// Another account with the same rights, so that the audit log tells two controllers apart.
const SECOND: [&str; 2] = ["tombolo-system", "second"];
/// The same, as the API server calls it.
pub(crate) const SECOND_USER: &str = "system:serviceaccount:tombolo-system:second";

const AUDIT_POLICY: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata, verbs: [create, update, patch, delete, deletecollection]}]
";

const SECOND_RIGHTS: &str = "apiVersion: v1
kind: ServiceAccount
metadata: {name: second, namespace: tombolo-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: second}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: tombolo-controller}
subjects: [{kind: ServiceAccount, name: second, namespace: tombolo-system}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: second, namespace: tombolo-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: tombolo-controller}
subjects: [{kind: ServiceAccount, name: second, namespace: tombolo-system}]
";

/// Everything that runs.
pub(crate) struct Fragile {
    pub(crate) testbed: Testbed,
    audit: TempDir,
    /// A context for each cluster as the controller, and as the second one.
    pub(crate) kubeconfig: PathBuf,
    pub(crate) second: PathBuf,
}

/// A write that an API server has answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    pub(crate) verb: String,
    pub(crate) resource: String,
    pub(crate) name: String,
    pub(crate) code: u64,
}

impl Fragile {
    pub(crate) fn start() -> Result<Self> {
        let audit = tempfile::tempdir()?;
        let policy = audit.path().join("policy.yaml");
        fs::write(&policy, AUDIT_POLICY)?;
        let clusters = CLUSTERS.map(|name| {
            let log = audit.path().join(format!("{name}.log"));
            ClusterSpec::new(name)
                .apiserver_arg(format!("--audit-policy-file={}", policy.display()))
                .apiserver_arg(format!("--audit-log-path={}", log.display()))
        });
        let spec = Spec {
            clusters: clusters.into(),
            ..Spec::default()
        };
        let testbed = Testbed::start_with(&spec, Cache::from_env()?, Progress::stderr())?;
        let mut tokens = Vec::new();
        for cluster in testbed.clusters() {
            apply_rights(cluster)?;
            cluster.apply(SECOND_RIGHTS)?;
            tokens.push([token(cluster, ACCOUNT)?, token(cluster, SECOND)?]);
        }
        let write = |file: &str, which: usize| {
            let clusters = testbed.clusters().iter().zip(&tokens);
            let contexts: Vec<Context<'_>> = clusters
                .map(|(cluster, tokens)| Context {
                    name: cluster.name(),
                    cluster,
                    token: &tokens[which],
                })
                .collect();
            kubeconfig(&testbed, file, &contexts)
        };
        let (first, second) = (
            write("first.kubeconfig", 0)?,
            write("second.kubeconfig", 1)?,
        );
        Ok(Self {
            testbed,
            audit,
            kubeconfig: first,
            second,
        })
    }

    /// Runs a test on clusters that are in order, whatever an earlier one has left.
    pub(crate) fn run(&self, test: fn(&Self) -> Result<()>) -> Result<()> {
        for cluster in self.testbed.clusters() {
            if !cluster.apiserver().is_running() {
                cluster.apiserver().restart()?;
            }
            cluster.wait_apiserver()?;
            apply_rights(cluster)?;
            apply_crds(cluster)?;
            crate::crds::forget(cluster)?;
        }
        test(self)
    }

    pub(crate) fn left(&self) -> &Cluster {
        &self.testbed.clusters()[0]
    }

    pub(crate) fn right(&self) -> &Cluster {
        &self.testbed.clusters()[1]
    }

    /// Makes a namespace in both clusters.
    pub(crate) fn namespace(&self, name: &str) -> Result<()> {
        let mut clusters = self.testbed.clusters().iter();
        clusters.try_for_each(|cluster| cluster.create_namespace(name))
    }

    /// Joins both clusters.
    pub(crate) fn up(&self, more: &[&str]) -> Result<Process> {
        Process::up_with(&self.testbed, &self.kubeconfig, &CLUSTERS, more)
    }

    /// A controller of the left cluster.
    pub(crate) fn controller(&self, kubeconfig: &Path) -> Result<Process> {
        let mut args = ["controller", "--cluster", "left", "--context", "left"]
            .map(str::to_owned)
            .to_vec();
        args.extend(["--kubeconfig".to_owned(), kubeconfig.display().to_string()]);
        Process::start(&self.testbed, &args)
    }

    /// The writes of a user in a cluster, in their order, without those of Leases.
    pub(crate) fn writes_of(&self, cluster: &Cluster, user: &str) -> Result<Vec<Write>> {
        let path = self.audit.path().join(format!("{}.log", cluster.name()));
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let mut writes = Vec::new();
        for line in text.lines() {
            // The last line may be half written.
            let Ok(event) = serde_json::from_str::<Value>(line) else {
                continue;
            };
            let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let write = Write {
                verb: word(&event["verb"]),
                resource: word(&event["objectRef"]["resource"]),
                name: word(&event["objectRef"]["name"]),
                code: event["responseStatus"]["code"].as_u64().unwrap_or_default(),
            };
            if event["user"]["username"] == user && write.resource != "leases" {
                writes.push(write);
            }
        }
        Ok(writes)
    }

    /// The same of the controller.
    pub(crate) fn writes(&self, cluster: &Cluster) -> Result<Vec<Write>> {
        self.writes_of(cluster, USER)
    }
}
