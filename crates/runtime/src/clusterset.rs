//! A whole clusterset in one process: directories as clusters, the memory registry between them,
//! an engine for each. `plan` settles it once, `up` whenever a file changes.
//!
//! ```text
//! manifests ─► store ─► inputs ─► engine ─► effects ─► store, registry
//!                         ▲                               │
//!                         └──── fleet ◄── subscription ◄──┘    (one for all clusters)
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::FutureExt as _;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::{BoxStream, FuturesUnordered};
use jiff::{SignedDuration, Timestamp};
use tombolo_cluster::convert::Rejected;
use tombolo_cluster::manifest::{Change, Manifests};
use tombolo_cluster::store::{KINDS, Pool, Store};
use tombolo_dns::Zones;
use tombolo_model::engine::Engine;
use tombolo_model::fleet::Rule;
use tombolo_model::io::{Action, Effect, Event, Input, REASON_ADDRESS_CHANGED};
use tombolo_model::merge::Merged;
use tombolo_model::names::{ClusterName, ServiceKey};
use tombolo_model::object::{Kind, Object, ObjectRef, SliceObject};
use tombolo_model::record::RecordKey;
use tombolo_model::service::IpFamily;
use tombolo_registry::any::AnyRegistry;
use tombolo_registry::error::Error;
use tombolo_registry::event::Event as Told;
use tombolo_registry::registry::Registry as _;
use tombolo_registry::session::SessionEnd;

use self::session::Session;
use crate::input::{Refusal, Setup};
use crate::lane::{Done, Lane, PUBLISH_MAX, publish};
use crate::names::Names;
use crate::question::{QueryView, Question};
use crate::reader::{Audience, Reader};
use crate::view::{
    self, ClusterView, EndpointCount, ErrorView, ExportView, ImportView, View, WarningView,
};

mod session;

pub(crate) use self::session::Joining;

/// More rounds than any change needs; one more means that two clusters undo each other's work.
const ROUNDS_MAX: usize = 10_000;

/// Why a clusterset cannot run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClustersetError {
    /// It never comes to rest.
    #[error("the clusterset does not settle after {ROUNDS_MAX} rounds; please report this input")]
    Unsettled,
}

/// The clusters and what is between them.
pub(crate) struct Clusterset {
    members: BTreeMap<ClusterName, Member>,
    subscription: BoxStream<'static, Told>,
    reader: Reader,
    /// What was refused last, by cluster and rule.
    refused: BTreeMap<(ClusterName, Rule), String>,
    /// The registries' own work.
    background: FuturesUnordered<BoxFuture<'static, ()>>,
    /// Whether others are in it, who are not waited for.
    is_of_others: bool,
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
    registry: Arc<AnyRegistry>,
    session: Session,
    /// Writes to the registry.
    records: Lane,
    /// `None` where nobody asks for any.
    names: Option<Names>,
    inputs: VecDeque<Input>,
    /// How far the time of day is ahead of the engine's time.
    ahead: SignedDuration,
}

impl Clusterset {
    /// A clusterset of clusters without objects; each with the families of its network.
    /// `zones` are those of its DNS, `None` where nobody will ask.
    pub(crate) async fn new(
        setup: &Setup,
        clusters: &BTreeMap<ClusterName, Vec<IpFamily>>,
        zones: Option<&Zones>,
        now: Timestamp,
    ) -> Result<Self, Refusal> {
        let joining = Joining::alone();
        Self::joined(&joining, setup, clusters, zones, now).await
    }

    /// The same in a registry that others write too.
    pub(crate) async fn joined(
        joining: &Joining,
        setup: &Setup,
        clusters: &BTreeMap<ClusterName, Vec<IpFamily>>,
        zones: Option<&Zones>,
        now: Timestamp,
    ) -> Result<Self, Refusal> {
        let pool = Pool::default();
        let mut members = BTreeMap::new();
        let mut background = FuturesUnordered::new();
        for (cluster, families) in clusters {
            let store =
                Store::new(cluster.clone(), families.clone(), &setup.vips).with_pool(pool.clone());
            let registry = Arc::new(joining.shared.registry(cluster.clone())?);
            let mut inputs: VecDeque<Input> =
                KINDS.iter().flat_map(|kind| store.list(*kind)).collect();
            inputs.push_back(Input::Families(families.clone()));
            inputs.push_back(Input::ServiceCidrs(store.service_cidrs()));
            let directory = setup.clusters.get(cluster);
            let directory = directory.map(PathBuf::as_path);
            let (session, work) = joining.session(&registry, &store, directory, now).await?;
            inputs.extend(session.epoch().map(|epoch| Input::Session(Some(epoch))));
            background.extend(work);
            let member = Member {
                manifests: Manifests::default(),
                has_published: false,
                rejected: BTreeMap::new(),
                store,
                engine: Engine::new(setup.rules.config(cluster.clone())),
                registry,
                session,
                records: Lane::new(PUBLISH_MAX),
                names: zones.map(|zones| Names::new(zones.clone(), now)),
                inputs,
                ahead: SignedDuration::ZERO,
            };
            members.insert(cluster.clone(), member);
        }
        Ok(Self {
            members,
            subscription: joining.shared.subscribe()?,
            reader: Reader::default(),
            refused: BTreeMap::new(),
            background,
            is_of_others: joining.shared.is_of_others(),
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
                member.session.network_changed(&member.store);
                let cidrs = Input::ServiceCidrs(member.store.service_cidrs());
                member.inputs.push_back(cidrs);
                // The defaults of Services are others now.
                let manifests = std::mem::take(&mut member.manifests);
                member.set_manifests(&manifests, now);
            }
        }
    }

    /// Says how far the time of day is ahead of the time of the engines.
    pub(crate) fn set_time_of_day(&mut self, ahead: SignedDuration) {
        for member in self.members.values_mut() {
            member.ahead = ahead;
            member.inputs.push_back(Input::TimeOfDay(ahead));
        }
    }

    /// Runs all engines until nothing is left to do at this time.
    pub(crate) fn settle(&mut self, now: Timestamp) -> Result<(), ClustersetError> {
        for _ in 0..ROUNDS_MAX {
            self.pump();
            let mut is_quiet = true;
            for member in self.members.values_mut() {
                is_quiet &= !member.settle(now)?;
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

    /// Waits until the registry says something, or has done what it was asked.
    pub(crate) async fn changed(&mut self) {
        poll_fn(|cx| self.poll(cx)).await;
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // They end when their registry is closed.
        while self.background.poll_next_unpin(cx) == Poll::Ready(Some(())) {}
        let mut is_news = false;
        for member in self.members.values_mut() {
            is_news |= member.poll(cx);
        }
        if let Poll::Ready(Some(event)) = self.subscription.poll_next_unpin(cx) {
            self.take(event);
            is_news = true;
        }
        if is_news {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }

    /// Waits until all that is in the registry was listed once.
    pub(crate) async fn listed(&mut self) {
        while !self.reader.has_listed() {
            self.changed().await;
        }
    }

    /// What is amiss between the clusters and their registry.
    pub(crate) fn problems(&self) -> Vec<ErrorView> {
        let silent = "the registry is not heard: what is imported stays as it is";
        let silent = self.reader.is_silent().then_some(silent);
        let silent = silent.map(|problem| ErrorView::of(&"--registry", problem));
        let refused = self.members.iter().filter_map(|(name, member)| {
            let problem = member.session.problem()?;
            Some(ErrorView::of(name, &format!("not published: {problem}")))
        });
        silent.into_iter().chain(refused).collect()
    }

    /// Ends the sessions.
    pub(crate) async fn close(&self) -> Result<(), Error> {
        for member in self.members.values() {
            Box::pin(member.registry.close(SessionEnd::Revoke)).await?;
        }
        Ok(())
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
        while self.changed().now_or_never().is_some() {}
        // An import that is there already must not be judged by a part of its exporters.
        let all_published = self.members.values().all(|member| member.has_published);
        if !all_published && !self.is_of_others {
            return;
        }
        let inputs = self.reader.drain();
        let refused = self.reader.take_refused().into_iter();
        self.refused
            .extend(refused.map(|r| ((r.cluster, r.rule), r.message)));
        for member in self.members.values_mut() {
            member.inputs.extend(inputs.iter().cloned());
        }
    }

    fn take(&mut self, event: Told) {
        let Some((audience, input)) = self.reader.take(event) else {
            return;
        };
        for member in self.members.values_mut() {
            let is_told = match &audience {
                Audience::Everyone => true,
                Audience::Cluster(origin) => member.registry.origin() == origin,
            };
            if is_told {
                member.learn(input.clone());
            }
        }
    }

    /// What was refused of what is in the registry.
    fn refusals(&self) -> impl Iterator<Item = WarningView> {
        self.refused.iter().map(|(of, message)| {
            let (cluster, rule) = of;
            let total = self.reader.refused_total().get(of).unwrap_or(&1);
            WarningView {
                cluster: cluster.to_string(),
                object: "in the registry".to_owned(),
                reason: rule.as_str().to_owned(),
                message: format!("refused, {total} so far: {message}"),
            }
        })
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
        warnings.extend(self.refusals());
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

    fn learn(&mut self, input: Input) {
        if let Input::OwnRecord { key, .. } = &input {
            self.has_published |= *key == RecordKey::Synced;
        }
        self.inputs.push_back(input);
    }

    /// Takes in what has come about; says whether there was anything.
    fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        let before = self.inputs.len();
        while let Poll::Ready(Some(done)) = self.records.running.poll_next_unpin(cx) {
            self.ended(done);
        }
        self.inputs.extend(self.session.poll(cx));
        self.inputs.len() > before
    }

    fn ended(&mut self, done: Done) {
        let Done { id, outcome, .. } = done;
        self.inputs.push_back(Input::Outcome { id, outcome });
    }

    /// Lets the engine do all that it can by itself; says whether there was anything. One cluster
    /// after the other, so that not all of them have their writes under way at the same time.
    fn settle(&mut self, now: Timestamp) -> Result<bool, ClustersetError> {
        for round in 0..ROUNDS_MAX {
            if !self.run(now) {
                return Ok(round > 0);
            }
        }
        Err(ClustersetError::Unsettled)
    }

    /// Lets the engine do what there is to do now; says whether there was anything.
    fn run(&mut self, now: Timestamp) -> bool {
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
        let time_of_day = now.checked_add(self.ahead).unwrap_or(now);
        for action in self.engine.act(now) {
            let Action { id, effect } = action;
            match effect {
                effect @ (Effect::Publish { .. } | Effect::Synced(_) | Effect::Report(_)) => {
                    self.records.waiting.push_back(Action { id, effect });
                }
                effect => {
                    if let Some(reply) = self.store.execute(&effect, time_of_day) {
                        self.inputs.extend(reply.changes);
                        let outcome = reply.outcome;
                        self.inputs.push_back(Input::Outcome { id, outcome });
                    }
                }
            }
        }
        self.publish();
        true
    }

    /// Writes to the registry; what is done at once is, as in memory.
    fn publish(&mut self) {
        loop {
            self.records.start(|action| publish(&self.registry, action));
            match self.records.ended() {
                Some(done) => self.ended(done),
                None => return,
            }
        }
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
