//! What the DNS process knows of itself: filled by the feed, read by the admin endpoint.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;
use tombolo_cluster::api::WatchState;
use tombolo_dns::{Live, Metrics};
use tombolo_model::io::{Input, Source};
use tombolo_model::object::Kind;

use super::WATCHED;
use crate::admin::Told;

/// A feed that has not run for this long hangs; it wakes every second.
const HANGS_AFTER_SECS: i64 = 60;

/// The process's state.
#[derive(Debug)]
pub(crate) struct Status {
    pub(super) live: Arc<Live>,
    pub(super) metrics: Arc<Metrics>,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    watches: BTreeMap<Kind, WatchState>,
    /// Kinds that were listed in full at least once.
    listed: HashSet<Kind>,
    rejected_total: u64,
    beat: Option<Timestamp>,
    draining: bool,
}

impl Status {
    pub(super) fn new(live: Arc<Live>, metrics: Arc<Metrics>) -> Self {
        let inner = Mutex::default();
        Self {
            live,
            metrics,
            inner,
        }
    }

    /// Takes note of the end of a listing.
    pub(super) fn input(&self, input: &Input) {
        if let Input::ListEnded {
            source: Source::Objects(kind),
            ..
        } = input
        {
            self.inner.lock().listed.insert(*kind);
        }
    }

    /// Whether everything was listed at least once.
    pub(super) fn is_listed(&self) -> bool {
        self.inner.lock().listed.len() == WATCHED.len()
    }

    pub(super) fn rejected(&self) {
        self.inner.lock().rejected_total += 1;
    }

    pub(super) fn watch(&self, kind: Kind, state: WatchState) {
        self.inner.lock().watches.insert(kind, state);
    }

    /// The feed is alive; while all watches are, what is answered is up to date.
    pub(super) fn beat(&self, now: Timestamp, instant: Instant) {
        let mut inner = self.inner.lock();
        inner.beat = Some(now);
        let is_live = |kind: &Kind| inner.watches.get(kind) == Some(&WatchState::Live);
        if WATCHED.iter().all(|(kind, _)| is_live(kind)) {
            self.metrics.heard(instant);
        }
    }

    /// The process is about to end.
    pub(super) fn drain(&self) {
        self.inner.lock().draining = true;
    }

    /// The state of each watch, in a word.
    pub(super) fn watches(&self) -> Vec<(Kind, &'static str)> {
        let inner = self.inner.lock();
        let word = |kind| {
            inner
                .watches
                .get(&kind)
                .map_or("starting", WatchState::as_str)
        };
        WATCHED.map(|(kind, _)| (kind, word(kind))).to_vec()
    }

    pub(super) fn rejected_total(&self) -> u64 {
        self.inner.lock().rejected_total
    }
}

impl Told for Status {
    fn health(&self, now: Timestamp) -> Result<(), String> {
        let beat = self.inner.lock().beat.unwrap_or(now);
        let silent = now.duration_since(beat).as_secs();
        if silent > HANGS_AFTER_SECS {
            return Err(format!("the feed hangs for {silent} s"));
        }
        Ok(())
    }

    /// Once ready it stays so, as old answers are better than none: that they are old is told by
    /// the staleness.
    fn not_ready(&self) -> Vec<String> {
        let inner = self.inner.lock();
        let mut missing = Vec::new();
        if inner.draining {
            missing.push("the process is about to end".to_owned());
        }
        for (kind, _) in WATCHED {
            if !inner.listed.contains(&kind) {
                let kind_name = kind.as_str();
                let why = match inner.watches.get(&kind) {
                    Some(WatchState::Missing) => "its CRD is missing".to_owned(),
                    Some(WatchState::Forbidden(why) | WatchState::Away(why)) => why.to_string(),
                    Some(WatchState::Listing | WatchState::Live) | None => {
                        "the list is under way".to_owned()
                    }
                };
                missing.push(format!("{kind_name} was not listed yet: {why}"));
            }
        }
        missing
    }

    fn state(&self) -> Value {
        let snapshot = self.live.load();
        let staleness = self.metrics.staleness(Instant::now());
        let watches: BTreeMap<&str, &str> = self
            .watches()
            .into_iter()
            .map(|(kind, state)| (kind.as_str(), state))
            .collect();
        let zones = snapshot.zones().names().map(ToString::to_string);
        json!({
            "zones": zones.collect::<Vec<_>>(),
            "services": snapshot.service_count(),
            "serial": snapshot.serial(),
            "watches": watches,
            "stalenessSeconds": staleness.map(|age| age.as_secs_f64()),
            "notReady": self.not_ready(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tombolo_dns::{Snapshot, Zones};

    use super::*;

    fn status() -> (Status, Instant) {
        let zones = Zones::new([], 5);
        let start = Instant::now();
        let metrics = Arc::new(Metrics::new(&zones, start));
        let live = Live::new(Arc::new(Snapshot::unsynced(Arc::new(zones), 1)));
        (Status::new(Arc::new(live), metrics), start)
    }

    fn listed(kind: Kind) -> Input {
        Input::ListEnded {
            source: Source::Objects(kind),
            revision: "1".into(),
        }
    }

    #[test]
    fn it_is_ready_from_the_first_list_until_it_drains() {
        let (status, _) = status();
        status.watch(Kind::ServiceImport, WatchState::Missing);
        assert_eq!(
            status.not_ready()[0],
            "ServiceImport was not listed yet: its CRD is missing"
        );
        status.input(&listed(Kind::ServiceImport));
        status.input(&listed(Kind::EndpointSlice));
        assert!(status.is_listed() && status.not_ready().is_empty());
        status.watch(Kind::ServiceImport, WatchState::Away("gone".into()));
        assert!(status.not_ready().is_empty());
        status.drain();
        assert_eq!(status.not_ready().len(), 1);
    }

    #[test]
    fn it_grows_stale_while_a_watch_is_not_alive() {
        let (status, start) = status();
        let now = Timestamp::UNIX_EPOCH;
        let after = |secs| start + Duration::from_secs(secs);
        status.watch(Kind::ServiceImport, WatchState::Live);
        status.beat(now, after(1));
        assert_eq!(status.metrics.staleness(after(1)), None);
        status.watch(Kind::EndpointSlice, WatchState::Live);
        status.beat(now, after(2));
        status.watch(Kind::EndpointSlice, WatchState::Away("gone".into()));
        status.beat(now, after(9));
        let staleness = status.metrics.staleness(after(9));
        assert_eq!(staleness, Some(Duration::from_secs(7)));
    }

    #[test]
    fn a_feed_that_hangs_is_ill() {
        let (status, start) = status();
        let at = |secs| Timestamp::from_second(secs).unwrap();
        assert!(status.health(at(100)).is_ok());
        status.beat(at(100), start);
        assert!(status.health(at(160)).is_ok());
        assert!(status.health(at(161)).is_err());
    }
}
