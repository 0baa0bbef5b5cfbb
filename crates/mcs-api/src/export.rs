//! What a `ServiceExport` holds, in every version.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::crd::Kind;
use crate::{condition, root};

/// Names and columns of the kind, which its versions share.
pub(crate) const KIND: Kind = Kind {
    name: "ServiceExport",
    singular: "serviceexport",
    plural: "serviceexports",
    crd_name: "serviceexports.multicluster.x-k8s.io",
    short_names: &["svcex", "svcexport"],
    columns: &[],
};

/// What of the Service is exported beside its ports and endpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceExportSpec {
    /// Labels that the imported service gets. An implementation may ignore them.
    #[serde(
        default,
        deserialize_with = "root::null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub exported_labels: BTreeMap<String, String>,

    /// Annotations that the imported service gets. An implementation may ignore them.
    #[serde(
        default,
        deserialize_with = "root::null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub exported_annotations: BTreeMap<String, String>,
}

impl ServiceExportSpec {
    /// Whether nothing is set, in which case a `ServiceExport` is written without a spec.
    pub fn is_empty(&self) -> bool {
        let Self {
            exported_labels,
            exported_annotations,
        } = self;
        exported_labels.is_empty() && exported_annotations.is_empty()
    }
}

/// How the export is doing; written by the implementation.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceExportStatus {
    /// The conditions `Valid`, `Ready` and `Conflict`.
    #[serde(
        default,
        deserialize_with = "condition::deserialize_list",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(schema_with = "condition::list_schema")]
    pub conditions: Vec<Condition>,
}
