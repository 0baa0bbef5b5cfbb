//! Writes under way: at most one per object, failures retried with back-off, servers that change
//! what was written, and other managers that change it back (DESIGN §2.1, §2.3).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

use jiff::{SignedDuration, Timestamp};

use crate::compare::{Part, fingerprint, same};
use crate::io::{ActionId, Effect};
use crate::names::ServiceKey;
use crate::object::{Object, ObjectRef};

#[cfg(test)]
mod tests;

/// The first retry comes soon: most failures are a server that restarts or a lost race.
const RETRY_MIN: SignedDuration = SignedDuration::from_millis(200);
/// The longest wait between retries: long enough to be no load, short enough to be repaired
/// within a minute.
const RETRY_MAX: SignedDuration = SignedDuration::from_secs(60);
/// Changing an object back so often within [`CONTEST_WINDOW`] means that somebody else insists.
const CONTEST_COUNT: usize = 3;
const CONTEST_WINDOW: SignedDuration = SignedDuration::from_secs(60);
/// How long a contended object is left alone.
const CONTEST_PAUSE: SignedDuration = SignedDuration::from_secs(600);

/// What is written by one write at a time.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Target {
    /// A part of an object. Writes of both parts exclude each other.
    Object(ObjectRef, Part),
    /// The own records of a service.
    Records(ServiceKey),
    /// The `synced` mark.
    Synced,
    /// The `report`.
    Report,
}

/// A write that has not been answered.
#[derive(Clone, Debug)]
pub(crate) struct UnderWay {
    pub(crate) target: Target,
    pub(crate) effect: Effect,
    /// The service that asked for it.
    pub(crate) service: Option<ServiceKey>,
}

/// All writes of an engine.
#[derive(Debug, Default)]
pub(crate) struct Writes {
    last_id: u64,
    under_way: BTreeMap<ActionId, UnderWay>,
    by_object: HashMap<ObjectRef, ActionId>,
    by_records: HashMap<ServiceKey, ActionId>,
    synced: Option<ActionId>,
    report: Option<ActionId>,
    /// All that a service asked for.
    by_service: HashMap<ServiceKey, BTreeSet<ActionId>>,
    retries: HashMap<Target, Retry>,
    /// (wanted, result) where the server did not take the wanted content as it was.
    bent: HashMap<Target, (u64, u64)>,
    corrections: HashMap<Target, Corrections>,
    /// When which services are to be planned again.
    timers: BTreeMap<Timestamp, BTreeSet<ServiceKey>>,
    /// When marks that belong to no service are tried again.
    marks_due: BTreeSet<Timestamp>,
    /// When notes about old corrections are dropped next.
    purge_due: Option<Timestamp>,
}

/// A write that failed.
#[derive(Clone, Debug)]
pub(crate) struct Retry {
    attempts: u32,
    due: Timestamp,
    /// The server's words.
    pub(crate) message: std::sync::Arc<str>,
}

/// Writes of the same content to one object.
#[derive(Debug)]
struct Corrections {
    wanted: u64,
    times: Vec<Timestamp>,
    paused_until: Option<Timestamp>,
}

impl Writes {
    /// Begins a write and gives it an id.
    pub(crate) fn begin(
        &mut self,
        target: Target,
        effect: Effect,
        service: Option<ServiceKey>,
    ) -> ActionId {
        let id = self.next_id();
        match &target {
            Target::Object(object, _) => {
                self.by_object.insert(object.clone(), id);
            }
            Target::Records(service) => {
                self.by_records.insert(service.clone(), id);
            }
            Target::Synced => self.synced = Some(id),
            Target::Report => self.report = Some(id),
        }
        if let Some(service) = &service {
            self.by_service
                .entry(service.clone())
                .or_default()
                .insert(id);
        }
        self.under_way.insert(
            id,
            UnderWay {
                target,
                effect,
                service,
            },
        );
        id
    }

    /// The id of the action that began last.
    pub(crate) const fn last_id(&self) -> ActionId {
        ActionId(self.last_id)
    }

    /// An id for an action that is not answered.
    pub(crate) fn next_id(&mut self) -> ActionId {
        self.last_id += 1;
        ActionId(self.last_id)
    }

    /// Ends a write; `None` if there is none of this id.
    pub(crate) fn end(&mut self, id: ActionId) -> Option<UnderWay> {
        let write = self.under_way.remove(&id)?;
        match &write.target {
            Target::Object(object, _) => {
                self.by_object.remove(object);
            }
            Target::Records(service) => {
                self.by_records.remove(service);
            }
            Target::Synced => self.synced = None,
            Target::Report => self.report = None,
        }
        if let Some(service) = &write.service
            && let Some(ids) = self.by_service.get_mut(service)
        {
            ids.remove(&id);
            if ids.is_empty() {
                self.by_service.remove(service);
            }
        }
        Some(write)
    }

    /// The write that is under way for an object.
    pub(crate) fn on_object(&self, object: &ObjectRef) -> Option<&Effect> {
        self.by_object
            .get(object)
            .and_then(|id| self.under_way.get(id))
            .map(|w| &w.effect)
    }

    /// The slices of a service's import that are being created.
    pub(crate) fn slices_being_created<'a>(
        &'a self,
        service: &'a ServiceKey,
    ) -> impl Iterator<Item = &'a std::sync::Arc<crate::object::SliceObject>> {
        let ids = self.by_service.get(service).into_iter().flatten();
        ids.filter_map(
            |id| match self.under_way.get(id).map(|write| &write.effect) {
                Some(Effect::Create(Object::EndpointSlice(slice))) => Some(slice),
                _ => None,
            },
        )
    }

    /// Whether records of a service are being written.
    pub(crate) fn on_records(&self, service: &ServiceKey) -> bool {
        self.by_records.contains_key(service)
    }

    /// Whether the `synced` mark is being written.
    pub(crate) const fn on_synced(&self) -> bool {
        self.synced.is_some()
    }

    /// Whether the report is being written.
    pub(crate) const fn on_report(&self) -> bool {
        self.report.is_some()
    }

    /// Whether a target may be written now: not while a failed write waits for its retry.
    pub(crate) fn is_due(&self, target: &Target, now: Timestamp) -> bool {
        self.retries
            .get(target)
            .is_none_or(|retry| retry.due <= now)
    }

    /// The last failure of a target, until a write succeeds.
    pub(crate) fn failure(&self, target: &Target) -> Option<&Retry> {
        self.retries.get(target)
    }

    /// A write succeeded, or its target is not wanted any more.
    pub(crate) fn succeeded(&mut self, target: &Target) {
        self.retries.remove(target);
    }

    /// A write failed: it is made again after a while that grows.
    pub(crate) fn failed(
        &mut self,
        target: &Target,
        service: Option<&ServiceKey>,
        message: &std::sync::Arc<str>,
        now: Timestamp,
    ) {
        let attempts = self.retries.get(target).map_or(0, |retry| retry.attempts) + 1;
        let due = later(now, delay(target, attempts));
        let retry = Retry {
            attempts,
            due,
            message: std::sync::Arc::clone(message),
        };
        self.retries.insert(target.clone(), retry);
        match service {
            Some(service) => self.wake(service, due),
            None => {
                self.marks_due.insert(due);
            }
        }
        // A write that failed has corrected nothing.
        if let Some(corrections) = self.corrections.get_mut(target) {
            corrections.times.pop();
        }
    }

    /// A write met another state than it was made for: the first such is planned again at once,
    /// further ones as failures.
    pub(crate) fn outdated(
        &mut self,
        target: &Target,
        service: Option<&ServiceKey>,
        now: Timestamp,
    ) {
        let message = "the object changed at the same time".into();
        self.failed(target, service, &message, now);
        if let Some(retry) = self.retries.get_mut(target)
            && retry.attempts == 1
        {
            retry.due = now;
        }
    }

    /// Plans a service again at a time.
    pub(crate) fn wake(&mut self, service: &ServiceKey, at: Timestamp) {
        self.timers.entry(at).or_default().insert(service.clone());
    }

    /// The services whose time has come.
    pub(crate) fn due(&mut self, now: Timestamp) -> BTreeSet<ServiceKey> {
        let mut due = BTreeSet::new();
        while let Some(entry) = self
            .timers
            .first_entry()
            .filter(|entry| *entry.key() <= now)
        {
            due.extend(entry.remove());
        }
        self.marks_due.retain(|at| *at > now);
        if self.purge_due.is_none_or(|at| at <= now) {
            self.purge_due = Some(later(now, CONTEST_WINDOW));
            self.corrections.retain(|_, c| {
                let last = c.times.last().copied();
                c.paused_until.is_some_and(|until| until > now)
                    || last.is_some_and(|last| now.duration_since(last) < CONTEST_WINDOW)
            });
        }
        due
    }

    /// When something is due next.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.timers
            .keys()
            .next()
            .copied()
            .into_iter()
            .chain(self.marks_due.first().copied())
            .min()
    }

    /// Whether an object already is what it can be: equal to what is wanted, or to what the
    /// server made of the same content before. A failure to make it so is then over: its outcome
    /// was unknown, or somebody else did it.
    pub(crate) fn is_settled(
        &mut self,
        target: &Target,
        wanted: &Object,
        present: &Object,
    ) -> bool {
        let Target::Object(_, part) = target else {
            return false;
        };
        let is_settled = same(*part, wanted, present)
            || self.bent.get(target).is_some_and(|&(asked, got)| {
                asked == fingerprint(*part, wanted) && got == fingerprint(*part, present)
            });
        if is_settled {
            self.retries.remove(target);
        }
        is_settled
    }

    /// Notes what a server made of a write.
    pub(crate) fn note_result(&mut self, target: &Target, wanted: &Object, result: &Object) {
        let Target::Object(_, part) = target else {
            return;
        };
        if same(*part, wanted, result) {
            self.bent.remove(target);
        } else {
            let pair = (fingerprint(*part, wanted), fingerprint(*part, result));
            self.bent.insert(target.clone(), pair);
        }
    }

    /// Whether an object may be written with this content, or was changed back too often.
    /// Counts the write that the caller is about to make.
    pub(crate) fn may_correct(
        &mut self,
        target: &Target,
        wanted: &Object,
        service: &ServiceKey,
        now: Timestamp,
    ) -> bool {
        let Target::Object(_, part) = target else {
            return true;
        };
        let wanted = fingerprint(*part, wanted);
        let fresh = || Corrections {
            wanted,
            // Most objects are written once: a fleet has millions of these.
            times: Vec::with_capacity(1),
            paused_until: None,
        };
        let corrections = self.corrections.entry(target.clone()).or_insert_with(fresh);
        if corrections.wanted != wanted
            || corrections.paused_until.is_some_and(|until| until <= now)
        {
            *corrections = fresh();
        }
        if corrections.paused_until.is_some() {
            return false;
        }
        corrections
            .times
            .retain(|&time| now.duration_since(time) < CONTEST_WINDOW);
        if corrections.times.len() >= CONTEST_COUNT {
            let until = later(now, CONTEST_PAUSE);
            corrections.paused_until = Some(until);
            self.wake(service, until);
            return false;
        }
        corrections.times.push(now);
        true
    }

    /// Whether an object is left alone as another manager insists on its own content.
    pub(crate) fn is_contended(&self, target: &Target, now: Timestamp) -> bool {
        let corrections = self.corrections.get(target);
        corrections.is_some_and(|c| c.paused_until.is_some_and(|until| until > now))
    }

    /// Forgets what was noted about an object that is gone.
    pub(crate) fn forget(&mut self, object: &ObjectRef) {
        for part in [Part::Body, Part::Status] {
            let target = Target::Object(object.clone(), part);
            self.bent.remove(&target);
            self.retries.remove(&target);
        }
    }
}

/// How long to wait before a retry: doubling, with jitter from a hash of target and attempt.
fn delay(target: &Target, attempts: u32) -> SignedDuration {
    let doubled = RETRY_MIN.saturating_mul(1 << attempts.saturating_sub(1).min(16));
    let base = doubled.min(RETRY_MAX);
    let mut hasher = DefaultHasher::new();
    (target, attempts).hash(&mut hasher);
    // Between three quarters and five quarters of it.
    let permille = 750 + i32::try_from(hasher.finish() % 500).unwrap_or(0);
    base.saturating_mul(permille) / 1000
}

fn later(now: Timestamp, after: SignedDuration) -> Timestamp {
    now.checked_add(after).unwrap_or(Timestamp::MAX)
}
