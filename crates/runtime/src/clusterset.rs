//! A whole clusterset in one process: directories as clusters, the memory registry between them,
//! an engine for each. `plan` settles it once, `up` whenever a file changes.
//!
//! ```text
//! manifests ─► store ─► inputs ─► engine ─► effects ─► store, registry
//!                         ▲                               │
//!                         └──── fleet ◄── subscription ◄──┘    (one for all clusters)
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use futures::stream::BoxStream;
use futures::{FutureExt as _, StreamExt as _};
use jiff::Timestamp;
use tombolo_cluster::convert::Rejected;
use tombolo_cluster::manifest::{Change, Manifests};
use tombolo_cluster::store::{KINDS, Pool, Store};
use tombolo_dns::Zones;
use tombolo_model::engine::Engine;
use tombolo_model::fleet::{Fleet, FleetInput};
use tombolo_model::io::{
    Action, Effect, Event, Input, Outcome, REASON_ADDRESS_CHANGED, RecordWrite, Refusal,
    RefusalKind, Source,
};
use tombolo_model::merge::Merged;
use tombolo_model::names::{ClusterName, NameError, Region, ServiceKey};
use tombolo_model::object::{Kind, Object, ObjectRef, SliceObject};
use tombolo_model::record::{Origin, Owner, RecordKey};
use tombolo_model::service::IpFamily;
use tombolo_registry::error::Error;
use tombolo_registry::event::{Event as Told, State};
use tombolo_registry::key::Layout;
use tombolo_registry::memory::{MemoryRegistry, MemoryStore};
use tombolo_registry::registry::{REGION_DEFAULT, Registry as _};
use tombolo_registry::session::{Claim, NewSession, Opening, TakeOver};

use crate::input::{Setup, chain};
use crate::names::Names;
use crate::question::{QueryView, Question};
use crate::view::{
    self, ClusterView, EndpointCount, ErrorView, ExportView, ImportView, View, WarningView,
};

/// More rounds than any change needs; one more means that two clusters undo each other's work.
const ROUNDS_MAX: usize = 10_000;

/// Why a clusterset cannot run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClustersetError {
    /// The registry refused a session.
    #[error("cluster {cluster} cannot write the registry")]
    Open {
        /// Which one.
        cluster: ClusterName,
        /// Why.
        source: Error,
    },
    /// The default region is no region.
    #[error("the registry cannot be laid out")]
    Region(#[source] NameError),
    /// It never comes to rest.
    #[error("the clusterset does not settle after {ROUNDS_MAX} rounds; please report this input")]
    Unsettled,
}

/// The clusters and what is between them.
pub(crate) struct Clusterset {
    members: BTreeMap<ClusterName, Member>,
    subscription: BoxStream<'static, Told>,
    fleet: Fleet,
}

/// One cluster.
struct Member {
    manifests: Manifests,
    /// Whether it has published everything once.
    has_published: bool,
    /// The objects of the manifests that the store refused, and why.
    rejected: BTreeMap<ObjectRef, Rejected>,
    store: Store,
    engine: Engine,
    registry: MemoryRegistry,
    /// `None` where nobody asks for any.
    names: Option<Names>,
    inputs: VecDeque<Input>,
}

impl Clusterset {
    /// A clusterset of clusters without objects; each with the families of its network.
    /// `zones` are those of its DNS, `None` where nobody will ask.
    pub(crate) async fn new(
        setup: &Setup,
        clusters: &BTreeMap<ClusterName, Vec<IpFamily>>,
        zones: Option<&Zones>,
        now: Timestamp,
    ) -> Result<Self, ClustersetError> {
        let registry = MemoryStore::new(Layout::default());
        Self::beside(&registry, setup, clusters, zones, now).await
    }

    /// The same in a registry that others of this process write too.
    pub(crate) async fn beside(
        registry: &Arc<MemoryStore>,
        setup: &Setup,
        clusters: &BTreeMap<ClusterName, Vec<IpFamily>>,
        zones: Option<&Zones>,
        now: Timestamp,
    ) -> Result<Self, ClustersetError> {
        let region = Region::try_new(REGION_DEFAULT).map_err(ClustersetError::Region)?;
        let pool = Pool::default();
        let mut members = BTreeMap::new();
        for (cluster, families) in clusters {
            let store =
                Store::new(cluster.clone(), families.clone(), &setup.vips).with_pool(pool.clone());
            let origin = Origin {
                region: region.clone(),
                cluster: cluster.clone(),
            };
            let registry = registry.registry(origin);
            let epoch = registry
                .open(opening(cluster, &store, now))
                .await
                .map_err(|source| ClustersetError::Open {
                    cluster: cluster.clone(),
                    source,
                })?;
            let mut inputs: VecDeque<Input> =
                KINDS.iter().flat_map(|kind| store.list(*kind)).collect();
            inputs.push_back(Input::Families(families.clone()));
            inputs.push_back(Input::Session(Some(epoch)));
            let engine = Engine::new(setup.rules.config(cluster.clone()));
            let manifests = Manifests::default();
            members.insert(
                cluster.clone(),
                Member {
                    manifests,
                    has_published: false,
                    rejected: BTreeMap::new(),
                    store,
                    engine,
                    registry,
                    names: zones.map(|zones| Names::new(zones.clone(), now)),
                    inputs,
                },
            );
        }
        let subscription = registry.subscribe();
        Ok(Self {
            members,
            subscription,
            fleet: Fleet::default(),
        })
    }

    /// Makes the objects of a cluster those of these manifests, as far as it can hold them.
    pub(crate) fn set_manifests(
        &mut self,
        cluster: &ClusterName,
        manifests: &Manifests,
        now: Timestamp,
    ) {
        if let Some(member) = self.members.get_mut(cluster) {
            member.set_manifests(manifests, now);
        }
    }

    /// Says what the clusters' networks support, where that is not what it was.
    pub(crate) fn set_families(
        &mut self,
        families: &BTreeMap<ClusterName, Vec<IpFamily>>,
        now: Timestamp,
    ) {
        for (cluster, families) in families {
            if let Some(member) = self.members.get_mut(cluster)
                && member.store.families() != families
            {
                let input = member.store.set_families(families.clone());
                member.inputs.push_back(input);
                // The defaults of Services are others now.
                let manifests = std::mem::take(&mut member.manifests);
                member.set_manifests(&manifests, now);
            }
        }
    }

    /// Runs all engines until nothing is left to do at this time.
    pub(crate) async fn settle(&mut self, now: Timestamp) -> Result<(), ClustersetError> {
        for _ in 0..ROUNDS_MAX {
            self.pump();
            let mut is_quiet = true;
            for member in self.members.values_mut() {
                is_quiet &= !member.settle(now).await?;
            }
            if is_quiet {
                for names in self.members.values_mut().filter_map(|m| m.names.as_mut()) {
                    names.publish(now);
                }
                return Ok(());
            }
        }
        Err(ClustersetError::Unsettled)
    }

    /// Waits until somebody else has changed the registry.
    pub(crate) async fn changed(&mut self) {
        match self.subscription.next().await {
            Some(event) => self.take(event),
            None => std::future::pending().await,
        }
    }

    /// When an engine wants to run again, if nothing happens before.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.members
            .values()
            .filter_map(|member| member.engine.next_due())
            .min()
    }

    /// How many services the engines have planned since the start.
    #[cfg(test)]
    pub(crate) fn planned_total(&self) -> u64 {
        self.members
            .values()
            .map(|member| member.engine.planned_total())
            .sum()
    }

    /// What every cluster answers to these questions.
    pub(crate) fn ask(&self, questions: &[Question]) -> Vec<QueryView> {
        let asked = questions.iter().flat_map(|question| {
            self.names()
                .map(|(cluster, names)| question.view(cluster, names.answer(question.query())))
        });
        asked.collect()
    }

    /// What every cluster's names lead to.
    pub(crate) fn names(&self) -> impl Iterator<Item = (&ClusterName, &Names)> {
        self.members
            .iter()
            .filter_map(|(cluster, member)| Some((cluster, member.names.as_ref()?)))
    }

    /// The clusters' objects.
    pub(crate) fn stores(&self) -> impl Iterator<Item = &Store> {
        self.members.values().map(|member| &member.store)
    }

    /// What the registry has changed, told to all clusters.
    fn pump(&mut self) {
        while let Some(Some(event)) = self.subscription.next().now_or_never() {
            self.take(event);
        }
        // An import that is there already must not be judged by a part of its exporters.
        if !self.members.values().all(|member| member.has_published) {
            return;
        }
        let inputs = self.fleet.drain();
        for member in self.members.values_mut() {
            member.inputs.extend(inputs.iter().cloned());
        }
    }

    fn take(&mut self, event: Told) {
        let own = Source::OwnRecords;
        match event {
            Told::ListBegan(_) => {
                self.fleet.observe(FleetInput::ListBegan);
                self.tell_all(&Input::ListBegan(own));
            }
            Told::ListEnded { revision } => {
                self.fleet.observe(FleetInput::ListEnded);
                let revision = revision.to_string().into();
                self.tell_all(&Input::ListEnded {
                    source: own,
                    revision,
                });
            }
            Told::Record {
                origin,
                key,
                state,
                revision,
            } => {
                let record = match state {
                    State::Present(record) => Some(record),
                    State::Gone => None,
                    State::Rejected(_) => {
                        return self.fleet.observe(FleetInput::Unreadable { origin, key });
                    }
                };
                if let Some(member) = self.members.get_mut(&origin.cluster) {
                    member.has_published |= key == RecordKey::Synced;
                    let (key, record) = (key.clone(), record.clone());
                    member.inputs.push_back(Input::OwnRecord {
                        key,
                        record,
                        revision,
                    });
                }
                self.fleet.observe(FleetInput::Record {
                    origin,
                    key,
                    record,
                });
            }
            // Nobody is granted or drained here, and nothing else writes.
            Told::Member { .. } | Told::Settings { .. } | Told::Heard(_) | Told::Stray { .. } => {}
        }
    }

    fn tell_all(&mut self, input: &Input) {
        for member in self.members.values_mut() {
            member.inputs.push_back(input.clone());
        }
    }

    /// What there is to show.
    pub(crate) fn view(&self) -> View {
        let clusters = self
            .members
            .iter()
            .map(|(name, member)| member.view(name))
            .collect();
        let mut merges: BTreeMap<ServiceKey, Arc<Merged>> = BTreeMap::new();
        let mut warnings = Vec::new();
        for (name, member) in &self.members {
            for object in member.store.objects() {
                let Object::ServiceExport(export) = object else {
                    continue;
                };
                let key = &export.meta.key;
                if !merges.contains_key(key) {
                    merges.extend(
                        member
                            .engine
                            .merge_of(key)
                            .map(|merged| (key.clone(), merged)),
                    );
                }
            }
            let notes = member.engine.notes();
            let notes = notes.map(|note| (note.object, note.reason, note.message));
            let warnings_of = notes.chain(member.address_changes());
            warnings.extend(warnings_of.map(|(object, reason, message)| WarningView {
                cluster: name.to_string(),
                object: show(&object),
                reason: reason.to_owned(),
                message,
            }));
        }
        warnings.sort();
        let errors = self.members.iter().flat_map(|(name, member)| {
            member
                .rejected
                .values()
                .map(|rejected| ErrorView::of(name, &rejected.to_string()))
        });
        View {
            clusters,
            conflicts: view::conflicts(&merges),
            warnings,
            errors: errors.collect(),
            queries: Vec::new(),
        }
    }
}

impl Member {
    fn set_manifests(&mut self, manifests: &Manifests, now: Timestamp) {
        let changes = self.manifests.changes_to(manifests);
        // What was refused before may be possible now, as when another Service gave up an address.
        let retries: Vec<Change> = self
            .rejected
            .keys()
            .filter_map(|reference| manifests.get(reference).cloned().map(Change::Apply))
            .collect();
        self.rejected.clear();
        for change in changes.into_iter().chain(retries) {
            match change {
                Change::Delete(reference) => self.inputs.extend(self.store.delete(&reference)),
                Change::Erase(reference) => match self.store.erase(&reference) {
                    Ok(inputs) => self.inputs.extend(inputs),
                    Err(error) => {
                        self.rejected.insert(reference, error);
                    }
                },
                Change::Apply(declared) => match self.store.apply(&declared, now) {
                    Ok(input) => self.inputs.extend(input),
                    Err(error) => {
                        self.rejected.insert(declared.reference(), error);
                    }
                },
            }
        }
        self.manifests = manifests.clone();
    }

    /// Lets the engine do all that it can by itself; says whether there was anything. One cluster
    /// after the other, so that not all of them have their writes under way at the same time.
    async fn settle(&mut self, now: Timestamp) -> Result<bool, ClustersetError> {
        for round in 0..ROUNDS_MAX {
            if !self.run(now).await {
                return Ok(round > 0);
            }
        }
        Err(ClustersetError::Unsettled)
    }

    /// Lets the engine do what there is to do now; says whether there was anything.
    async fn run(&mut self, now: Timestamp) -> bool {
        let is_due = self.engine.next_due().is_some_and(|at| at <= now);
        if self.inputs.is_empty() && !is_due {
            return false;
        }
        for input in self.inputs.drain(..) {
            if let Some(names) = &mut self.names {
                names.observe(&input);
            }
            self.engine.observe(now, input);
        }
        for Action { id, effect } in self.engine.act(now) {
            let outcome = match effect {
                Effect::Publish { .. } | Effect::Synced(_) | Effect::Report(_) => {
                    let writes = effect.into_records().unwrap_or_default();
                    Some(self.publish(writes).await)
                }
                effect => self.store.execute(&effect, now).map(|reply| {
                    self.inputs.extend(reply.changes);
                    reply.outcome
                }),
            };
            self.inputs
                .extend(outcome.map(|outcome| Input::Outcome { id, outcome }));
        }
        true
    }

    /// The imports that had to change their address, as far as they are there.
    fn address_changes(&self) -> impl Iterator<Item = (ObjectRef, &'static str, String)> {
        let last: BTreeMap<&ObjectRef, &Event> = self
            .store
            .events()
            .filter(|event| event.reason == REASON_ADDRESS_CHANGED)
            .filter(|event| self.store.get(&event.about).is_some())
            .map(|event| (&event.about, event))
            .collect();
        let told = last.into_values();
        told.map(|event| (event.about.clone(), event.reason, event.message.to_string()))
    }

    async fn publish(&self, writes: Vec<RecordWrite>) -> Outcome {
        match self.registry.apply(writes).await {
            Ok(revision) => Outcome::Published(revision),
            Err(error) if error.may_have_written() => Outcome::Unknown(chain(&error).into()),
            Err(error) => Outcome::Refused(Refusal {
                kind: RefusalKind::Other,
                message: chain(&error).into(),
            }),
        }
    }

    fn view(&self, name: &ClusterName) -> ClusterView {
        let mut counts: BTreeMap<ServiceKey, EndpointCount> = BTreeMap::new();
        let (mut exports, mut imports) = (Vec::new(), Vec::new());
        for object in self.store.objects() {
            match object {
                Object::EndpointSlice(slice) => count(slice, &mut counts),
                Object::ServiceExport(export) => exports.push(ExportView::from(&**export)),
                Object::ServiceImport(import) => {
                    debug_assert!(
                        Kind::EndpointSlice < Kind::ServiceImport,
                        "slices are counted"
                    );
                    let endpoints = counts.get(&import.meta.key).copied().unwrap_or_default();
                    imports.push(ImportView::new(import, endpoints));
                }
                Object::Namespace(_) | Object::Service(_) => {}
            }
        }
        ClusterView {
            name: name.to_string(),
            dns: None,
            families: self
                .store
                .families()
                .iter()
                .map(|family| family.as_str())
                .collect(),
            exports,
            imports,
        }
    }
}

/// An object as it is named to people.
fn show(object: &ObjectRef) -> String {
    let ObjectRef { kind, key } = object;
    match kind {
        Kind::Namespace => format!("Namespace {}", key.namespace),
        kind => format!("{} {key}", kind.as_str()),
    }
}

/// Adds the endpoints of a slice, if it is ours, to its import.
fn count(slice: &SliceObject, counts: &mut BTreeMap<ServiceKey, EndpointCount>) {
    let Some(service) = tombolo_model::own::import_of(slice) else {
        return;
    };
    let of_import = counts.entry(service).or_default();
    of_import.all += slice.endpoints.len();
    let mut hasher = DefaultHasher::new();
    (of_import.print, &slice.ports, &slice.endpoints).hash(&mut hasher);
    of_import.print = hasher.finish();
    of_import.ready += slice
        .endpoints
        .iter()
        .filter(|e| e.conditions.ready)
        .count();
}

/// The session of a cluster that has no other process.
fn opening(cluster: &ClusterName, store: &Store, now: Timestamp) -> Opening {
    Opening {
        owner: Owner {
            uid: cluster.as_str().into(),
        },
        session: NewSession {
            holder: "tombolo".into(),
            started: now,
            software: env!("CARGO_PKG_VERSION").into(),
            families: store.families().to_vec(),
            service_cidrs: store.service_cidrs(),
            blind_since: None,
        },
        claim: Claim::Leader,
        take_over: TakeOver::Refuse,
    }
}
