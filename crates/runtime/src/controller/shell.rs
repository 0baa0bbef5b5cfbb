//! The shell around one cluster's engine: reports in, actions out, answers back. One task owns all
//! of it, so that nothing is locked and no two decisions overlap.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};
use jiff::Timestamp;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tombolo_cluster::api::{EventSender, Report, Standing, WRITES_MAX, WatchState, Writer};
use tombolo_model::engine::Engine;
use tombolo_model::io::{Action, Effect, Input, Outcome};
use tombolo_model::object::Kind;
use tombolo_registry::registry::Registry;
use tracing::{debug, info, warn};

use super::session::Network;
use super::status::{Beat, Status};
use crate::clock::{self, Steady};
use crate::lane::{Done, Lane, PUBLISH_MAX, effect_word, publish};
use crate::metrics::ActionMetrics;
use crate::reader::log_refused;

/// Reports that wait for a shell: one page of a list each at most, so a few MiB.
pub(crate) const REPORTS_MAX: usize = 256;
/// Reports that are taken in before anything is decided.
const BATCH_MAX: usize = 256;
/// How long a shell sleeps at most, so that its health can be seen.
const BEAT: Duration = Duration::from_secs(1);

/// One cluster's engine with everything that it acts by.
pub(crate) struct Shell<R> {
    pub(crate) engine: Engine,
    pub(crate) writer: Writer,
    pub(crate) events: EventSender,
    pub(crate) registry: Arc<R>,
    pub(crate) reports: mpsc::Receiver<Report>,
    pub(crate) standing: watch::Receiver<Standing>,
    pub(crate) network: watch::Sender<Network>,
    pub(crate) status: Arc<Status>,
    pub(crate) metrics: ActionMetrics,
    /// What the engine's time is.
    pub(crate) clock: Steady,
    /// The kinds that cannot be listed, and since when.
    pub(crate) unseen: BTreeMap<Kind, Timestamp>,
}

/// The lanes of a shell.
struct Lanes {
    objects: Lane,
    records: Lane,
}

impl<R: Registry + 'static> Shell<R> {
    /// Runs until it is stopped; what is being written then is waited for.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut lanes = Lanes {
            objects: Lane::new(WRITES_MAX),
            records: Lane::new(PUBLISH_MAX),
        };
        loop {
            let due = self.until_due();
            let mut reported = None;
            let mut done = None;
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                changed = self.standing.changed() => {
                    // A lease keeper that is gone is observed by the supervisor.
                    if changed.is_err() { break }
                }
                ended = lanes.objects.running.next(), if !lanes.objects.running.is_empty() => {
                    done = ended;
                }
                ended = lanes.records.running.next(), if !lanes.records.running.is_empty() => {
                    done = ended;
                }
                report = self.reports.recv() => match report {
                    Some(report) => reported = Some(report),
                    None => break,
                },
                () = sleep(due) => {}
            }
            let now = self.clock.now();
            if let Some(ahead) = self.clock.news(clock::now()) {
                self.engine.observe(now, Input::TimeOfDay(ahead));
            }
            self.observe_all(now, done, reported, &mut lanes);
            self.act(now, &mut lanes);
            // However much there is to do, the lease is renewed in between.
            tokio::task::yield_now().await;
        }
        self.finish(lanes).await;
    }

    /// Takes in all that is at hand.
    fn observe_all(
        &mut self,
        now: Timestamp,
        done: Option<Done>,
        reported: Option<Report>,
        lanes: &mut Lanes,
    ) {
        let mut next = done;
        while let Some(done) = next {
            self.ended(now, done);
            next = lanes.objects.ended().or_else(|| lanes.records.ended());
        }
        let mut next = reported;
        for _ in 0..BATCH_MAX {
            let Some(report) = next.take().or_else(|| self.reports.try_recv().ok()) else {
                break;
            };
            self.take(now, report);
        }
    }

    fn take(&mut self, now: Timestamp, report: Report) {
        match report {
            Report::Inputs(inputs) => {
                for input in inputs {
                    self.status.input(&input);
                    self.note_network(&input);
                    self.engine.observe(now, input);
                }
            }
            Report::Rejected { kind, rejected } => {
                warn!(kind = kind.as_str(), %rejected, "object cannot be used");
                self.status.rejected(rejected.to_string());
            }
            Report::Watch { kind, state } => {
                info!(kind = kind.as_str(), state = ?state, "watch");
                self.see(clock::now(), kind, &state);
                self.status.watch(kind, state);
            }
        }
    }

    /// What the session says of the network.
    fn note_network(&self, input: &Input) {
        match input {
            Input::Families(families) => self
                .network
                .send_modify(|network| network.families.clone_from(families)),
            Input::ServiceCidrs(cidrs) => self
                .network
                .send_modify(|network| network.cidrs.clone_from(cidrs)),
            _ => {}
        }
    }

    /// What cannot be listed is not published: the registry is told since when.
    fn see(&mut self, now: Timestamp, kind: Kind, state: &WatchState) {
        match state {
            WatchState::Live => {
                self.unseen.remove(&kind);
            }
            // An attempt, not yet a success.
            WatchState::Listing => {}
            WatchState::Missing | WatchState::Forbidden(_) | WatchState::Away(_) => {
                self.unseen.entry(kind).or_insert(now);
            }
        }
        let blind_since = self.unseen.values().min().copied();
        self.network.send_if_modified(|network| {
            std::mem::replace(&mut network.blind_since, blind_since) != blind_since
        });
    }

    fn ended(&mut self, now: Timestamp, done: Done) {
        let Done {
            id,
            kind,
            outcome,
            took,
        } = done;
        let word = outcome_word(&outcome);
        self.metrics.ended(kind, word, took);
        match &outcome {
            Outcome::Refused(refusal) => warn!(kind, message = %refusal.message, "write refused"),
            Outcome::Unknown(message) => warn!(kind, %message, "write may not have been done"),
            Outcome::Written(_)
            | Outcome::Deleted
            | Outcome::Published(_)
            | Outcome::Outdated(_) => debug!(kind, outcome = word, ?took, "write ended"),
        }
        if let Outcome::Written(object) = &outcome {
            self.status.input(&Input::Applied(object.clone()));
        }
        self.engine.observe(now, Input::Outcome { id, outcome });
    }

    /// Decides and starts what there is to do, if this process leads.
    fn act(&mut self, now: Timestamp, lanes: &mut Lanes) {
        let standing = self.standing.borrow_and_update().clone();
        self.status.standing(standing);
        if self.leads() {
            for action in self.engine.act(now) {
                match &action.effect {
                    Effect::Event(event) => self.events.send(event.clone()),
                    Effect::Publish { .. } | Effect::Synced(_) | Effect::Report(_) => {
                        lanes.records.waiting.push_back(action);
                    }
                    Effect::Create(_)
                    | Effect::Update { .. }
                    | Effect::UpdateStatus { .. }
                    | Effect::Delete(_) => lanes.objects.waiting.push_back(action),
                }
            }
        } else {
            self.give_up(now, lanes);
        }
        lanes.objects.start(|action| self.write(action));
        lanes
            .records
            .start(|action| publish(&self.registry, action));
        self.note_refused();
        self.status.peers(self.engine.peers(now));
        self.status.beat(Beat {
            now: clock::now(),
            queued: lanes.objects.waiting.len() + lanes.records.waiting.len(),
            in_flight: lanes.objects.running.len() + lanes.records.running.len(),
            planned_total: self.engine.planned_total(),
        });
    }

    fn note_refused(&mut self) {
        let refused = self.engine.take_refused();
        if !refused.is_empty() {
            log_refused(&refused);
            self.status.refused(&refused);
            self.status.count_refused(self.engine.refused_total());
        }
    }

    /// What waits to be written is not written by a process that does not lead.
    fn give_up(&mut self, now: Timestamp, lanes: &mut Lanes) {
        let waiting = [&mut lanes.objects.waiting, &mut lanes.records.waiting];
        for action in waiting.into_iter().flat_map(std::mem::take) {
            let outcome = Outcome::Unknown("this process does not lead any more".into());
            let id = action.id;
            self.engine.observe(now, Input::Outcome { id, outcome });
        }
    }

    fn write(&self, action: Action) -> BoxFuture<'static, Done> {
        let writer = self.writer.clone();
        let Action { id, effect } = action;
        let began = Instant::now();
        async move {
            let outcome = writer.execute(&effect).await;
            Done {
                id,
                kind: effect_word(&effect),
                outcome: outcome.unwrap_or_else(|| Outcome::Unknown("not an object".into())),
                took: began.elapsed(),
            }
        }
        .boxed()
    }

    /// Whether it may write. A leader whose deadline has passed may not, until it has renewed.
    fn leads(&self) -> bool {
        *self.standing.borrow() == Standing::Leading && self.writer.may_write()
    }

    /// Until when the shell may sleep. Who does not lead does nothing that is due.
    fn until_due(&self) -> Duration {
        let Some(due) = self.engine.next_due().filter(|_| self.leads()) else {
            return BEAT;
        };
        self.clock.until(due).min(BEAT)
    }

    /// Waits for what is being written.
    async fn finish(self, mut lanes: Lanes) {
        debug!(
            left = lanes.objects.len() + lanes.records.len(),
            "shell stopping"
        );
        while lanes.objects.running.next().await.is_some() {}
        while lanes.records.running.next().await.is_some() {}
    }
}

fn outcome_word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Written(_) => "written",
        Outcome::Deleted => "deleted",
        Outcome::Published(_) => "published",
        Outcome::Outdated(_) => "outdated",
        Outcome::Refused(_) => "refused",
        Outcome::Unknown(_) => "unknown",
    }
}

#[cfg(test)]
mod tests;
