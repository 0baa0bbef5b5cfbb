//! How far a replicator is at a peer, for metrics and people.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

/// How far a replicator is at a peer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// What it does.
    pub phase: Phase,
    /// The revision of the own region's etcd up to which everything is copied.
    pub revision: u64,
    /// The latest revision of the own region's etcd that is known.
    pub source_revision: u64,
    /// Keys put so far.
    pub put: u64,
    /// Keys deleted so far.
    pub deleted: u64,
    /// Keys at the peer that are not in the own region, and whose cluster has not said that they
    /// were withdrawn.
    pub kept: usize,
    /// Calls to the own region's etcd that failed so far.
    pub source_failures: u64,
    /// Calls to the peer's etcd that failed so far.
    pub peer_failures: u64,
    /// What failed last, if anything since.
    pub error: Option<Arc<str>>,
    /// Since when something may be in the own region and not at the peer.
    pub(super) behind_since: Option<Instant>,
    /// Since when the own region is not heard.
    pub(super) unheard_since: Option<Instant>,
}

/// What a replicator does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// An etcd is not reached.
    #[default]
    Waiting,
    /// Another replicator holds the lock.
    Standby,
    /// It compares both.
    Comparing,
    /// It copies what changes.
    Copying,
}

/// Which of the two did not do what it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// The own region's etcd.
    Source,
    /// The peer's.
    Peer,
}

// === impl Progress ===

impl Progress {
    /// For how long the peer may not have had everything: zero while it has, or while that is
    /// another replicator's work.
    pub fn behind(&self, now: Instant) -> Duration {
        if self.phase == Phase::Standby {
            return Duration::ZERO;
        }
        let since = [self.behind_since, self.unheard_since];
        let since = since.into_iter().flatten().min();
        since.map_or(Duration::ZERO, |since| now.duration_since(since))
    }

    pub(super) fn is_behind(&mut self, now: Instant) {
        self.behind_since.get_or_insert(now);
    }

    /// Another phase has begun.
    pub(super) fn enter(&mut self, phase: Phase, now: Instant) {
        self.phase = phase;
        match phase {
            Phase::Waiting | Phase::Comparing => self.is_behind(now),
            Phase::Standby | Phase::Copying => self.behind_since = None,
        }
        if phase == Phase::Standby {
            self.error = None;
        }
    }

    /// Something failed. Returns whether that is news.
    pub(super) fn failed(&mut self, side: Side, reason: &Arc<str>) -> bool {
        match side {
            Side::Source => self.source_failures += 1,
            Side::Peer => self.peer_failures += 1,
        }
        let news = self.error.as_ref() != Some(reason);
        self.error = Some(Arc::clone(reason));
        news
    }
}

// === impl Phase ===

impl Phase {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Waiting, Self::Standby, Self::Comparing, Self::Copying];

    /// A word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Standby => "standby",
            Self::Comparing => "comparing",
            Self::Copying => "copying",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_is_behind_from_the_first_change_that_is_not_at_the_peer() {
        let start = Instant::now();
        let after = |secs| start + Duration::from_secs(secs);
        let mut progress = Progress::default();
        progress.enter(Phase::Waiting, start);
        assert_eq!(progress.behind(after(3)), Duration::from_secs(3));
        progress.enter(Phase::Comparing, after(4));
        assert_eq!(progress.behind(after(5)), Duration::from_secs(5));
        progress.enter(Phase::Copying, after(6));
        assert_eq!(progress.behind(after(7)), Duration::ZERO);
        progress.is_behind(after(8));
        progress.is_behind(after(9));
        assert_eq!(progress.behind(after(10)), Duration::from_secs(2));
        // The work of another one.
        progress.enter(Phase::Standby, after(11));
        assert_eq!(progress.behind(after(12)), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_region_that_is_not_heard_counts_as_behind() {
        let start = Instant::now();
        let mut progress = Progress::default();
        progress.enter(Phase::Copying, start);
        progress.unheard_since = Some(start);
        let later = start + Duration::from_secs(9);
        assert_eq!(progress.behind(later), Duration::from_secs(9));
        progress.unheard_since = None;
        assert_eq!(progress.behind(later), Duration::ZERO);
    }

    #[test]
    fn an_error_is_news_once() {
        let mut progress = Progress::default();
        let reason: Arc<str> = "away".into();
        assert!(progress.failed(Side::Source, &reason));
        assert!(!progress.failed(Side::Peer, &reason));
        assert!(progress.failed(Side::Peer, &"full".into()));
        let counts = (progress.source_failures, progress.peer_failures);
        assert_eq!(counts, (1, 2));
    }
}
