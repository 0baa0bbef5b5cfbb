//! The whole of what Prometheus is told, as names and labels are an API.

use std::collections::HashSet;

use jiff::Timestamp;
use tombolo_cluster::api::{Standing, WatchState};
use tombolo_model::fleet::Rule;
use tombolo_model::io::Input;
use tombolo_model::names::{ClusterName, Namespace, ObjectName, ServiceKey};
use tombolo_model::object::{Condition, ExportObject, ImportObject, ImportStatus, Meta};
use tombolo_model::presence::Standing as Presence;
use tombolo_model::record::Labels;

use super::*;
use crate::controller::status::Beat;

fn meta() -> Meta {
    let namespace = Namespace::try_new("shop").unwrap();
    Meta::to_create(ServiceKey::new(namespace, ObjectName::new("web")))
}

fn condition(kind: &str, status: &str, reason: &str) -> Condition {
    Condition {
        kind: kind.into(),
        status: status.into(),
        reason: reason.into(),
        message: "as it is".into(),
        last_transition: Timestamp::UNIX_EPOCH,
        observed_generation: Some(1),
    }
}

fn export() -> Object {
    Object::ServiceExport(Arc::new(ExportObject {
        meta: meta(),
        labels: Labels::new(),
        annotations: Labels::new(),
        conditions: vec![
            condition("Valid", "True", "Valid"),
            condition("Conflict", "True", "PortConflict,TypeConflict"),
        ],
    }))
}

fn import() -> Object {
    Object::ServiceImport(Arc::new(ImportObject {
        meta: meta(),
        spec: None,
        status: ImportStatus {
            clusters: vec!["east".into(), "west".into()],
            slices_present: Some(true),
            conditions: vec![condition("Ready", "True", "Ready")],
        },
    }))
}

#[test]
fn the_whole_text() {
    let cluster = ClusterName::try_new("east").unwrap();
    let status = Status::new(cluster, Timestamp::UNIX_EPOCH);
    status.standing(Standing::Leading);
    status.watch(Kind::Service, WatchState::Live);
    status.watch(Kind::ServiceExport, WatchState::Missing);
    status.input(&Input::Applied(export()));
    status.input(&Input::Applied(import()));
    status.rejected("Service shop/bad".to_owned());
    let west = ClusterName::try_new("west").unwrap();
    status.peers(Some(vec![(west, Presence::Stale, 42)]));
    let west = ClusterName::try_new("west").unwrap();
    let counts = [
        ((west.clone(), Rule::LocalPod), 5),
        ((west, Rule::CreatedInFuture), 6),
    ];
    status.count_refused(&counts.into());
    status.beat(Beat {
        now: Timestamp::UNIX_EPOCH,
        queued: 3,
        in_flight: 2,
        planned_total: 17,
    });
    let actions = ActionMetrics::default();
    actions.ended("create", "written", Duration::from_millis(4));
    let mut registry = Registry::default();
    register(&mut registry, &status, &actions, EventsDropped::default());
    let text = text(&registry).unwrap();
    let golden = include_str!("golden.txt");
    assert!(text == golden, "it is now:\n{text}");
}

#[test]
fn each_metric_of_several_clusters_stands_in_one_place() {
    let mut registry = Registry::default();
    for cluster in ["east", "west"] {
        let status = Status::new(
            ClusterName::try_new(cluster).unwrap(),
            Timestamp::UNIX_EPOCH,
        );
        let actions = ActionMetrics::default();
        actions.ended("create", "written", Duration::from_millis(4));
        register(&mut registry, &status, &actions, EventsDropped::default());
    }
    let text = text(&registry).unwrap();
    let types = text.lines().filter(|line| line.starts_with("# TYPE "));
    let types: Vec<&str> = types.collect();
    let distinct: HashSet<&&str> = types.iter().collect();
    assert_eq!(types.len(), distinct.len(), "{types:?}");
    let leading = "# HELP tombolo_leading Whether this process leads
# TYPE tombolo_leading gauge
tombolo_leading{cluster=\"east\"} 0
tombolo_leading{cluster=\"west\"} 0
";
    assert!(text.contains(leading), "{text}");
    assert!(text.ends_with("\n# EOF\n"));
}
