//! What Prometheus is told. Counters live here; sizes and states are read from each cluster's
//! status when they are asked for, so that they cannot drift.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use tombolo_cluster::api::EventsDropped;
use tombolo_model::object::{Kind, Object};

use crate::controller::status::{Status, conditions};

/// A write takes a millisecond at best, and is given up after half a minute.
const SECONDS: [f64; 12] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0,
];

/// Labels of an action that ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ActionLabels {
    kind: &'static str,
    outcome: &'static str,
}

/// Labels of the time that an action took.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    kind: &'static str,
}

/// The actions of one cluster.
#[derive(Clone, Debug)]
pub(crate) struct ActionMetrics {
    total: Family<ActionLabels, Counter>,
    duration: Family<KindLabels, Histogram, fn() -> Histogram>,
}

impl Default for ActionMetrics {
    fn default() -> Self {
        Self {
            total: Family::default(),
            duration: Family::new_with_constructor(|| Histogram::new(SECONDS)),
        }
    }
}

impl ActionMetrics {
    /// Notes the end of an action.
    pub(crate) fn ended(&self, kind: &'static str, outcome: &'static str, took: Duration) {
        self.total
            .get_or_create(&ActionLabels { kind, outcome })
            .inc();
        self.duration
            .get_or_create(&KindLabels { kind })
            .observe(took.as_secs_f64());
    }

    fn register(&self, registry: &mut Registry) {
        registry.register(
            "actions",
            "Actions that ended, by kind and outcome",
            self.total.clone(),
        );
        registry.register_with_unit(
            "action_duration",
            "Time from the start of an action to its answer",
            Unit::Seconds,
            self.duration.clone(),
        );
    }
}

/// Registers everything of one cluster.
pub(crate) fn register(
    registry: &mut Registry,
    status: &Arc<Status>,
    actions: &ActionMetrics,
    dropped: EventsDropped,
) {
    let cluster = ("cluster".into(), status.cluster.to_string().into());
    let registry = registry
        .sub_registry_with_prefix("tombolo")
        .sub_registry_with_label(cluster);
    actions.register(registry);
    let status = Arc::clone(status);
    registry.register_collector(Box::new(StatusCollector { status, dropped }));
}

/// All that is registered, as text.
pub(crate) fn text(registry: &Registry) -> Result<String, std::fmt::Error> {
    let mut text = String::new();
    encode(&mut text, registry)?;
    Ok(merged(&text))
}

/// Each cluster of a process registers its own metrics; a reader may insist that a metric stands
/// in one place, with what it is said once.
fn merged(text: &str) -> String {
    const HELP: &str = "# HELP ";
    const END: &str = "# EOF\n";
    let body = text.strip_suffix(END).unwrap_or(text);
    let mut names: Vec<&str> = Vec::new();
    let mut metrics: HashMap<&str, String> = HashMap::new();
    let mut name = "";
    let mut is_known = false;
    for line in body.split_inclusive('\n') {
        if let Some(help) = line.strip_prefix(HELP) {
            name = help.split(' ').next().unwrap_or_default();
            is_known = metrics.contains_key(name);
            if !is_known {
                names.push(name);
            }
        }
        let all = metrics.entry(name).or_default();
        if !(is_known && line.starts_with('#')) {
            all.push_str(line);
        }
    }
    let all = names.iter().filter_map(|name| metrics.get(name));
    all.map(String::as_str).chain([END]).collect()
}

/// Reads a cluster's status.
#[derive(Debug)]
struct StatusCollector {
    status: Arc<Status>,
    dropped: EventsDropped,
}

pub(crate) type Encoded = Result<(), std::fmt::Error>;

impl Collector for StatusCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Encoded {
        let encoder = &mut encoder;
        let numbers = self.status.numbers();
        gauge(
            encoder,
            "leading",
            "Whether this process leads",
            i64::from(numbers.leading),
        )?;
        let size = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        gauge(
            encoder,
            "actions_queued",
            "Actions that wait",
            size(numbers.queued),
        )?;
        gauge(
            encoder,
            "actions_running",
            "Actions under way",
            size(numbers.in_flight),
        )?;
        counter(
            encoder,
            "services_planned",
            "Services planned",
            numbers.planned_total,
        )?;
        counter(
            encoder,
            "objects_rejected",
            "Objects that could not be used",
            numbers.rejected_total,
        )?;
        counter(
            encoder,
            "events_dropped",
            "Events that came too fast to be sent",
            self.dropped.total(),
        )?;
        self.watches(encoder)?;
        self.peers(encoder)?;
        self.refused(encoder)?;
        self.objects(encoder)
    }
}

impl StatusCollector {
    /// The clusters of the registry.
    fn peers(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let help = "Whether changes of the registry are heard";
        let is_heard = self.status.is_heard();
        gauge(encoder, "registry_heard", help, i64::from(is_heard))?;
        let peers = self.status.peers_now();
        let one = ConstGauge::new(1_i64);
        let help = "How each cluster of the registry stands";
        let mut family = encoder.encode_descriptor("peer_state", help, None, one.metric_type())?;
        for (cluster, standing, _) in &peers {
            let labels = [("peer", cluster.as_str()), ("state", standing.as_str())];
            one.encode(family.encode_family(&labels)?)?;
        }
        let help = "How much of the hold is counted for a cluster that is not heard of";
        let unit = Some(&Unit::Seconds);
        let kind = one.metric_type();
        let mut family = encoder.encode_descriptor("peer_held", help, unit, kind)?;
        for (cluster, _, held) in &peers {
            let held = ConstGauge::new(i64::try_from(*held).unwrap_or(i64::MAX));
            held.encode(family.encode_family(&[("peer", cluster.as_str())])?)?;
        }
        Ok(())
    }

    /// What this cluster alone refused or doubted; the rest is counted once for the process, under the same
    /// name.
    fn refused(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let totals = self.status.refused_total();
        for (name, help, is_doubt) in [
            (
                "registry_refused",
                "What was refused of what clusters wrote, by rule",
                false,
            ),
            (
                "registry_doubtful",
                "What was doubtful about what clusters wrote, by rule",
                true,
            ),
        ] {
            let kind = ConstCounter::new(0_u64).metric_type();
            let mut family = encoder.encode_descriptor(name, help, None, kind)?;
            let of_kind = totals.iter().filter(|((_, r), _)| r.is_doubt() == is_doubt);
            for ((cluster, rule), total) in of_kind {
                let labels = [("peer", cluster.as_str()), ("rule", rule.as_str())];
                ConstCounter::new(*total).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }

    fn watches(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let gauge = ConstGauge::new(1_i64);
        let help = "The state of the watch of each kind";
        let mut family =
            encoder.encode_descriptor("watch_state", help, None, gauge.metric_type())?;
        for (kind, state) in self.status.watches() {
            let labels = [("kind", kind.as_str()), ("state", state)];
            gauge.encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    /// The info series: one for each object, and one for each of its conditions.
    fn objects(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let objects = self.status.objects();
        for (kind, name) in [
            (Kind::ServiceExport, "serviceexport"),
            (Kind::ServiceImport, "serviceimport"),
        ] {
            let of_kind: Vec<&Object> = objects.iter().filter(|o| o.kind() == kind).collect();
            let one = ConstGauge::new(1_i64);
            let info = format!("{name}_info");
            let mut family = encoder.encode_descriptor(
                &info,
                "Each object of the kind",
                None,
                one.metric_type(),
            )?;
            for object in &of_kind {
                let key = object.reference().key;
                let labels = [
                    ("namespace", key.namespace.as_str()),
                    ("name", key.name.as_str()),
                ];
                one.encode(family.encode_family(&labels)?)?;
            }
            let status = format!("{name}_status_condition");
            let mut family =
                encoder.encode_descriptor(&status, "Its conditions", None, one.metric_type())?;
            for object in &of_kind {
                let key = object.reference().key;
                for condition in conditions(object) {
                    let labels = [
                        ("namespace", key.namespace.as_str()),
                        ("name", key.name.as_str()),
                        ("condition", &condition.kind),
                        ("status", &condition.status),
                        ("reason", &condition.reason),
                    ];
                    one.encode(family.encode_family(&labels)?)?;
                }
            }
        }
        let one = ConstGauge::new(1_i64);
        let help = "The number of clusters behind each import";
        let name = "serviceimport_status_clusters";
        let mut family = encoder.encode_descriptor(name, help, None, one.metric_type())?;
        for object in &objects {
            if let Object::ServiceImport(import) = object {
                let key = &import.meta.key;
                let labels = [
                    ("namespace", key.namespace.as_str()),
                    ("name", key.name.as_str()),
                ];
                let clusters = i64::try_from(import.status.clusters.len()).unwrap_or(i64::MAX);
                ConstGauge::new(clusters).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

pub(crate) fn gauge(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: i64,
) -> Encoded {
    let gauge = ConstGauge::new(value);
    let metric = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
    gauge.encode(metric)
}

pub(crate) fn counter(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: u64,
) -> Encoded {
    let counter = ConstCounter::new(value);
    let metric = encoder.encode_descriptor(name, help, None, counter.metric_type())?;
    counter.encode(metric)
}

#[cfg(test)]
mod tests;
