//! Version v1beta1, in which objects are stored.

pub use crate::{
    ClusterStatus, EndpointSliceObjects, ServiceExportSpec, ServiceExportStatus, ServiceImportSpec,
    ServiceImportStatus, ServiceImportType, ServicePort,
};
use crate::{export, import, root::root_kind};

/// The name of this version.
pub const VERSION: &str = "v1beta1";

root_kind! {
    /// Makes the Service of the same name and namespace consumable from other clusters.
    ServiceExport: ServiceExportSpec, ServiceExportStatus;
    kind: export::KIND, version: VERSION, stored: true, omit_spec: ServiceExportSpec::is_empty
}

root_kind! {
    /// A service that clusters of the clusterset export, as this cluster consumes it.
    ServiceImport: ServiceImportSpec, ServiceImportStatus;
    kind: import::KIND, version: VERSION, stored: true, omit_spec: |_| false
}
