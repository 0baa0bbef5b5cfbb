//! Kubernetes objects as the model sees them: only the fields that a rule of BEHAVIOUR needs,
//! small enough that a fleet of a million endpoints fits in memory.
//!
//! The same types say what was observed and what is wanted. In a wanted object that is to be
//! created, `uid` and `resource_version` are empty. Adapters must leave every field of a live
//! object that is not modelled here as it is.

use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;

use crate::endpoint::Conditions;
use crate::names::{Namespace, ObjectName, ServiceKey};
use crate::record::Labels;
use crate::service::{Affinity, ImportType, InternalTrafficPolicy, IpFamily, Port, Protocol};

/// The kinds that the model knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// v1 Namespace.
    Namespace,
    /// v1 Service.
    Service,
    /// discovery.k8s.io/v1 EndpointSlice.
    EndpointSlice,
    /// multicluster.x-k8s.io ServiceExport.
    ServiceExport,
    /// multicluster.x-k8s.io ServiceImport.
    ServiceImport,
}

impl Kind {
    /// As Kubernetes writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Namespace => "Namespace",
            Self::Service => "Service",
            Self::EndpointSlice => "EndpointSlice",
            Self::ServiceExport => "ServiceExport",
            Self::ServiceImport => "ServiceImport",
        }
    }
}

/// Names one namespaced object. A Namespace is named by its own name in both parts.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectRef {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace and name.
    pub key: ServiceKey,
}

/// Metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Namespace and name.
    pub key: ServiceKey,
    /// The UID; empty in an object to be created.
    pub uid: Arc<str>,
    /// The resource version; empty in an object to be created.
    pub resource_version: Arc<str>,
    /// The generation, 0 where the kind has none.
    pub generation: i64,
    /// When it was made, as far as known.
    pub created: Option<Timestamp>,
    /// Whether it has a deletion timestamp.
    pub terminating: bool,
    /// Labels.
    pub labels: Arc<Labels>,
    /// Annotations. Adapters may leave out those of Services and EndpointSlices that are not
    /// managed by Tombolo, as nothing reads them.
    pub annotations: Arc<Labels>,
    /// Owner references, those to ServiceImports and those of others.
    pub owners: Vec<OwnerRef>,
}

impl Meta {
    /// The metadata of an object to be created.
    pub fn to_create(key: ServiceKey) -> Self {
        Self {
            key,
            uid: "".into(),
            resource_version: "".into(),
            generation: 0,
            created: None,
            terminating: false,
            labels: Arc::default(),
            annotations: Arc::default(),
            owners: Vec::new(),
        }
    }

    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(AsRef::as_ref)
    }

    /// The value of an annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.get(key).map(AsRef::as_ref)
    }
}

/// An owner reference. The adapter knows the API version that belongs to the kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OwnerRef {
    /// The owner's kind.
    pub kind: Arc<str>,
    /// The owner's name.
    pub name: ObjectName,
    /// The owner's UID.
    pub uid: Arc<str>,
}

/// What a Namespace's annotation `tombolo.dev/global` says (BEHAVIOUR §7).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum GlobalMark {
    /// It is absent.
    #[default]
    Absent,
    /// `true`.
    True,
    /// `false`.
    False,
    /// Anything else: means no, and is reported.
    Other(Arc<str>),
}

/// A Namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceObject {
    /// Its name.
    pub name: Namespace,
    /// Labels.
    pub labels: Arc<Labels>,
    /// Whether it takes part.
    pub global: GlobalMark,
    /// Whether it is going away.
    pub terminating: bool,
    /// The resource version.
    pub resource_version: Arc<str>,
}

/// `spec.type` of a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ServiceKind {
    /// `ClusterIP`, headless ones included.
    ClusterIp,
    /// `NodePort`.
    NodePort,
    /// `LoadBalancer`.
    LoadBalancer,
    /// `ExternalName`.
    ExternalName,
}

impl ServiceKind {
    /// As Kubernetes writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ClusterIp => "ClusterIP",
            Self::NodePort => "NodePort",
            Self::LoadBalancer => "LoadBalancer",
            Self::ExternalName => "ExternalName",
        }
    }
}

/// A Service, a user's or a derived one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceObject {
    /// Metadata.
    pub meta: Meta,
    /// Its type.
    pub kind: ServiceKind,
    /// Whether its clusterIP is `None`.
    pub headless: bool,
    /// Its cluster IPs. In a Service to be created: those to ask for, none to get any.
    pub cluster_ips: Vec<IpAddr>,
    /// Its IP families in order; one means SingleStack, two PreferDualStack.
    pub families: Vec<IpFamily>,
    /// Its ports in order.
    pub ports: Vec<Port>,
    /// Session affinity.
    pub affinity: Affinity,
    /// Internal traffic policy.
    pub internal_traffic_policy: InternalTrafficPolicy,
    /// Traffic distribution.
    pub traffic_distribution: Option<Arc<str>>,
    /// Whether it selects pods.
    pub has_selector: bool,
}

/// `addressType` of an EndpointSlice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AddressType {
    /// Addresses of one IP family.
    Ip(IpFamily),
    /// Host names: skipped and reported.
    Fqdn,
}

/// A port of an EndpointSlice.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlicePort {
    /// Its name, that of the Service's port.
    pub name: Arc<str>,
    /// The protocol.
    pub protocol: Protocol,
    /// The number at which the endpoints listen.
    pub port: u16,
    /// The application protocol.
    pub app_protocol: Option<Arc<str>>,
}

/// What an endpoint stands for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TargetRef {
    /// Its kind, mostly `Pod`.
    pub kind: Arc<str>,
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// Its UID.
    pub uid: Arc<str>,
}

/// Whose traffic an endpoint is for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Hints {
    /// Clients of these zones.
    pub zones: Vec<Arc<str>>,
    /// Clients of these nodes.
    pub nodes: Vec<Arc<str>>,
}

/// An endpoint of an EndpointSlice: its first address, as consumers use no other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SliceEndpoint {
    /// The address.
    pub address: IpAddr,
    /// The conditions; unset ones as BEHAVIOUR §1 reads them (ready counts as true, serving as
    /// ready, terminating as false).
    pub conditions: Conditions,
    /// The host name.
    pub hostname: Option<Arc<str>>,
    /// The zone.
    pub zone: Option<Arc<str>>,
    /// The node.
    pub node: Option<Arc<str>>,
    /// What it stands for.
    pub target: Option<Arc<TargetRef>>,
    /// Hints.
    pub hints: Option<Arc<Hints>>,
}

/// An EndpointSlice, a user's or a mirrored one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceObject {
    /// Metadata.
    pub meta: Meta,
    /// The kind of addresses.
    pub address_type: AddressType,
    /// The ports; those without a number are left out by the adapter.
    pub ports: Arc<[SlicePort]>,
    /// The endpoints; none where the addresses are host names.
    pub endpoints: Arc<[SliceEndpoint]>,
}

/// A condition of a status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Its type, such as `Valid`.
    pub kind: Arc<str>,
    /// `True`, `False` or `Unknown`.
    pub status: Arc<str>,
    /// A word for tools.
    pub reason: Arc<str>,
    /// A sentence for people.
    pub message: Arc<str>,
    /// The generation it was computed from.
    pub observed_generation: Option<i64>,
    /// When `status` last changed.
    pub last_transition: Timestamp,
}

/// A ServiceExport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportObject {
    /// Metadata.
    pub meta: Meta,
    /// `spec.exportedLabels`.
    pub labels: Labels,
    /// `spec.exportedAnnotations`.
    pub annotations: Labels,
    /// `status.conditions`, those of others included.
    pub conditions: Vec<Condition>,
}

/// The spec of a ServiceImport.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ImportSpec {
    /// Its type.
    pub kind: ImportType,
    /// Its ports.
    pub ports: Vec<Port>,
    /// The clusterset IPs.
    pub ips: Vec<IpAddr>,
    /// The families.
    pub families: Vec<IpFamily>,
    /// Session affinity.
    pub affinity: Affinity,
    /// Internal traffic policy.
    pub internal_traffic_policy: InternalTrafficPolicy,
    /// Traffic distribution.
    pub traffic_distribution: Option<Arc<str>>,
}

/// The status of a ServiceImport.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportStatus {
    /// The exporting clusters, sorted. Names as they stand: another implementation's may be any.
    pub clusters: Vec<Arc<str>>,
    /// `endpointSliceObjects`: true means Present, false Absent.
    pub slices_present: Option<bool>,
    /// The conditions, those of others included.
    pub conditions: Vec<Condition>,
}

/// A ServiceImport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportObject {
    /// Metadata.
    pub meta: Meta,
    /// The spec; `None` where it holds what this release cannot read, so that it is never taken
    /// for the wanted one.
    pub spec: Option<ImportSpec>,
    /// The status.
    pub status: ImportStatus,
}

/// Any object of the kinds above.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object {
    /// A Namespace.
    Namespace(Arc<NamespaceObject>),
    /// A Service.
    Service(Arc<ServiceObject>),
    /// An EndpointSlice.
    EndpointSlice(Arc<SliceObject>),
    /// A ServiceExport.
    ServiceExport(Arc<ExportObject>),
    /// A ServiceImport.
    ServiceImport(Arc<ImportObject>),
}

impl Object {
    /// The object's kind.
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Namespace(_) => Kind::Namespace,
            Self::Service(_) => Kind::Service,
            Self::EndpointSlice(_) => Kind::EndpointSlice,
            Self::ServiceExport(_) => Kind::ServiceExport,
            Self::ServiceImport(_) => Kind::ServiceImport,
        }
    }

    /// The metadata; a Namespace has none of this shape.
    pub fn meta(&self) -> Option<&Meta> {
        match self {
            Self::Namespace(_) => None,
            Self::Service(o) => Some(&o.meta),
            Self::EndpointSlice(o) => Some(&o.meta),
            Self::ServiceExport(o) => Some(&o.meta),
            Self::ServiceImport(o) => Some(&o.meta),
        }
    }

    /// Names the object.
    pub fn reference(&self) -> ObjectRef {
        let key = match self {
            Self::Namespace(o) => ServiceKey::new(o.name.clone(), ObjectName::new(o.name.as_str())),
            Self::Service(o) => o.meta.key.clone(),
            Self::EndpointSlice(o) => o.meta.key.clone(),
            Self::ServiceExport(o) => o.meta.key.clone(),
            Self::ServiceImport(o) => o.meta.key.clone(),
        };
        ObjectRef {
            kind: self.kind(),
            key,
        }
    }

    /// The resource version.
    pub fn resource_version(&self) -> &Arc<str> {
        match self {
            Self::Namespace(o) => &o.resource_version,
            Self::Service(o) => &o.meta.resource_version,
            Self::EndpointSlice(o) => &o.meta.resource_version,
            Self::ServiceExport(o) => &o.meta.resource_version,
            Self::ServiceImport(o) => &o.meta.resource_version,
        }
    }
}
