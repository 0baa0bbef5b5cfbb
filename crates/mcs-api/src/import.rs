//! What a `ServiceImport` holds, in every version.

use k8s_openapi::api::core::v1::SessionAffinityConfig;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::crd::{Column, Kind};
use crate::{condition, root};

/// Names and columns of the kind, which its versions share.
pub(crate) const KIND: Kind = Kind {
    name: "ServiceImport",
    singular: "serviceimport",
    plural: "serviceimports",
    crd_name: "serviceimports.multicluster.x-k8s.io",
    short_names: &["svcim", "svcimport"],
    columns: &[
        Column {
            name: "Type",
            description: "The type of this ServiceImport",
            json_path: ".spec.type",
        },
        Column {
            name: "IP",
            description: "The VIP for this ServiceImport",
            json_path: ".spec.ips",
        },
    ],
};

/// The service as its importing cluster sees it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceImportSpec {
    /// The ports of the service: the union of those that its exporting clusters have.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub ports: Vec<ServicePort>,

    /// The clusterset IPs of the service, at most one of each family; none when it is headless.
    #[serde(
        default,
        deserialize_with = "root::null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(length(max = 2))]
    pub ips: Vec<String>,

    /// How the service is reached: `ClusterSetIP` or `Headless`.
    #[serde(rename = "type")]
    pub type_: ServiceImportType,

    /// `ClientIP` to send a client's connections to one endpoint, or `None`, the default.
    /// Ignored when the service is headless.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_affinity: Option<String>,

    /// Settings of the session affinity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_affinity_config: Option<SessionAffinityConfig>,

    /// The IP families of the service, `IPv4` or `IPv6`, the preferred one first.
    #[serde(
        default,
        deserialize_with = "root::null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(length(max = 2))]
    pub ip_families: Vec<String>,

    /// `Local` to use only endpoints on the client's own node, or `Cluster`, the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub internal_traffic_policy: Option<String>,

    /// Which endpoints to prefer, such as `PreferClose` for those in the client's zone. A hint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traffic_distribution: Option<String>,
}

/// How an imported service is reached.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Deserialize,
    Serialize,
    JsonSchema,
)]
pub enum ServiceImportType {
    /// By the clusterset IP only.
    #[default]
    #[serde(rename = "ClusterSetIP")]
    ClusterSetIp,
    /// By the addresses of its endpoints.
    Headless,
}

/// One port of an imported service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServicePort {
    /// The name of the port, a DNS label; unique within the service. Optional if the service has
    /// one port only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,

    /// `TCP`, the default, `UDP` or `SCTP`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,

    /// The protocol spoken on the port, in the syntax of a label key: an IANA service name, or
    /// a name with a prefix such as `kubernetes.io/h2c`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_protocol: Option<String>,

    /// The number of the port.
    pub port: i32,
}

/// How the import is doing; written by the implementation.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceImportStatus {
    /// Whether the implementation keeps `EndpointSlice`s for this `ServiceImport`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint_slice_objects: Option<EndpointSliceObjects>,

    /// The clusters whose exports make up the service.
    #[serde(
        default,
        deserialize_with = "root::null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["cluster"]
    ))]
    pub clusters: Vec<ClusterStatus>,

    /// The condition `Ready`.
    #[serde(
        default,
        deserialize_with = "condition::deserialize_list",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(schema_with = "condition::list_schema")]
    pub conditions: Vec<Condition>,
}

/// One cluster that exports the service.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, Serialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    /// The name of the cluster.
    pub cluster: String,
}

/// Whether an implementation keeps `EndpointSlice`s for a `ServiceImport`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, Serialize, JsonSchema,
)]
pub enum EndpointSliceObjects {
    /// It does.
    Present,
    /// It does not.
    Absent,
}
