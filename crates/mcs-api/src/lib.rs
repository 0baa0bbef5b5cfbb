//! The Multi-Cluster Services API of Kubernetes ([KEP-1645]) for Rust: [`ServiceExport`] and
//! [`ServiceImport`] in both published versions, their conditions, and their CRDs.
//!
//! The versions [`v1beta1`] and [`v1alpha1`] have one schema, so they share every type but the
//! root kinds: code that works on [`ServiceImportSpec`] works for both, and a root of one version
//! converts into the other with [`From`]. The root kinds implement the traits of [`kube_core`]
//! ([`Resource`], [`HasSpec`], [`HasStatus`], [`CustomResourceExt`]), which are those of `kube`.
//!
//! ```
//! use mcs_api::condition::{ConditionStatus, ExportCondition, ValidReason};
//! use mcs_api::v1beta1::ServiceExport;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let export: ServiceExport = serde_json::from_str(
//!     r#"{
//!       "apiVersion": "multicluster.x-k8s.io/v1beta1",
//!       "kind": "ServiceExport",
//!       "metadata": {"name": "checkout", "namespace": "shop"},
//!       "status": {"conditions": [{
//!         "type": "Valid", "status": "False", "reason": "NoService",
//!         "message": "there is no Service shop/checkout",
//!         "lastTransitionTime": "2026-01-01T00:00:00Z"
//!       }]}
//!     }"#,
//! )?;
//!
//! let status = export.status.unwrap_or_default();
//! let valid = mcs_api::condition::find(&status.conditions, ExportCondition::Valid.as_str())
//!     .ok_or("no Valid condition")?;
//! assert_eq!(valid.status.parse(), Ok(ConditionStatus::False));
//! assert_eq!(valid.reason.parse(), Ok(ValidReason::NoService));
//! # Ok(())
//! # }
//! ```
//!
//! # Kubernetes versions
//!
//! `k8s-openapi` is built for one Kubernetes version. This crate chooses 1.33 by its default
//! feature `v1_33`, so that it works alone; a project that chooses another version turns the
//! default features off. The types here are the same for all of them.
//!
//! [KEP-1645]: https://github.com/kubernetes/enhancements/tree/master/keps/sig-multicluster/1645-multi-cluster-services-api
//! [`ServiceExport`]: v1beta1::ServiceExport
//! [`ServiceImport`]: v1beta1::ServiceImport
//! [`Resource`]: kube_core::Resource
//! [`HasSpec`]: kube_core::object::HasSpec
//! [`HasStatus`]: kube_core::object::HasStatus
//! [`CustomResourceExt`]: kube_core::CustomResourceExt

pub mod condition;
pub mod v1alpha1;
pub mod v1beta1;
pub mod well_known;

mod crd;
mod export;
mod import;
mod root;

pub use crd::crds;
pub use export::{ServiceExportSpec, ServiceExportStatus};
pub use import::{
    ClusterStatus, EndpointSliceObjects, ServiceImportSpec, ServiceImportStatus, ServiceImportType,
    ServicePort,
};

/// The API group of both kinds.
pub const GROUP: &str = "multicluster.x-k8s.io";
