//! Three joined clusters with a node each, the newest of them with a newer Kubernetes, and what
//! joins them: one `tombolo up`, or with `TOMBOLO_E2E_OVER=etcd` a controller for each of them and
//! an etcd of three members.

use std::path::PathBuf;

use anyhow::Result;
use tombolo_testbed::{Cache, Cluster, ClusterSpec, Progress, Spec, Testbed};

use crate::kit::eventually;
use crate::process::{ACCOUNT, Context, Process, apply_crds, apply_rights, kubeconfig, token};
use crate::registry::Registry;

/// The clusters' names.
pub(crate) const CLUSTERS: [&str; 3] = ["east", "north", "west"];

/// A newer Kubernetes: API server, controller manager, scheduler and kube-proxy.
pub(crate) const NEWER: &str = "1.37.2";

/// Whether the clusters meet in an etcd.
pub(crate) fn is_over_etcd() -> bool {
    std::env::var_os("TOMBOLO_E2E_OVER").is_some_and(|over| over == "etcd")
}

/// Everything that runs.
pub(crate) struct World {
    pub(crate) testbed: Testbed,
    pub(crate) kubeconfig: PathBuf,
    /// The etcd through which they meet, if they do.
    registry: Option<Registry>,
    tombolo: Vec<Process>,
}

impl World {
    /// Starts the clusters and joins them.
    pub(crate) fn start() -> Result<Self> {
        let [east, north, west] = CLUSTERS.map(|name| ClusterSpec::new(name).nodes(1));
        let spec = Spec {
            clusters: vec![
                east,
                north.kubernetes(NEWER.parse()?),
                west.admission_plugin("OwnerReferencesPermissionEnforcement"),
            ],
            ..Spec::default()
        };
        let mut testbed = Testbed::start_with(&spec, Cache::from_env()?, Progress::stderr())?;
        let registry = is_over_etcd().then(|| Registry::start(&mut testbed));
        let registry = registry.transpose()?;
        let mut tokens = Vec::new();
        for (cluster, zone) in testbed.clusters().iter().zip(["a", "a", "b"]) {
            apply_crds(cluster)?;
            apply_rights(cluster)?;
            let zone = format!("topology.kubernetes.io/zone={zone}");
            cluster.kubectl(&["label", "node", "--all", "--overwrite", &zone])?;
            tokens.push(token(cluster, ACCOUNT)?);
        }
        let contexts: Vec<Context<'_>> = testbed
            .clusters()
            .iter()
            .zip(&tokens)
            .map(|(cluster, token)| Context {
                name: cluster.name(),
                cluster,
                token,
            })
            .collect();
        let kubeconfig = kubeconfig(&testbed, "controller.kubeconfig", &contexts)?;
        let mut world = Self {
            testbed,
            kubeconfig,
            registry,
            tombolo: Vec::new(),
        };
        world.start_tombolo()?;
        Ok(world)
    }

    fn start_tombolo(&mut self) -> Result<()> {
        self.tombolo = match &self.registry {
            None => vec![Process::up(&self.testbed, &self.kubeconfig, &CLUSTERS)?],
            Some(registry) => {
                let controllers = CLUSTERS.iter().map(|cluster| {
                    let mut args = vec!["controller".to_owned()];
                    let kubeconfig = self.kubeconfig.display().to_string();
                    args.extend(["--kubeconfig".to_owned(), kubeconfig]);
                    args.extend(["--context".to_owned(), (*cluster).to_owned()]);
                    args.extend(["--cluster".to_owned(), (*cluster).to_owned()]);
                    args.extend(registry.args(cluster));
                    Process::start(&self.testbed, &args)
                });
                controllers.collect::<Result<_>>()?
            }
        };
        self.tombolo.iter().try_for_each(Process::wait_ready)
    }

    /// Runs a test in a namespace that all clusters have, and removes it.
    pub(crate) fn in_namespace(
        &self,
        namespace: &str,
        test: impl FnOnce(&str) -> Result<()>,
    ) -> Result<()> {
        for cluster in self.testbed.clusters() {
            cluster.create_namespace(namespace)?;
        }
        test(namespace)?;
        for cluster in self.testbed.clusters() {
            cluster.kubectl(&["delete", "namespace", namespace, "--wait=false"])?;
        }
        Ok(())
    }

    /// Waits until the end of earlier tests' namespaces is not counted as what a test does.
    pub(crate) fn wait_tidy(&self) -> Result<()> {
        for cluster in self.testbed.clusters() {
            eventually("namespaces end", || {
                let query = "jsonpath={.items[*].metadata.deletionTimestamp}";
                Ok(cluster
                    .kubectl(&["get", "namespaces", "-o", query])?
                    .is_empty())
            })?;
        }
        Ok(())
    }

    pub(crate) fn east(&self) -> &Cluster {
        &self.testbed.clusters()[0]
    }

    pub(crate) fn north(&self) -> &Cluster {
        &self.testbed.clusters()[1]
    }

    pub(crate) fn west(&self) -> &Cluster {
        &self.testbed.clusters()[2]
    }

    pub(crate) fn stop_tombolo(&self) -> Result<()> {
        self.tombolo.iter().try_for_each(Process::stop)
    }

    /// Ends the controller, if it runs, and starts another one.
    pub(crate) fn restart_tombolo(&mut self) -> Result<()> {
        self.stop_tombolo()?;
        self.start_tombolo()
    }

    pub(crate) fn log(&self) -> Result<String> {
        let logs = self.tombolo.iter().map(Process::log);
        logs.collect()
    }

    pub(crate) fn log_tail(&self) -> String {
        let tails = self.tombolo.iter().map(Process::log_tail);
        tails.collect::<Vec<_>>().join("\n")
    }
}
