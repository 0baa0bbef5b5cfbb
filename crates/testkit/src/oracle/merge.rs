//! One import from what all clusters state (BEHAVIOUR §2).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tombolo_model::names::ClusterName;
use tombolo_model::record::ExportRecord;
use tombolo_model::service::{Affinity, IpFamily, Port, Protocol};

use super::Disagreement;

/// What the records of a service come to.
#[derive(Clone, Debug)]
pub struct Combined {
    /// The oldest record, whose fields count unless said otherwise.
    pub oldest: ExportRecord,
    /// The cluster of the oldest record.
    pub oldest_cluster: ClusterName,
    /// The ports that were accepted, in order.
    pub ports: Vec<Port>,
    /// For each cluster, the accepted port that each of its own (name, protocol) is served as.
    pub served: BTreeMap<ClusterName, BTreeMap<(Arc<str>, Protocol), Port>>,
    /// The families.
    pub families: Vec<IpFamily>,
    /// The clusters whose endpoints are not used, as they share no family.
    pub unused: BTreeSet<ClusterName>,
    /// All differences, in the order of their reasons.
    pub disagreements: Vec<Disagreement>,
}

/// Combines the records; `None` if there is none.
pub fn combine(records: impl IntoIterator<Item = (ClusterName, ExportRecord)>) -> Option<Combined> {
    let mut records: Vec<(ClusterName, ExportRecord)> = records.into_iter().collect();
    records.sort_by_key(|(cluster, record)| (record.created, cluster.clone()));
    let (oldest_cluster, oldest) = records.first()?.clone();
    let (ports, served) = ports(&records);
    let (families, unused) = families(&records);
    let disagreements = disagreements(&records, &oldest, &ports, &unused);
    Some(Combined {
        oldest,
        oldest_cluster,
        ports,
        served,
        families,
        unused,
        disagreements,
    })
}

type Served = BTreeMap<ClusterName, BTreeMap<(Arc<str>, Protocol), Port>>;

fn ports(records: &[(ClusterName, ExportRecord)]) -> (Vec<Port>, Served) {
    let mut accepted: Vec<Port> = Vec::new();
    let mut served = Served::new();
    for (cluster, record) in records {
        let mine = served.entry(cluster.clone()).or_default();
        for port in &record.ports {
            let number = |p: &&Port| p.protocol == port.protocol && p.port == port.port;
            let named = accepted.iter().find(|p| p.name == port.name).cloned();
            let numbered = accepted.iter().find(number).cloned();
            let as_port = match (named, numbered) {
                (Some(same), _) if number(&&same) => Some(same),
                (Some(_other_number), _) => None,
                (None, Some(other_name)) => Some(other_name),
                (None, None) => {
                    let unnamed_meets_other = (port.name.is_empty() && !accepted.is_empty())
                        || accepted.iter().any(|p| p.name.is_empty());
                    if unnamed_meets_other {
                        None
                    } else {
                        accepted.push(port.clone());
                        Some(port.clone())
                    }
                }
            };
            if let Some(as_port) = as_port {
                mine.insert((Arc::clone(&port.name), port.protocol), as_port);
            }
        }
    }
    (accepted, served)
}

fn families(records: &[(ClusterName, ExportRecord)]) -> (Vec<IpFamily>, BTreeSet<ClusterName>) {
    let mut left = records[0].1.families.clone();
    let mut unused = BTreeSet::new();
    for (cluster, record) in records {
        let shared: Vec<IpFamily> = left
            .iter()
            .copied()
            .filter(|f| record.families.contains(f))
            .collect();
        if shared.is_empty() {
            unused.insert(cluster.clone());
        } else {
            left = shared;
        }
    }
    (left, unused)
}

fn disagreements(
    records: &[(ClusterName, ExportRecord)],
    oldest: &ExportRecord,
    ports: &[Port],
    unused: &BTreeSet<ClusterName>,
) -> Vec<Disagreement> {
    type Differs<'a> = &'a dyn Fn(&ClusterName, &ExportRecord) -> bool;
    let set = |ports: &[Port]| -> BTreeSet<(Arc<str>, Protocol, u16, Arc<str>)> {
        ports
            .iter()
            .map(|p| {
                let app = p.app_protocol.clone().unwrap_or_else(|| "".into());
                (Arc::clone(&p.name), p.protocol, p.port, app)
            })
            .collect()
    };
    let fields: [(&'static str, Differs<'_>); 9] = [
        ("PortConflict", &|_, r| set(&r.ports) != set(ports)),
        ("TypeConflict", &|_, r| r.kind != oldest.kind),
        ("SessionAffinityConflict", &|_, r| {
            matches!(r.affinity, Affinity::None) != matches!(oldest.affinity, Affinity::None)
        }),
        (
            "SessionAffinityConfigConflict",
            &|_, r| match (r.affinity, oldest.affinity) {
                (
                    Affinity::ClientIp { timeout_secs: a },
                    Affinity::ClientIp { timeout_secs: b },
                ) => a != b,
                _ => false,
            },
        ),
        ("AnnotationsConflict", &|_, r| {
            r.annotations != oldest.annotations
        }),
        ("LabelsConflict", &|_, r| r.labels != oldest.labels),
        ("InternalTrafficPolicyConflict", &|_, r| {
            r.internal_traffic_policy != oldest.internal_traffic_policy
        }),
        ("TrafficDistributionConflict", &|_, r| {
            r.traffic_distribution != oldest.traffic_distribution
        }),
        ("IPFamilyConflict", &|cluster, _| unused.contains(cluster)),
    ];
    let mut all = Vec::new();
    for (reason, differs) in fields {
        let clusters: BTreeSet<ClusterName> = records
            .iter()
            .filter(|(cluster, record)| differs(cluster, record))
            .map(|(cluster, _)| cluster.clone())
            .collect();
        if !clusters.is_empty() {
            all.push(Disagreement {
                reason,
                clusters,
                of: records.len(),
            });
        }
    }
    all
}
