//! What this cluster alone refuses of what its peers state: endpoints at addresses that mean
//! something else here (BEHAVIOUR §7). Exports count all the same, so that every cluster finds
//! the same merge. And what is doubtful about the time of an export, by which the merge goes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::engine::imports::is_managed;
use crate::engine::{Engine, Note, Participation, Step};
use crate::fleet::{ClusterService, Refusals, Refused, Rule};
use crate::guard::Guard;
use crate::names::{ClusterName, ServiceKey};
use crate::object::{Kind, Object, ObjectRef};
use crate::status::refusal_note;

/// What clocks may differ by before a time counts as one in the future.
const CLOCKS_DIFFER: SignedDuration = SignedDuration::from_mins(1);

/// What is refused or doubtful at present, and what was.
#[derive(Debug, Default)]
pub(super) struct Refusing {
    present: HashMap<ServiceKey, Found>,
    all: Refusals,
}

/// What is found of one service, by cluster and rule.
type Found = BTreeMap<(ClusterName, Rule), Finding>;

#[derive(Debug, PartialEq, Eq)]
struct Finding {
    /// A sentence without full stop.
    message: String,
    /// Whether the users of the import were told.
    is_told: bool,
}

impl Finding {
    fn text(&self, rule: Rule) -> String {
        if rule.is_doubt() {
            self.message.clone()
        } else {
            format!("refused: {}", self.message)
        }
    }
}

impl Refusing {
    /// Whether any endpoint of a service is refused.
    pub(super) fn any_of(&self, service: &ServiceKey) -> bool {
        let found = self.present.get(service);
        found.is_some_and(|found| found.keys().any(|(_, rule)| !rule.is_doubt()))
    }

    /// What users of an import should know: it changes with the clusters and rules alone, not
    /// with each endpoint. Empty where nothing is refused.
    pub(super) fn note(&self, service: &ServiceKey) -> String {
        let Some(found) = self.present.get(service) else {
            return String::new();
        };
        let refused = found.keys().filter(|(_, rule)| !rule.is_doubt());
        let refused: Vec<String> = refused
            .map(|(cluster, rule)| format!("endpoints of cluster {cluster} {}", meaning(*rule)))
            .collect();
        refusal_note(&refused)
    }

    pub(super) fn forget(&mut self, service: &ServiceKey) {
        self.present.remove(service);
    }
}

/// What is wrong with addresses.
const fn meaning(rule: Rule) -> &'static str {
    match rule {
        Rule::ServiceCidr => "in this cluster's service networks",
        Rule::PodCidr => "in this cluster's own pod networks (--pod-cidr)",
        Rule::LocalPod => "at addresses of Pods of this cluster: the networks overlap",
        // Found before an engine is told, or about no address.
        Rule::Unreadable
        | Rule::Export
        | Rule::Address
        | Rule::Namespace
        | Rule::Network
        | Rule::CreatedBeforeJoin
        | Rule::CreatedInFuture => "",
    }
}

/// The reason of an Event.
const fn reason(rule: Rule) -> &'static str {
    if rule.is_doubt() {
        "CreationTimeDoubtful"
    } else {
        "EndpointsRefused"
    }
}

/// What is doubtful about the time of an export.
fn doubts(
    now: Timestamp,
    service: &ServiceKey,
    cluster: &ClusterName,
    state: &ClusterService,
) -> Vec<(Rule, String)> {
    let created = state.export.created;
    let said = format!("the export of {service} in cluster {cluster} was created at {created}");
    let mut doubts = Vec::new();
    if let Some(joined) = state.joined.filter(|joined| created < joined.at) {
        let counts = if joined.counts {
            "it counts from then on"
        } else {
            "the earlier time decides conflicts"
        };
        let text = format!(
            "{said}, before the cluster joined at {}: {counts}",
            joined.at
        );
        doubts.push((Rule::CreatedBeforeJoin, text));
    }
    if created.duration_since(now) > CLOCKS_DIFFER {
        doubts.push((
            Rule::CreatedInFuture,
            format!("{said}, which is in the future"),
        ));
    }
    doubts
}

impl Engine {
    /// What the addresses of peers are held against.
    pub(super) const fn guard(&self) -> Guard<'_> {
        Guard {
            config: &self.config,
            service_cidrs: self.service_cidrs.as_slice(),
            pods: &self.world.pods,
        }
    }

    /// The services of which a peer claims one of these addresses.
    pub(super) fn claimed(&self, addresses: &BTreeSet<IpAddr>) -> Vec<ServiceKey> {
        let claims = |service: &ServiceKey, address: IpAddr| {
            self.peers_of(service).any(|(_, state)| {
                let found = state
                    .endpoints
                    .binary_search_by_key(&address, |e| e.address);
                found.is_ok()
            })
        };
        let mut services = Vec::new();
        for address in addresses {
            let found = self.claims.at(*address).into_iter();
            services.extend(found.filter(|service| claims(service, *address)));
        }
        services
    }

    /// What the other clusters state of a service.
    fn peers_of(
        &self,
        service: &ServiceKey,
    ) -> impl Iterator<Item = (&ClusterName, &Arc<ClusterService>)> {
        let fleet = self.fleet.get(service).into_iter();
        let clusters = fleet.flat_map(|fleet| fleet.clusters());
        clusters.filter(|(cluster, _)| **cluster != self.config.cluster)
    }

    /// What is refused or doubtful about a service that takes part here.
    fn findings(&self, now: Timestamp, service: &ServiceKey) -> Vec<((ClusterName, Rule), String)> {
        let mut counts: BTreeMap<(&ClusterName, Rule), (usize, IpAddr)> = BTreeMap::new();
        let guard = self.guard();
        for (cluster, state) in self.peers_of(service) {
            for endpoint in &*state.endpoints {
                if let Some(rule) = guard.refuses(endpoint.address) {
                    let first = (0, endpoint.address);
                    counts.entry((cluster, rule)).or_insert(first).0 += 1;
                }
            }
        }
        let refused = counts.into_iter().map(|((cluster, rule), (count, first))| {
            let message = format!(
                "{count} endpoints of {service} in cluster {cluster}, {first} the first, are {}",
                meaning(rule)
            );
            ((cluster.clone(), rule), message)
        });
        let mut findings: Vec<_> = refused.collect();
        let time = self.time_of_day(now);
        for (cluster, state) in self.stated(service) {
            let doubts = doubts(time, service, cluster, state).into_iter();
            findings.extend(doubts.map(|(rule, text)| ((cluster.clone(), rule), text)));
        }
        findings
    }

    /// Finds what is refused or doubtful about a service, and counts what is new.
    pub(super) fn judge_peers(
        &mut self,
        now: Timestamp,
        service: &ServiceKey,
        participation: &Participation,
    ) {
        let findings = match participation {
            Participation::Global => self.findings(now, service),
            Participation::Absent | Participation::Terminating | Participation::NotGlobal(_) => {
                Vec::new()
            }
        };
        let mut old = self.refusing.present.remove(service).unwrap_or_default();
        let mut found = Found::new();
        for (place, message) in findings {
            let known = old.remove(&place);
            if known.as_ref().is_none_or(|known| known.message != message) {
                let (cluster, rule) = &place;
                self.refusing.all.add(cluster, *rule, message.clone());
            }
            let is_told = known.is_some_and(|known| known.is_told);
            found.insert(place, Finding { message, is_told });
        }
        if !found.is_empty() {
            self.refusing.present.insert(service.clone(), found);
        }
    }

    /// An Event for each cluster and rule, once, as soon as there is an import to tell of.
    pub(super) fn tell_refusals(&mut self, step: &mut Step<'_>) {
        let import = self.world.imports.get(step.service);
        let Some(import) = import.filter(|import| is_managed(import)).map(Arc::clone) else {
            return;
        };
        let Some(found) = self.refusing.present.get_mut(step.service) else {
            return;
        };
        let news: Vec<(Rule, String)> = found
            .iter_mut()
            .filter(|(_, finding)| !finding.is_told)
            .map(|((_, rule), finding)| {
                finding.is_told = true;
                (*rule, finding.text(*rule))
            })
            .collect();
        let about = Object::ServiceImport(import);
        for (rule, message) in news {
            self.tell(step, &about, true, reason(rule), message.into());
        }
    }

    /// What is refused or doubtful at present.
    pub(super) fn of_refusals(&self) -> impl Iterator<Item = Note> {
        self.refusing.present.iter().flat_map(|(service, found)| {
            found.iter().map(move |((_, rule), finding)| Note {
                object: ObjectRef {
                    kind: Kind::ServiceImport,
                    key: service.clone(),
                },
                reason: reason(*rule),
                message: finding.text(*rule),
            })
        })
    }

    /// How often this cluster refused something of which cluster, by which rule.
    pub const fn refused_total(&self) -> &BTreeMap<(ClusterName, Rule), u64> {
        self.refusing.all.counts()
    }

    /// What was refused since the last call; of very many only the first.
    pub fn take_refused(&mut self) -> Vec<Refused> {
        self.refusing.all.take()
    }
}
