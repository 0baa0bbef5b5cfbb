//! What a controller knows of itself, for the admin endpoint: filled by the shell, read at any
//! time.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::Value;
use tombolo_cluster::api::{Standing, WatchState};
use tombolo_cluster::store::KINDS;
use tombolo_model::fleet::{Refused, Rule};
use tombolo_model::io::{Input, Source};
use tombolo_model::names::{ClusterName, ServiceKey};
use tombolo_model::object::{Condition, Kind, Object};
use tombolo_model::presence::Standing as Presence;

use crate::admin::Told;

/// The latest rejections and refusals that are shown.
const REJECTED_MAX: usize = 100;
/// A shell that has not run for this long hangs; it wakes every second.
const HANGS_AFTER_SECS: i64 = 60;

/// One cluster's state.
#[derive(Debug)]
pub(crate) struct Status {
    pub(crate) cluster: ClusterName,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    watches: BTreeMap<Kind, WatchState>,
    /// Kinds that were listed in full at least once.
    listed: HashSet<Kind>,
    standing: Standing,
    session: Option<u64>,
    /// Whether it writes the registry at all.
    reads_only: bool,
    /// Why there is no session.
    no_session: Option<String>,
    /// Whether the registry is heard, and how its clusters stand.
    is_heard: bool,
    peers: Vec<(ClusterName, Presence, u64)>,
    families_known: bool,
    beat: Timestamp,
    queued: usize,
    in_flight: usize,
    planned_total: u64,
    rejected_total: u64,
    rejected: VecDeque<String>,
    /// The latest of what was refused of other clusters.
    refused: VecDeque<RefusedView>,
    /// How often this cluster alone refused or doubted something.
    refused_total: BTreeMap<(ClusterName, Rule), u64>,
    objects: Objects,
}

/// The ServiceExports and ServiceImports, as they were last seen.
#[derive(Debug, Default)]
struct Objects {
    conditions: HashMap<(Kind, ServiceKey), Object>,
    listing: HashMap<Kind, HashSet<ServiceKey>>,
}

/// What `/debug/state` shows.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StatusView {
    cluster: String,
    leading: bool,
    holder: Option<String>,
    session: Option<u64>,
    /// Whether changes of the registry arrive.
    registry_heard: bool,
    peers: Vec<PeerView>,
    watches: BTreeMap<&'static str, String>,
    queued: usize,
    in_flight: usize,
    services_planned: u64,
    exports: usize,
    imports: usize,
    rejected_total: u64,
    rejected: Vec<String>,
    refused: Vec<RefusedView>,
    not_ready: Vec<String>,
}

/// Something that was refused of what another cluster wrote.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RefusedView {
    cluster: String,
    rule: &'static str,
    message: String,
}

/// A cluster of the registry.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PeerView {
    cluster: String,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    blind_since: Option<Timestamp>,
    /// How much of the hold is counted, where the cluster is not heard of.
    #[serde(skip_serializing_if = "Option::is_none")]
    held_secs: Option<u64>,
}

impl From<&(ClusterName, Presence, u64)> for PeerView {
    fn from((cluster, standing, held): &(ClusterName, Presence, u64)) -> Self {
        let is_missing = matches!(standing, Presence::Stale | Presence::Over);
        Self {
            cluster: cluster.to_string(),
            state: standing.as_str(),
            blind_since: match standing {
                Presence::Blind(since) => Some(*since),
                _ => None,
            },
            held_secs: is_missing.then_some(*held),
        }
    }
}

/// What the shell says of itself each time it has run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beat {
    pub(crate) now: Timestamp,
    pub(crate) queued: usize,
    pub(crate) in_flight: usize,
    pub(crate) planned_total: u64,
}

/// Numbers for the metrics.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers {
    pub(crate) leading: bool,
    pub(crate) queued: usize,
    pub(crate) in_flight: usize,
    pub(crate) planned_total: u64,
    pub(crate) rejected_total: u64,
}

impl Told for Status {
    fn health(&self, now: Timestamp) -> Result<(), String> {
        let silent = now.duration_since(self.inner.lock().beat).as_secs();
        if silent > HANGS_AFTER_SECS {
            return Err(format!("cluster {}: hangs for {silent} s", self.cluster));
        }
        Ok(())
    }

    fn not_ready(&self) -> Vec<String> {
        let missing = self.inner.lock().not_ready().into_iter();
        let cluster = &self.cluster;
        missing
            .map(|what| format!("cluster {cluster}: {what}"))
            .collect()
    }

    fn state(&self) -> Value {
        serde_json::to_value(self.view()).unwrap_or_default()
    }
}

impl Status {
    pub(crate) fn new(cluster: ClusterName, now: Timestamp) -> Arc<Self> {
        Arc::new(Self {
            cluster,
            inner: Mutex::new(Inner {
                watches: BTreeMap::new(),
                listed: HashSet::new(),
                standing: Standing::Following { holder: "".into() },
                session: None,
                reads_only: false,
                no_session: None,
                is_heard: true,
                peers: Vec::new(),
                families_known: false,
                beat: now,
                queued: 0,
                in_flight: 0,
                planned_total: 0,
                rejected_total: 0,
                rejected: VecDeque::new(),
                refused: VecDeque::new(),
                refused_total: BTreeMap::new(),
                objects: Objects::default(),
            }),
        })
    }

    pub(crate) fn beat(&self, beat: Beat) {
        let mut inner = self.inner.lock();
        inner.beat = beat.now;
        inner.queued = beat.queued;
        inner.in_flight = beat.in_flight;
        inner.planned_total = beat.planned_total;
    }

    pub(crate) fn watch(&self, kind: Kind, state: WatchState) {
        let mut inner = self.inner.lock();
        if state == WatchState::Live {
            inner.listed.insert(kind);
        }
        inner.watches.insert(kind, state);
    }

    pub(crate) fn standing(&self, standing: Standing) {
        self.inner.lock().standing = standing;
    }

    pub(crate) fn rejected(&self, text: String) {
        let mut inner = self.inner.lock();
        inner.rejected_total += 1;
        push(&mut inner.rejected, text);
    }

    /// Notes what was refused of what other clusters wrote.
    pub(crate) fn refused(&self, refused: &[Refused]) {
        let mut inner = self.inner.lock();
        for refused in refused {
            let view = RefusedView {
                cluster: refused.cluster.to_string(),
                rule: refused.rule.as_str(),
                message: refused.message.clone(),
            };
            push(&mut inner.refused, view);
        }
    }

    /// Notes how often this cluster alone refused or doubted something.
    pub(crate) fn count_refused(&self, total: &BTreeMap<(ClusterName, Rule), u64>) {
        self.inner.lock().refused_total.clone_from(total);
    }

    /// How often this cluster alone refused or doubted something of which cluster, by which rule.
    pub(crate) fn refused_total(&self) -> BTreeMap<(ClusterName, Rule), u64> {
        self.inner.lock().refused_total.clone()
    }

    /// Notes what of an input is shown.
    pub(crate) fn input(&self, input: &Input) {
        match input {
            Input::Session(epoch) => self.inner.lock().session = *epoch,
            Input::Heard(is_heard) => self.inner.lock().is_heard = *is_heard,
            Input::Families(_) => self.inner.lock().families_known = true,
            Input::Applied(object) if is_shown(object.kind()) => {
                self.inner.lock().objects.apply(object);
            }
            Input::Deleted { object, .. } if is_shown(object.kind) => {
                let mut inner = self.inner.lock();
                let key = (object.kind, object.key.clone());
                inner.objects.conditions.remove(&key);
            }
            Input::ListBegan(Source::Objects(kind)) if is_shown(*kind) => {
                let mut inner = self.inner.lock();
                inner.objects.listing.insert(*kind, HashSet::new());
            }
            Input::ListEnded {
                source: Source::Objects(kind),
                ..
            } if is_shown(*kind) => self.inner.lock().objects.list_ended(*kind),
            _ => {}
        }
    }

    /// There will be no session.
    pub(crate) fn reads_only(&self) {
        self.inner.lock().reads_only = true;
    }

    /// Why there is no session, as far as that is known.
    pub(crate) fn session_problem(&self) -> Option<String> {
        self.inner.lock().no_session.clone()
    }

    /// Why there is no session, or that there is one.
    pub(crate) fn no_session(&self, why: Option<String>) {
        self.inner.lock().no_session = why;
    }

    /// How the clusters of the registry stand, if that is news.
    pub(crate) fn peers(&self, news: Option<Vec<(ClusterName, Presence, u64)>>) {
        if let Some(news) = news {
            self.inner.lock().peers = news;
        }
    }

    /// Whether changes of the registry arrive.
    pub(crate) fn is_heard(&self) -> bool {
        self.inner.lock().is_heard
    }

    /// How the clusters of the registry stand, and how many seconds of a hold are counted.
    pub(crate) fn peers_now(&self) -> Vec<(ClusterName, Presence, u64)> {
        self.inner.lock().peers.clone()
    }

    pub(crate) fn numbers(&self) -> Numbers {
        let inner = self.inner.lock();
        Numbers {
            leading: inner.standing == Standing::Leading,
            queued: inner.queued,
            in_flight: inner.in_flight,
            planned_total: inner.planned_total,
            rejected_total: inner.rejected_total,
        }
    }

    /// The state of each watch.
    pub(crate) fn watches(&self) -> Vec<(Kind, &'static str)> {
        let inner = self.inner.lock();
        let watches = inner.watches.iter();
        watches
            .map(|(kind, state)| (*kind, state.as_str()))
            .collect()
    }

    /// The ServiceExports and ServiceImports.
    pub(crate) fn objects(&self) -> Vec<Object> {
        let inner = self.inner.lock();
        let mut objects: Vec<Object> = inner.objects.conditions.values().cloned().collect();
        drop(inner);
        objects.sort_by_cached_key(Object::reference);
        objects
    }

    pub(crate) fn view(&self) -> StatusView {
        let inner = self.inner.lock();
        let count = |kind| {
            let keys = inner.objects.conditions.keys();
            keys.filter(|(of, _)| *of == kind).count()
        };
        let holder = match &inner.standing {
            Standing::Leading => None,
            Standing::Following { holder } => Some(holder.to_string()),
        };
        StatusView {
            cluster: self.cluster.to_string(),
            leading: inner.standing == Standing::Leading,
            holder,
            session: inner.session,
            registry_heard: inner.is_heard,
            peers: inner.peers.iter().map(PeerView::from).collect(),
            watches: inner
                .watches
                .iter()
                .map(|(kind, state)| (kind.as_str(), watch_text(state)))
                .collect(),
            queued: inner.queued,
            in_flight: inner.in_flight,
            services_planned: inner.planned_total,
            exports: count(Kind::ServiceExport),
            imports: count(Kind::ServiceImport),
            rejected_total: inner.rejected_total,
            rejected: inner.rejected.iter().cloned().collect(),
            refused: inner.refused.iter().cloned().collect(),
            not_ready: inner.not_ready(),
        }
    }
}

impl Inner {
    fn not_ready(&self) -> Vec<String> {
        let mut missing: Vec<String> = KINDS
            .iter()
            .filter_map(|kind| {
                let name = kind.as_str();
                match self.watches.get(kind) {
                    None => Some(format!("{name}s are not listed yet")),
                    Some(WatchState::Missing) => {
                        Some(format!("the CRD of {name} is missing: tombolo crds apply"))
                    }
                    Some(state) if !self.listed.contains(kind) => {
                        Some(format!("{name}s are not listed yet: {}", watch_text(state)))
                    }
                    Some(_) => None,
                }
            })
            .collect();
        if !self.families_known {
            missing.push("the families of the network are not known yet".to_owned());
        }
        if self.standing == Standing::Leading && self.session.is_none() && !self.reads_only {
            missing.push(match &self.no_session {
                Some(why) => format!("there is no session with the registry: {why}"),
                None => "there is no session with the registry".to_owned(),
            });
        }
        missing
    }
}

/// Keeps the latest.
fn push<T>(latest: &mut VecDeque<T>, one: T) {
    if latest.len() == REJECTED_MAX {
        latest.pop_front();
    }
    latest.push_back(one);
}

fn watch_text(state: &WatchState) -> String {
    match state {
        WatchState::Forbidden(text) | WatchState::Away(text) => {
            format!("{}: {text}", state.as_str())
        }
        WatchState::Listing | WatchState::Live | WatchState::Missing => state.as_str().to_owned(),
    }
}

fn is_shown(kind: Kind) -> bool {
    matches!(kind, Kind::ServiceExport | Kind::ServiceImport)
}

impl Objects {
    fn apply(&mut self, object: &Object) {
        let reference = object.reference();
        if let Some(seen) = self.listing.get_mut(&reference.kind) {
            seen.insert(reference.key.clone());
        }
        self.conditions
            .insert((reference.kind, reference.key), object.clone());
    }

    fn list_ended(&mut self, kind: Kind) {
        let Some(seen) = self.listing.remove(&kind) else {
            return;
        };
        self.conditions
            .retain(|(of, key), _| *of != kind || seen.contains(key));
    }
}

/// The conditions of an object that has any.
pub(crate) fn conditions(object: &Object) -> &[Condition] {
    match object {
        Object::ServiceExport(o) => &o.conditions,
        Object::ServiceImport(o) => &o.status.conditions,
        Object::Namespace(_) | Object::Service(_) | Object::EndpointSlice(_) => &[],
    }
}
