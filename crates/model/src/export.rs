//! The export side: from a cluster's own objects to what it states about a service
//! (BEHAVIOUR §1).

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use jiff::Timestamp;
use mcs_api::condition::ValidReason;

use crate::check::{address_problem, export_problem, is_steering};
use crate::endpoint::{
    Conditions, Endpoint, Entries, Entry, EntryPort, EntryProtocol, add_entry, join,
};
use crate::fleet::ClusterService;
use crate::names::{ServiceKey, check_service_name};
use crate::object::{
    AddressType, ExportObject, ServiceKind, ServiceObject, SliceObject, TargetRef,
};
use crate::record::{ExportRecord, Joined, Labels, Member};
use crate::service::{ImportType, Protocol};

#[cfg(test)]
mod tests;

/// The objects that an export is judged by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExportInput<'a> {
    /// The ServiceExport, whose name is the service's.
    pub(crate) export: &'a ExportObject,
    /// Why the namespace takes no part, if so.
    pub(crate) namespace_problem: Option<&'a str>,
    /// The Service of that name.
    pub(crate) service: Option<&'a ServiceObject>,
    /// Whether that Service is a derived one.
    pub(crate) is_derived: bool,
    /// The EndpointSlices that count, in order of their names.
    pub(crate) slices: &'a BTreeMap<crate::names::ObjectName, Arc<SliceObject>>,
    /// The networks of this cluster's Services.
    pub(crate) service_cidrs: &'a [IpNet],
    /// What the operator recorded for this cluster.
    pub(crate) member: Option<&'a Member>,
    pub(crate) joined: Option<Joined>,
}

impl ExportInput<'_> {
    /// Why an address is not published, if so: every cluster would refuse it, or no other one can
    /// reach it.
    fn address_problem(&self, address: IpAddr) -> Option<&'static str> {
        let is_service = || {
            self.service_cidrs
                .iter()
                .any(|cidr| cidr.contains(&address))
        };
        let is_outside = || self.member.is_some_and(|member| !member.may_use(address));
        address_problem(address)
            .or_else(|| is_service().then_some("a Service's of this cluster, not an endpoint's"))
            .or_else(|| {
                is_outside().then_some(
                    "outside of the networks that the operator recorded for this cluster",
                )
            })
    }
}

/// What comes of a ServiceExport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LocalExport {
    pub(crate) verdict: Verdict,
    /// What was left out, as sentences for the user: (reason, message).
    pub(crate) notes: Vec<(&'static str, String)>,
}

/// Whether the service is exported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It cannot be.
    Invalid {
        reason: ValidReason,
        message: String,
    },
    /// It could be, but every consumer would refuse it.
    Refused { message: String },
    /// It is.
    Exported(Arc<OwnService>),
}

/// A service as this cluster states it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnService {
    /// What its peers see as well.
    pub(crate) stated: Arc<ClusterService>,
    /// The endpoints as they are published.
    pub(crate) entries: Entries,
    /// What only this cluster knows of an endpoint, in the order of `stated.endpoints`.
    pub(crate) details: Vec<Detail>,
}

/// What a peer does not see of an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Detail {
    pub(crate) node: Option<Arc<str>>,
    pub(crate) target: Option<Arc<TargetRef>>,
}

/// Judges a ServiceExport and reads what it exports.
pub(crate) fn evaluate(input: ExportInput<'_>) -> LocalExport {
    let key = &input.export.meta.key;
    let mut notes = Vec::new();
    let verdict = match invalid(input) {
        Some((reason, message)) => Verdict::Invalid { reason, message },
        None => match input.service {
            Some(service) => exported(key, input, service, &mut notes),
            None => unreachable!("a valid export has a Service"),
        },
    };
    LocalExport { verdict, notes }
}

/// The first check that fails.
fn invalid(input: ExportInput<'_>) -> Option<(ValidReason, String)> {
    let key = &input.export.meta.key;
    if let Some(problem) = input.namespace_problem {
        return Some((ValidReason::NamespaceNotGlobal, problem.to_owned()));
    }
    let Some(service) = input.service.filter(|service| !service.meta.terminating) else {
        let message = match (check_service_name(key.name.as_str()), input.service) {
            (Err(error), None) => format!(
                "there can be no Service {key}: {error}; give the ServiceExport the name of the \
                 Service to export"
            ),
            (_, Some(_)) => format!("Service {key} is being deleted"),
            (Ok(()), None) => {
                format!("there is no Service {key} in this cluster; create it to export it")
            }
        };
        return Some((ValidReason::NoService, message));
    };
    if service.kind == ServiceKind::ExternalName {
        let message = format!("Service {key} is of type ExternalName, which cannot be exported");
        return Some((ValidReason::InvalidServiceType, message));
    }
    if input.is_derived {
        let message =
            format!("Service {key} was derived from a ServiceImport and cannot be exported again");
        return Some((ValidReason::InvalidServiceType, message));
    }
    None
}

fn exported(
    key: &ServiceKey,
    input: ExportInput<'_>,
    service: &ServiceObject,
    notes: &mut Vec<(&'static str, String)>,
) -> Verdict {
    let record = ExportRecord {
        created: input.export.meta.created.unwrap_or(Timestamp::MAX),
        uid: Arc::clone(&input.export.meta.uid),
        kind: if service.headless {
            ImportType::Headless
        } else {
            ImportType::ClusterSetIp
        },
        ports: service.ports.clone(),
        families: service.families.clone(),
        affinity: service.affinity,
        internal_traffic_policy: service.internal_traffic_policy,
        traffic_distribution: service.traffic_distribution.clone(),
        labels: without_steering("label", &input.export.labels, notes),
        annotations: without_steering("annotation", &input.export.annotations, notes),
    };
    let is_allowed = |member: &Member| member.may_export(&key.namespace);
    let problem = export_problem(key, &record).or_else(|| {
        let is_refused = input.member.is_some_and(|member| !is_allowed(member));
        is_refused.then(|| {
            format!(
                "the operator has not recorded namespace {} for this cluster",
                key.namespace
            )
        })
    });
    if let Some(problem) = problem {
        let message = format!("not published, as every cluster would refuse it: {problem}");
        return Verdict::Refused { message };
    }
    let raw = raw_endpoints(input, service, notes);
    let entries = entries(&raw);
    let endpoints = join(&entries);
    let details = details(&raw, &endpoints);
    let stated = Arc::new(ClusterService {
        export: Arc::new(record),
        endpoints: endpoints.into(),
        joined: input.joined,
    });
    Verdict::Exported(Arc::new(OwnService {
        stated,
        entries,
        details,
    }))
}

/// The labels that travel, with a note about each that does not.
fn without_steering(
    what: &str,
    labels: &Labels,
    notes: &mut Vec<(&'static str, String)>,
) -> Labels {
    let (dropped, kept): (Labels, Labels) = labels
        .iter()
        .map(|(k, v)| (Arc::clone(k), Arc::clone(v)))
        .partition(|(k, _)| is_steering(k));
    for key in dropped.keys() {
        let message = format!(
            "exported {what} {key} is left out: keys of its prefix could steer a controller"
        );
        notes.push(("ExportedKeyDropped", message));
    }
    kept
}

/// An endpoint as it stands in one slice.
struct RawEndpoint<'a> {
    address: IpAddr,
    /// Sorted by protocol and name.
    ports: Vec<(Protocol, EntryPort)>,
    hostname: Option<&'a Arc<str>>,
    zone: Option<&'a Arc<str>>,
    conditions: Conditions,
    node: Option<&'a Arc<str>>,
    target: Option<&'a Arc<TargetRef>>,
}

/// What the slices say, in the order of their names, without what nobody could use.
fn raw_endpoints<'a>(
    input: ExportInput<'a>,
    service: &ServiceObject,
    notes: &mut Vec<(&'static str, String)>,
) -> Vec<RawEndpoint<'a>> {
    let mut raw = Vec::new();
    for (name, slice) in input.slices {
        if slice.address_type == AddressType::Fqdn {
            let message = format!("EndpointSlice {name} holds host names: it is skipped");
            notes.push(("EndpointSliceSkipped", message));
        }
        let mut ports: Vec<(Protocol, EntryPort)> = slice
            .ports
            .iter()
            .filter(|p| {
                service
                    .ports
                    .iter()
                    .any(|s| s.name == p.name && s.protocol == p.protocol)
            })
            .map(|p| {
                (
                    p.protocol,
                    EntryPort {
                        name: Arc::clone(&p.name),
                        port: p.port,
                    },
                )
            })
            .collect();
        ports.sort();
        ports.dedup_by(|a, b| a.0 == b.0 && a.1.name == b.1.name);
        // Without a port of the Service, no traffic can be meant for these endpoints.
        if ports.is_empty() && !service.ports.is_empty() {
            continue;
        }
        for endpoint in &*slice.endpoints {
            if let Some(problem) = input.address_problem(endpoint.address) {
                let message = format!(
                    "endpoint {} of EndpointSlice {name} is left out: the address is {problem}",
                    endpoint.address
                );
                notes.push(("EndpointSkipped", message));
                continue;
            }
            raw.push(RawEndpoint {
                address: endpoint.address,
                ports: ports.clone(),
                hostname: endpoint.hostname.as_ref(),
                zone: endpoint.zone.as_ref(),
                conditions: endpoint.conditions,
                node: endpoint.node.as_ref(),
                target: endpoint.target.as_ref(),
            });
        }
    }
    raw
}

/// The endpoints as the registry holds them: by address and protocol.
fn entries(raw: &[RawEndpoint<'_>]) -> Entries {
    let mut all: BTreeMap<(IpAddr, EntryProtocol), Vec<Entry>> = BTreeMap::new();
    for endpoint in raw {
        let mut add = |protocol, ports: Vec<EntryPort>| {
            let entry = Entry {
                ports: ports.into(),
                hostname: endpoint.hostname.cloned(),
                zone: endpoint.zone.cloned(),
                conditions: endpoint.conditions,
            };
            add_entry(all.entry((endpoint.address, protocol)).or_default(), entry);
        };
        if endpoint.ports.is_empty() {
            add(EntryProtocol::None, Vec::new());
        }
        for chunk in endpoint.ports.chunk_by(|a, b| a.0 == b.0) {
            let ports = chunk.iter().map(|(_, port)| port.clone()).collect();
            add(EntryProtocol::Some(chunk[0].0), ports);
        }
    }
    all.into_iter()
        .map(|(at, mut list)| {
            list.sort();
            (at, list.into())
        })
        .collect()
}

/// For each endpoint, node and target of the first raw one that it stands for.
fn details(raw: &[RawEndpoint<'_>], endpoints: &[Endpoint]) -> Vec<Detail> {
    let mut by_address: HashMap<IpAddr, Vec<&RawEndpoint<'_>>> = HashMap::new();
    for endpoint in raw {
        by_address
            .entry(endpoint.address)
            .or_default()
            .push(endpoint);
    }
    endpoints
        .iter()
        .map(|endpoint| {
            let stands_for = |r: &&&RawEndpoint<'_>| {
                r.hostname == endpoint.hostname.as_ref()
                    && (endpoint.ports.is_empty()
                        || endpoint.ports.iter().any(|p| {
                            r.ports.iter().any(|(protocol, port)| {
                                *protocol == p.protocol
                                    && port.name == p.name
                                    && port.port == p.port
                            })
                        }))
            };
            let found = by_address
                .get(&endpoint.address)
                .and_then(|r| r.iter().find(stands_for));
            found.map_or_else(Detail::default, |r| Detail {
                node: r.node.cloned(),
                target: r.target.cloned(),
            })
        })
        .collect()
}
