//! What the server counts: atomics, added to while it answers and read as one value.
//!
//! The labels are finite: types and codes from lists, zones from the configuration.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::Instant;

use crate::record::{Rcode, RecordType};
use crate::wire::{Answered, Transport};
use crate::zone::Zones;

/// The types that are counted by name.
const TYPES: [RecordType; 8] = [
    RecordType::A,
    RecordType::AAAA,
    RecordType::SRV,
    RecordType::TXT,
    RecordType::SOA,
    RecordType::NS,
    RecordType(12),
    RecordType::ANY,
];

/// The labels of [`TYPES`], of all others, and of questions that could not be read.
const TYPE_LABELS: [&str; 10] = [
    "A", "AAAA", "SRV", "TXT", "SOA", "NS", "PTR", "ANY", "other", "none",
];

/// Upper bounds of the latency buckets, in microseconds: from an answer out of memory to one that
/// waited in the queue or for a resolver.
pub const LATENCY_BUCKETS_MICROS: [u64; 12] = [
    10, 25, 50, 100, 250, 500, 1_000, 2_500, 10_000, 50_000, 250_000, 1_000_000,
];

/// Things that are counted besides answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A UDP query was shed, as newer ones did not fit.
    Shed,
    /// A packet got no answer.
    Silent,
    /// An answer was truncated.
    Truncated,
    /// An answer could not be sent.
    Unsent,
    /// A TCP connection was accepted.
    TcpAccepted,
    /// A TCP connection was closed at once, as there were too many.
    TcpRefused,
    /// A query was forwarded and answered.
    Forwarded,
    /// A query was to be forwarded and got no answer, or there were too many.
    ForwardFailed,
}

/// How many kinds of [`Event`] there are.
const EVENTS: usize = 8;

/// The counters.
#[derive(Debug)]
pub struct Metrics {
    /// By zone (the last is: outside), type, code, transport.
    queries: Box<[AtomicU64]>,
    latency: [AtomicU64; LATENCY_BUCKETS_MICROS.len() + 1],
    latency_sum_nanos: AtomicU64,
    events: [AtomicU64; EVENTS],
    started: Instant,
    /// When the API server was heard of last, in milliseconds after `started` and one more; zero
    /// for never.
    heard_millis: AtomicU64,
}

/// The queries that were answered alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryCount {
    /// The zone, by its index in [`Zones::names`]; `None` outside them.
    pub zone: Option<usize>,
    /// The type asked for: one of a few, `other`, or `none` where it could not be read.
    pub record_type: &'static str,
    /// The response code.
    pub rcode: Rcode,
    /// How the query came.
    pub transport: Transport,
    /// How many there were.
    pub count: u64,
}

/// The counters at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetricsSnapshot {
    /// What was answered; what did not occur is left out.
    pub queries: Vec<QueryCount>,
    /// How many answers took at most as long as the bound of
    /// [`LATENCY_BUCKETS_MICROS`] at the same place says, each counted once; one more for the rest.
    pub latency: Vec<u64>,
    /// How long all answers took.
    pub latency_sum: Duration,
    /// UDP queries that were shed, the oldest first.
    pub shed: u64,
    /// Packets that got no answer.
    pub silent: u64,
    /// Answers with TC.
    pub truncated: u64,
    /// Answers that could not be sent.
    pub unsent: u64,
    /// TCP connections that were accepted.
    pub tcp_accepted: u64,
    /// TCP connections that were closed at once, as there were too many.
    pub tcp_refused: u64,
    /// Queries that were forwarded and answered.
    pub forwarded: u64,
    /// Queries that were to be forwarded and were not answered.
    pub forward_failed: u64,
    /// How long ago the API server was heard of; `None` before the first time.
    pub staleness: Option<Duration>,
}

impl Metrics {
    /// All counters at zero.
    pub fn new(zones: &Zones, now: Instant) -> Self {
        let len = (zones.len() + 1) * TYPE_LABELS.len() * Rcode::ALL.len() * 2;
        Self {
            queries: std::iter::repeat_with(AtomicU64::default)
                .take(len)
                .collect(),
            latency: std::array::from_fn(|_| AtomicU64::default()),
            latency_sum_nanos: AtomicU64::default(),
            events: std::array::from_fn(|_| AtomicU64::default()),
            started: now,
            heard_millis: AtomicU64::default(),
        }
    }

    /// Notes that the API server was heard of: a list, an event, a bookmark.
    pub fn heard(&self, now: Instant) {
        let millis = now.saturating_duration_since(self.started).as_millis();
        let millis = u64::try_from(millis).unwrap_or(u64::MAX - 1);
        self.heard_millis.fetch_max(millis + 1, Relaxed);
    }

    /// Counts an answer.
    pub(crate) fn answered(&self, answered: &Answered, transport: Transport) {
        let zones = self.queries.len() / (TYPE_LABELS.len() * Rcode::ALL.len() * 2);
        let zone = answered.zone.unwrap_or(zones - 1);
        let record_type = match answered.record_type {
            None => TYPE_LABELS.len() - 1,
            Some(wanted) => TYPES
                .iter()
                .position(|known| *known == wanted)
                .unwrap_or(TYPES.len()),
        };
        let at = (zone * TYPE_LABELS.len() + record_type) * Rcode::ALL.len();
        let at = (at + answered.rcode as usize) * 2 + transport as usize;
        if let Some(counter) = self.queries.get(at) {
            counter.fetch_add(1, Relaxed);
        }
        if answered.truncated {
            self.count(Event::Truncated, 1);
        }
    }

    /// Counts how long `answers` answers took, each.
    pub(crate) fn took(&self, duration: Duration, answers: u64) {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let bucket = LATENCY_BUCKETS_MICROS.partition_point(|bound| *bound < micros);
        self.latency[bucket].fetch_add(answers, Relaxed);
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let nanos = nanos.saturating_mul(answers);
        self.latency_sum_nanos.fetch_add(nanos, Relaxed);
    }

    /// Counts something else.
    pub(crate) fn count(&self, event: Event, count: u64) {
        if count > 0 {
            self.events[event as usize].fetch_add(count, Relaxed);
        }
    }

    /// The counters as they are now.
    pub fn snapshot(&self, now: Instant) -> MetricsSnapshot {
        let event = |event: Event| self.events[event as usize].load(Relaxed);
        MetricsSnapshot {
            queries: self.query_counts(),
            latency: self
                .latency
                .iter()
                .map(|count| count.load(Relaxed))
                .collect(),
            latency_sum: Duration::from_nanos(self.latency_sum_nanos.load(Relaxed)),
            shed: event(Event::Shed),
            silent: event(Event::Silent),
            truncated: event(Event::Truncated),
            unsent: event(Event::Unsent),
            tcp_accepted: event(Event::TcpAccepted),
            tcp_refused: event(Event::TcpRefused),
            forwarded: event(Event::Forwarded),
            forward_failed: event(Event::ForwardFailed),
            staleness: self.staleness(now),
        }
    }

    /// How long ago the API server was heard of.
    pub fn staleness(&self, now: Instant) -> Option<Duration> {
        let heard = self.heard_millis.load(Relaxed).checked_sub(1)?;
        let heard = self.started + Duration::from_millis(heard);
        Some(now.saturating_duration_since(heard))
    }

    fn query_counts(&self) -> Vec<QueryCount> {
        let per_zone = TYPE_LABELS.len() * Rcode::ALL.len() * 2;
        let zones = self.queries.len() / per_zone - 1;
        let counts = self.queries.iter().enumerate();
        counts
            .filter_map(|(at, counter)| {
                let count = counter.load(Relaxed);
                (count > 0).then(|| QueryCount {
                    zone: Some(at / per_zone).filter(|zone| *zone < zones),
                    record_type: TYPE_LABELS[at / (Rcode::ALL.len() * 2) % TYPE_LABELS.len()],
                    rcode: Rcode::ALL[at / 2 % Rcode::ALL.len()],
                    transport: [Transport::Udp, Transport::Tcp][at % 2],
                    count,
                })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WireName;

    #[test]
    fn what_is_counted_comes_out_again() {
        let zones = ["a.", "b."].map(|zone| WireName::parse(zone).unwrap());
        let start = Instant::now();
        let metrics = Metrics::new(&Zones::new(zones, 5), start);
        let counted = [
            (Some(0), Some(RecordType::A), Rcode::NoError, "A"),
            (Some(1), Some(RecordType(999)), Rcode::NxDomain, "other"),
            (None, None, Rcode::FormErr, "none"),
            (None, Some(RecordType::ANY), Rcode::BadVers, "ANY"),
        ];
        for (zone, record_type, rcode, label) in counted {
            let answered = Answered {
                zone,
                record_type,
                rcode,
                truncated: false,
            };
            metrics.answered(&answered, Transport::Tcp);
            let snapshot = metrics.snapshot(start);
            let wanted = QueryCount {
                zone,
                record_type: label,
                rcode,
                transport: Transport::Tcp,
                count: 1,
            };
            assert!(
                snapshot.queries.contains(&wanted),
                "{wanted:?} in {snapshot:?}"
            );
        }
        assert_eq!(metrics.snapshot(start).queries.len(), counted.len());
    }

    #[test]
    fn latencies_fall_into_their_buckets() {
        let start = Instant::now();
        let metrics = Metrics::new(&Zones::new([], 5), start);
        metrics.took(Duration::from_micros(10), 2);
        metrics.took(Duration::from_secs(5), 1);
        let snapshot = metrics.snapshot(start);
        assert_eq!((snapshot.latency[0], snapshot.latency[12]), (2, 1));
        assert_eq!(snapshot.latency_sum, Duration::from_micros(5_000_020));
    }

    #[test]
    fn staleness_counts_from_what_was_heard_last() {
        let start = Instant::now();
        let metrics = Metrics::new(&Zones::new([], 5), start);
        assert_eq!(metrics.staleness(start), None);
        metrics.heard(start);
        metrics.heard(start + Duration::from_secs(3));
        let now = start + Duration::from_secs(10);
        assert_eq!(metrics.staleness(now), Some(Duration::from_secs(7)));
    }
}
