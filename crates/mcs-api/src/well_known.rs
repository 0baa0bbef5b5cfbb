//! Names that implementations and consumers of the API agree on: labels, annotations, cluster
//! properties and the version of the DNS specification.

/// Label on `EndpointSlice`s and derived Services: the name of the multi-cluster service.
pub const LABEL_SERVICE_NAME: &str = "multicluster.kubernetes.io/service-name";

/// Label on `EndpointSlice`s: the cluster that the endpoints are in.
pub const LABEL_SOURCE_CLUSTER: &str = "multicluster.kubernetes.io/source-cluster";

/// Annotation on a `ServiceImport`: the name of the Service that holds its clusterset IP.
pub const ANNOTATION_DERIVED_SERVICE: &str = "multicluster.kubernetes.io/derived-service";

/// Label on the CRDs: the release whose schema they have, as `v0.5.2`.
pub const LABEL_RELEASE_VERSION: &str = "multicluster.x-k8s.io/release-version";

/// Label on the CRDs: counts changes of the schema within a release, from `0`.
pub const LABEL_CRD_SCHEMA_REVISION: &str = "multicluster.x-k8s.io/crd-schema-revision";

/// The release whose schema [`crds`](crate::crds) generates.
pub const RELEASE_VERSION: &str = "v0.5.2";

/// The revision within [`RELEASE_VERSION`] whose schema [`crds`](crate::crds) generates.
pub const CRD_SCHEMA_REVISION: &str = "0";

/// `ClusterProperty` (KEP-2149) that holds the cluster's id within its clusterset.
pub const PROPERTY_CLUSTER_ID: &str = "cluster.clusterset.k8s.io";

/// `ClusterProperty` (KEP-2149) that holds the id of the clusterset the cluster belongs to.
pub const PROPERTY_CLUSTERSET_ID: &str = "clusterset.k8s.io";

/// The version of the multi-cluster DNS specification, as `dns-version.<zone>` answers it.
pub const DNS_VERSION: &str = "1.0.0";

/// The zone that the DNS specification gives to every clusterset.
pub const DNS_ZONE: &str = "clusterset.local";
