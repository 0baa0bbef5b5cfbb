//! What the watches report, told to the names: many changes at once make one snapshot.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tombolo_cluster::api::Report;
use tracing::{info, warn};

use super::status::Status;
use crate::clock;
use crate::names::Names;

/// Reports that are taken in before the answers change: what is at hand, and no more than is done
/// within milliseconds.
const BATCH_MAX: usize = 256;
/// How often it is noted that the watches are alive, and that this task is.
const BEAT: Duration = Duration::from_secs(1);

/// The task between the watches and the answers.
pub(super) struct Feed {
    pub(super) reports: mpsc::Receiver<Report>,
    pub(super) names: Names,
    pub(super) status: Arc<Status>,
}

impl Feed {
    /// Runs until nobody reports any more.
    pub(super) async fn run(mut self) {
        loop {
            match timeout(BEAT, self.reports.recv()).await {
                Ok(None) => return,
                Ok(Some(report)) => {
                    self.take(report);
                    for _ in 1..BATCH_MAX {
                        let Ok(report) = self.reports.try_recv() else {
                            break;
                        };
                        self.take(report);
                    }
                }
                Err(_elapsed) => {}
            }
            let now = clock::now();
            // Until everything was listed there is nothing to answer with.
            if self.status.is_listed() {
                self.names.publish(now);
            }
            self.status.beat(now, Instant::now());
        }
    }

    fn take(&mut self, report: Report) {
        match report {
            Report::Inputs(inputs) => {
                for input in &inputs {
                    self.names.observe(input);
                    self.status.input(input);
                }
            }
            Report::Rejected { kind, rejected } => {
                warn!(kind = kind.as_str(), %rejected, "object cannot be used");
                self.status.rejected();
            }
            Report::Watch { kind, state } => {
                info!(kind = kind.as_str(), ?state, "watch");
                self.status.watch(kind, state);
            }
        }
    }
}
