//! Records: what stands in the registry, decoded (DESIGN §2.2). The registry crate writes them to
//! keys and bytes; the model only ever sees these.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use jiff::Timestamp;

use crate::endpoint::{Entry, EntryProtocol};
use crate::names::{ClusterName, Namespace, Region, ServiceKey};
use crate::service::{Affinity, ImportType, InternalTrafficPolicy, IpFamily, Port};

/// Labels or annotations.
pub type Labels = BTreeMap<Arc<str>, Arc<str>>;

/// Where a record comes from. It is read from the key, never from the value.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Origin {
    /// The region in whose etcd the cluster writes.
    pub region: Region,
    /// The cluster.
    pub cluster: ClusterName,
}

/// The place of a record below its cluster's own prefix.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RecordKey {
    /// `owner`.
    Owner,
    /// `session`.
    Session,
    /// `synced`.
    Synced,
    /// `left`.
    Left,
    /// `report`.
    Report,
    /// `ns/<namespace>/exports/<service>`.
    Export(ServiceKey),
    /// `ns/<namespace>/services/<service>/protocols/<protocol>/endpoints/<ip>`.
    Endpoint {
        /// The service.
        service: ServiceKey,
        /// The protocol of the ports.
        protocol: EntryProtocol,
        /// The address.
        address: IpAddr,
    },
    /// `ns/<namespace>/config/<service>/<kind>`.
    Config {
        /// The service.
        service: ServiceKey,
        /// Whose configuration: a DNS label that the tool chose.
        kind: Arc<str>,
    },
}

/// What stands at a [`RecordKey`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// Who this cluster is.
    Owner(Owner),
    /// Who writes now.
    Session(Session),
    /// The session epoch that has published all it knew.
    Synced(u64),
    /// The cluster has left for good.
    Left(Owner),
    /// What this cluster imports.
    Report(Report),
    /// An exported service.
    Export(Arc<ExportRecord>),
    /// All statements about one address and protocol of a service.
    Endpoint(Arc<[Entry]>),
    /// Bytes of another tool, never interpreted.
    Config(Arc<[u8]>),
}

/// Who a cluster is: the UID of its `kube-system` namespace, which outlives every controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The UID.
    pub uid: Arc<str>,
}

/// Who writes a partition now, and what it needs its readers to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// The identity of the process, as in its Kubernetes Lease.
    pub holder: Arc<str>,
    /// Tells this session from every other one: the id of the lease under which it was put.
    pub epoch: u64,
    /// When it began.
    pub started: Timestamp,
    /// The release that writes.
    pub software: Arc<str>,
    /// The version of the value schema.
    pub schema: u32,
    /// The families of the cluster's network, in its order.
    pub families: Vec<IpFamily>,
    /// The cluster's service CIDRs.
    pub service_cidrs: Vec<IpNet>,
    /// Since when the writer cannot list what it publishes from, if it cannot.
    pub blind_since: Option<Timestamp>,
}

/// What a cluster says about its own imports: for status and alerts in other clusters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The registry revision up to which everything is applied.
    pub applied_revision: u64,
    /// Services that are not in order, at most 1,000.
    pub not_in_order: Vec<ReportedService>,
    /// Clusters whose session is missing.
    pub missing: Vec<ReportedCluster>,
}

/// One service of a [`Report`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedService {
    /// The service.
    pub service: ServiceKey,
    /// A reason as in conditions.
    pub reason: Arc<str>,
    /// Since when.
    pub since: Timestamp,
}

/// One cluster of a [`Report`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedCluster {
    /// The cluster whose session is missing.
    pub cluster: ClusterName,
    /// How much of the hold has been counted, in seconds.
    pub held_secs: u64,
}

/// What the operator recorded for a cluster (`registry grant`, `drain`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// When it joined.
    pub joined: Timestamp,
    /// The networks its endpoints may be in; empty means any.
    pub cidrs: Vec<IpNet>,
    /// The namespaces it may export; empty means any.
    pub namespaces: Vec<Namespace>,
    /// Whether its endpoints are taken out in every cluster.
    pub drained: bool,
}

impl Member {
    /// Whether the cluster may export from a namespace.
    pub fn may_export(&self, namespace: &Namespace) -> bool {
        self.namespaces.is_empty() || self.namespaces.contains(namespace)
    }

    /// Whether the cluster may have an endpoint at an address.
    pub fn may_use(&self, address: IpAddr) -> bool {
        self.cidrs.is_empty() || self.cidrs.iter().any(|cidr| cidr.contains(&address))
    }
}

/// What the operator's record of a cluster says of the age of its exports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joined {
    /// When it joined.
    pub at: Timestamp,
    /// Whether its exports count as created no earlier ([`Settings`]).
    pub counts: bool,
}

/// Settings of the whole registry (`registry set-config`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Whether an export's precedence time is no earlier than the time its cluster joined.
    pub precedence_from_join: bool,
}

/// An exported service as one cluster states it (BEHAVIOUR §1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportRecord {
    /// The ServiceExport's creation time: the precedence time of the merge.
    pub created: Timestamp,
    /// The ServiceExport's UID.
    pub uid: Arc<str>,
    /// Headless where the Service's clusterIP is None.
    pub kind: ImportType,
    /// The Service's ports in their order, without node and target ports.
    pub ports: Vec<Port>,
    /// The Service's IP families in their order.
    pub families: Vec<IpFamily>,
    /// Session affinity.
    pub affinity: Affinity,
    /// Internal traffic policy.
    pub internal_traffic_policy: InternalTrafficPolicy,
    /// Traffic distribution; a value that this release does not know travels on.
    pub traffic_distribution: Option<Arc<str>>,
    /// The exported labels.
    pub labels: Labels,
    /// The exported annotations.
    pub annotations: Labels,
}
