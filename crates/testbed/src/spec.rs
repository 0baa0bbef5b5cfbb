//! What a testbed is to consist of.

use std::{fmt, path::PathBuf, str::FromStr};

use anyhow::{Error, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::version::KubernetesVersion;

/// Clusters of one testbed: the address plan has room for so many.
pub const CLUSTERS_MAX: usize = 15;
/// Nodes of one cluster: likewise.
pub const NODES_MAX: u8 = 8;

/// An IP family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Family {
    /// IPv4.
    #[serde(rename = "IPv4")]
    V4,
    /// IPv6.
    #[serde(rename = "IPv6")]
    V6,
}

/// The IP families of a cluster, the primary one first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Families(Vec<Family>);

/// One Kubernetes cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterSpec {
    /// Name of the cluster and of its kubeconfig context.
    pub name: String,
    /// Version of its control plane and kube-proxy; kubelets are [`KubernetesVersion::kubelet`].
    pub kubernetes: KubernetesVersion,
    /// IP families of its Services, pods and nodes.
    pub families: Families,
    /// Number of nodes. Without any, the cluster is an API server and a controller manager.
    pub nodes: u8,
    /// Admission plugins beside those that are on by default.
    pub admission_plugins: Vec<String>,
    /// Further arguments of the API server.
    pub apiserver_args: Vec<String>,
    /// Whether `CoreDNS` answers on the first node, where pods look for their DNS server.
    pub dns: bool,
}

/// A testbed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// The clusters.
    pub clusters: Vec<ClusterSpec>,
    /// Name of this testbed; random if not given.
    pub id: Option<String>,
    /// State folder; must be new or empty. In the state root if not given.
    pub state: Option<PathBuf>,
}

// === impl Families ===

impl Families {
    /// IPv4 first, IPv6 second.
    pub fn dual_stack() -> Self {
        Self(vec![Family::V4, Family::V6])
    }

    /// Of which the first is the primary one.
    ///
    /// # Errors
    /// When there is none, or one twice.
    pub fn new(families: Vec<Family>) -> Result<Self> {
        ensure!(
            !families.is_empty() && families.len() <= 2,
            "one or two IP families are needed"
        );
        ensure!(
            families.len() == 1 || families[0] != families[1],
            "the same IP family twice"
        );
        Ok(Self(families))
    }

    /// The family of Services that do not say which.
    pub fn primary(&self) -> Family {
        self.0[0]
    }

    /// In order, the primary one first.
    pub fn iter(&self) -> impl Iterator<Item = Family> {
        self.0.iter().copied()
    }

    /// What `of` gives for each family, in order, joined by commas.
    pub(crate) fn join<T: fmt::Display>(&self, of: impl Fn(Family) -> T) -> String {
        self.iter()
            .map(|family| of(family).to_string())
            .collect::<Vec<_>>()
            .join(",")
    }
}

impl FromStr for Families {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let families = text
            .split(',')
            .map(|family| match family.to_ascii_lowercase().as_str() {
                "ipv4" => Ok(Family::V4),
                "ipv6" => Ok(Family::V6),
                _ => bail!("{family} is no IP family: IPv4 or IPv6"),
            })
            .collect::<Result<Vec<_>>>()?;
        Self::new(families)
    }
}

impl fmt::Display for Families {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.join(|family| match family {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        }))
    }
}

// === impl ClusterSpec ===

impl ClusterSpec {
    /// A dual-stack cluster without nodes.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            kubernetes: KubernetesVersion::DEFAULT,
            families: Families::dual_stack(),
            nodes: 0,
            admission_plugins: Vec::new(),
            apiserver_args: Vec::new(),
            dns: false,
        }
    }

    /// With this many nodes.
    #[must_use]
    pub fn nodes(mut self, nodes: u8) -> Self {
        self.nodes = nodes;
        self
    }

    /// With these IP families.
    #[must_use]
    pub fn families(mut self, families: Families) -> Self {
        self.families = families;
        self
    }

    /// With this version of Kubernetes.
    #[must_use]
    pub fn kubernetes(mut self, version: KubernetesVersion) -> Self {
        self.kubernetes = version;
        self
    }

    /// With this admission plugin.
    #[must_use]
    pub fn admission_plugin(mut self, plugin: impl Into<String>) -> Self {
        self.admission_plugins.push(plugin.into());
        self
    }

    /// With this argument of the API server.
    #[must_use]
    pub fn apiserver_arg(mut self, argument: impl Into<String>) -> Self {
        self.apiserver_args.push(argument.into());
        self
    }

    /// With `CoreDNS` on the first node.
    #[must_use]
    pub fn dns(mut self) -> Self {
        self.dns = true;
        self
    }
}

// === impl Spec ===

impl Spec {
    /// `count` equal clusters named c1, c2, ….
    pub fn clusters(count: usize, each: impl Fn(ClusterSpec) -> ClusterSpec) -> Self {
        let clusters = (1..=count)
            .map(|n| each(ClusterSpec::new(format!("c{n}"))))
            .collect();
        Self {
            clusters,
            ..Self::default()
        }
    }

    /// Whether any cluster has nodes.
    pub(crate) fn has_nodes(&self) -> bool {
        self.clusters.iter().any(|cluster| cluster.nodes > 0)
    }

    /// # Errors
    /// When it cannot be built as it is.
    pub(crate) fn check(&self) -> Result<()> {
        ensure!(
            self.clusters.len() <= CLUSTERS_MAX,
            "at most {CLUSTERS_MAX} clusters"
        );
        for (index, cluster) in self.clusters.iter().enumerate() {
            let name = &cluster.name;
            ensure!(
                is_name(name),
                "cluster name {name:?}: small letters, digits, . and - only"
            );
            ensure!(
                self.clusters[..index]
                    .iter()
                    .all(|other| other.name != *name),
                "two clusters named {name}"
            );
            ensure!(
                cluster.nodes <= NODES_MAX,
                "{name}: at most {NODES_MAX} nodes"
            );
            ensure!(
                cluster.nodes > 0 || !cluster.dns,
                "{name}: DNS needs a node"
            );
        }
        ensure!(
            self.id
                .as_deref()
                .is_none_or(|id| is_name(id) && id.len() <= 10),
            "the id: at most ten small letters, digits, . and -"
        );
        Ok(())
    }
}

/// Good as a file name, a context name and a host name.
pub(crate) fn is_name(text: &str) -> bool {
    let inside = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    let at_end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    text.len() <= 63
        && text.chars().all(inside)
        && at_end(text.chars().next())
        && at_end(text.chars().last())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_keep_their_order() {
        let families: Families = "IPv6,IPv4".parse().unwrap();
        assert_eq!(families.primary(), Family::V6);
        assert_eq!(families.to_string(), "IPv6,IPv4");
        for wrong in ["", "IPv4,IPv4", "IPv5", "IPv4,IPv6,IPv4"] {
            assert!(wrong.parse::<Families>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn impossible_testbeds_are_refused() {
        let check = |clusters| {
            Spec {
                clusters,
                ..Spec::default()
            }
            .check()
        };
        assert!(check(vec![ClusterSpec::new("a.b-1").nodes(1).dns()]).is_ok());
        assert!(check(vec![ClusterSpec::new("A")]).is_err());
        assert!(check(vec![ClusterSpec::new("-a")]).is_err());
        assert!(check(vec![ClusterSpec::new("a"), ClusterSpec::new("a")]).is_err());
        assert!(check(vec![ClusterSpec::new("a").dns()]).is_err());
        assert!(Spec::clusters(16, |cluster| cluster).check().is_err());
    }
}
