//! The registry's changes for the clusters of this process: one subscription, one fleet, told to
//! every shell.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::stream::BoxStream;
use futures::{FutureExt as _, StreamExt as _};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry as Metrics;
use tokio::sync::mpsc;
use tombolo_cluster::api::Report;
use tombolo_model::io::Input;
use tombolo_model::record::Origin;
use tombolo_registry::event::Event;

use super::status::Status;
use crate::reader::{Audience, Reader, log_refused};

/// Changes that are told at once: enough that a burst is planned once, few enough that a listing
/// does not hold the shells up.
const BATCH_MAX: usize = 512;

/// Who is told.
pub(crate) struct Listener {
    pub(crate) origin: Origin,
    pub(crate) reports: mpsc::Sender<Report>,
    pub(crate) status: Arc<Status>,
}

/// One listener and what it is about to be told.
struct Waiting {
    listener: Listener,
    inputs: Vec<Input>,
}

/// Labels of what was refused.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RefusalLabels {
    peer: String,
    rule: &'static str,
}

/// What was refused of what other clusters wrote, for the metrics.
#[derive(Clone, Debug, Default)]
pub(crate) struct Refusals {
    total: Family<RefusalLabels, Counter>,
}

impl Refusals {
    /// Refusals that are counted by these metrics.
    pub(crate) fn register(metrics: &mut Metrics) -> Self {
        let refusals = Self::default();
        metrics.sub_registry_with_prefix("tombolo").register(
            "registry_refused",
            "What was refused of what clusters wrote, by rule",
            refusals.total.clone(),
        );
        refusals
    }

    fn note(&self, reader: &mut Reader, all: &[Waiting]) {
        let latest = reader.take_refused();
        if latest.is_empty() {
            return;
        }
        log_refused(&latest);
        for Waiting { listener, .. } in all {
            listener.status.refused(&latest);
        }
        for ((cluster, rule), total) in reader.refused_total() {
            let labels = RefusalLabels {
                peer: cluster.to_string(),
                rule: rule.as_str(),
            };
            let counter = self.total.get_or_create(&labels);
            counter.inner().store(*total, Ordering::Relaxed);
        }
    }
}

/// Tells all listeners what the registry says, until the subscription ends.
pub(crate) async fn run(
    mut events: BoxStream<'static, Event>,
    listeners: Vec<Listener>,
    refusals: Refusals,
) {
    let mut reader = Reader::default();
    let mut all: Vec<Waiting> = listeners
        .into_iter()
        .map(|listener| Waiting {
            listener,
            inputs: Vec::new(),
        })
        .collect();
    while let Some(event) = events.next().await {
        take(event, &mut reader, &mut all);
        for _ in 1..BATCH_MAX {
            let Some(Some(event)) = events.next().now_or_never() else {
                break;
            };
            take(event, &mut reader, &mut all);
        }
        let common = reader.drain();
        refusals.note(&mut reader, &all);
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

fn take(event: Event, reader: &mut Reader, all: &mut [Waiting]) {
    let Some((audience, input)) = reader.take(event) else {
        return;
    };
    for waiting in all {
        let is_told = match &audience {
            Audience::Everyone => true,
            Audience::Cluster(origin) => waiting.listener.origin == *origin,
        };
        if is_told {
            waiting.inputs.push(input.clone());
        }
    }
}
