//! What is told of a replicator: to Prometheus, to probes and to people.

use std::sync::Arc;

use jiff::Timestamp;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry as Metrics, Unit};
use serde_json::{Value, json};
use tokio::time::Instant;
use tombolo_model::names::Region;
use tombolo_registry::etcd::Counts;
use tombolo_registry::replicator::{Phase, Progress, Replicator};

use crate::admin::Told;
use crate::metrics::Encoded;

/// The copying to one peer.
pub(super) struct Status {
    pub(super) peer: Region,
    pub(super) replicator: Arc<Replicator>,
}

/// What is known of a peer at one moment.
#[derive(Debug)]
struct Now {
    peer: String,
    progress: Progress,
    behind_secs: f64,
    counts: Counts,
}

/// Reads one number.
type Read = fn(&Progress) -> u64;

#[derive(Debug)]
struct PeerCollector {
    replicators: Vec<(Region, Arc<Replicator>)>,
}

/// Registers everything of all peers.
pub(super) fn register(metrics: &mut Metrics, replicators: Vec<(Region, Arc<Replicator>)>) {
    metrics
        .sub_registry_with_prefix("tombolo_replicator")
        .register_collector(Box::new(PeerCollector { replicators }));
}

// === impl Status ===

impl Told for Status {
    fn health(&self, _now: Timestamp) -> Result<(), String> {
        // A task that has ended ends the process.
        Ok(())
    }

    fn not_ready(&self) -> Vec<String> {
        let progress = self.replicator.progress().borrow().clone();
        let peer = &self.peer;
        match progress.phase {
            Phase::Copying | Phase::Standby => Vec::new(),
            Phase::Comparing => vec![format!("peer {peer}: both are being compared")],
            Phase::Waiting => {
                let reason = progress.error.unwrap_or_else(|| "not begun".into());
                vec![format!("peer {peer}: {reason}")]
            }
        }
    }

    fn state(&self) -> Value {
        let progress = self.replicator.progress().borrow().clone();
        json!({
            "peer": self.peer.to_string(),
            "state": progress.phase.as_str(),
            "behindSeconds": progress.behind(Instant::now()).as_secs(),
            "revision": progress.revision,
            "sourceRevision": progress.source_revision,
            "keysPut": progress.put,
            "keysDeleted": progress.deleted,
            "keysKept": progress.kept,
            "sourceFailures": progress.source_failures,
            "peerFailures": progress.peer_failures,
            "error": progress.error.as_deref(),
        })
    }
}

// === impl PeerCollector ===

impl Collector for PeerCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Encoded {
        let at = Instant::now();
        let peers = self.replicators.iter().map(|(peer, replicator)| {
            let progress = replicator.progress().borrow().clone();
            Now {
                peer: peer.to_string(),
                behind_secs: progress.behind(at).as_secs_f64(),
                progress,
                counts: replicator.source_counts(),
            }
        });
        encode(&mut encoder, &peers.collect::<Vec<_>>())
    }
}

fn encode(encoder: &mut DescriptorEncoder<'_>, peers: &[Now]) -> Encoded {
    states(encoder, peers)?;
    let help = "For how long the peer may not have had everything";
    let kind = MetricType::Gauge;
    let mut family = encoder.encode_descriptor("behind", help, Some(&Unit::Seconds), kind)?;
    for now in peers {
        let labels = [("peer", now.peer.as_str())];
        ConstGauge::new(now.behind_secs).encode(family.encode_family(&labels)?)?;
    }
    let gauges: [(_, _, Read); 3] = [
        (
            "revision",
            "The revision of the own region's etcd up to which everything is at the peer",
            |progress| progress.revision,
        ),
        (
            "source_revision",
            "The latest revision of the own region's etcd that is known",
            |progress| progress.source_revision,
        ),
        (
            "keys_kept",
            "Keys that are gone and whose cluster has not said that they were withdrawn",
            |progress| progress.kept as u64,
        ),
    ];
    for (name, help, read) in gauges {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for now in peers {
            let value = i64::try_from(read(&now.progress)).unwrap_or(i64::MAX);
            let labels = [("peer", now.peer.as_str())];
            ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
        }
    }
    counters(encoder, peers)
}

fn states(encoder: &mut DescriptorEncoder<'_>, peers: &[Now]) -> Encoded {
    let help = "What the replicator does";
    let mut family = encoder.encode_descriptor("state", help, None, MetricType::Gauge)?;
    for now in peers {
        for phase in Phase::ALL {
            let labels = [("peer", now.peer.as_str()), ("state", phase.as_str())];
            let is_now = i64::from(phase == now.progress.phase);
            ConstGauge::new(is_now).encode(family.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

fn counters(encoder: &mut DescriptorEncoder<'_>, peers: &[Now]) -> Encoded {
    let keys: [(_, _, Read); 2] = [
        ("keys_put", "Keys put at the peer", |progress| progress.put),
        ("keys_deleted", "Keys deleted at the peer", |progress| {
            progress.deleted
        }),
    ];
    for (name, help, read) in keys {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for now in peers {
            let labels = [("peer", now.peer.as_str())];
            ConstCounter::new(read(&now.progress)).encode(family.encode_family(&labels)?)?;
        }
    }
    let help = "Listings of the own region, by cause";
    let mut family = encoder.encode_descriptor("lists", help, None, MetricType::Counter)?;
    for now in peers {
        for (cause, count) in now.counts.lists() {
            let labels = [("peer", now.peer.as_str()), ("cause", cause)];
            ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
        }
    }
    let help = "Calls that failed, at the own region's etcd or at the peer's";
    let mut family = encoder.encode_descriptor("failures", help, None, MetricType::Counter)?;
    for Now { peer, progress, .. } in peers {
        for (at, count) in [
            ("source", progress.source_failures),
            ("peer", progress.peer_failures),
        ] {
            let labels = [("peer", peer.as_str()), ("at", at)];
            ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode as text;

    use super::*;

    #[derive(Debug)]
    struct Fixed;

    impl Collector for Fixed {
        fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Encoded {
            let mut progress = Progress::default();
            progress.phase = Phase::Copying;
            progress.revision = 7;
            progress.source_revision = 9;
            progress.put = 20;
            progress.deleted = 4;
            progress.kept = 3;
            progress.source_failures = 1;
            progress.peer_failures = 2;
            let counts = Counts {
                lists_at_start: 1,
                lists_behind: 5,
                ..Counts::default()
            };
            let now = Now {
                peer: "us".to_owned(),
                progress,
                behind_secs: 1.5,
                counts,
            };
            encode(&mut encoder, &[now])
        }
    }

    #[test]
    fn everything_is_told_of_each_peer() {
        let mut metrics = Metrics::default();
        metrics.register_collector(Box::new(Fixed));
        let mut told = String::new();
        text(&mut told, &metrics).unwrap();
        let lines: Vec<&str> = told.lines().filter(|l| !l.starts_with('#')).collect();
        assert_eq!(
            lines,
            [
                "state{peer=\"us\",state=\"waiting\"} 0",
                "state{peer=\"us\",state=\"standby\"} 0",
                "state{peer=\"us\",state=\"comparing\"} 0",
                "state{peer=\"us\",state=\"copying\"} 1",
                "behind_seconds{peer=\"us\"} 1.5",
                "revision{peer=\"us\"} 7",
                "source_revision{peer=\"us\"} 9",
                "keys_kept{peer=\"us\"} 3",
                "keys_put_total{peer=\"us\"} 20",
                "keys_deleted_total{peer=\"us\"} 4",
                "lists_total{peer=\"us\",cause=\"start\"} 1",
                "lists_total{peer=\"us\",cause=\"behind\"} 5",
                "lists_total{peer=\"us\",cause=\"interrupted\"} 0",
                "lists_total{peer=\"us\",cause=\"regress\"} 0",
                "failures_total{peer=\"us\",at=\"source\"} 1",
                "failures_total{peer=\"us\",at=\"peer\"} 2",
            ]
        );
    }
}
