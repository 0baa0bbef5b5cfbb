//! The fleet: what all clusters say in the registry, by service.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use crate::endpoint::Endpoint;
use crate::merge::Merged;
use crate::names::ClusterName;
use crate::record::ExportRecord;

/// What one cluster says of one service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterService {
    /// The export.
    pub export: Arc<ExportRecord>,
    /// The endpoints, sorted.
    pub endpoints: Arc<[Endpoint]>,
}

/// What all clusters say of one service. Immutable, so that all readers in a process share it,
/// and with it the merge, which is computed once.
#[derive(Debug, Default)]
pub struct FleetService {
    /// By cluster.
    pub clusters: BTreeMap<ClusterName, Arc<ClusterService>>,
    merged: OnceLock<Arc<Merged>>,
}
