//! What is known of an etcd from its answers: which one it is and how far, so that one that was
//! restored, emptied or swapped is noticed (a *regress*, DESIGN §2.2).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use etcd_client::ResponseHeader;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::event::ListCause;

/// The memory of one registry object, shared by its connections.
#[derive(Debug)]
pub(super) struct Seen {
    last: Mutex<Last>,
    /// How often it was another etcd, or an older one.
    regresses: watch::Sender<u64>,
    /// The latest revision below the root that is known.
    pub(super) signal: watch::Sender<u64>,
    pub(super) counters: Counters,
}

#[derive(Debug, Default)]
struct Last {
    cluster: Option<u64>,
    revision: i64,
    regresses: u64,
    regressed_at: Option<Instant>,
}

/// What was known when a call was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    revision: i64,
    regresses: u64,
}

/// What happened so far, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Transactions that were done.
    pub transactions: u64,
    /// Operations in them.
    pub operations: u64,
    /// Listings of subscriptions because of their start.
    pub lists_at_start: u64,
    /// Because of a compaction, or a reader that was too slow.
    pub lists_behind: u64,
    /// Because changes may have been lost otherwise.
    pub lists_interrupted: u64,
    /// Because the registry is not the one that it was.
    pub lists_at_regress: u64,
    /// Watches that went on where another one had ended.
    pub watches_resumed: u64,
    /// Connections that were made.
    pub connections: u64,
    /// How often the registry was not the one that it was.
    pub regresses: u64,
}

impl Counts {
    /// Listings by their cause.
    pub fn lists(&self) -> [(&'static str, u64); 4] {
        [
            (ListCause::Start, self.lists_at_start),
            (ListCause::Behind, self.lists_behind),
            (ListCause::Interrupted, self.lists_interrupted),
            (ListCause::Regress, self.lists_at_regress),
        ]
        .map(|(cause, count)| (cause.as_str(), count))
    }
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    transactions: AtomicU64,
    operations: AtomicU64,
    lists: [AtomicU64; 4],
    pub(super) watches_resumed: AtomicU64,
    pub(super) connections: AtomicU64,
}

// === impl Seen ===

impl Seen {
    pub(super) fn new() -> Self {
        Self {
            last: Mutex::default(),
            regresses: watch::Sender::new(0),
            signal: watch::Sender::new(0),
            counters: Counters::default(),
        }
    }

    /// To be taken before a call is sent: what is answered cannot be older than this.
    pub(super) fn mark(&self) -> Mark {
        let last = self.last.lock();
        Mark {
            revision: last.revision,
            regresses: last.regresses,
        }
    }

    /// Learns from the answer to a linearizable call. Returns its revision.
    pub(super) fn answered(&self, header: Option<&ResponseHeader>, mark: Mark) -> u64 {
        let Some(header) = header else {
            return self.revision();
        };
        let revision = header.revision();
        let mut last = self.last.lock();
        let swapped = last
            .cluster
            .is_some_and(|known| known != header.cluster_id());
        // Another call may have found the regress already, and this one was sent before.
        let older = mark.regresses == last.regresses && revision < mark.revision;
        last.cluster = Some(header.cluster_id());
        if swapped || older {
            last.revision = revision;
            last.regresses += 1;
            last.regressed_at = Some(Instant::now());
            let regresses = last.regresses;
            drop(last);
            tracing::warn!(
                revision,
                swapped,
                "the registry is not the one that it was: restored, emptied or another"
            );
            self.signal.send_replace(unsigned(revision));
            self.regresses.send_replace(regresses);
        } else {
            last.revision = last.revision.max(revision);
        }
        unsigned(revision)
    }

    /// Learns from a watch, which tells no regress.
    pub(super) fn watched(&self, revision: i64) {
        let mut last = self.last.lock();
        last.revision = last.revision.max(revision);
    }

    /// Whether a watch is of the etcd that is known.
    pub(super) fn is_known(&self, header: Option<&ResponseHeader>) -> bool {
        let last = self.last.lock();
        header.is_none_or(|header| {
            last.cluster
                .is_none_or(|known| known == header.cluster_id())
        })
    }

    /// The latest revision known of the whole etcd.
    pub(super) fn revision(&self) -> u64 {
        unsigned(self.last.lock().revision)
    }

    pub(super) fn regress_count(&self) -> u64 {
        self.last.lock().regresses
    }

    /// Whether it was another etcd, or an older one, so lately.
    pub(super) fn regressed_within(&self, time: Duration) -> bool {
        let at = self.last.lock().regressed_at;
        at.is_some_and(|at| at.elapsed() < time)
    }

    pub(super) fn regresses(&self) -> watch::Receiver<u64> {
        self.regresses.subscribe()
    }

    /// Signals a change below the root.
    pub(super) fn raise(&self, revision: u64) {
        self.signal.send_if_modified(|known| {
            let higher = revision > *known;
            *known = revision.max(*known);
            higher
        });
    }

    pub(super) fn counts(&self) -> Counts {
        let Counters {
            transactions,
            operations,
            lists: [start, behind, interrupted, regress],
            watches_resumed,
            connections,
        } = &self.counters;
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            transactions: of(transactions),
            operations: of(operations),
            lists_at_start: of(start),
            lists_behind: of(behind),
            lists_interrupted: of(interrupted),
            lists_at_regress: of(regress),
            watches_resumed: of(watches_resumed),
            connections: of(connections),
            regresses: *self.regresses.borrow(),
        }
    }
}

// === impl Counters ===

impl Counters {
    pub(super) fn transaction(&self, operations: usize) {
        count(&self.transactions);
        self.operations
            .fetch_add(operations as u64, Ordering::Relaxed);
    }

    pub(super) fn list(&self, cause: ListCause) {
        count(
            &self.lists[match cause {
                ListCause::Start => 0,
                ListCause::Behind => 1,
                ListCause::Interrupted => 2,
                ListCause::Regress => 3,
            }],
        );
    }
}

pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Revisions are never negative.
pub(super) fn unsigned(revision: i64) -> u64 {
    u64::try_from(revision).unwrap_or(0)
}

/// No revision of an etcd is above what it can count to.
pub(super) fn signed(revision: u64) -> i64 {
    i64::try_from(revision).unwrap_or(i64::MAX)
}
