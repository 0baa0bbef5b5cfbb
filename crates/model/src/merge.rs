//! The merge: the records of all clusters for one service become one import (BEHAVIOUR §2).
//!
//! A pure function of the records. They are ordered by creation time (where the registry's
//! settings say so, no earlier than their cluster joined), then cluster name; the first is *the oldest* and decides every field but ports (a union) and families (a fold). All
//! differences are found, and each is told with what is used and who differs.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use mcs_api::condition::ConflictReason;

use crate::conflict::{self, Conflict};
use crate::fleet::ClusterService;
use crate::names::ClusterName;
use crate::object::ImportSpec;
use crate::record::{ExportRecord, Joined, Labels};
use crate::service::{Affinity, ImportType, InternalTrafficPolicy, IpFamily, Port, Protocol};

#[cfg(test)]
mod tests;

/// What an import is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merged {
    /// The type.
    pub kind: ImportType,
    /// The accepted ports, in merge order.
    pub ports: Vec<Port>,
    /// The families.
    pub families: Vec<IpFamily>,
    /// Session affinity.
    pub affinity: Affinity,
    /// Internal traffic policy.
    pub internal_traffic_policy: InternalTrafficPolicy,
    /// Traffic distribution.
    pub traffic_distribution: Option<Arc<str>>,
    /// Exported labels.
    pub labels: Labels,
    /// Exported annotations.
    pub annotations: Labels,
    /// The part of each cluster.
    pub parts: BTreeMap<ClusterName, Part>,
    /// Every disagreement, in the order of the reasons.
    pub conflicts: Vec<Conflict>,
}

impl Merged {
    /// The message of the condition Conflict: one sentence per field.
    pub fn conflict_message(&self) -> String {
        conflict::message(&self.conflicts)
    }
}

/// What comes of one cluster's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Whether its endpoints are used: it shares a family with the import.
    pub endpoints_used: bool,
    /// The accepted port, as an index, that each of its own ports serves. Own ports that were
    /// dropped are not in it.
    pub serves: BTreeMap<(Arc<str>, Protocol), usize>,
}

/// A record, whose it is, and when that cluster joined.
#[derive(Clone, Copy, Debug)]
pub struct Claim<'a> {
    pub(crate) cluster: &'a ClusterName,
    pub(crate) record: &'a ExportRecord,
    pub(crate) joined: Option<Joined>,
}

impl<'a> Claim<'a> {
    /// What a cluster states.
    pub fn of(cluster: &'a ClusterName, state: &'a ClusterService) -> Self {
        Self {
            cluster,
            record: &state.export,
            joined: state.joined,
        }
    }

    /// From when on it counts.
    fn precedence(&self) -> Timestamp {
        let from = self.joined.filter(|joined| joined.counts);
        from.map_or(self.record.created, |joined| {
            joined.at.max(self.record.created)
        })
    }

    /// When its cluster joined, if that was after the time of creation that it states.
    pub(crate) fn joined_later(&self) -> Option<Timestamp> {
        let joined = self.joined.map(|joined| joined.at);
        joined.filter(|joined| self.record.created < *joined)
    }
}

impl<'a> From<(&'a ClusterName, &'a ExportRecord)> for Claim<'a> {
    fn from((cluster, record): (&'a ClusterName, &'a ExportRecord)) -> Self {
        Self {
            cluster,
            record,
            joined: None,
        }
    }
}

/// The claims in the order of their precedence.
fn sorted<'a>(records: impl IntoIterator<Item = impl Into<Claim<'a>>>) -> Vec<Claim<'a>> {
    let mut claims: Vec<Claim<'a>> = records.into_iter().map(Into::into).collect();
    claims.sort_by(|a, b| {
        let by_age = a.precedence().cmp(&b.precedence());
        by_age.then_with(|| a.cluster.cmp(b.cluster))
    });
    claims
}

/// Merges the records of one service; `None` if there are none.
pub fn merge<'a>(records: impl IntoIterator<Item = impl Into<Claim<'a>>>) -> Option<Merged> {
    let claims = sorted(records);
    let oldest = claims.first()?.record;

    let ports = merge_ports(&claims, PortTable::open());
    let families = fold_families(&claims);
    let mut conflicts: Vec<Conflict> = Vec::new();
    conflicts.extend(conflict::of_ports(&claims, &ports));
    conflicts.extend(conflicts_of_fields(&claims));
    conflicts.extend(conflict::of_families(&claims, &families));

    let parts = claims
        .iter()
        .zip(ports.by_record)
        .zip(&families.shares)
        .map(|((claim, record), &endpoints_used)| {
            (
                claim.cluster.clone(),
                Part {
                    endpoints_used,
                    serves: record.serves,
                },
            )
        })
        .collect();
    Some(Merged {
        kind: oldest.kind,
        ports: ports.accepted,
        families: families.families,
        affinity: oldest.affinity,
        internal_traffic_policy: oldest.internal_traffic_policy,
        traffic_distribution: oldest.traffic_distribution.clone(),
        labels: oldest.labels.clone(),
        annotations: oldest.annotations.clone(),
        parts,
        conflicts,
    })
}

/// The records of a service as parts of an import that stays as it is: they serve those of its
/// ports that are theirs by the same rules, and add none.
pub(crate) fn onto<'a>(
    import: &ImportSpec,
    records: impl IntoIterator<Item = Claim<'a>>,
) -> Merged {
    let claims = sorted(records);
    let ports = merge_ports(&claims, PortTable::fixed(&import.ports));
    let parts = claims
        .iter()
        .zip(ports.by_record)
        .map(
            |(
                Claim {
                    cluster, record, ..
                },
                ports,
            )| {
                let endpoints_used = record.families.iter().any(|f| import.families.contains(f));
                (
                    (*cluster).clone(),
                    Part {
                        endpoints_used,
                        serves: ports.serves,
                    },
                )
            },
        )
        .collect();
    Merged {
        kind: import.kind,
        ports: import.ports.clone(),
        families: import.families.clone(),
        affinity: import.affinity,
        internal_traffic_policy: import.internal_traffic_policy,
        traffic_distribution: import.traffic_distribution.clone(),
        labels: Labels::new(),
        annotations: Labels::new(),
        parts,
        conflicts: Vec::new(),
    }
}

/// The accepted ports, and what became of every record's own.
pub(crate) struct MergedPorts {
    pub(crate) accepted: Vec<Port>,
    /// In the order of the records.
    pub(crate) by_record: Vec<RecordPorts>,
}

/// What became of one record's ports.
#[derive(Default)]
pub(crate) struct RecordPorts {
    pub(crate) serves: BTreeMap<(Arc<str>, Protocol), usize>,
    pub(crate) differences: Vec<PortDifference>,
}

/// Why one port of a record is not simply an accepted one.
pub(crate) enum PortDifference {
    /// Served as it is, but its application protocol is not the accepted one.
    AppProtocol(Port),
    /// Dropped: its name stands for another protocol or number.
    NameTaken(Port, usize),
    /// Served under the accepted name of its protocol and number.
    Renamed(Port, usize),
    /// Dropped: a Service of several ports needs names.
    Unnamed(Port),
}

/// The ports accepted so far.
struct PortTable {
    accepted: Vec<Port>,
    by_name: HashMap<Arc<str>, usize>,
    by_number: HashMap<(Protocol, u16), usize>,
    /// Whether a port may still be added.
    is_open: bool,
}

impl PortTable {
    fn open() -> Self {
        let (by_name, by_number) = (HashMap::new(), HashMap::new());
        Self {
            accepted: Vec::new(),
            by_name,
            by_number,
            is_open: true,
        }
    }

    fn fixed(ports: &[Port]) -> Self {
        let mut table = Self::open();
        for port in ports {
            table.accept(port);
        }
        Self {
            is_open: false,
            ..table
        }
    }

    fn accept(&mut self, port: &Port) -> usize {
        let index = self.accepted.len();
        self.accepted.push(port.clone());
        self.by_name.insert(Arc::clone(&port.name), index);
        self.by_number.insert((port.protocol, port.port), index);
        index
    }

    /// The table of BEHAVIOUR §2, row by row: the accepted port that this one serves, if any, and
    /// how it differs from it.
    fn judge(&mut self, port: &Port) -> (Option<usize>, Option<PortDifference>) {
        let same_name = self.by_name.get(&port.name).copied();
        let same_number = self.by_number.get(&(port.protocol, port.port)).copied();
        if let Some(index) = same_name {
            let accepted = &self.accepted[index];
            if !accepted.same_number(port) {
                return (None, Some(PortDifference::NameTaken(port.clone(), index)));
            }
            let differs = accepted.app_protocol != port.app_protocol;
            return (
                Some(index),
                differs.then(|| PortDifference::AppProtocol(port.clone())),
            );
        }
        if let Some(index) = same_number {
            return (
                Some(index),
                Some(PortDifference::Renamed(port.clone(), index)),
            );
        }
        let needs_name = port.name.is_empty() && !self.accepted.is_empty();
        if needs_name || self.by_name.contains_key("") || !self.is_open {
            return (None, Some(PortDifference::Unnamed(port.clone())));
        }
        (Some(self.accept(port)), None)
    }
}

fn merge_ports(claims: &[Claim<'_>], mut table: PortTable) -> MergedPorts {
    let mut by_record = Vec::with_capacity(claims.len());
    for Claim { record, .. } in claims {
        let mut result = RecordPorts::default();
        for port in &record.ports {
            let (serves, difference) = table.judge(port);
            result.differences.extend(difference);
            if let Some(index) = serves {
                result
                    .serves
                    .insert((Arc::clone(&port.name), port.protocol), index);
            }
        }
        by_record.push(result);
    }
    MergedPorts {
        accepted: table.accepted,
        by_record,
    }
}

/// The families of the import, and which records share one.
pub(crate) struct FoldedFamilies {
    pub(crate) families: Vec<IpFamily>,
    /// In the order of the records.
    pub(crate) shares: Vec<bool>,
}

/// Narrows the oldest's families by each record that shares one.
fn fold_families(claims: &[Claim<'_>]) -> FoldedFamilies {
    let mut families = claims
        .first()
        .map(|claim| claim.record.families.clone())
        .unwrap_or_default();
    let mut shares = Vec::with_capacity(claims.len());
    for Claim { record, .. } in claims {
        let shared: Vec<IpFamily> = families
            .iter()
            .copied()
            .filter(|f| record.families.contains(f))
            .collect();
        shares.push(!shared.is_empty());
        if !shared.is_empty() {
            families = shared;
        }
    }
    FoldedFamilies { families, shares }
}

/// The fields for which the oldest decides alone.
fn conflicts_of_fields(claims: &[Claim<'_>]) -> Vec<Conflict> {
    use ConflictReason as Reason;
    [
        conflict::of_field(
            Reason::Type,
            claims,
            |a, b| a.kind == b.kind,
            |r| r.kind.to_string(),
        ),
        conflict::of_field(
            Reason::SessionAffinity,
            claims,
            |a, b| a.affinity.as_str() == b.affinity.as_str(),
            |r| r.affinity.as_str().to_owned(),
        ),
        conflict::of_field(
            Reason::SessionAffinityConfig,
            claims,
            // Compared only where the affinity agrees.
            |a, b| a.affinity == b.affinity || a.affinity.as_str() != b.affinity.as_str(),
            |r| match r.affinity {
                Affinity::None => "none".to_owned(),
                Affinity::ClientIp { timeout_secs } => format!("{timeout_secs} s"),
            },
        ),
        conflict::of_field(
            Reason::Annotations,
            claims,
            |a, b| a.annotations == b.annotations,
            |r| conflict::show_labels(&r.annotations),
        ),
        conflict::of_field(
            Reason::Labels,
            claims,
            |a, b| a.labels == b.labels,
            |r| conflict::show_labels(&r.labels),
        ),
        conflict::of_field(
            Reason::InternalTrafficPolicy,
            claims,
            |a, b| a.internal_traffic_policy == b.internal_traffic_policy,
            |r| r.internal_traffic_policy.as_str().to_owned(),
        ),
        conflict::of_field(
            Reason::TrafficDistribution,
            claims,
            |a, b| a.traffic_distribution == b.traffic_distribution,
            |r| {
                r.traffic_distribution
                    .as_deref()
                    .unwrap_or("unset")
                    .to_owned()
            },
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}
