//! The merge held to the oracle, record sets of every kind: fast, so there are many.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use tombolo_model::merge::{Merged, merge};
use tombolo_model::names::ClusterName;
use tombolo_model::record::ExportRecord;
use tombolo_model::service::{Port, Protocol};
use tombolo_testkit::build::{cluster, key};
use tombolo_testkit::oracle::{Combined, combine, stated_by};
use tombolo_testkit::shapes::{ExportShape, ServiceShape};
use tombolo_testkit::tries;

/// Records of up to seven clusters, more than a message names.
fn records() -> impl Strategy<Value = BTreeMap<ClusterName, ExportRecord>> {
    vec((ServiceShape::any(), ExportShape::any()), 0..8).prop_map(|shapes| {
        let mut records = BTreeMap::new();
        for (at, (service, export)) in shapes.iter().enumerate() {
            let name = ["b.east", "m", "k", "z-9", "a", "a0", "c1"][at];
            let (service, export) = (service.object(key("shop/a")), export.object(key("shop/a")));
            if let Some(stated) = stated_by(cluster(name), service, export) {
                records.insert(cluster(name), (*stated.export).clone());
            }
        }
        records
    })
}

type Served = BTreeMap<ClusterName, BTreeMap<(Arc<str>, Protocol), Port>>;

/// What the model found, in the form of the oracle.
fn served(merged: &Merged) -> Served {
    let parts = merged.parts.iter();
    parts
        .map(|(cluster, part)| {
            let serves = part.serves.iter();
            let ports = serves.map(|(own, index)| (own.clone(), merged.ports[*index].clone()));
            (cluster.clone(), ports.collect())
        })
        .collect()
}

fn compare(merged: &Merged, wanted: &Combined) -> Result<(), TestCaseError> {
    prop_assert_eq!(&merged.ports, &wanted.ports);
    prop_assert_eq!(served(merged), wanted.served.clone());
    prop_assert_eq!(&merged.families, &wanted.families);
    let oldest = &wanted.oldest;
    prop_assert_eq!(merged.kind, oldest.kind);
    prop_assert_eq!(merged.affinity, oldest.affinity);
    prop_assert_eq!(
        merged.internal_traffic_policy,
        oldest.internal_traffic_policy
    );
    prop_assert_eq!(&merged.traffic_distribution, &oldest.traffic_distribution);
    prop_assert_eq!(&merged.labels, &oldest.labels);
    prop_assert_eq!(&merged.annotations, &oldest.annotations);
    for (cluster, part) in &merged.parts {
        prop_assert_eq!(part.endpoints_used, !wanted.unused.contains(cluster));
    }
    let reasons: Vec<&str> = merged.conflicts.iter().map(|c| c.reason.as_str()).collect();
    let expected: Vec<&str> = wanted.disagreements.iter().map(|d| d.reason).collect();
    prop_assert_eq!(reasons, expected);
    Ok(())
}

proptest! {
    #![proptest_config(tries(1_500))]

    /// Field by field, the merge is what the tables of BEHAVIOUR §2 say.
    #[test]
    fn the_merge_is_that_of_the_oracle(records in records()) {
        let merged = merge(&records);
        let wanted = combine(records);
        prop_assert_eq!(merged.is_some(), wanted.is_some());
        if let (Some(merged), Some(wanted)) = (merged, wanted) {
            compare(&merged, &wanted)?;
        }
    }

    /// Every order of records gives the same, to the last word of the message.
    #[test]
    fn order_never_matters(records in records(), turn in 0..7_usize) {
        let one = merge(&records);
        let mut other: Vec<_> = records.iter().collect();
        other.reverse();
        let middle = turn.min(other.len());
        other.rotate_left(middle);
        prop_assert_eq!(one, merge(other));
    }

    /// Each sentence of a message says how many disagree, and no message is too long to store.
    #[test]
    fn messages_name_what_differs(records in records()) {
        let (Some(merged), Some(wanted)) = (merge(&records), combine(records)) else {
            return Ok(());
        };
        let message = merged.conflict_message();
        prop_assert!(message.len() <= 4096);
        for disagreement in &wanted.disagreements {
            let count = format!("{}/{} clusters disagree", disagreement.clusters.len(), disagreement.of);
            prop_assert!(message.contains(&count), "no {} in {}", count, message);
            prop_assert!(message.contains(wanted.oldest_cluster.as_str()));
            let names = disagreement.clusters.iter();
            let named = names.filter(|name| message.contains(name.as_str())).count();
            prop_assert!(named >= disagreement.clusters.len().min(5), "{}", message);
        }
    }
}
