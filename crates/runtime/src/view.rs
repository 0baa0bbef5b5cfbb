//! What is shown of a clusterset: the same facts as table, JSON and YAML. The JSON is an
//! interface for scripts: fields are added, never renamed.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;

use serde::Serialize;
use tombolo_model::merge::Merged;
use tombolo_model::names::ServiceKey;
use tombolo_model::object::{Condition, ExportObject, ImportObject};
use tombolo_model::service::Port;

use crate::question::{self, QueryView};
use crate::table::Table;

/// A whole clusterset.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct View {
    pub(crate) clusters: Vec<ClusterView>,
    pub(crate) conflicts: Vec<ConflictView>,
    pub(crate) warnings: Vec<WarningView>,
    pub(crate) errors: Vec<ErrorView>,
    /// What was asked, question by question, and each cluster's answer.
    pub(crate) queries: Vec<QueryView>,
}

/// One cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ClusterView {
    pub(crate) name: String,
    pub(crate) families: Vec<&'static str>,
    /// Where its DNS server listens, in `up`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dns: Option<SocketAddr>,
    pub(crate) exports: Vec<ExportView>,
    pub(crate) imports: Vec<ImportView>,
}

/// A ServiceExport.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ExportView {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) conditions: Vec<ConditionView>,
}

/// A condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ConditionView {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) status: String,
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// A ServiceImport.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ImportView {
    pub(crate) namespace: String,
    pub(crate) name: String,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) ports: Vec<PortView>,
    pub(crate) ip_families: Vec<&'static str>,
    pub(crate) ips: Vec<String>,
    pub(crate) clusters: Vec<String>,
    /// In all slices of the import; an address of two clusters counts twice.
    pub(crate) endpoints: usize,
    pub(crate) ready_endpoints: usize,
    pub(crate) ready: Option<ConditionView>,
    /// Tells one set of endpoints from another of the same number.
    #[serde(skip)]
    pub(crate) endpoints_print: u64,
}

/// A port of an import.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PortView {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) name: String,
    pub(crate) protocol: &'static str,
    pub(crate) port: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) app_protocol: Option<String>,
}

/// A disagreement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ConflictView {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) reason: &'static str,
    pub(crate) field: &'static str,
    /// The value in use and the cluster it is from.
    pub(crate) used: ValueView,
    /// The values that lost.
    pub(crate) others: Vec<ValueView>,
    pub(crate) clusters: Vec<String>,
    pub(crate) message: String,
}

/// A value and whose it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ValueView {
    pub(crate) cluster: String,
    pub(crate) value: String,
}

/// Something that was left out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct WarningView {
    pub(crate) cluster: String,
    pub(crate) object: String,
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// Input that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ErrorView {
    pub(crate) cluster: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) document: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) line: Option<usize>,
    pub(crate) message: String,
}

impl View {
    /// Whether there is nothing that anybody should look after.
    pub(crate) fn is_well(&self) -> bool {
        let is_true = |kind: &str, conditions: &[ConditionView]| {
            conditions
                .iter()
                .any(|c| c.kind == kind && c.status == "True")
        };
        self.conflicts.is_empty()
            && self.errors.is_empty()
            && self.warnings.is_empty()
            && self.clusters.iter().all(|cluster| {
                cluster
                    .exports
                    .iter()
                    .all(|export| is_true("Ready", &export.conditions))
                    && cluster
                        .imports
                        .iter()
                        .all(|import| import.ready.as_ref().is_none_or(|r| r.status == "True"))
            })
    }

    /// The whole for people.
    pub(crate) fn table(&self) -> String {
        let clusters = self.clusters.iter().map(|cluster| cluster.table() + "\n");
        let conflicts = self.conflicts.iter().map(|conflict| {
            let ConflictView {
                namespace,
                name,
                reason,
                message,
                ..
            } = conflict;
            format!("CONFLICT {namespace}/{name} {reason}: {message}\n")
        });
        let warnings = self.warnings.iter().map(|warning| {
            let WarningView {
                cluster,
                object,
                reason,
                message,
            } = warning;
            format!("WARNING {cluster} {object} {reason}: {message}\n")
        });
        let queries = std::iter::once(question::table(&self.queries));
        clusters
            .chain(conflicts)
            .chain(warnings)
            .chain(queries)
            .collect()
    }
}

impl ClusterView {
    fn table(&self) -> String {
        let mut text = format!("CLUSTER {} ({})", self.name, self.families.join(","));
        if let Some(dns) = self.dns {
            text.extend([" DNS ", &dns.to_string()]);
        }
        text.push('\n');
        let mut exports = Table::new(["EXPORT", "VALID", "READY", "CONFLICT"]);
        for export in &self.exports {
            let show = |kind: &str, positive: &str| {
                let condition = export.conditions.iter().find(|c| c.kind == kind);
                condition.map_or_else(
                    || "-".to_owned(),
                    |c| {
                        if c.status == positive {
                            c.status.clone()
                        } else {
                            format!("{} {}", c.status, c.reason)
                        }
                    },
                )
            };
            exports.row([
                format!("{}/{}", export.namespace, export.name),
                show("Valid", "True"),
                show("Ready", "True"),
                show("Conflict", "False"),
            ]);
        }
        let head = [
            "IMPORT",
            "TYPE",
            "PORTS",
            "FAMILIES",
            "IPS",
            "CLUSTERS",
            "ENDPOINTS",
            "READY",
        ];
        let mut imports = Table::new(head);
        for import in &self.imports {
            imports.row(import.cells());
        }
        let why = self.exports.iter().filter_map(ExportView::why);
        let why: Vec<String> = why.map(|line| format!("  {line}\n")).collect();
        for table in [exports, imports] {
            if !table.is_empty() {
                text.push_str(&table.show("  "));
            }
        }
        text.extend(why);
        text
    }
}

impl ImportView {
    /// What there is to say of it, its name first.
    pub(crate) fn cells(&self) -> [String; 8] {
        /// More ports than fit on a line are counted.
        const PORTS_MAX: usize = 4;
        let mut ports: Vec<String> = self
            .ports
            .iter()
            .take(PORTS_MAX)
            .map(PortView::show)
            .collect();
        if self.ports.len() > PORTS_MAX {
            ports.push(format!("{} more", self.ports.len() - PORTS_MAX));
        }
        let endpoints = if self.ready_endpoints == self.endpoints {
            self.endpoints.to_string()
        } else {
            format!("{} ({} ready)", self.endpoints, self.ready_endpoints)
        };
        let ready = match &self.ready {
            None => "-".to_owned(),
            Some(ready) if ready.status == "True" => "True".to_owned(),
            Some(ready) => format!("{} {}: {}", ready.status, ready.reason, ready.message),
        };
        let or_dash = |text: String| {
            if text.is_empty() {
                "-".to_owned()
            } else {
                text
            }
        };
        [
            format!("{}/{}", self.namespace, self.name),
            self.kind.clone(),
            or_dash(ports.join(", ")),
            self.ip_families.join(","),
            or_dash(self.ips.join(",")),
            or_dash(self.clusters.join(",")),
            endpoints,
            ready,
        ]
    }
}

impl ExportView {
    /// Why it is not exported, if it is not: the message of the first condition that says so.
    fn why(&self) -> Option<String> {
        let is_bad = |c: &&ConditionView| c.kind != "Conflict" && c.status != "True";
        let condition = self.conditions.iter().find(is_bad)?;
        let (namespace, name) = (&self.namespace, &self.name);
        Some(format!(
            "{namespace}/{name} is not exported: {}",
            condition.message
        ))
    }
}

impl PortView {
    fn show(&self) -> String {
        let name = if self.name.is_empty() {
            String::new()
        } else {
            format!("{} ", self.name)
        };
        format!("{name}{}/{}", self.protocol, self.port)
    }
}

impl From<&Port> for PortView {
    fn from(port: &Port) -> Self {
        Self {
            name: port.name.to_string(),
            protocol: port.protocol.as_str(),
            port: port.port,
            app_protocol: port.app_protocol.as_deref().map(str::to_owned),
        }
    }
}

impl From<&Condition> for ConditionView {
    fn from(condition: &Condition) -> Self {
        Self {
            kind: condition.kind.to_string(),
            status: condition.status.to_string(),
            reason: condition.reason.to_string(),
            message: condition.message.to_string(),
        }
    }
}

impl From<&ExportObject> for ExportView {
    fn from(export: &ExportObject) -> Self {
        Self {
            namespace: export.meta.key.namespace.to_string(),
            name: export.meta.key.name.to_string(),
            conditions: export.conditions.iter().map(ConditionView::from).collect(),
        }
    }
}

/// How many endpoints the slices of an import hold.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EndpointCount {
    pub(crate) all: usize,
    pub(crate) ready: usize,
    /// A hash of all of them.
    pub(crate) print: u64,
}

impl ImportView {
    pub(crate) fn new(import: &ImportObject, endpoints: EndpointCount) -> Self {
        let spec = import.spec.as_ref();
        let ready = import
            .status
            .conditions
            .iter()
            .find(|c| c.kind.as_ref() == "Ready");
        Self {
            namespace: import.meta.key.namespace.to_string(),
            name: import.meta.key.name.to_string(),
            kind: spec.map(|spec| spec.kind.to_string()).unwrap_or_default(),
            ports: spec
                .map(|s| s.ports.iter().map(PortView::from).collect())
                .unwrap_or_default(),
            ip_families: spec
                .map(|s| s.families.iter().map(|f| f.as_str()).collect())
                .unwrap_or_default(),
            ips: spec
                .map(|s| s.ips.iter().map(ToString::to_string).collect())
                .unwrap_or_default(),
            clusters: import
                .status
                .clusters
                .iter()
                .map(ToString::to_string)
                .collect(),
            endpoints: endpoints.all,
            ready_endpoints: endpoints.ready,
            ready: ready.map(ConditionView::from),
            endpoints_print: endpoints.print,
        }
    }
}

impl ErrorView {
    /// An error that is about no file.
    pub(crate) fn of(cluster: &impl ToString, message: &str) -> Self {
        let (cluster, message) = (cluster.to_string(), message.to_owned());
        Self {
            cluster,
            file: None,
            document: None,
            line: None,
            message,
        }
    }
}

impl fmt::Display for ErrorView {
    /// One line that says where and what.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            cluster,
            file,
            document,
            line,
            message,
        } = self;
        f.write_str(cluster)?;
        if let Some(file) = file {
            write!(f, ": {file}")?;
        }
        if let Some(document) = document {
            write!(f, ", document {document}")?;
        }
        if let Some(line) = line {
            write!(f, ", line {line}")?;
        }
        write!(f, ": {message}")
    }
}

/// All conflicts of these merges.
pub(crate) fn conflicts(
    merges: &BTreeMap<ServiceKey, std::sync::Arc<Merged>>,
) -> Vec<ConflictView> {
    let mut views = Vec::new();
    for (service, merged) in merges {
        for conflict in &merged.conflicts {
            views.push(ConflictView {
                namespace: service.namespace.to_string(),
                name: service.name.to_string(),
                reason: conflict.reason.as_str(),
                field: conflict.field(),
                used: ValueView {
                    cluster: conflict.from.to_string(),
                    value: conflict.used.clone(),
                },
                others: conflict
                    .others
                    .iter()
                    .map(|(cluster, value)| ValueView {
                        cluster: cluster.to_string(),
                        value: value.clone(),
                    })
                    .collect(),
                clusters: merged.parts.keys().map(ToString::to_string).collect(),
                message: conflict.sentence(),
            });
        }
    }
    views
}
