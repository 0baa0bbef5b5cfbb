//! One Kubernetes cluster as inputs and actions: a directory of manifests or an API server.
//!
//! ```text
//! files ──manifest──► declared objects ──store──► inputs ─► engine ─► effects ─┐
//!   ▲                                     ▲                                    │
//!   └── watch                             └────────────────────────────────────┘
//!                                         └──output──► files
//! ```
//!
//! `convert` is between Kubernetes' types and the model's, for directories and API servers alike.
//! `manifest` reads a directory as a cluster and `steps` changes to it; `store` is the API server
//! of such a cluster, in memory; `output` writes what it holds to files.

pub mod api;
pub mod convert;
pub mod families;
mod known;
pub mod manifest;
pub mod output;
pub mod steps;
pub mod store;
pub mod watch;
