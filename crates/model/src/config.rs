//! How an engine is set up.

use std::sync::Arc;

use ipnet::IpNet;
use jiff::SignedDuration;

use crate::names::{ClusterName, DerivedNaming};
use crate::selector::Selector;

/// The values of `trafficDistribution` that some release of Kubernetes takes: 1.33 takes the
/// first, 1.34 and later all.
pub const KNOWN_DISTRIBUTIONS: [&str; 3] = ["PreferClose", "PreferSameZone", "PreferSameNode"];

/// How long the endpoints of a cluster that is not heard of stay in use.
pub const HOLD_DEFAULT: SignedDuration = SignedDuration::from_mins(10);

/// The configuration of one engine.
#[derive(Clone, Debug)]
pub struct Config {
    /// The cluster that it works for.
    pub cluster: ClusterName,
    /// How derived Services are named.
    pub naming: DerivedNaming,
    /// For which imports slices are made.
    pub slices: SliceMode,
    /// The namespaces that may take part.
    pub namespaces: Selector,
    /// Whether a namespace without the annotation takes part.
    pub global_by_default: bool,
    /// Managers whose slices stand for pods elsewhere, beside the known ones.
    pub foreign_slice_managers: Vec<Arc<str>>,
    /// The values of `trafficDistribution` that this cluster's release takes.
    pub known_distributions: Vec<&'static str>,
    /// How long the endpoints of a cluster that is not heard of stay in use.
    pub hold: SignedDuration,
    /// Whether they stay after that where no live cluster has any.
    pub keep_last: bool,
    /// The networks of this cluster's own Pods, where it is told: no endpoint of another cluster
    /// can be in them.
    pub pod_cidrs: Vec<IpNet>,
    /// Those of them that it shares with other clusters.
    pub shared_cidrs: Vec<IpNet>,
}

impl Config {
    /// The defaults for a cluster.
    pub fn new(cluster: ClusterName) -> Self {
        Self {
            cluster,
            naming: DerivedNaming::default(),
            slices: SliceMode::default(),
            namespaces: Selector::default(),
            global_by_default: true,
            foreign_slice_managers: Vec::new(),
            known_distributions: KNOWN_DISTRIBUTIONS.to_vec(),
            hold: HOLD_DEFAULT,
            keep_last: true,
            pod_cidrs: Vec::new(),
            shared_cidrs: Vec::new(),
        }
    }
}

/// For which imports EndpointSlices are made (`--endpoint-slices`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SliceMode {
    /// For all, the default.
    #[default]
    All,
    /// For headless ones: where something else routes clusterset IPs.
    Headless,
    /// For none.
    None,
}
