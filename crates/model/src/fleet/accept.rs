//! What a reader refuses of what others wrote (BEHAVIOUR §7). The exporter applies the first two
//! rules before it publishes; the limits are the operator's (`registry grant`).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{ClusterService, Fleet};
use crate::check::{address_problem, export_problem};
use crate::endpoint::Endpoint;
use crate::names::{ClusterName, ServiceKey};
use crate::record::{Member, Origin, Record, RecordKey};

/// The latest refusals that are kept until somebody takes them.
const REFUSED_MAX: usize = 256;

/// By which rule something is refused: a word for counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rule {
    /// A value that cannot be read.
    Unreadable,
    /// An export that no Service could be.
    Export,
    /// An address that no endpoint can have.
    Address,
    /// A namespace that is not among those that the operator recorded for the cluster.
    Namespace,
    /// An address outside of the networks that the operator recorded for the cluster.
    Network,
    /// An address in the service networks of the cluster that reads.
    ServiceCidr,
    /// An address in the pod networks of the cluster that reads (`--pod-cidr`).
    PodCidr,
    /// The address of a Pod of the cluster that reads: the networks overlap.
    LocalPod,
    /// Not refused, but doubtful: an export that is said to be older than its cluster's membership.
    CreatedBeforeJoin,
    /// Not refused, but doubtful: an export that is said to be made later than now.
    CreatedInFuture,
}

impl Rule {
    /// A word for metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unreadable => "unreadable",
            Self::Export => "export",
            Self::Address => "address",
            Self::Namespace => "namespace",
            Self::Network => "network",
            Self::ServiceCidr => "service-cidr",
            Self::PodCidr => "pod-cidr",
            Self::LocalPod => "local-pod",
            Self::CreatedBeforeJoin => "created-before-join",
            Self::CreatedInFuture => "created-in-future",
        }
    }

    /// Whether what it finds is used all the same.
    pub const fn is_doubt(self) -> bool {
        matches!(self, Self::CreatedBeforeJoin | Self::CreatedInFuture)
    }
}

/// Something that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Whose it is.
    pub cluster: ClusterName,
    /// By which rule.
    pub rule: Rule,
    /// A sentence without full stop, which names the service.
    pub message: String,
}

/// What was refused: all counted, the latest told.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    counts: BTreeMap<(ClusterName, Rule), u64>,
    latest: Vec<Refused>,
}

impl Refusals {
    pub(crate) fn add(&mut self, cluster: &ClusterName, rule: Rule, message: String) {
        *self.counts.entry((cluster.clone(), rule)).or_default() += 1;
        if self.latest.len() < REFUSED_MAX {
            let cluster = cluster.clone();
            self.latest.push(Refused {
                cluster,
                rule,
                message,
            });
        }
    }
}

/// Why a record is refused whatever the operator says, if it is.
fn problem(key: &RecordKey, record: Option<&Record>) -> Option<(Rule, String)> {
    match (key, record?) {
        (RecordKey::Export(service), Record::Export(export)) => {
            let problem = export_problem(service, export)?;
            Some((Rule::Export, format!("export {service}: {problem}")))
        }
        (
            RecordKey::Endpoint {
                service, address, ..
            },
            _,
        ) => {
            let problem = address_problem(*address)?;
            let message = format!("endpoint {address} of {service}: the address is {problem}");
            Some((Rule::Address, message))
        }
        _ => None,
    }
}

impl Fleet {
    /// Takes a record in that may have to be refused.
    pub(super) fn accept(&mut self, origin: &Origin, key: RecordKey, record: Option<Record>) {
        let Some((rule, message)) = problem(&key, record.as_ref()) else {
            return self.record(origin, key, record);
        };
        self.refusals.add(&origin.cluster, rule, message);
        if rule == Rule::Address {
            // As if it were not there: nothing else can stand at this address.
            self.record(origin, key, None);
        } else {
            self.keep_last(origin, &key);
        }
    }

    /// How often which rule refused something of which cluster.
    pub const fn refused_total(&self) -> &BTreeMap<(ClusterName, Rule), u64> {
        self.refusals.counts()
    }

    /// What was refused since the last call; of very many only the first.
    pub fn take_refused(&mut self) -> Vec<Refused> {
        self.refusals.take()
    }
}

impl Refusals {
    pub(crate) const fn counts(&self) -> &BTreeMap<(ClusterName, Rule), u64> {
        &self.counts
    }

    pub(crate) fn take(&mut self) -> Vec<Refused> {
        std::mem::take(&mut self.latest)
    }

    /// What of a cluster's service is within the limits that the operator recorded for it.
    pub(super) fn within_limits(
        &mut self,
        limits: Option<&Member>,
        (cluster, service): (&ClusterName, &ServiceKey),
        state: ClusterService,
    ) -> Option<ClusterService> {
        let Some(limits) = limits else {
            return Some(state);
        };
        if !limits.may_export(&service.namespace) {
            let message = format!(
                "export {service}: the operator has not recorded this namespace for the cluster"
            );
            self.add(cluster, Rule::Namespace, message);
            return None;
        }
        let outside = |endpoint: &&Endpoint| !limits.may_use(endpoint.address);
        if !state.endpoints.iter().any(|e| outside(&e)) {
            return Some(state);
        }
        let count = state.endpoints.iter().filter(outside).count();
        let first = state.endpoints.iter().find(outside).map(|e| e.address);
        let message = format!(
            "{count} endpoints of {service}, {} the first, are outside of the networks that the \
             operator recorded for the cluster",
            first.map(|address| address.to_string()).unwrap_or_default()
        );
        self.add(cluster, Rule::Network, message);
        let within = state.endpoints.iter().filter(|e| !outside(e));
        Some(ClusterService {
            export: Arc::clone(&state.export),
            endpoints: within.cloned().collect(),
            joined: state.joined,
        })
    }
}
