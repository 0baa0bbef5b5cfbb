//! One cluster at work: an engine between an API server and a registry, with everything that can
//! go wrong on the way at the hands of a test.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use tombolo_model::config::Config;
use tombolo_model::engine::Engine;
use tombolo_model::fleet::{Fleet, FleetInput};
use tombolo_model::io::{
    Action, ActionId, Effect, Event, Input, Outcome, Refusal, RefusalKind, Source,
};
use tombolo_model::object::{Kind, Object, ObjectRef};
use tombolo_model::record::{Origin, Record, RecordKey};
use tombolo_model::service::IpFamily;

use crate::apiserver::ApiServer;
use crate::judge::{self, Violations};
use crate::registry::{Registry, origin, settings_input};
use crate::seen::Seen;

/// All kinds, in the order in which a controller lists them.
pub const KINDS: [Kind; 5] = [
    Kind::Namespace,
    Kind::Service,
    Kind::EndpointSlice,
    Kind::ServiceExport,
    Kind::ServiceImport,
];

/// Rounds after which a site that still acts counts as one that never rests.
const ROUNDS_MAX: usize = 400;

/// What becomes of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is done, and said so.
    Done,
    /// It is refused.
    Refused,
    /// It is done, but the answer is lost.
    UnknownDone,
    /// It is not done, and the answer is lost.
    UnknownNotDone,
}

/// What a message is about, so that order can be kept per subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A watch event of an object.
    Object(ObjectRef),
    /// A watch event of a record, to the fleet.
    Record(Origin, RecordKey),
    /// A watch event of a record, to the engine.
    Own(RecordKey),
}

/// A message on its way to the engine.
#[derive(Clone, Debug)]
pub struct Mail {
    letter: Letter,
    /// `None`: it is neither lost nor doubled nor reordered.
    pub subject: Option<Subject>,
}

#[derive(Clone, Debug)]
enum Letter {
    Engine(Input),
    Fleet(FleetInput),
}

/// One cluster.
#[derive(Debug)]
pub struct Site {
    config: Config,
    /// Its API server.
    pub api: ApiServer,
    /// The time.
    pub now: Timestamp,
    engine: Engine,
    fleet: Fleet,
    seen: Seen,
    /// Messages under way to the engine.
    pub inbox: VecDeque<Mail>,
    pending: VecDeque<Action>,
    under_way: BTreeMap<ActionId, Effect>,
    cursor: usize,
    /// How many changes of members were told.
    member_cursor: usize,
    settings_cursor: usize,
    epoch: Option<u64>,
    /// What no engine may do, but this one did.
    pub violations: Violations,
    /// Whether events of one object reach the engine in their order.
    pub is_orderly: bool,
    /// How many actions the engine has asked for.
    pub actions_total: usize,
    /// The Events that users were told.
    pub told: Vec<Event>,
}

impl Site {
    /// A cluster with nothing in it, its engine started.
    pub fn new(config: Config, families: Vec<IpFamily>) -> Self {
        Self {
            engine: Engine::new(config.clone()),
            seen: Seen::new(config.clone(), families.clone()),
            api: ApiServer::new(families),
            config,
            now: Timestamp::UNIX_EPOCH + SignedDuration::from_hours(24 * 365 * 50),
            fleet: Fleet::default(),
            inbox: VecDeque::new(),
            pending: VecDeque::new(),
            under_way: BTreeMap::new(),
            cursor: 0,
            member_cursor: 0,
            settings_cursor: 0,
            epoch: None,
            violations: Violations::default(),
            is_orderly: true,
            actions_total: 0,
            told: Vec::new(),
        }
    }

    /// Its configuration.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Changes the configuration of the next process.
    pub fn reconfigure(&mut self, change: impl FnOnce(&mut Config)) {
        change(&mut self.config);
    }

    /// Where it writes in the registry.
    pub fn origin(&self) -> Origin {
        origin(&self.config.cluster)
    }

    /// Whether it may write to the registry now.
    pub const fn is_connected(&self) -> bool {
        self.epoch.is_some()
    }

    /// Actions that wait to be carried out.
    pub fn pending(&self) -> impl ExactSizeIterator<Item = &Action> {
        self.pending.iter()
    }

    /// Lets later actions overtake earlier ones: independent writes are made side by side.
    pub fn overtake(&mut self, count: usize) {
        let middle = count.min(self.pending.len());
        self.pending.rotate_left(middle);
    }

    /// The action that is carried out next.
    pub fn next_pending(&self) -> Option<&Action> {
        self.pending.front()
    }

    /// A new process: it knows nothing and lists everything, beginning anywhere.
    pub fn restart(&mut self, registry: &mut Registry, rotation: usize) {
        self.engine = Engine::new(self.config.clone());
        self.fleet = Fleet::default();
        self.seen = Seen::new(self.config.clone(), self.api.families().to_vec());
        self.inbox.clear();
        self.pending.clear();
        self.under_way.clear();
        self.api.events.clear();
        self.cursor = registry.log.len();
        self.member_cursor = registry.members.len();
        self.settings_cursor = registry.settings.len();
        self.epoch = None;
        self.connect(registry);
        let mut parts: Vec<Vec<Mail>> = KINDS.iter().map(|kind| self.listing(*kind)).collect();
        parts.push(fleet_listing(registry));
        parts.push(self.own_listing(registry));
        parts.push(self.network().map(mail).into());
        let middle = rotation % parts.len();
        parts.rotate_left(middle);
        self.inbox.extend(parts.into_iter().flatten());
    }

    /// Another process over what this one's servers hold, which has listed everything.
    #[must_use]
    pub fn twin(&self, registry: &mut Registry) -> Self {
        let mut twin = Self::new(self.config.clone(), self.api.families().to_vec());
        twin.api = self.api.clone();
        twin.now = self.now;
        twin.restart(registry, 0);
        twin
    }

    /// Tells the engine what the network is like.
    pub fn tell_network(&mut self) {
        self.inbox.extend(self.network().map(mail));
    }

    fn network(&self) -> [Input; 2] {
        [
            Input::ServiceCidrs(self.api.service_cidrs.clone()),
            Input::Families(self.api.families().to_vec()),
        ]
    }

    /// Opens a session, unless there is one.
    pub fn connect(&mut self, registry: &mut Registry) {
        if self.epoch.is_none() {
            let epoch = registry.next_epoch();
            registry.open_session(&self.origin(), epoch);
            self.epoch = Some(epoch);
            self.inbox.push_back(mail(Input::Session(Some(epoch))));
        }
    }

    /// Loses the registry.
    pub fn disconnect(&mut self) {
        if self.epoch.take().is_some() {
            self.inbox.push_back(mail(Input::Session(None)));
        }
    }

    /// Lists a kind again.
    pub fn relist(&mut self, kind: Kind, registry: &Registry) {
        self.pump(registry);
        let listing = self.listing(kind);
        self.inbox.extend(listing);
    }

    /// Lists the registry again, for the fleet and for the own partition.
    pub fn relist_registry(&mut self, registry: &Registry) {
        self.pump(registry);
        self.inbox.extend(fleet_listing(registry));
        let own = self.own_listing(registry);
        self.inbox.extend(own);
    }

    /// Learns that the registry was set back: the session is over, everything is listed again.
    pub fn regress(&mut self, registry: &Registry) {
        self.disconnect();
        self.cursor = registry.log.len();
        self.inbox.push_back(Mail {
            letter: Letter::Fleet(FleetInput::Regressed),
            subject: None,
        });
        self.inbox.push_back(mail(Input::Regressed));
        self.relist_registry(registry);
    }

    /// Learns that this was long ago.
    pub fn believe(&mut self) {
        self.inbox.push_back(Mail {
            letter: Letter::Fleet(FleetInput::Believed),
            subject: None,
        });
    }

    fn listing(&self, kind: Kind) -> Vec<Mail> {
        let source = Source::Objects(kind);
        let (objects, revision) = self.api.list(kind);
        let mut mails = vec![mail(Input::ListBegan(source))];
        mails.extend(objects.into_iter().map(|o| mail(Input::Applied(o))));
        mails.push(mail(Input::ListEnded { source, revision }));
        mails
    }

    fn own_listing(&self, registry: &Registry) -> Vec<Mail> {
        let source = Source::OwnRecords;
        let revision = registry.revision();
        let mut mails = vec![mail(Input::ListBegan(source))];
        for (key, record) in registry.partition(&self.origin()) {
            mails.push(mail(Input::OwnRecord {
                key,
                record: Some(record),
                revision,
            }));
        }
        mails.push(mail(Input::ListEnded {
            source,
            revision: revision.to_string().into(),
        }));
        mails
    }

    /// Puts what the watches saw into the inbox.
    pub fn pump(&mut self, registry: &Registry) {
        for input in std::mem::take(&mut self.api.events) {
            let subject = match &input {
                Input::Applied(object) => Some(object.reference()),
                Input::Deleted { object, .. } => Some(object.clone()),
                _ => None,
            };
            self.inbox.push_back(Mail {
                letter: Letter::Engine(input),
                subject: subject.map(Subject::Object),
            });
        }
        let own = self.origin();
        for change in &registry.log[self.cursor..] {
            self.inbox.push_back(Mail {
                letter: Letter::Fleet(change.to_fleet()),
                subject: Some(Subject::Record(change.origin.clone(), change.key.clone())),
            });
            if change.origin == own {
                self.inbox.push_back(Mail {
                    letter: Letter::Engine(Input::OwnRecord {
                        key: change.key.clone(),
                        record: change.record.clone(),
                        revision: change.revision,
                    }),
                    subject: Some(Subject::Own(change.key.clone())),
                });
            }
        }
        self.cursor = registry.log.len();
        for (origin, member) in &registry.members[self.member_cursor..] {
            self.inbox.push_back(fleet_mail(FleetInput::Member {
                origin: origin.clone(),
                member: Some(member.clone()),
            }));
        }
        self.member_cursor = registry.members.len();
        for settings in &registry.settings[self.settings_cursor..] {
            let input = settings_input(*settings);
            self.inbox.push_back(fleet_mail(input));
        }
        self.settings_cursor = registry.settings.len();
    }

    /// The watch of the registry is live, or is not.
    pub fn hear(&mut self, is_heard: bool) {
        self.inbox.push_back(mail(Input::Heard(is_heard)));
    }

    /// Somebody sets the clock, so far ahead of the time that goes on evenly.
    pub fn set_clock(&mut self, ahead_secs: i64) {
        let ahead = SignedDuration::from_secs(ahead_secs);
        self.inbox.push_back(mail(Input::TimeOfDay(ahead)));
    }

    /// Gives the engine the next messages, in one batch.
    pub fn deliver(&mut self, registry: &Registry, count: usize) {
        self.pump(registry);
        let mut inputs = Vec::new();
        for _ in 0..count {
            match self.inbox.pop_front().map(|mail| mail.letter) {
                None => break,
                Some(Letter::Engine(input)) => inputs.push(input),
                Some(Letter::Fleet(input)) => {
                    self.fleet.observe(input);
                    inputs.extend(self.fleet.drain());
                }
            }
        }
        self.feed(registry, inputs);
    }

    /// Lets time pass.
    pub fn wait(&mut self, registry: &Registry, secs: i64) {
        self.now += SignedDuration::from_secs(secs);
        self.feed(registry, vec![Input::Tick]);
    }

    fn feed(&mut self, registry: &Registry, inputs: Vec<Input>) {
        for input in inputs {
            let effect = match &input {
                Input::Outcome { id, .. } => self.under_way.remove(id),
                _ => None,
            };
            self.seen.observe(&input, effect.as_ref());
            self.engine.observe(self.now, input);
        }
        for action in self.engine.act(self.now) {
            if let Effect::Event(event) = action.effect {
                self.told.push(event);
                continue;
            }
            self.actions_total += 1;
            judge::action(self, &action, registry);
            self.under_way.insert(action.id, action.effect.clone());
            self.pending.push_back(action);
        }
    }

    /// The engine at work.
    pub const fn engine(&self) -> &Engine {
        &self.engine
    }

    /// What the engine was shown.
    pub const fn seen(&self) -> &Seen {
        &self.seen
    }

    /// What is asked for and not answered yet.
    pub fn under_way(&self) -> impl Iterator<Item = &Effect> {
        self.under_way.values()
    }

    /// Carries the next action out, or does not.
    pub fn perform(&mut self, registry: &mut Registry, fate: Fate) {
        let Some(action) = self.pending.pop_front() else {
            return;
        };
        let unknown = || Outcome::Unknown("the connection was lost".into());
        let outcome = match fate {
            Fate::Refused => refused(),
            Fate::UnknownNotDone => unknown(),
            Fate::Done => self.carry_out(registry, &action.effect),
            Fate::UnknownDone => {
                self.carry_out(registry, &action.effect);
                unknown()
            }
        };
        let id = action.id;
        self.inbox.push_back(mail(Input::Outcome { id, outcome }));
    }

    fn carry_out(&mut self, registry: &mut Registry, effect: &Effect) -> Outcome {
        if let Some(outcome) = self.api.perform(effect) {
            return outcome;
        }
        let origin = self.origin();
        match effect {
            Effect::Publish { writes, .. } if self.epoch.is_some() => {
                Outcome::Published(registry.publish(&origin, writes))
            }
            Effect::Synced(epoch) if self.epoch == Some(*epoch) => {
                let record = Some(Record::Synced(*epoch));
                Outcome::Published(registry.put(&origin, RecordKey::Synced, record))
            }
            Effect::Report(report) if self.epoch.is_some() => {
                let record = Some(Record::Report((**report).clone()));
                Outcome::Published(registry.put(&origin, RecordKey::Report, record))
            }
            _ => refused(),
        }
    }

    /// Delivers and carries out until nothing is left, without waiting for anything.
    pub fn run(&mut self, registry: &mut Registry) {
        for _ in 0..ROUNDS_MAX {
            self.pump(registry);
            if self.inbox.is_empty() && self.pending.is_empty() {
                return;
            }
            self.deliver(registry, usize::MAX);
            while !self.pending.is_empty() {
                self.perform(registry, Fate::Done);
            }
        }
        self.violations
            .add("the engine does not come to rest".to_owned());
    }

    /// Lists everything again, and lets time pass until nothing is left to do. Watch events that
    /// are still under way are lost.
    pub fn settle(&mut self, registry: &mut Registry) {
        self.pump(registry);
        self.inbox.retain(|mail| mail.subject.is_none());
        self.catch_up(registry);
        for kind in KINDS {
            self.relist(kind, registry);
        }
        self.relist_registry(registry);
        self.rest(registry);
    }

    /// Comes to rest by what watches tell alone: they have lost nothing.
    pub fn follow(&mut self, registry: &mut Registry) {
        self.pump(registry);
        self.catch_up(registry);
        self.rest(registry);
    }

    fn catch_up(&mut self, registry: &mut Registry) {
        self.api.release();
        self.connect(registry);
        self.hear(true);
        while !self.pending.is_empty() {
            self.perform(registry, Fate::Done);
        }
        self.run(registry);
        self.tell_network();
    }

    /// Lets time pass until nothing is left to do.
    fn rest(&mut self, registry: &mut Registry) {
        for _ in 0..ROUNDS_MAX {
            self.run(registry);
            self.api.collect_garbage();
            self.pump(registry);
            if !self.inbox.is_empty() {
                continue;
            }
            let Some(due) = self.engine.next_due() else {
                return;
            };
            self.now = self.now.max(due);
            self.feed(registry, vec![Input::Tick]);
        }
        self.violations.add(format!(
            "something is due for ever: {:?}",
            self.engine.next_due()
        ));
    }
}

fn fleet_listing(registry: &Registry) -> Vec<Mail> {
    registry.listing().into_iter().map(fleet_mail).collect()
}

fn fleet_mail(input: FleetInput) -> Mail {
    Mail {
        letter: Letter::Fleet(input),
        subject: None,
    }
}

fn mail(input: Input) -> Mail {
    Mail {
        letter: Letter::Engine(input),
        subject: None,
    }
}

fn refused() -> Outcome {
    Outcome::Refused(Refusal {
        kind: RefusalKind::Other,
        message: Arc::from("not now"),
    })
}

/// The object that an effect writes.
pub fn written(effect: &Effect) -> Option<&Object> {
    match effect {
        Effect::Create(object)
        | Effect::Update { new: object, .. }
        | Effect::UpdateStatus { new: object, .. }
        | Effect::Delete(object) => Some(object),
        Effect::Publish { .. } | Effect::Synced(_) | Effect::Report(_) | Effect::Event(_) => None,
    }
}
