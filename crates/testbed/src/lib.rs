//! Development only: real etcd and Kubernetes clusters on this machine, without Docker.
//!
//! Kubernetes, etcd and `CoreDNS` are built from their Go modules, once, into a cache. A cluster
//! is an API server and a controller manager; with nodes it also has a scheduler and, in name
//! spaces of each node, containerd, a kubelet and a kube-proxy. Pods of all clusters of a testbed
//! reach one another by address: one flat network, dual stack.
//!
//! ```no_run
//! # fn main() -> anyhow::Result<()> {
//! use tombolo_testbed::{Spec, Testbed};
//!
//! let testbed = Testbed::start(&Spec::clusters(2, |cluster| cluster.nodes(1)))?;
//! let c1 = testbed.cluster("c1")?;
//! println!("{}", c1.kubectl(&["get", "nodes"])?);
//! c1.apiserver().kill()?;
//! c1.apiserver().restart()?;
//! c1.wait_apiserver()?;
//! # Ok(())
//! # }
//! ```
//!
//! Everything blocks: an async test calls it by `spawn_blocking`, or has a runtime with several
//! threads. What was started is stopped when the [`Testbed`] is dropped; what a killed process
//! left behind is removed by the next start, or by `testbed down`.

mod addresses;
mod authority;
mod cache;
mod cancel;
mod cgroups;
mod clock;
mod cluster;
mod command;
mod control_plane;
mod etcd;
mod gobuild;
mod image;
mod kubeconfig;
mod netcut;
mod network;
mod node;
mod node_config;
mod part;
mod prepare;
mod process;
mod programs;
mod progress;
mod record;
mod spec;
mod state;
mod testbed;
mod version;

pub use authority::{Authority, Identity};
pub use cache::{CACHE_ENV, Cache};
pub use cancel::Cancel;
pub use clock::{Stopwatch, wait_for};
pub use cluster::Cluster;
pub use etcd::{Etcd, EtcdSpec, Member, Tls};
pub use gobuild::Builder;
pub use image::{ImageFile, ImageSpec, TEST_IMAGE};
pub use node::Node;
pub use part::Part;
pub use programs::is_root;
pub use progress::Progress;
pub use spec::{CLUSTERS_MAX, ClusterSpec, Families, Family, NODES_MAX, Spec};
pub use state::STATE_ENV;
pub use testbed::{PartSummary, Summary, Testbed};
pub use version::{COREDNS_VERSION, ETCD_VERSION, KubernetesVersion, MCS_API_VERSION};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
