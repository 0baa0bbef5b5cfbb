//! What this cluster alone refuses of what its peers state: endpoints at addresses that mean
//! something else here (BEHAVIOUR §7). Exports count all the same, so that every cluster finds
//! the same merge.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use crate::engine::imports::is_managed;
use crate::engine::{Engine, Note, Participation, Step};
use crate::fleet::{ClusterService, Refusals, Refused, Rule};
use crate::guard::Guard;
use crate::names::{ClusterName, ServiceKey};
use crate::object::{Kind, Object, ObjectRef};
use crate::status::refusal_note;

/// The reason of an Event about it.
const REASON: &str = "EndpointsRefused";

/// What is refused at present, and what was.
#[derive(Debug, Default)]
pub(super) struct Refusing {
    present: HashMap<ServiceKey, Found>,
    all: Refusals,
}

/// What is refused of one service, by cluster and rule.
type Found = BTreeMap<(ClusterName, Rule), Finding>;

#[derive(Debug, PartialEq, Eq)]
struct Finding {
    /// A sentence without full stop.
    message: String,
    /// Whether the users of the import were told.
    is_told: bool,
}

impl Refusing {
    /// Whether any endpoint of a service is refused.
    pub(super) fn any_of(&self, service: &ServiceKey) -> bool {
        self.present.contains_key(service)
    }

    /// What users of an import should know: it changes with the clusters and rules alone, not
    /// with each endpoint. Empty where nothing is refused.
    pub(super) fn note(&self, service: &ServiceKey) -> String {
        let Some(found) = self.present.get(service) else {
            return String::new();
        };
        refusal_note(
            found.keys().map(|(cluster, rule)| {
                format!("endpoints of cluster {cluster} {}", meaning(*rule))
            }),
        )
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
        // Those are found before an engine is told.
        Rule::Unreadable | Rule::Export | Rule::Address | Rule::Namespace | Rule::Network => "",
    }
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

    /// Finds what is refused of a service that takes part here.
    pub(super) fn judge_peers(&mut self, service: &ServiceKey, participation: &Participation) {
        let mut counts: BTreeMap<(&ClusterName, Rule), (usize, IpAddr)> = BTreeMap::new();
        if *participation == Participation::Global {
            let guard = self.guard();
            for (cluster, state) in self.peers_of(service) {
                for endpoint in &*state.endpoints {
                    if let Some(rule) = guard.refuses(endpoint.address) {
                        let first = (0, endpoint.address);
                        counts.entry((cluster, rule)).or_insert(first).0 += 1;
                    }
                }
            }
        }
        if counts.is_empty() && !self.refusing.any_of(service) {
            return;
        }
        let messages: BTreeMap<(ClusterName, Rule), String> = counts
            .into_iter()
            .map(|((cluster, rule), (count, first))| {
                let message = format!(
                    "{count} endpoints of {service} in cluster {cluster}, {first} the first, are \
                     {}",
                    meaning(rule)
                );
                ((cluster.clone(), rule), message)
            })
            .collect();
        let mut old = self.refusing.present.remove(service).unwrap_or_default();
        let mut found = Found::new();
        for (place, message) in messages {
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
        let news: Vec<String> = found
            .values_mut()
            .filter(|finding| !finding.is_told)
            .map(|finding| {
                finding.is_told = true;
                finding.message.clone()
            })
            .collect();
        let about = Object::ServiceImport(import);
        for message in news {
            let message = format!("refused: {message}");
            self.tell(step, &about, true, REASON, message.into());
        }
    }

    /// What is refused at present.
    pub(super) fn of_refusals(&self) -> impl Iterator<Item = Note> {
        self.refusing.present.iter().flat_map(|(service, found)| {
            found.values().map(move |finding| Note {
                object: ObjectRef {
                    kind: Kind::ServiceImport,
                    key: service.clone(),
                },
                reason: REASON,
                message: format!("refused: {}", finding.message),
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
