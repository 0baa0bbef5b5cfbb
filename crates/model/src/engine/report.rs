//! The report: what this cluster says of its own imports, for status in other clusters and for
//! itself after a restart (DESIGN §2.2). Written on change, but not often.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::engine::{Engine, Step};
use crate::io::{Action, Effect, Source};
use crate::names::{ClusterName, ServiceKey};
use crate::object::ImportObject;
use crate::record::{Report, ReportedService};
use crate::status::Wanted;
use crate::writes::Target;

/// Every cluster of the fleet is told of each one.
const SPACING_MIN: SignedDuration = SignedDuration::from_secs(10);
/// How much of a hold a restart may count twice.
const COUNTING_SPACING: SignedDuration = SignedDuration::from_secs(60);
/// The most services that a report names.
const SERVICES_MAX: usize = 1_000;

/// What is reported and what was.
#[derive(Debug, Default)]
pub(super) struct Reporting {
    /// The services that are not in order: a reason, and since when.
    troubles: BTreeMap<ServiceKey, (Arc<str>, Timestamp)>,
    /// As the registry has it, as far as that is known.
    published: Option<Arc<Report>>,
    /// When it was put last, or could have been for the first time.
    put_at: Option<Timestamp>,
    is_counting: bool,
    /// Whether it could be put, were it time.
    is_possible: bool,
    /// Whether anything may have changed since it was put.
    is_changed: bool,
    /// Everything up to here was told.
    revision: u64,
}

impl Reporting {
    /// Takes in what the registry has.
    pub(super) fn observe(&mut self, report: Option<Arc<Report>>) {
        if self.published != report {
            self.published = report;
            self.is_changed = true;
        }
    }

    /// What was put is not there any more, unless a listing shows it.
    pub(super) fn regressed(&mut self) {
        self.revision = 0;
        self.observe(None);
    }

    pub(super) fn revision(&mut self, revision: u64) {
        self.revision = self.revision.max(revision);
    }

    /// That a hold has ended is put at once: a restart must not use those endpoints again.
    pub(super) const fn ended(&mut self, over: &[ClusterName]) {
        if !over.is_empty() {
            self.put_at = None;
        }
    }

    pub(super) const fn changed(&mut self) {
        self.is_changed = true;
    }

    pub(super) fn acknowledged(&mut self, report: Arc<Report>) {
        self.published = Some(report);
    }

    /// When it is to be put next, if at all.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        let spacing = match (self.is_changed, self.is_counting) {
            _ if !self.is_possible => return None,
            (true, _) => SPACING_MIN,
            (false, true) => COUNTING_SPACING,
            (false, false) => return None,
        };
        self.put_at?.checked_add(spacing).ok()
    }
}

/// Whether two reports say the same but for how far counting is.
fn is_alike(a: &Report, b: &Report) -> bool {
    let names = |report: &Report| {
        let missing = report.missing.iter();
        missing
            .map(|m| m.cluster.clone())
            .collect::<Vec<ClusterName>>()
    };
    a.not_in_order == b.not_in_order && names(a) == names(b)
}

impl Engine {
    /// Notes whether an import is in order.
    pub(super) fn note_trouble(&mut self, step: &Step<'_>, present: &ImportObject, ready: &Wanted) {
        if ready.status {
            return self.no_trouble(step.service);
        }
        let conditions = present.status.conditions.iter();
        let mut told = conditions.filter(|c| c.kind.as_ref() == ready.kind);
        let told = told.find(|c| c.status.as_ref() == "False");
        let known = self.reporting.troubles.get(step.service);
        // What the status says is what the next process finds.
        let since = told
            .map(|condition| condition.last_transition)
            .or_else(|| known.map(|known| known.1))
            .unwrap_or_else(|| self.time_of_day(step.now));
        let trouble = (Arc::clone(&ready.reason), since);
        if known != Some(&trouble) {
            let service = step.service.clone();
            self.reporting.troubles.insert(service, trouble);
            self.reporting.is_changed = true;
        }
    }

    pub(super) fn no_trouble(&mut self, service: &ServiceKey) {
        if self.reporting.troubles.remove(service).is_some() {
            self.reporting.is_changed = true;
        }
    }

    /// Puts the report where it is not what it should be.
    pub(super) fn plan_report(&mut self, now: Timestamp, actions: &mut Vec<Action>) {
        let own = self.config.cluster.clone();
        self.reporting.is_counting = self.presence.is_counting(&own);
        self.reporting.is_possible = self.published.session().is_some()
            && self.listed.contains(&Source::OwnRecords)
            && self.trusted.is_some()
            && !self.writes.on_report()
            && self.writes.is_due(&Target::Report, now);
        if !self.reporting.is_possible {
            return;
        }
        let is_first = self.reporting.put_at.is_none();
        if is_first {
            self.reporting.put_at = Some(now);
        }
        let is_due = self.reporting.next_due().is_some_and(|due| due <= now);
        if !is_due && (!is_first || !self.reporting.is_changed) {
            return;
        }
        let is_changed = std::mem::take(&mut self.reporting.is_changed);
        let report = self.report(now);
        let nothing = Report::default();
        let published = self.reporting.published.as_deref().unwrap_or(&nothing);
        let counts = !is_changed && self.reporting.is_counting;
        if is_alike(published, &report) && !counts && !self.holds_ended(published, &report) {
            return;
        }
        self.reporting.put_at = Some(now);
        self.reporting.is_possible = false;
        let effect = Effect::Report(Arc::new(report));
        let id = self.writes.begin(Target::Report, effect.clone(), None);
        actions.push(Action { id, effect });
    }

    /// Whether a hold has ended that was not said to have: a restart must not begin it again.
    fn holds_ended(&self, published: &Report, report: &Report) -> bool {
        let hold = u64::try_from(self.config.hold.as_secs()).unwrap_or(0);
        let pairs = published.missing.iter().zip(&report.missing);
        pairs
            .into_iter()
            .any(|(old, new)| old.held_secs < hold && new.held_secs >= hold)
    }

    fn report(&self, now: Timestamp) -> Report {
        let troubles = self.reporting.troubles.iter().take(SERVICES_MAX);
        Report {
            applied_revision: self.reporting.revision,
            not_in_order: troubles
                .map(|(service, (reason, since))| ReportedService {
                    service: service.clone(),
                    reason: Arc::clone(reason),
                    since: *since,
                })
                .collect(),
            missing: self.presence.missing(now, &self.config.cluster),
        }
    }

    /// Everything of these clusters is planned again.
    pub(super) fn peers_changed<'a>(
        &mut self,
        clusters: impl IntoIterator<Item = &'a ClusterName>,
    ) {
        let clusters: Vec<&ClusterName> = clusters.into_iter().collect();
        if clusters.is_empty() {
            return;
        }
        self.reporting.changed();
        let services = self.fleet.iter().filter(|(_, fleet)| {
            let stated = fleet.clusters();
            clusters.iter().any(|cluster| stated.contains_key(*cluster))
        });
        let services = services.map(|(service, _)| service.clone());
        self.dirty.services.extend(services);
        if clusters.contains(&&self.config.cluster) {
            self.dirty.services.extend(self.own.keys().cloned());
        }
    }
}
