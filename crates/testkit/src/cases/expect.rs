//! `expect.yaml` as it is written. A field that is not here is an error: what nobody reads,
//! nobody checks.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct File {
    pub(crate) id: String,
    #[serde(rename = "title")]
    _title: String,
    #[serde(rename = "kind")]
    _kind: String,
    #[serde(rename = "sources")]
    _sources: Vec<String>,
    #[serde(rename = "userWanted")]
    _user_wanted: String,
    pub(crate) why: String,
    /// What a real cluster needs for this case; for people.
    #[serde(default, rename = "requires")]
    _requires: Option<String>,
    #[serde(default)]
    pub(crate) cluster_families: BTreeMap<String, Vec<String>>,
    pub(crate) expect: Expect,
    #[serde(default)]
    pub(crate) steps: Vec<Step>,
}

impl File {
    /// Reads the text of an `expect.yaml`.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        // By way of a plain value, as only that can tell a string from a map in `conditions`.
        let value: Value = serde_saphyr::from_str(text).context("no YAML")?;
        serde_json::from_value(value).context("not as FORMAT.md says")
    }
}

/// A change, and what holds after it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Step {
    #[serde(rename = "step")]
    pub(crate) number: usize,
    #[serde(rename = "do")]
    _do: String,
    pub(crate) expect: Expect,
}

/// What must be true at one stage.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(crate) struct Expect {
    pub(crate) exports: Vec<Export>,
    pub(crate) services: Vec<Service>,
    pub(crate) dns: Vec<Query>,
    pub(crate) gone: Vec<Gone>,
    pub(crate) blocked: Option<Blocked>,
    pub(crate) refused: Vec<Refused>,
    pub(crate) either: Option<String>,
    pub(crate) settles: Option<String>,
    #[serde(deserialize_with = "one_or_many")]
    pub(crate) untouched: Vec<String>,
    #[serde(deserialize_with = "one_or_many")]
    pub(crate) forbidden: Vec<String>,
    #[serde(deserialize_with = "one_or_many")]
    pub(crate) also_check: Vec<String>,
}

/// The conditions of a ServiceExport.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Export {
    pub(crate) cluster: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    #[serde(rename = "Valid")]
    pub(crate) valid: Option<String>,
    /// Allowed reasons of Valid.
    #[serde(default, deserialize_with = "one_or_many")]
    pub(crate) reason: Vec<String>,
    #[serde(rename = "Ready")]
    pub(crate) ready: Option<String>,
    #[serde(default, rename = "readyReason", deserialize_with = "one_or_many")]
    pub(crate) ready_reason: Vec<String>,
    #[serde(rename = "Conflict")]
    pub(crate) conflict: Option<Conflict>,
}

/// The condition Conflict.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Conflict {
    Words(ConflictWords),
    Exact(ConflictExact),
}

/// A condition in words.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) enum ConflictWords {
    #[serde(rename = "absent or False")]
    AbsentOrFalse,
}

/// A condition's status and reasons.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct ConflictExact {
    pub(crate) status: String,
    pub(crate) reasons: Vec<String>,
    #[serde(default)]
    pub(crate) optional_reasons: Vec<String>,
}

/// A service that is imported.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Service {
    pub(crate) namespace: String,
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) imported_in: Vec<String>,
    #[serde(default)]
    pub(crate) absent_in: Vec<String>,
    #[serde(rename = "serviceImport")]
    import: Option<Value>,
    #[serde(rename = "derivedService")]
    derived: Option<Value>,
    slices: Option<Value>,
    /// Where a cluster differs: laid over the three above, map by map.
    #[serde(default)]
    per_cluster: BTreeMap<String, Value>,
    #[serde(default)]
    pub(crate) slices_may_also: Vec<MayAlso>,
    pub(crate) slices_note: Option<String>,
    #[serde(default)]
    pub(crate) dns: Vec<Query>,
}

impl Service {
    /// What one importing cluster must hold.
    pub(crate) fn content(&self, cluster: &str) -> Result<Content> {
        let mut common = serde_json::Map::new();
        let parts = [
            ("serviceImport", &self.import),
            ("derivedService", &self.derived),
            ("slices", &self.slices),
        ];
        for (key, part) in parts {
            if let Some(value) = part {
                common.insert(key.to_owned(), value.clone());
            }
        }
        let mut content = Value::Object(common);
        if let Some(own) = self.per_cluster.get(cluster) {
            lay_over(&mut content, own);
        }
        serde_json::from_value(content)
            .with_context(|| format!("{}/{} in {cluster}", self.namespace, self.name))
    }

    /// The clusters that `perCluster` names.
    pub(crate) fn special_clusters(&self) -> impl Iterator<Item = &String> {
        self.per_cluster.keys()
    }
}

fn lay_over(base: &mut Value, over: &Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (key, value) in over {
                lay_over(base.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (base, over) => *base = over.clone(),
    }
}

/// ServiceImport, derived Service and slices in one cluster.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Content {
    pub(crate) service_import: Option<Import>,
    pub(crate) derived_service: Option<Derived>,
    /// By source cluster.
    pub(crate) slices: Option<BTreeMap<String, Vec<Group>>>,
}

/// A ServiceImport.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Import {
    #[serde(rename = "type")]
    pub(crate) kind: Option<String>,
    pub(crate) ports: Option<Vec<Port>>,
    pub(crate) ip_families: Option<Vec<String>>,
    pub(crate) ips: Option<usize>,
    pub(crate) clusters: Option<Vec<String>>,
    pub(crate) session_affinity: Option<String>,
    pub(crate) session_affinity_timeout_seconds: Option<i64>,
    pub(crate) internal_traffic_policy: Option<String>,
    /// `unset` means that the field is absent.
    pub(crate) traffic_distribution: Option<String>,
    #[serde(rename = "Ready")]
    pub(crate) ready: Option<String>,
    #[serde(default)]
    pub(crate) labels: Keys,
    #[serde(default)]
    pub(crate) annotations: Keys,
}

/// A port of a Service.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Port {
    #[serde(default)]
    pub(crate) name: String,
    pub(crate) protocol: String,
    #[serde(rename = "port")]
    pub(crate) number: u16,
    pub(crate) app_protocol: Option<String>,
}

/// What labels or annotations hold and do not hold.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(crate) struct Keys {
    pub(crate) has: BTreeMap<String, String>,
    pub(crate) has_not: Vec<String>,
}

/// A derived Service.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Derived {
    pub(crate) name: Option<String>,
    #[serde(rename = "clusterIP")]
    pub(crate) cluster_ip: Option<ClusterIp>,
    pub(crate) selector: Option<Selector>,
    /// Always compared with the import's.
    #[serde(rename = "ports")]
    _ports: Option<DerivedPorts>,
    pub(crate) ip_families: Option<Vec<String>>,
    pub(crate) session_affinity: Option<String>,
    pub(crate) session_affinity_timeout_seconds: Option<i64>,
    #[serde(default)]
    pub(crate) labels: Keys,
    #[serde(default)]
    pub(crate) annotations: Keys,
}

/// `spec.clusterIP`.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub(crate) enum ClusterIp {
    /// A real address, equal to the import's.
    #[serde(rename = "allocated")]
    Allocated,
    /// Headless.
    None,
}

/// `spec.selector`.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) enum Selector {
    #[serde(rename = "none")]
    Absent,
}

/// `spec.ports` of a derived Service.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) enum DerivedPorts {
    #[serde(rename = "as serviceImport")]
    AsImport,
}

/// Endpoints that have the same ports.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Group {
    /// `PROTOCOL/number` by name.
    #[serde(default)]
    pub(crate) ports: BTreeMap<String, String>,
    pub(crate) endpoints: Vec<Endpoint>,
}

/// An endpoint.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Endpoint {
    /// Ready, serving, not terminating, nothing else.
    Address(String),
    Full(FullEndpoint),
}

/// An endpoint with more than an address.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct FullEndpoint {
    pub(crate) address: String,
    pub(crate) conditions: Option<Conditions>,
    pub(crate) hostname: Option<String>,
    pub(crate) zone: Option<String>,
    #[serde(default)]
    pub(crate) hint_zones: Vec<String>,
}

/// An endpoint's conditions.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Conditions {
    Words(ConditionWords),
    Exact(ExactConditions),
}

/// Conditions in words.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) enum ConditionWords {
    #[serde(rename = "all unset (or ready true)")]
    UnsetOrReady,
}

/// All three conditions.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExactConditions {
    pub(crate) ready: bool,
    pub(crate) serving: bool,
    pub(crate) terminating: bool,
}

/// Endpoints that the case allows in addition, where BEHAVIOUR has to decide.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MayAlso {
    pub(crate) cluster: String,
    pub(crate) port: String,
    pub(crate) target: String,
    #[serde(rename = "why")]
    _why: String,
}

/// What must not be there any more.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Gone {
    pub(crate) namespace: String,
    /// One name, or several with commas between.
    pub(crate) name: String,
    #[serde(rename = "in")]
    pub(crate) clusters: Vec<String>,
    pub(crate) what: String,
}

/// An import that something is in the way of.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Blocked {
    pub(crate) cluster: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) what: String,
    #[serde(default)]
    pub(crate) dns: Vec<Query>,
    pub(crate) dns_rule: Option<String>,
}

/// A cluster that is not accepted.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Refused {
    pub(crate) cluster: String,
    pub(crate) error: String,
}

/// A DNS query with its answer.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Query {
    pub(crate) name: String,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    #[serde(deserialize_with = "one_or_many")]
    pub(crate) rcode: Vec<String>,
    pub(crate) answers: Vec<String>,
    /// Clusters with commas between; absent: every importing one.
    pub(crate) ask_in: Option<String>,
}

fn one_or_many<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum OneOrMany {
        One(String),
        Many(Vec<String>),
    }
    Ok(match OneOrMany::deserialize(deserializer)? {
        OneOrMany::One(text) => vec![text],
        OneOrMany::Many(texts) => texts,
    })
}
