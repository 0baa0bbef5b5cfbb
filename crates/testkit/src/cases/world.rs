//! What the product wrote: the objects of every cluster, with only the fields that a case can say
//! something about.
//!
//! Reading `DIR` of `--out` is strict about what lies there, as Tombolo writes its own objects and
//! nothing else: one marker file beside a directory per cluster, and in those the four kinds.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::inputs::{directories, documents_below};
use super::stage::Name;

/// The label and annotation keys of the Multi-Cluster Services API and of Kubernetes.
pub(crate) mod keys {
    pub(crate) const SERVICE_NAME: &str = "multicluster.kubernetes.io/service-name";
    pub(crate) const SOURCE_CLUSTER: &str = "multicluster.kubernetes.io/source-cluster";
    pub(crate) const DERIVED_SERVICE: &str = "multicluster.kubernetes.io/derived-service";
    pub(crate) const LOCAL_SERVICE: &str = "kubernetes.io/service-name";
    pub(crate) const SLICE_MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
    pub(crate) const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
    pub(crate) const HEADLESS: &str = "service.kubernetes.io/headless";
}

/// The objects of every cluster.
#[derive(Debug, Default)]
pub struct World {
    pub(crate) clusters: BTreeMap<String, Held>,
}

/// What one cluster holds.
#[derive(Debug, Default)]
pub(crate) struct Held {
    pub(crate) imports: BTreeMap<Name, ServiceImport>,
    pub(crate) services: BTreeMap<Name, Service>,
    pub(crate) slices: BTreeMap<Name, Slice>,
    pub(crate) exports: BTreeMap<Name, ServiceExport>,
}

impl World {
    /// Reads a directory that `--out` wrote.
    pub fn read(out: &Path) -> Result<Self> {
        let mut world = Self::default();
        for (cluster, dir) in directories(out)? {
            let mut held = Held::default();
            for entry in fs::read_dir(&dir)? {
                let path = entry?.path();
                let is_yaml = path
                    .extension()
                    .is_some_and(|extension| extension == "yaml");
                ensure!(
                    path.is_file() && is_yaml,
                    "not a YAML file: {}",
                    path.display()
                );
            }
            for document in documents_below(&dir)? {
                held.add(document).with_context(|| cluster.clone())?;
            }
            world.clusters.insert(cluster, held);
        }
        let markers = fs::read_dir(out)?.count() - world.clusters.len();
        ensure!(
            markers == 1,
            "{markers} files beside the clusters, where one marker belongs"
        );
        Ok(world)
    }

    /// What API servers hold: of all objects of a cluster, ServiceExports count and what carries
    /// Tombolo's mark.
    pub fn of_clusters(clusters: impl IntoIterator<Item = (String, Vec<Value>)>) -> Result<Self> {
        let mut world = Self::default();
        for (cluster, objects) in clusters {
            let mut held = Held::default();
            for object in objects {
                let mark = object["metadata"]["labels"][keys::MANAGED_BY].as_str();
                if object["kind"] == "ServiceExport" || mark == Some("tombolo") {
                    held.add(object).with_context(|| cluster.clone())?;
                }
            }
            world.clusters.insert(cluster, held);
        }
        Ok(world)
    }

    /// Whether a run that wrote this has nothing to complain about: every ServiceExport is valid,
    /// published and in agreement, every ServiceImport is ready.
    pub fn is_well(&self) -> bool {
        let mut held = self.clusters.values();
        held.all(|held| {
            let exports = held.exports.values().all(|export| {
                let is = |kind: &str, status: &str| {
                    export
                        .status
                        .condition(kind)
                        .is_some_and(|c| c.status == status)
                };
                is("Valid", "True") && is("Ready", "True") && is("Conflict", "False")
            });
            let ready = |import: &ServiceImport| {
                import
                    .status
                    .condition("Ready")
                    .is_some_and(|ready| ready.status == "True")
            };
            exports && held.imports.values().all(ready)
        })
    }

    /// What a cluster holds; nothing where it has no directory.
    pub(crate) fn held(&self, cluster: &str) -> &Held {
        static NOTHING: Held = Held {
            imports: BTreeMap::new(),
            services: BTreeMap::new(),
            slices: BTreeMap::new(),
            exports: BTreeMap::new(),
        };
        self.clusters.get(cluster).unwrap_or(&NOTHING)
    }

    /// Whether any ServiceImport, Service or EndpointSlice of any cluster has this text in it.
    pub(crate) fn product_mentions(&self, text: &str) -> bool {
        self.clusters.values().any(|held| {
            let imports = held.imports.values().map(|import| &import.whole);
            let services = held.services.values().map(|service| &service.whole);
            let slices = held.slices.values().map(|slice| &slice.whole);
            imports
                .chain(services)
                .chain(slices)
                .any(|value| value.to_string().contains(text))
        })
    }
}

impl Held {
    fn add(&mut self, document: Value) -> Result<()> {
        let text = |key: &str| {
            document
                .get(key)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let what = (text("apiVersion").to_owned(), text("kind").to_owned());
        match (what.0.as_str(), what.1.as_str()) {
            ("multicluster.x-k8s.io/v1beta1", "ServiceImport") => {
                insert(&mut self.imports, document)
            }
            ("v1", "Service") => insert(&mut self.services, document),
            ("discovery.k8s.io/v1", "EndpointSlice") => insert(&mut self.slices, document),
            (
                "multicluster.x-k8s.io/v1beta1" | "multicluster.x-k8s.io/v1alpha1",
                "ServiceExport",
            ) => insert(&mut self.exports, document),
            (version, kind) => bail!("{version} {kind} has no place in the output"),
        }
    }

    /// Every object's kind and metadata.
    pub(crate) fn metadata(&self) -> impl Iterator<Item = (&'static str, &Meta)> {
        let imports = self
            .imports
            .values()
            .map(|object| ("ServiceImport", &object.metadata));
        let services = self
            .services
            .values()
            .map(|object| ("Service", &object.metadata));
        let slices = self
            .slices
            .values()
            .map(|object| ("EndpointSlice", &object.metadata));
        let exports = self
            .exports
            .values()
            .map(|object| ("ServiceExport", &object.metadata));
        imports.chain(services).chain(slices).chain(exports)
    }

    /// The slices of a ServiceImport.
    pub(crate) fn slices_of(&self, import: &Name) -> impl Iterator<Item = &Slice> {
        let (namespace, name) = import.clone();
        self.slices.values().filter(move |slice| {
            slice.metadata.namespace == namespace
                && slice.metadata.label(keys::SERVICE_NAME) == Some(&name)
        })
    }

    /// The derived Services of a ServiceImport, by their label.
    pub(crate) fn derived_of(&self, import: &Name) -> impl Iterator<Item = &Service> {
        let (namespace, name) = import.clone();
        self.services.values().filter(move |service| {
            service.metadata.namespace == namespace
                && service.metadata.label(keys::SERVICE_NAME) == Some(&name)
        })
    }
}

fn insert<T: OfCluster>(objects: &mut BTreeMap<Name, T>, document: Value) -> Result<()> {
    let object = T::read(document)?;
    let key = (object.meta().namespace.clone(), object.meta().name.clone());
    let label = format!("{}/{} is there twice", key.0, key.1);
    ensure!(objects.insert(key, object).is_none(), label);
    Ok(())
}

/// An object with metadata, and its whole text for searching.
trait OfCluster: Sized {
    fn read(document: Value) -> Result<Self>;
    fn meta(&self) -> &Meta;
}

macro_rules! of_cluster {
    ($($name:ident),*) => {$(
        impl OfCluster for $name {
            fn read(document: Value) -> Result<Self> {
                let context = document.to_string();
                let mut object: Self =
                    serde_json::from_value(document.clone()).context(context)?;
                object.whole = document;
                Ok(object)
            }
            fn meta(&self) -> &Meta {
                &self.metadata
            }
        }
    )*};
}
of_cluster!(ServiceImport, Service, Slice, ServiceExport);

/// Metadata.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Meta {
    pub(crate) name: String,
    pub(crate) namespace: String,
    #[serde(default, deserialize_with = "nullable")]
    pub(crate) labels: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "nullable")]
    pub(crate) annotations: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "nullable")]
    pub(crate) owner_references: Vec<Owner>,
    pub(crate) deletion_timestamp: Option<String>,
}

impl Meta {
    pub(crate) fn label(&self, key: &str) -> Option<&String> {
        self.labels.get(key)
    }
}

/// An owner reference.
#[derive(Debug, Deserialize)]
pub(crate) struct Owner {
    pub(crate) kind: String,
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) controller: bool,
}

/// A condition.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Condition {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) status: String,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) observed_generation: Option<i64>,
    pub(crate) last_transition_time: Option<String>,
}

/// A status that has conditions.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Status {
    #[serde(deserialize_with = "nullable")]
    pub(crate) conditions: Vec<Condition>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) clusters: Vec<ClusterName>,
}

impl Status {
    pub(crate) fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions
            .iter()
            .find(|condition| condition.kind == kind)
    }
}

/// An entry of `status.clusters`.
#[derive(Debug, Deserialize)]
pub(crate) struct ClusterName {
    pub(crate) cluster: String,
}

/// A ServiceExport.
#[derive(Debug, Deserialize)]
pub(crate) struct ServiceExport {
    pub(crate) metadata: Meta,
    #[serde(default)]
    pub(crate) status: Status,
    #[serde(skip)]
    pub(crate) whole: Value,
}

/// A ServiceImport.
#[derive(Debug, Deserialize)]
pub(crate) struct ServiceImport {
    pub(crate) metadata: Meta,
    pub(crate) spec: ImportSpec,
    #[serde(default)]
    pub(crate) status: Status,
    #[serde(skip)]
    pub(crate) whole: Value,
}

/// What a ServiceImport and a Service say in the same words.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Policies {
    pub(crate) session_affinity: Option<String>,
    pub(crate) session_affinity_config: Option<AffinityConfig>,
    pub(crate) internal_traffic_policy: Option<String>,
    pub(crate) traffic_distribution: Option<String>,
}

impl Policies {
    /// With what an unset field means.
    pub(crate) fn affinity(&self) -> (&str, Option<i64>) {
        let timeout = self
            .session_affinity_config
            .as_ref()
            .and_then(|config| config.client_ip.as_ref())
            .and_then(|client_ip| client_ip.timeout_seconds);
        match self.session_affinity.as_deref() {
            Some("ClientIP") => ("ClientIP", Some(timeout.unwrap_or(10_800))),
            other => (other.unwrap_or("None"), timeout),
        }
    }

    pub(crate) fn internal_traffic_policy(&self) -> &str {
        self.internal_traffic_policy.as_deref().unwrap_or("Cluster")
    }
}

/// `sessionAffinityConfig`.
#[derive(Debug, Deserialize)]
pub(crate) struct AffinityConfig {
    #[serde(rename = "clientIP")]
    client_ip: Option<ClientIp>,
}

/// `sessionAffinityConfig.clientIP`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClientIp {
    timeout_seconds: Option<i64>,
}

/// The spec of a ServiceImport.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ImportSpec {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    #[serde(default, deserialize_with = "nullable")]
    pub(crate) ports: Vec<Port>,
    #[serde(default, deserialize_with = "nullable")]
    pub(crate) ips: Vec<String>,
    #[serde(default, deserialize_with = "nullable")]
    pub(crate) ip_families: Vec<String>,
    #[serde(flatten)]
    pub(crate) policies: Policies,
}

/// A port of a ServiceImport, a Service or an EndpointSlice.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Port {
    #[serde(default, deserialize_with = "nullable")]
    pub(crate) name: String,
    #[serde(default = "tcp")]
    pub(crate) protocol: String,
    #[serde(rename = "port")]
    pub(crate) number: u16,
    pub(crate) app_protocol: Option<String>,
}

fn tcp() -> String {
    "TCP".to_owned()
}

/// A Service.
#[derive(Debug, Deserialize)]
pub(crate) struct Service {
    pub(crate) metadata: Meta,
    pub(crate) spec: ServiceSpec,
    #[serde(skip)]
    pub(crate) whole: Value,
}

/// The spec of a Service.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ServiceSpec {
    #[serde(rename = "type")]
    pub(crate) kind: Option<String>,
    #[serde(rename = "clusterIP")]
    pub(crate) cluster_ip: Option<String>,
    #[serde(rename = "clusterIPs", default, deserialize_with = "nullable")]
    pub(crate) cluster_ips: Vec<String>,
    pub(crate) ip_family_policy: Option<String>,
    #[serde(default, deserialize_with = "nullable")]
    pub(crate) ip_families: Vec<String>,
    #[serde(default, deserialize_with = "nullable")]
    pub(crate) ports: Vec<Port>,
    #[serde(default, deserialize_with = "nullable")]
    pub(crate) selector: BTreeMap<String, String>,
    #[serde(flatten)]
    pub(crate) policies: Policies,
}

/// An EndpointSlice.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Slice {
    pub(crate) metadata: Meta,
    pub(crate) address_type: String,
    #[serde(default, deserialize_with = "nullable")]
    pub(crate) ports: Vec<Port>,
    #[serde(default, deserialize_with = "nullable")]
    pub(crate) endpoints: Vec<Endpoint>,
    #[serde(skip)]
    pub(crate) whole: Value,
}

/// An endpoint of a slice.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Endpoint {
    pub(crate) addresses: Vec<String>,
    #[serde(default)]
    pub(crate) conditions: Conditions,
    pub(crate) hostname: Option<String>,
    pub(crate) zone: Option<String>,
    pub(crate) node_name: Option<String>,
    pub(crate) target_ref: Option<Value>,
    #[serde(default)]
    pub(crate) hints: Hints,
}

/// The conditions of an endpoint.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(crate) struct Conditions {
    ready: Option<bool>,
    serving: Option<bool>,
    terminating: Option<bool>,
}

impl Conditions {
    /// Ready, serving and terminating, unset ones as consumers read them.
    pub(crate) fn read(self) -> (bool, bool, bool) {
        let ready = self.ready.unwrap_or(true);
        (
            ready,
            self.serving.unwrap_or(ready),
            self.terminating.unwrap_or(false),
        )
    }
}

/// Whose traffic an endpoint is for.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Hints {
    #[serde(deserialize_with = "nullable")]
    pub(crate) for_zones: Vec<Hint>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) for_nodes: Vec<Hint>,
}

/// A zone or node.
#[derive(Debug, Deserialize)]
pub(crate) struct Hint {
    pub(crate) name: String,
}

/// The API server writes `null` for an empty list.
fn nullable<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}
