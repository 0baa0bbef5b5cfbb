//! What stands at a key, as a document for scripts and people. Names and kinds are an API: they are
//! in docs/reference/registry.md, and a test has all of them.

use ipnet::IpNet;
use serde::Serialize;
use serde_json::{Value, json};
use tombolo_model::endpoint::Entry;
use tombolo_model::names::{Namespace, ServiceKey};
use tombolo_model::record::{
    ExportRecord, Member, Origin, Record, RecordKey, Report, Session, Settings,
};
use tombolo_model::service::Affinity;
use tombolo_registry::event::{Event, Rejection, State};
use tombolo_registry::key::{Layout, Place};

/// A key and what stands there.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Document {
    /// Below the root.
    pub(super) key: String,
    pub(super) revision: u64,
    pub(super) kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    region: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cluster: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) namespace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    service: Option<String>,
    /// Of what is not one of a kind at its service: the address and protocol of endpoints, the
    /// kind of a configuration.
    #[serde(flatten)]
    place: Option<Value>,
    /// `present`, `gone` or `rejected`.
    pub(super) state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) value: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rejected: Option<Value>,
}

impl Document {
    /// What an event says of a key; `None` where it is about none.
    pub(super) fn of(layout: &Layout, event: &Event) -> Option<Self> {
        let document = match event {
            Event::Record {
                origin,
                key,
                state,
                revision,
            } => {
                let place = Place::Record {
                    origin: origin.clone(),
                    key: key.clone(),
                };
                let value = |record: &Record| of_record(record);
                Self::at(layout, &place, *revision)?
                    .from(origin)
                    .about(key)
                    .with(state, value)
            }
            Event::Member {
                origin,
                state,
                revision,
            } => {
                let place = Place::Member(origin.clone());
                let mut document = Self::at(layout, &place, *revision)?.from(origin);
                document.kind = "Member";
                document.with(state, of_member)
            }
            Event::Settings {
                region,
                state,
                revision,
            } => {
                let place = Place::Settings(region.clone());
                let mut document = Self::at(layout, &place, *revision)?;
                document.kind = "Settings";
                document.region = Some(region.to_string());
                document.with(state, |settings| of_settings(*settings))
            }
            Event::Stray {
                key,
                rejection,
                revision,
            } => Self {
                key: key.to_string(),
                revision: *revision,
                kind: "Stray",
                state: if rejection.is_some() {
                    "rejected"
                } else {
                    "gone"
                },
                rejected: rejection.as_ref().map(of_rejection),
                ..Self::default()
            },
            Event::ListBegan(_) | Event::ListEnded { .. } | Event::Heard(_) | Event::Believed => {
                return None;
            }
        };
        Some(document)
    }

    fn at(layout: &Layout, place: &Place, revision: u64) -> Option<Self> {
        let key = layout.key(place).ok()?;
        let key = key.strip_prefix(&layout.root_prefix())?.to_owned();
        Some(Self {
            key,
            revision,
            ..Self::default()
        })
    }

    fn from(mut self, origin: &Origin) -> Self {
        self.region = Some(origin.region.to_string());
        self.cluster = Some(origin.cluster.to_string());
        self
    }

    fn about(mut self, key: &RecordKey) -> Self {
        self.kind = match key {
            RecordKey::Owner => "Owner",
            RecordKey::Session => "Session",
            RecordKey::Synced => "Synced",
            RecordKey::Left => "Left",
            RecordKey::Report => "Report",
            RecordKey::Export(_) => "Export",
            RecordKey::Endpoint { .. } => "Endpoints",
            RecordKey::Config { .. } => "Config",
        };
        let service = match key {
            RecordKey::Export(service) => service,
            RecordKey::Endpoint {
                service,
                protocol,
                address,
            } => {
                self.place = Some(json!({"protocol": protocol.as_str(), "address": address}));
                service
            }
            RecordKey::Config { service, kind } => {
                self.place = Some(json!({"config": kind}));
                service
            }
            RecordKey::Owner
            | RecordKey::Session
            | RecordKey::Synced
            | RecordKey::Left
            | RecordKey::Report => return self,
        };
        self.namespace = Some(service.namespace.to_string());
        self.service = Some(service.name.to_string());
        self
    }

    fn with<T>(mut self, state: &State<T>, value: impl Fn(&T) -> Value) -> Self {
        match state {
            State::Present(present) => {
                self.state = "present";
                self.value = Some(value(present));
            }
            State::Gone => self.state = "gone",
            State::Rejected(rejection) => {
                self.state = "rejected";
                self.rejected = Some(of_rejection(rejection));
            }
        }
        self
    }

    /// What stands there, on one line.
    pub(super) fn line(&self) -> String {
        match (&self.value, &self.rejected) {
            (Some(value), _) => value.to_string(),
            (None, Some(rejected)) => rejected["message"].as_str().unwrap_or_default().to_owned(),
            (None, None) => String::new(),
        }
    }
}

fn of_rejection(rejection: &Rejection) -> Value {
    json!({"reason": rejection.kind, "message": rejection.reason})
}

fn of_record(record: &Record) -> Value {
    match record {
        Record::Owner(owner) | Record::Left(owner) => json!({"uid": owner.uid}),
        Record::Session(session) => of_session(session),
        Record::Synced(epoch) => json!({"epoch": epoch}),
        Record::Report(report) => of_report(report),
        Record::Export(export) => of_export(export),
        Record::Endpoint(entries) => {
            json!({"endpoints": entries.iter().map(of_entry).collect::<Vec<_>>()})
        }
        // Another tool's, never interpreted.
        Record::Config(bytes) => json!({"bytes": bytes.len()}),
    }
}

fn of_session(session: &Session) -> Value {
    let Session {
        holder,
        epoch,
        started,
        software,
        schema,
        families,
        service_cidrs,
        blind_since,
    } = session;
    json!({
        "holder": holder,
        "epoch": epoch,
        "started": started,
        "software": software,
        "schema": schema,
        "ipFamilies": families.iter().map(|f| f.as_str()).collect::<Vec<_>>(),
        "serviceCIDRs": texts(service_cidrs),
        "blindSince": blind_since,
    })
}

fn texts(cidrs: &[IpNet]) -> Vec<String> {
    cidrs.iter().map(ToString::to_string).collect()
}

fn of_report(report: &Report) -> Value {
    let Report {
        applied_revision,
        not_in_order,
        missing,
    } = report;
    let not_in_order = not_in_order.iter().map(|one| {
        let ServiceKey { namespace, name } = &one.service;
        json!({
            "namespace": namespace.as_str(),
            "name": name.as_str(),
            "reason": one.reason,
            "since": one.since,
        })
    });
    let missing = missing.iter();
    let missing =
        missing.map(|one| json!({"cluster": one.cluster.as_str(), "heldSeconds": one.held_secs}));
    json!({
        "appliedRevision": applied_revision,
        "notInOrder": not_in_order.collect::<Vec<_>>(),
        "missing": missing.collect::<Vec<_>>(),
    })
}

fn of_export(export: &ExportRecord) -> Value {
    let ExportRecord {
        created,
        uid,
        kind,
        ports,
        families,
        affinity,
        internal_traffic_policy,
        traffic_distribution,
        labels,
        annotations,
    } = export;
    let ports = ports.iter().map(|port| {
        json!({
            "name": port.name,
            "protocol": port.protocol.as_str(),
            "port": port.port,
            "appProtocol": port.app_protocol,
        })
    });
    let timeout = match affinity {
        Affinity::None => None,
        Affinity::ClientIp { timeout_secs } => Some(timeout_secs),
    };
    json!({
        "created": created,
        "uid": uid,
        "type": kind.as_str(),
        "ports": ports.collect::<Vec<_>>(),
        "ipFamilies": families.iter().map(|f| f.as_str()).collect::<Vec<_>>(),
        "sessionAffinity": affinity.as_str(),
        "affinityTimeoutSeconds": timeout,
        "internalTrafficPolicy": internal_traffic_policy.as_str(),
        "trafficDistribution": traffic_distribution,
        "labels": labels,
        "annotations": annotations,
    })
}

fn of_entry(entry: &Entry) -> Value {
    let Entry {
        ports,
        hostname,
        zone,
        conditions,
    } = entry;
    let ports = ports.iter();
    let ports = ports.map(|port| json!({"name": port.name, "port": port.port}));
    json!({
        "ports": ports.collect::<Vec<_>>(),
        "hostname": hostname,
        "zone": zone,
        "ready": conditions.ready,
        "serving": conditions.serving,
        "terminating": conditions.terminating,
    })
}

fn of_member(member: &Member) -> Value {
    let Member {
        joined,
        cidrs,
        namespaces,
        drained,
    } = member;
    json!({
        "joined": joined,
        "cidrs": texts(cidrs),
        "namespaces": namespaces.iter().map(Namespace::as_str).collect::<Vec<_>>(),
        "drained": drained,
    })
}

fn of_settings(settings: Settings) -> Value {
    let Settings {
        precedence_from_join,
    } = settings;
    json!({"precedenceFromJoin": precedence_from_join})
}

#[cfg(test)]
mod tests;
