//! Conflicts as people read them: what is used and from which cluster, who differs and how.
//!
//! Messages are bounded (they go into a condition, whose message holds 32,768 characters at most)
//! and the same in every process that has the same records.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use jiff::Timestamp;
use mcs_api::condition::ConflictReason;

use crate::merge::{Claim, FoldedFamilies, MergedPorts, PortDifference, RecordPorts};
use crate::names::ClusterName;
use crate::record::{ExportRecord, Labels};
use crate::service::{IpFamily, Port};

/// How many clusters a sentence names: enough to act on, short enough to read.
const CLUSTERS_MAX: usize = 5;
/// How many characters of a value are shown.
const VALUE_LEN_MAX: usize = 64;
/// How many differences of one cluster's ports a sentence tells.
const DIFFERENCES_MAX: usize = 5;
/// The longest message, in bytes.
const MESSAGE_LEN_MAX: usize = 4096;

/// A disagreement of clusters about one field of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// About what.
    pub reason: ConflictReason,
    /// The value in use.
    pub used: String,
    /// The cluster it comes from: the oldest.
    pub from: ClusterName,
    /// The clusters that differ, oldest first, each with what it has instead.
    pub others: Vec<(ClusterName, String)>,
    /// How many clusters export the service.
    pub clusters: usize,
    /// The clusters among them that state an earlier time of creation than the time at which they
    /// joined: both times.
    pub doubtful: BTreeMap<ClusterName, (Timestamp, Timestamp)>,
}

impl Conflict {
    /// The field, as a person would call it.
    pub const fn field(&self) -> &'static str {
        match self.reason {
            ConflictReason::Port => "ports",
            ConflictReason::Type => "type",
            ConflictReason::SessionAffinity => "session affinity",
            ConflictReason::SessionAffinityConfig => "session affinity timeout",
            ConflictReason::Annotations => "exported annotations",
            ConflictReason::Labels => "exported labels",
            ConflictReason::InternalTrafficPolicy => "internal traffic policy",
            ConflictReason::TrafficDistribution => "traffic distribution",
            ConflictReason::IpFamily => "IP families",
        }
    }

    /// A cluster, with both times where they make its precedence doubtful.
    fn named(&self, cluster: &ClusterName) -> String {
        match self.doubtful.get(cluster) {
            None => cluster.to_string(),
            Some((created, joined)) => format!(
                "{cluster} (created {}, joined {})",
                whole_secs(*created),
                whole_secs(*joined)
            ),
        }
    }

    /// One sentence that says all of it.
    pub fn sentence(&self) -> String {
        let mut text = match self.reason {
            // No cluster need have all of the union.
            ConflictReason::Port => {
                format!(
                    "ports: {} are used (union, {} first)",
                    cut(&self.used),
                    self.named(&self.from)
                )
            }
            _ => format!(
                "{}: {} of {} is used",
                self.field(),
                cut(&self.used),
                self.named(&self.from)
            ),
        };
        for (cluster, value) in self.others.iter().take(CLUSTERS_MAX) {
            let cluster = self.named(cluster);
            // Writing to a String cannot fail.
            let _infallible = match self.reason {
                // Made of several values, each cut by itself.
                ConflictReason::Port => write!(text, "; {cluster} {value}"),
                _ => write!(text, "; {cluster} has {}", cut(value)),
            };
        }
        if self.others.len() > CLUSTERS_MAX {
            let _infallible = write!(text, "; {} more", self.others.len() - CLUSTERS_MAX);
        }
        let _infallible = write!(
            text,
            "; {}/{} clusters disagree.",
            self.others.len(),
            self.clusters
        );
        text
    }
}

/// How precise times are told: as in the metadata of objects.
fn whole_secs(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// The message for all conflicts of a service.
pub(crate) fn message(conflicts: &[Conflict]) -> String {
    let mut text = conflicts
        .iter()
        .map(Conflict::sentence)
        .collect::<Vec<_>>()
        .join(" ");
    if text.len() > MESSAGE_LEN_MAX {
        let mut end = MESSAGE_LEN_MAX - '…'.len_utf8();
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push('…');
    }
    text
}

/// The head of a value, marked where it was cut, without what does not print.
fn cut(value: &str) -> String {
    let printable = |c: char| {
        if is_unprintable(c) {
            char::REPLACEMENT_CHARACTER
        } else {
            c
        }
    };
    if value.chars().count() <= VALUE_LEN_MAX {
        return value.chars().map(printable).collect();
    }
    let mut head: String = value
        .chars()
        .take(VALUE_LEN_MAX - 1)
        .map(printable)
        .collect();
    head.push('…');
    head
}

/// Whether a character of another cluster's value could play tricks on a terminal or a log:
/// controls, and those that change the direction of text (UAX #9).
fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A conflict, if any cluster differs.
fn conflict(
    reason: ConflictReason,
    claims: &[Claim<'_>],
    used: impl FnOnce(&ExportRecord) -> String,
    others: Vec<(ClusterName, String)>,
) -> Option<Conflict> {
    let oldest = claims.first().filter(|_| !others.is_empty())?;
    let doubtful = claims.iter().filter_map(|claim| {
        let joined = claim.joined_later()?;
        let is_named = claim.cluster == oldest.cluster
            || others.iter().any(|(other, _)| other == claim.cluster);
        is_named.then(|| (claim.cluster.clone(), (claim.record.created, joined)))
    });
    Some(Conflict {
        reason,
        used: used(oldest.record),
        from: oldest.cluster.clone(),
        clusters: claims.len(),
        doubtful: doubtful.collect(),
        others,
    })
}

/// A conflict about a field for which the oldest decides; `same` compares the oldest's record
/// with another.
pub(crate) fn of_field(
    reason: ConflictReason,
    claims: &[Claim<'_>],
    same: impl Fn(&ExportRecord, &ExportRecord) -> bool,
    value: impl Fn(&ExportRecord) -> String,
) -> Option<Conflict> {
    let oldest = claims.first()?.record;
    let others = claims
        .iter()
        .filter(|claim| !same(oldest, claim.record))
        .map(|claim| (claim.cluster.clone(), value(claim.record)))
        .collect();
    conflict(reason, claims, value, others)
}

/// A conflict about ports.
pub(crate) fn of_ports(claims: &[Claim<'_>], ports: &MergedPorts) -> Option<Conflict> {
    let others = claims
        .iter()
        .zip(&ports.by_record)
        .filter_map(|(claim, record)| {
            let text = port_differences(record, &ports.accepted);
            (!text.is_empty()).then(|| (claim.cluster.clone(), text))
        })
        .collect();
    let used = |_: &ExportRecord| show_ports(&ports.accepted);
    conflict(ConflictReason::Port, claims, used, others)
}

/// How one record's ports differ from the accepted ones; empty if they do not.
fn port_differences(record: &RecordPorts, accepted: &[Port]) -> String {
    let mut parts: Vec<String> = Vec::new();
    for difference in &record.differences {
        parts.push(match difference {
            PortDifference::AppProtocol(port) => {
                let shown = |port: &Port| cut(port.app_protocol.as_deref().unwrap_or("none"));
                let used = accepted.iter().find(|used| used.name == port.name);
                let used =
                    used.map_or_else(String::new, |used| format!(" instead of {}", shown(used)));
                format!("has {port} with appProtocol {}{used}", shown(port))
            }
            PortDifference::NameTaken(port, index) => {
                format!("has {port}, dropped as {} is there", accepted[*index])
            }
            PortDifference::Renamed(port, index) => {
                format!(
                    "has {port}, served as {}",
                    accepted[*index].name_or_unnamed()
                )
            }
            PortDifference::Unnamed(port) => {
                format!("has {port}, dropped as several ports need names")
            }
        });
    }
    let served: std::collections::BTreeSet<usize> = record.serves.values().copied().collect();
    let missing: Vec<String> = accepted
        .iter()
        .enumerate()
        .filter(|(index, _)| !served.contains(index))
        .map(|(_, port)| port.to_string())
        .collect();
    if !missing.is_empty() {
        parts.push(format!("lacks {}", cut(&missing.join(", "))));
    }
    if parts.len() > DIFFERENCES_MAX {
        let more = parts.len() - DIFFERENCES_MAX;
        parts.truncate(DIFFERENCES_MAX);
        parts.push(format!("{more} more"));
    }
    parts.join(", ")
}

/// A conflict about families: records that share none with the import.
pub(crate) fn of_families(claims: &[Claim<'_>], folded: &FoldedFamilies) -> Option<Conflict> {
    let others = claims
        .iter()
        .zip(&folded.shares)
        .filter(|&(_, shares)| !shares)
        .map(|(claim, _)| {
            let families = show_families(&claim.record.families);
            let text = format!("{families} (its endpoints are not used)");
            (claim.cluster.clone(), text)
        })
        .collect();
    let used = |_: &ExportRecord| show_families(&folded.families);
    conflict(ConflictReason::IpFamily, claims, used, others)
}

/// Ports in their order.
pub fn show_ports(ports: &[Port]) -> String {
    ports
        .iter()
        .map(Port::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}

/// Families in their order.
pub fn show_families(families: &[IpFamily]) -> String {
    families
        .iter()
        .map(|f| f.as_str())
        .collect::<Vec<_>>()
        .join(",")
}

/// Labels or annotations, sorted by key.
pub(crate) fn show_labels(labels: &Labels) -> String {
    let pairs: Vec<String> = labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
    format!("{{{}}}", pairs.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_another_cluster_plays_no_tricks_on_a_terminal() {
        assert_eq!(
            cut("a\x1b[31m\nb\u{202e}c"),
            "a\u{fffd}[31m\u{fffd}b\u{fffd}c"
        );
    }
}
