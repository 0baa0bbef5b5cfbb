//! What Prometheus is told of the registry.

use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::registry::Registry as Metrics;
use tombolo_registry::any::AnyRegistry;
use tombolo_registry::etcd::Counts;

use crate::metrics::{Encoded, counter};

/// Registers the counters of a registry.
pub(crate) fn register(metrics: &mut Metrics, registry: &Arc<AnyRegistry>) {
    let registry = Arc::clone(registry);
    metrics
        .sub_registry_with_prefix("tombolo")
        .register_collector(Box::new(RegistryCollector { registry }));
}

#[derive(Debug)]
struct RegistryCollector {
    registry: Arc<AnyRegistry>,
}

impl Collector for RegistryCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Encoded {
        match self.registry.counts() {
            Some(counts) => encode(&mut encoder, counts),
            None => Ok(()),
        }
    }
}

fn encode(encoder: &mut DescriptorEncoder<'_>, counts: Counts) -> Encoded {
    let Counts {
        transactions,
        operations,
        lists_at_start: _,
        lists_behind: _,
        lists_interrupted: _,
        lists_at_regress: _,
        watches_resumed,
        connections,
        regresses,
    } = counts;
    let help = "Listings of the whole registry, by cause";
    let kind = ConstCounter::new(0_u64).metric_type();
    let mut family = encoder.encode_descriptor("registry_lists", help, None, kind)?;
    for (cause, count) in counts.lists() {
        ConstCounter::new(count).encode(family.encode_family(&[("cause", cause)])?)?;
    }
    for (name, help, count) in [
        (
            "registry_transactions",
            "Transactions of the registry that were done",
            transactions,
        ),
        (
            "registry_operations",
            "Puts and deletes in them",
            operations,
        ),
        (
            "registry_watches_resumed",
            "Watches that went on where another one had ended",
            watches_resumed,
        ),
        (
            "registry_connections",
            "Connections to the registry that were made",
            connections,
        ),
        (
            "registry_regresses",
            "How often the registry was not the one that it was",
            regresses,
        ),
    ] {
        counter(encoder, name, help, count)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode as text;

    use super::*;

    #[derive(Debug)]
    struct Fixed(Counts);

    impl Collector for Fixed {
        fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Encoded {
            encode(&mut encoder, self.0)
        }
    }

    #[test]
    fn every_count_is_told() {
        let counts = Counts {
            transactions: 1,
            operations: 2,
            lists_at_start: 3,
            lists_behind: 4,
            lists_interrupted: 5,
            lists_at_regress: 6,
            watches_resumed: 7,
            connections: 8,
            regresses: 9,
        };
        let mut metrics = Metrics::default();
        metrics.register_collector(Box::new(Fixed(counts)));
        let mut told = String::new();
        text(&mut told, &metrics).unwrap();
        let lines: Vec<&str> = told.lines().filter(|l| !l.starts_with('#')).collect();
        assert_eq!(
            lines,
            [
                "registry_lists_total{cause=\"start\"} 3",
                "registry_lists_total{cause=\"behind\"} 4",
                "registry_lists_total{cause=\"interrupted\"} 5",
                "registry_lists_total{cause=\"regress\"} 6",
                "registry_transactions_total 1",
                "registry_operations_total 2",
                "registry_watches_resumed_total 7",
                "registry_connections_total 8",
                "registry_regresses_total 9",
            ]
        );
    }
}
