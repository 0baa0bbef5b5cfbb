//! The engine: from what is known to what is to be done (DESIGN §2.1).
//!
//! ```text
//! Input ─► observe ─► World, fleet, own records ─► (dirty services) ─► plan ─► Action
//!             ▲                                                                  │
//!             └────────────────────── Outcome ◄──────────── shell ◄──────────────┘
//! ```
//!
//! Level-triggered: an input says which services it is about; for each, the wanted state is
//! computed from all that is known and compared with what was observed. Order, duplicates and
//! lost events do not matter, a full listing repairs everything. At most one write is under way
//! per object, and nothing is done before everything local has been listed once.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use ipnet::IpNet;
use jiff::{SignedDuration, Timestamp};

use crate::compare::Part;
use crate::config::Config;
use crate::export::LocalExport;
use crate::fleet::{Claims, FleetService, Recorded};
use crate::io::{Action, ActionId, Effect, Event, Input, Outcome, RefusalKind, Source};
use crate::names::{ClusterName, Namespace, ObjectName, ServiceKey};
use crate::object::{GlobalMark, Kind, Object, ObjectRef};
use crate::own::ANNOTATION_GLOBAL;
use crate::presence::{Presence, Standing};
use crate::record::{Record, RecordKey};
use crate::service::IpFamily;
use crate::world::{Dirty, World};
use crate::writes::{Target, UnderWay, Writes};

mod exports;
mod import_status;
mod imports;
mod notes;
mod publish;
mod refusals;
mod report;
mod slices;

pub use notes::Note;
use publish::Published;
use refusals::Refusing;
use report::Reporting;

/// What must have been listed before anything is done.
const LOCAL_SOURCES: [Source; 5] = [
    Source::Objects(Kind::Namespace),
    Source::Objects(Kind::Service),
    Source::Objects(Kind::EndpointSlice),
    Source::Objects(Kind::ServiceExport),
    Source::Objects(Kind::ServiceImport),
];

/// Decides for one cluster. See the module's documentation.
#[derive(Debug)]
pub struct Engine {
    config: Config,
    world: World,
    /// What the registry says of each service.
    fleet: HashMap<ServiceKey, Arc<FleetService>>,
    /// The clusters whose absence means withdrawal; `None` until the registry was listed.
    trusted: Option<Arc<BTreeSet<ClusterName>>>,
    /// Which clusters are heard of.
    presence: Presence,
    reporting: Reporting,
    /// The families of this cluster's network; `None` until they are known.
    families: Option<Vec<IpFamily>>,
    /// The networks of this cluster's Services, as far as they are known.
    service_cidrs: Vec<IpNet>,
    /// Which services have an endpoint at an address.
    claims: Arc<Claims>,
    /// How far the time of day is ahead of the time of steps.
    ahead: SignedDuration,
    recorded: Arc<Recorded>,
    refusing: Refusing,
    listed: BTreeSet<Source>,
    /// This cluster's own exports.
    own: HashMap<ServiceKey, Arc<LocalExport>>,
    published: Published,
    writes: Writes,
    /// Every service that anything is known of, by namespace.
    services: BTreeMap<Namespace, BTreeSet<ObjectName>>,
    dirty: Dirty,
    /// Imports that stay as they are while the absence of one of their clusters is not trusted.
    frozen: BTreeSet<ServiceKey>,
    /// Imports whose remembered addresses were refused.
    any_address: BTreeSet<ServiceKey>,
    /// What the user of a ServiceExport was told beside its conditions.
    told: HashMap<ServiceKey, BTreeSet<String>>,
    planned_total: u64,
}

/// The planning of one service: when, which, and what comes of it.
struct Step<'a> {
    now: Timestamp,
    service: &'a ServiceKey,
    actions: &'a mut Vec<Action>,
}

/// Whether a namespace takes part.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Participation {
    /// It is not there.
    Absent,
    /// It is going away.
    Terminating,
    /// It does not; a sentence that says why.
    NotGlobal(String),
    /// It does.
    Global,
}

impl Engine {
    /// An engine that knows nothing yet.
    pub fn new(config: Config) -> Self {
        Self {
            presence: Presence::new(config.hold),
            reporting: Reporting::default(),
            config,
            world: World::default(),
            fleet: HashMap::new(),
            trusted: None,
            families: None,
            service_cidrs: Vec::new(),
            claims: Arc::default(),
            ahead: SignedDuration::ZERO,
            recorded: Arc::default(),
            refusing: Refusing::default(),
            listed: BTreeSet::new(),
            own: HashMap::new(),
            published: Published::default(),
            writes: Writes::default(),
            services: BTreeMap::new(),
            dirty: Dirty::default(),
            frozen: BTreeSet::new(),
            any_address: BTreeSet::new(),
            told: HashMap::new(),
            planned_total: 0,
        }
    }

    /// Takes one input in and says what to do: [`Self::observe`], then [`Self::act`].
    pub fn step(&mut self, now: Timestamp, input: Input) -> Vec<Action> {
        self.observe(now, input);
        self.act(now)
    }

    /// Takes one input in. A shell that has several at hand observes them all and acts once.
    pub fn observe(&mut self, now: Timestamp, input: Input) {
        match input {
            Input::Applied(object) => self.world.apply(&self.config, &object, &mut self.dirty),
            Input::Deleted {
                object,
                resource_version,
            } => {
                self.world
                    .remove(&object, &resource_version, &mut self.dirty);
                self.writes.forget(&object);
            }
            Input::ListBegan(Source::Objects(kind)) => self.world.list_began(kind),
            Input::ListBegan(Source::OwnRecords) => self.published.list_began(),
            Input::ListEnded { source, revision } => {
                match source {
                    Source::Objects(kind) => {
                        self.world.list_ended(kind, &revision, &mut self.dirty);
                    }
                    Source::OwnRecords => {
                        self.presence.own_listed();
                        self.published
                            .list_ended(&revision, &mut self.dirty.services);
                    }
                }
                self.listed.insert(source);
            }
            Input::Families(families) => {
                if self.families.as_ref() != Some(&families) {
                    self.families = Some(families);
                    self.dirty.namespaces.extend(self.services.keys().cloned());
                }
            }
            Input::ServiceCidrs(cidrs) => {
                if self.service_cidrs != cidrs {
                    self.service_cidrs = cidrs;
                    self.dirty.namespaces.extend(self.services.keys().cloned());
                }
            }
            Input::Outcome { id, outcome } => self.outcome(now, id, outcome),
            Input::TimeOfDay(ahead) => self.ahead = ahead,
            Input::Tick => {}
            Input::Fleet { .. }
            | Input::Claims(_)
            | Input::Recorded(_)
            | Input::Trusted(_)
            | Input::Peers(_)
            | Input::Heard(_)
            | Input::Revision(_)
            | Input::Regressed
            | Input::OwnRecord { .. }
            | Input::Session(_) => self.observe_registry(now, input),
        }
    }

    /// Takes in what the registry says.
    fn observe_registry(&mut self, now: Timestamp, input: Input) {
        match input {
            Input::Fleet { service, state } => {
                match state {
                    Some(state) => self.fleet.insert(service.clone(), state),
                    None => self.fleet.remove(&service),
                };
                self.dirty.services.insert(service);
            }
            Input::Trusted(trusted) => {
                if self.trusted.is_none() {
                    self.dirty.namespaces.extend(self.services.keys().cloned());
                }
                self.dirty.services.extend(self.frozen.iter().cloned());
                self.trusted = Some(trusted);
            }
            Input::Peers(peers) => {
                let changed = self.presence.peers(now, peers);
                self.peers_changed(&changed);
            }
            Input::Claims(claims) => self.claims = claims,
            Input::Recorded(recorded) => self.set_recorded(recorded),
            Input::Heard(is_heard) => self.presence.heard(now, is_heard),
            Input::Revision(revision) => self.reporting.revision(revision),
            Input::Regressed => {
                self.published.regressed(self.writes.last_id());
                self.published.list_began();
                self.reporting.regressed();
            }
            Input::OwnRecord {
                key: RecordKey::Report,
                record,
                ..
            } => {
                let report = match record {
                    Some(Record::Report(report)) => Some(Arc::new(report)),
                    _ => None,
                };
                if let Some(report) = &report {
                    self.presence.reported(report);
                }
                self.reporting.observe(report);
            }
            Input::OwnRecord {
                key,
                record,
                revision,
            } => {
                self.dirty
                    .services
                    .extend(self.published.observe(key, record, revision));
            }
            Input::Session(epoch) => {
                self.published.set_session(epoch);
                self.dirty
                    .services
                    .extend(self.published.unpublished().cloned());
            }
            Input::Applied(_)
            | Input::Deleted { .. }
            | Input::ListBegan(_)
            | Input::ListEnded { .. }
            | Input::Families(_)
            | Input::ServiceCidrs(_)
            | Input::Outcome { .. }
            | Input::TimeOfDay(_)
            | Input::Tick => {}
        }
    }

    /// The time of day at a step: what people are told.
    fn time_of_day(&self, now: Timestamp) -> Timestamp {
        now.checked_add(self.ahead).unwrap_or(now)
    }

    /// Everything that is to be done now.
    pub fn act(&mut self, now: Timestamp) -> Vec<Action> {
        let is_listed = LOCAL_SOURCES
            .iter()
            .all(|source| self.listed.contains(source));
        if !is_listed || self.families.is_none() {
            return Vec::new();
        }
        self.dirty.services.extend(self.writes.due(now));
        let over = self.presence.expire(now);
        self.peers_changed(&over);
        self.reporting.ended(&over);
        let mut dirty = std::mem::take(&mut self.dirty);
        dirty.services.extend(self.claimed(&dirty.addresses));
        for namespace in dirty.namespaces {
            let names = self.services.get(&namespace).into_iter().flatten();
            let keys = names.map(|name| ServiceKey::new(namespace.clone(), name.clone()));
            dirty.services.extend(keys);
        }
        let mut actions = Vec::new();
        for service in dirty.services {
            self.plan(now, &service, &mut actions);
        }
        self.plan_synced(now, &mut actions);
        self.plan_report(now, &mut actions);
        actions
    }

    /// When the engine wants a [`Input::Tick`], if nothing else happens before.
    pub fn next_due(&self) -> Option<Timestamp> {
        let due = [
            self.writes.next_due(),
            self.presence.next_due(),
            self.reporting.next_due(),
        ];
        due.into_iter().flatten().min()
    }

    /// How each cluster of the registry stands, and how many seconds of its hold are counted;
    /// `None` where nothing has changed since the last call.
    pub fn peers(&mut self, now: Timestamp) -> Option<Vec<(ClusterName, Standing, u64)>> {
        self.presence.news(now)
    }

    /// How many services were planned since the start: the work that inputs caused.
    pub const fn planned_total(&self) -> u64 {
        self.planned_total
    }

    /// Brings one service in order.
    fn plan(&mut self, now: Timestamp, service: &ServiceKey, actions: &mut Vec<Action>) {
        self.planned_total += 1;
        self.services
            .entry(service.namespace.clone())
            .or_default()
            .insert(service.name.clone());
        let participation = self.participation(&service.namespace);
        // The export's namespace will be heard of at any moment: nothing is concluded before.
        if participation == Participation::Absent && self.world.exports.contains_key(service) {
            self.published.wait_for(service);
            return;
        }
        self.judge_export(service, &participation);
        let step = &mut Step {
            now,
            service,
            actions,
        };
        self.plan_publication(step);
        self.judge_peers(now, service, &participation);
        let merged = self.merged(service);
        self.plan_export_status(step, merged.as_deref());
        self.plan_import(step, merged, &participation);
        self.tell_refusals(step);
        self.forget_if_gone(service);
    }

    /// Drops what is kept about a service that nothing is known of any more.
    fn forget_if_gone(&mut self, service: &ServiceKey) {
        let is_gone = self.world.is_empty_of(service)
            && !self.fleet.contains_key(service)
            && !self.own.contains_key(service)
            && !self.published.knows(service)
            && !self.writes.on_records(service);
        if !is_gone {
            return;
        }
        if let Some(names) = self.services.get_mut(&service.namespace) {
            names.remove(&service.name);
            if names.is_empty() {
                self.services.remove(&service.namespace);
            }
        }
        if let Ok(derived) = self.config.naming.name(service) {
            self.world.forget_derived(&service.sibling(&derived));
        }
        self.frozen.remove(service);
        self.any_address.remove(service);
        self.told.remove(service);
        self.refusing.forget(service);
        self.no_trouble(service);
    }

    fn participation(&self, namespace: &Namespace) -> Participation {
        let Some(object) = self.world.namespaces.get(namespace) else {
            return Participation::Absent;
        };
        if !self.config.namespaces.matches(&object.labels) {
            return Participation::NotGlobal(format!(
                "namespace {namespace} takes no part in the clusterset: its labels are not those \
                 that this cluster's --namespaces selects"
            ));
        }
        let problem = match &object.global {
            // Going away makes no namespace global: this comes after the selector and the marks.
            GlobalMark::Absent if !self.config.global_by_default => {
                format!("annotate it {ANNOTATION_GLOBAL}=true")
            }
            GlobalMark::True | GlobalMark::Absent if object.terminating => {
                return Participation::Terminating;
            }
            GlobalMark::True | GlobalMark::Absent => return Participation::Global,
            GlobalMark::False => format!("it is annotated {ANNOTATION_GLOBAL}=false"),
            GlobalMark::Other(value) => format!(
                "its annotation {ANNOTATION_GLOBAL} is {value:?}, which is neither true nor false"
            ),
        };
        Participation::NotGlobal(format!(
            "namespace {namespace} takes no part in the clusterset: {problem}"
        ))
    }

    /// Takes the answer to a write in.
    fn outcome(&mut self, now: Timestamp, id: ActionId, outcome: Outcome) {
        let Some(write) = self.writes.end(id) else {
            return;
        };
        let UnderWay {
            target,
            effect,
            service,
        } = write;
        self.dirty.services.extend(service.clone());
        match outcome {
            Outcome::Written(object) => {
                self.writes.succeeded(&target);
                if let Effect::Create(wanted)
                | Effect::Update { new: wanted, .. }
                | Effect::UpdateStatus { new: wanted, .. } = &effect
                {
                    self.writes.note_result(&target, wanted, &object);
                }
                self.world.apply(&self.config, &object, &mut self.dirty);
            }
            Outcome::Deleted => {
                self.writes.succeeded(&target);
                if let Effect::Delete(object) = &effect {
                    let reference = object.reference();
                    let version = object.resource_version();
                    self.world.remove(&reference, version, &mut self.dirty);
                    self.writes.forget(&reference);
                }
            }
            Outcome::Published(revision) => {
                self.writes.succeeded(&target);
                let is_of_another = self.published.is_of_another(id);
                match effect {
                    Effect::Publish { writes, .. } if is_of_another => {
                        self.published.unsure(writes);
                    }
                    Effect::Report(_) if is_of_another => self.reporting.changed(),
                    Effect::Publish { writes, .. } => self.published.acknowledged(writes, revision),
                    Effect::Synced(epoch) => self.published.synced(epoch),
                    Effect::Report(report) => self.reporting.acknowledged(report),
                    _ => {}
                }
            }
            Outcome::Outdated(current) => {
                self.meet(&target, &effect, current.as_ref());
                self.writes.outdated(&target, service.as_ref(), now);
            }
            Outcome::Refused(refusal) => {
                if matches!(effect, Effect::Report(_)) {
                    self.reporting.changed();
                }
                if is_about_addresses(&effect, refusal.kind) {
                    self.any_address.extend(service.clone());
                    self.writes.outdated(&target, service.as_ref(), now);
                } else {
                    self.writes
                        .failed(&target, service.as_ref(), &refusal.message, now);
                }
            }
            Outcome::Unknown(message) => {
                match effect {
                    Effect::Publish { writes, .. } => self.published.unsure(writes),
                    Effect::Report(_) => self.reporting.changed(),
                    _ => {}
                }
                self.writes.failed(&target, service.as_ref(), &message, now);
            }
        }
    }

    /// Takes in how an object stands that a write found other than it was thought to be.
    fn meet(&mut self, target: &Target, effect: &Effect, current: Option<&Object>) {
        match (target, current) {
            (Target::Object(..), Some(object)) => {
                self.world.apply(&self.config, object, &mut self.dirty);
            }
            (Target::Object(object, _), None) => {
                // One that was made since then is not the one that was not found.
                let version = match effect {
                    Effect::Update { old, .. }
                    | Effect::UpdateStatus { old, .. }
                    | Effect::Delete(old) => old.resource_version(),
                    Effect::Create(_)
                    | Effect::Publish { .. }
                    | Effect::Synced(_)
                    | Effect::Report(_)
                    | Effect::Event(_) => "",
                };
                self.world.remove(object, version, &mut self.dirty);
            }
            (Target::Records(_) | Target::Synced | Target::Report, _) => {}
        }
    }

    /// Makes a write of an object, unless one is under way, waits for its retry, or the object is
    /// contended.
    fn write(&mut self, step: &mut Step<'_>, effect: Effect) {
        let (now, service) = (step.now, step.service);
        let (part, object) = match &effect {
            Effect::Create(object)
            | Effect::Update { new: object, .. }
            | Effect::Delete(object) => (Part::Body, object),
            Effect::UpdateStatus { new: object, .. } => (Part::Status, object),
            Effect::Publish { .. } | Effect::Synced(_) | Effect::Report(_) | Effect::Event(_) => {
                return;
            }
        };
        let reference = object.reference();
        let target = Target::Object(reference.clone(), part);
        if self.writes.on_object(&reference).is_some() || !self.writes.is_due(&target, now) {
            return;
        }
        let is_correction = !matches!(effect, Effect::Delete(_));
        if is_correction && !self.writes.may_correct(&target, object, service, now) {
            return;
        }
        let id = self
            .writes
            .begin(target, effect.clone(), Some(service.clone()));
        step.actions.push(Action { id, effect });
    }

    /// Makes the status of an object what it should be. Says whether that is news: a write began
    /// that is no retry.
    fn update_status(&mut self, step: &mut Step<'_>, old: &Object, new: Object) -> bool {
        let target = Target::Object(old.reference(), Part::Status);
        if self.writes.is_settled(&target, &new, old) {
            return false;
        }
        let is_first = self.writes.failure(&target).is_none();
        let before = step.actions.len();
        let old = old.clone();
        self.write(step, Effect::UpdateStatus { old, new });
        is_first && step.actions.len() > before
    }

    /// Tells the user of an object something.
    fn tell(
        &mut self,
        step: &mut Step<'_>,
        about: &Object,
        warning: bool,
        reason: &'static str,
        message: Arc<str>,
    ) {
        let Some(meta) = about.meta() else { return };
        let event = Event {
            about: about.reference(),
            uid: Arc::clone(&meta.uid),
            warning,
            reason,
            message,
        };
        let id = self.writes.next_id();
        step.actions.push(Action {
            id,
            effect: Effect::Event(event),
        });
    }

    fn on_object(&self, kind: Kind, key: &ServiceKey) -> Option<&Effect> {
        self.writes.on_object(&ObjectRef {
            kind,
            key: key.clone(),
        })
    }
}

/// Whether a refusal is, or may be, about addresses that were asked for. Of an update a server only
/// says that it is invalid.
fn is_about_addresses(effect: &Effect, kind: RefusalKind) -> bool {
    let asks_more = match effect {
        Effect::Update {
            old: Object::Service(old),
            new: Object::Service(new),
        } => new.cluster_ips.len() > old.cluster_ips.len(),
        _ => false,
    };
    match kind {
        RefusalKind::AddressTaken => true,
        RefusalKind::Invalid => asks_more,
        RefusalKind::NamespaceTerminating | RefusalKind::Forbidden | RefusalKind::Other => false,
    }
}
