//! The registry's changes for the clusters of this process: one subscription, one fleet, told to
//! every shell.

use futures::stream::BoxStream;
use futures::{FutureExt as _, StreamExt as _};
use tokio::sync::mpsc;
use tombolo_cluster::api::Report;
use tombolo_model::fleet::{Fleet, FleetInput};
use tombolo_model::io::{Input, Source};
use tombolo_model::record::Origin;
use tombolo_registry::event::{Event, State};
use tracing::warn;

/// Changes that are told at once: enough that a burst is planned once, few enough that a listing
/// does not hold the shells up.
const BATCH_MAX: usize = 512;

/// Who is told.
pub(crate) struct Listener {
    pub(crate) origin: Origin,
    pub(crate) reports: mpsc::Sender<Report>,
}

/// One listener and what it is about to be told.
struct Waiting {
    listener: Listener,
    inputs: Vec<Input>,
}

/// Tells all listeners what the registry says, until the subscription ends.
pub(crate) async fn run(mut events: BoxStream<'static, Event>, listeners: Vec<Listener>) {
    let mut fleet = Fleet::default();
    let mut all: Vec<Waiting> = listeners
        .into_iter()
        .map(|listener| Waiting {
            listener,
            inputs: Vec::new(),
        })
        .collect();
    while let Some(event) = events.next().await {
        take(event, &mut fleet, &mut all);
        for _ in 1..BATCH_MAX {
            let Some(Some(event)) = events.next().now_or_never() else {
                break;
            };
            take(event, &mut fleet, &mut all);
        }
        let common = fleet.drain();
        for Waiting { listener, inputs } in &mut all {
            let mut inputs = std::mem::take(inputs);
            inputs.extend(common.iter().cloned());
            if !inputs.is_empty() {
                // A shell that is gone is observed by the supervisor.
                listener.reports.send(Report::Inputs(inputs)).await.ok();
            }
        }
    }
}

fn take(event: Event, fleet: &mut Fleet, all: &mut [Waiting]) {
    let own = Source::OwnRecords;
    match event {
        Event::ListBegan(_) => {
            fleet.observe(FleetInput::ListBegan);
            tell_all(all, &Input::ListBegan(own));
        }
        Event::ListEnded { revision } => {
            fleet.observe(FleetInput::ListEnded);
            let revision = revision.to_string().into();
            tell_all(
                all,
                &Input::ListEnded {
                    source: own,
                    revision,
                },
            );
        }
        Event::Record {
            origin,
            key,
            state,
            revision,
        } => {
            let record = match state {
                State::Present(record) => Some(record),
                State::Gone => None,
                State::Rejected(rejection) => {
                    warn!(cluster = %origin.cluster, reason = %rejection.reason, "record refused");
                    return fleet.observe(FleetInput::Unreadable { origin, key });
                }
            };
            for waiting in all.iter_mut().filter(|w| w.listener.origin == origin) {
                waiting.inputs.push(Input::OwnRecord {
                    key: key.clone(),
                    record: record.clone(),
                    revision,
                });
            }
            fleet.observe(FleetInput::Record {
                origin,
                key,
                record,
            });
        }
        Event::Stray { rejection, .. } => {
            if let Some(rejection) = rejection {
                warn!(reason = %rejection.reason, "stray key in the registry");
            }
        }
        // What operators grant is checked where records are accepted (the registry issue).
        Event::Member { .. } | Event::Settings { .. } => {}
    }
}

fn tell_all(all: &mut [Waiting], input: &Input) {
    for waiting in all {
        waiting.inputs.push(input.clone());
    }
}
