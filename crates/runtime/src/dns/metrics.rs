//! What Prometheus is told of DNS; read from the server's counters when it is asked for.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use tokio::time::Instant;
use tombolo_dns::{LATENCY_BUCKETS_MICROS, MetricsSnapshot, Transport};

use super::status::Status;
use crate::metrics::{Encoded, counter, gauge};

/// Registers everything.
pub(super) fn register(registry: &mut Registry, status: Arc<Status>) {
    let registry = registry.sub_registry_with_prefix("tombolo_dns");
    registry.register_collector(Box::new(DnsCollector { status }));
}

/// Reads the counters.
#[derive(Debug)]
struct DnsCollector {
    status: Arc<Status>,
}

impl Collector for DnsCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Encoded {
        let encoder = &mut encoder;
        let counts = self.status.metrics.snapshot(Instant::now());
        self.queries(encoder, &counts)?;
        latency(encoder, &counts)?;
        let plain = [
            (
                "queries_shed",
                "UDP queries that were shed, the oldest first",
                counts.shed,
            ),
            (
                "packets_unanswered",
                "Packets that got no answer",
                counts.silent,
            ),
            (
                "answers_truncated",
                "Answers with the TC bit",
                counts.truncated,
            ),
            (
                "answers_unsent",
                "Answers that could not be sent",
                counts.unsent,
            ),
            (
                "tcp_accepted",
                "TCP connections that were accepted",
                counts.tcp_accepted,
            ),
            (
                "tcp_refused",
                "TCP connections beyond a limit",
                counts.tcp_refused,
            ),
            (
                "forwarded",
                "Queries that were forwarded and answered",
                counts.forwarded,
            ),
            (
                "forward_failed",
                "Queries that no resolver answered",
                counts.forward_failed,
            ),
            (
                "objects_rejected",
                "Objects that could not be used",
                self.status.rejected_total(),
            ),
        ];
        for (name, help, count) in plain {
            counter(encoder, name, help, count)?;
        }
        self.state(encoder, counts.staleness)
    }
}

impl DnsCollector {
    fn queries(&self, encoder: &mut DescriptorEncoder<'_>, counts: &MetricsSnapshot) -> Encoded {
        let snapshot = self.status.live.load();
        let zones: Vec<String> = snapshot.zones().names().map(ToString::to_string).collect();
        let help = "Queries that were answered";
        let mut family = encoder.encode_descriptor("queries", help, None, MetricType::Counter)?;
        for query in &counts.queries {
            let zone = query.zone.and_then(|index| zones.get(index));
            let transport = match query.transport {
                Transport::Udp => "udp",
                Transport::Tcp => "tcp",
            };
            let labels = [
                ("zone", zone.map_or("outside", String::as_str)),
                ("type", query.record_type),
                ("rcode", query.rcode.as_str()),
                ("transport", transport),
            ];
            ConstCounter::new(query.count).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn state(&self, encoder: &mut DescriptorEncoder<'_>, staleness: Option<Duration>) -> Encoded {
        let (services, synced, serial) = {
            let snapshot = self.status.live.load();
            (
                snapshot.service_count(),
                snapshot.is_synced(),
                snapshot.serial(),
            )
        };
        let services = i64::try_from(services).unwrap_or(i64::MAX);
        gauge(encoder, "services", "Services with names", services)?;
        gauge(
            encoder,
            "synced",
            "Whether everything was listed once",
            synced.into(),
        )?;
        gauge(encoder, "serial", "The serial of the zones", serial.into())?;
        if let Some(staleness) = staleness {
            let age = ConstGauge::new(staleness.as_secs_f64());
            let help = "Time since the answers were known to be up to date";
            let unit = Some(&Unit::Seconds);
            let metric = encoder.encode_descriptor("staleness", help, unit, MetricType::Gauge)?;
            age.encode(metric)?;
        }
        let help = "The state of the watch of each kind";
        let mut family = encoder.encode_descriptor("watch_state", help, None, MetricType::Gauge)?;
        for (kind, state) in self.status.watches() {
            let labels = [("kind", kind.as_str()), ("state", state)];
            ConstGauge::new(1_i64).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

/// From the arrival of a query to its answer.
fn latency(encoder: &mut DescriptorEncoder<'_>, counts: &MetricsSnapshot) -> Encoded {
    let help = "Time from the arrival of a query to its answer";
    let unit = Some(&Unit::Seconds);
    let mut metric =
        encoder.encode_descriptor("answer_duration", help, unit, MetricType::Histogram)?;
    let bounds = LATENCY_BUCKETS_MICROS
        .iter()
        .map(|micros| Duration::from_micros(*micros));
    let bounds = bounds
        .map(|bound| bound.as_secs_f64())
        .chain([f64::INFINITY]);
    let buckets: Vec<(f64, u64)> = bounds.zip(counts.latency.iter().copied()).collect();
    let total = counts.latency.iter().sum();
    metric.encode_histogram::<NoLabelSet>(counts.latency_sum.as_secs_f64(), total, &buckets, None)
}
