//! Version v1alpha1, still served. It has the schema of [`v1beta1`], into
//! which and from which its objects convert.

pub use crate::{
    ClusterStatus, EndpointSliceObjects, ServiceExportSpec, ServiceExportStatus, ServiceImportSpec,
    ServiceImportStatus, ServiceImportType, ServicePort,
};
use crate::{export, import, root::root_kind, v1beta1};

/// The name of this version.
pub const VERSION: &str = "v1alpha1";

root_kind! {
    /// Makes the Service of the same name and namespace consumable from other clusters.
    ServiceExport: ServiceExportSpec, ServiceExportStatus;
    kind: export::KIND, version: VERSION, stored: false, omit_spec: ServiceExportSpec::is_empty
}

root_kind! {
    /// A service that clusters of the clusterset export, as this cluster consumes it.
    ServiceImport: ServiceImportSpec, ServiceImportStatus;
    kind: import::KIND, version: VERSION, stored: false, omit_spec: |_| false
}

impl From<ServiceExport> for v1beta1::ServiceExport {
    fn from(
        ServiceExport {
            metadata,
            spec,
            status,
        }: ServiceExport,
    ) -> Self {
        Self {
            metadata,
            spec,
            status,
        }
    }
}

impl From<v1beta1::ServiceExport> for ServiceExport {
    fn from(
        v1beta1::ServiceExport {
            metadata,
            spec,
            status,
        }: v1beta1::ServiceExport,
    ) -> Self {
        Self {
            metadata,
            spec,
            status,
        }
    }
}

impl From<ServiceImport> for v1beta1::ServiceImport {
    fn from(
        ServiceImport {
            metadata,
            spec,
            status,
        }: ServiceImport,
    ) -> Self {
        Self {
            metadata,
            spec,
            status,
        }
    }
}

impl From<v1beta1::ServiceImport> for ServiceImport {
    fn from(
        v1beta1::ServiceImport {
            metadata,
            spec,
            status,
        }: v1beta1::ServiceImport,
    ) -> Self {
        Self {
            metadata,
            spec,
            status,
        }
    }
}
