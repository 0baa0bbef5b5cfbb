//! Three joined clusters with a node each, the newest of them with a newer Kubernetes, and the
//! `tombolo up` that joins them.

use std::path::PathBuf;

use anyhow::Result;
use tombolo_testbed::{Cache, Cluster, ClusterSpec, Progress, Spec, Testbed};

use crate::kit::eventually;
use crate::process::{ACCOUNT, Context, Process, apply_crds, apply_rights, kubeconfig, token};

/// The clusters' names.
pub(crate) const CLUSTERS: [&str; 3] = ["east", "north", "west"];

/// A newer Kubernetes: API server, controller manager, scheduler and kube-proxy.
pub(crate) const NEWER: &str = "1.37.2";

/// Everything that runs.
pub(crate) struct World {
    pub(crate) testbed: Testbed,
    pub(crate) kubeconfig: PathBuf,
    tombolo: Process,
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
        let testbed = Testbed::start_with(&spec, Cache::from_env()?, Progress::stderr())?;
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
        let tombolo = Process::up(&testbed, &kubeconfig, &CLUSTERS)?;
        tombolo.wait_ready()?;
        Ok(Self {
            testbed,
            kubeconfig,
            tombolo,
        })
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
        self.tombolo.stop()
    }

    /// Ends the controller, if it runs, and starts another one.
    pub(crate) fn restart_tombolo(&mut self) -> Result<()> {
        self.tombolo.stop()?;
        self.tombolo = Process::up(&self.testbed, &self.kubeconfig, &CLUSTERS)?;
        self.tombolo.wait_ready()
    }

    pub(crate) fn log(&self) -> Result<String> {
        self.tombolo.log()
    }

    pub(crate) fn log_tail(&self) -> String {
        self.tombolo.log_tail()
    }
}
