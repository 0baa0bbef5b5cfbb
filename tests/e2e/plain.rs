//! Clusters without nodes, of all families: where no traffic is asked for, API servers do.

use std::path::PathBuf;

use anyhow::Result;
use serde_json::Value;
use tombolo_testbed::{Cache, Cluster, ClusterSpec, Progress, Spec, Testbed};

use crate::kit::text;
use crate::process::{ACCOUNT, Context, apply_crds, apply_rights, kubeconfig, token};

/// The clusters with their families.
pub(crate) const CLUSTERS: [(&str, &str); 5] = [
    ("four", "IPv4"),
    ("five", "IPv4"),
    ("six", "IPv6"),
    ("dual", "IPv4,IPv6"),
    ("flip", "IPv6,IPv4"),
];

/// What cases make, in namespaces that are not the servers' own.
const KINDS: &str = "serviceexports,serviceimports,services,endpointslices,endpoints";

/// Everything that runs.
pub(crate) struct Plain {
    pub(crate) testbed: Testbed,
    tokens: Vec<String>,
}

impl Plain {
    pub(crate) fn start() -> Result<Self> {
        let mut clusters = Vec::new();
        for (name, families) in CLUSTERS {
            clusters.push(ClusterSpec::new(name).families(families.parse()?));
        }
        let spec = Spec {
            clusters,
            ..Spec::default()
        };
        let testbed = Testbed::start_with(&spec, Cache::from_env()?, Progress::stderr())?;
        let mut tokens = Vec::new();
        for cluster in testbed.clusters() {
            apply_crds(cluster)?;
            apply_rights(cluster)?;
            tokens.push(token(cluster, ACCOUNT)?);
        }
        Ok(Self { testbed, tokens })
    }

    /// A cluster with these families that is none of `taken`.
    pub(crate) fn with_families(&self, families: &str, taken: &[&Cluster]) -> Option<&Cluster> {
        let mut clusters = self.testbed.clusters().iter();
        clusters.find(|cluster| {
            cluster.spec().families.to_string() == families
                && taken.iter().all(|other| other.name() != cluster.name())
        })
    }

    /// A kubeconfig that calls clusters by these names.
    pub(crate) fn kubeconfig(&self, file: &str, named: &[(&str, &Cluster)]) -> Result<PathBuf> {
        let token_of = |cluster: &Cluster| {
            let mut all = self.testbed.clusters().iter().zip(&self.tokens);
            all.find(|(other, _)| other.name() == cluster.name())
                .map_or("", |(_, token)| token)
        };
        let contexts: Vec<Context<'_>> = named
            .iter()
            .map(|&(name, cluster)| Context {
                name,
                cluster,
                token: token_of(cluster),
            })
            .collect();
        kubeconfig(&self.testbed, file, &contexts)
    }
}

/// Removes what was made in a cluster; namespaces but these go too.
pub(crate) fn clear(cluster: &Cluster, but: &[&str]) -> Result<()> {
    let others = [
        "delete",
        KINDS,
        "-A",
        "--field-selector=metadata.namespace!=default,metadata.namespace!=kube-system",
    ];
    cluster.kubectl(&others)?;
    let of_default = [
        "delete",
        "serviceexports,serviceimports,endpointslices",
        "-n",
        "default",
    ];
    cluster.kubectl(&[&of_default[..], &["--all"]].concat())?;
    let ours = [
        "delete",
        "services",
        "-n",
        "default",
        "-l",
        "app.kubernetes.io/managed-by",
    ];
    cluster.kubectl(&ours)?;
    let namespaces = cluster.kubectl(&["get", "namespaces", "-o", "json"])?;
    let namespaces: Value = serde_json::from_str(&namespaces)?;
    let metas = namespaces["items"].as_array().into_iter().flatten();
    let extra: Vec<String> = metas
        .map(|namespace| &namespace["metadata"])
        .filter(|meta| {
            let is_plain = meta["annotations"].is_null()
                && meta["labels"]
                    .as_object()
                    .is_none_or(|labels| labels.len() == 1);
            !is_plain || !but.contains(&meta["name"].as_str().unwrap_or_default())
        })
        .map(|meta| text(&meta["name"]))
        .filter(|name| *name != "default" && !name.starts_with("kube-"))
        .filter(|name| *name != ACCOUNT[0])
        .collect();
    if extra.is_empty() {
        return Ok(());
    }
    let mut args = vec!["delete", "namespace", "--timeout=60s"];
    args.extend(extra.iter().map(String::as_str));
    cluster.kubectl(&args).map(drop)
}
