//! Conditions: what users read on their ServiceExports and ServiceImports (BEHAVIOUR §1–§3).

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use mcs_api::condition::{
    ConflictReason, ExportCondition, ExportReadyReason, ImportCondition, ImportReadyReason,
    ValidReason,
};

use crate::export::{LocalExport, Verdict};
use crate::merge::Merged;
use crate::names::{ClusterName, ServiceKey};
use crate::object::Condition;

/// How far the publication of an export is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Publication {
    /// The registry has acknowledged the record.
    Acknowledged,
    /// It has not been answered yet.
    Pending,
    /// It could not be written; the registry's words.
    Failed(Arc<str>),
}

/// The conditions of a ServiceExport.
pub(crate) fn of_export(
    key: &ServiceKey,
    local: &LocalExport,
    publication: &Publication,
    merged: Option<&Merged>,
) -> Vec<Wanted> {
    let valid = |status, reason: ValidReason, message: String| {
        Wanted::new(
            ExportCondition::Valid.as_str(),
            status,
            reason.as_str(),
            message,
        )
    };
    let ready = |status, reason: ExportReadyReason, message: String| {
        Wanted::new(
            ExportCondition::Ready.as_str(),
            status,
            reason.as_str(),
            message,
        )
    };
    let exported = format!("Service {key} can be exported");
    match &local.verdict {
        Verdict::Invalid { reason, message } => vec![
            valid(false, *reason, message.clone()),
            ready(
                false,
                ExportReadyReason::Pending,
                "not exported: the condition Valid says why".to_owned(),
            ),
        ],
        Verdict::Refused { message } => vec![
            valid(true, ValidReason::Valid, exported),
            ready(false, ExportReadyReason::Failed, message.clone()),
            conflict(None),
        ],
        Verdict::Exported(_) => {
            let ready = match publication {
                Publication::Acknowledged => ready(
                    true,
                    ExportReadyReason::Exported,
                    "the registry has acknowledged the export".to_owned(),
                ),
                Publication::Pending => ready(
                    false,
                    ExportReadyReason::Pending,
                    "waiting for the registry to acknowledge the export".to_owned(),
                ),
                Publication::Failed(words) => ready(
                    false,
                    ExportReadyReason::Failed,
                    format!("the registry has not taken the export, it is tried again: {words}"),
                ),
            };
            vec![
                valid(true, ValidReason::Valid, exported),
                ready,
                conflict(merged),
            ]
        }
    }
}

fn conflict(merged: Option<&Merged>) -> Wanted {
    let conflicts = merged
        .map(|merged| merged.conflicts.as_slice())
        .unwrap_or_default();
    let kind = ExportCondition::Conflict.as_str();
    let reason = ConflictReason::join(conflicts.iter().map(|conflict| conflict.reason));
    match merged.filter(|merged| !merged.conflicts.is_empty()) {
        Some(merged) => Wanted::new(kind, true, &reason, merged.conflict_message()),
        None => Wanted::new(
            kind,
            false,
            &reason,
            "all exporting clusters agree".to_owned(),
        ),
    }
}

/// The condition Ready of a ServiceImport.
pub(crate) fn of_import(state: &ImportState) -> Wanted {
    let kind = ImportCondition::Ready.as_str();
    match state {
        ImportState::Ready(note) => Wanted::new(
            kind,
            true,
            ImportReadyReason::Ready.as_str(),
            format!("the service can be used{note}"),
        ),
        ImportState::NoUsableFamily(message) => Wanted::new(
            kind,
            false,
            ImportReadyReason::IpFamilyNotSupported.as_str(),
            message.clone(),
        ),
        ImportState::Pending(message) => Wanted::new(
            kind,
            false,
            ImportReadyReason::Pending.as_str(),
            message.clone(),
        ),
    }
}

/// How an import is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ImportState {
    /// It can be used; what else is to be said of its clusters ([`absence_note`]).
    Ready(String),
    /// This cluster's network has none of its families.
    NoUsableFamily(String),
    /// Something is missing or in the way.
    Pending(String),
}

/// Why a cluster behind an import is not simply there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Absence {
    /// It cannot list what it publishes from, since then.
    Blind(Timestamp),
    /// It is not heard of; its endpoints are used while the hold runs.
    Held,
    /// It is not heard of; its endpoints are among the last.
    Kept,
    /// It is not heard of; its endpoints are not used any more.
    Withdrawn,
    /// The operator took its endpoints out.
    Drained,
}

/// By cluster.
pub(crate) type Absences = BTreeMap<ClusterName, Absence>;

/// Clusters that a note names; more are counted.
const ABSENT_NAMED_MAX: usize = 5;

impl Absence {
    /// Whether endpoints of the cluster are used.
    pub(crate) const fn is_used(&self) -> bool {
        match self {
            Self::Blind(_) | Self::Held | Self::Kept => true,
            Self::Withdrawn | Self::Drained => false,
        }
    }

    fn text(self) -> String {
        match self {
            Self::Blind(since) => {
                // Whole seconds, as in every other time of a status.
                let secs = Timestamp::from_second(since.as_second()).unwrap_or(since);
                format!("cannot see its own objects since {secs}, they are used as they were")
            }
            Self::Held => "is not heard of, its endpoints are still used".to_owned(),
            Self::Kept => "is not heard of, its endpoints are kept as they are the last".to_owned(),
            Self::Withdrawn => "is not heard of, its endpoints are not used any more".to_owned(),
            Self::Drained => "is drained, its endpoints are not used".to_owned(),
        }
    }
}

/// What users of an import should know of its clusters; empty where all are there.
pub(crate) fn absence_note(absences: &Absences) -> String {
    let named = absences.iter().take(ABSENT_NAMED_MAX);
    let named = named.map(|(cluster, absence)| format!("; cluster {cluster} {}", absence.text()));
    let more = absences.len().saturating_sub(ABSENT_NAMED_MAX);
    let more = (more > 0).then(|| format!("; and {more} more"));
    named.chain(more).collect()
}

/// What the note about refused endpoints begins with.
const REFUSED: &str = "; refused: ";

/// What users of an import should know of what is refused of its clusters; empty where nothing is.
pub(crate) fn refusal_note(refused: &[String]) -> String {
    if refused.is_empty() {
        return String::new();
    }
    let named = refused.iter().take(ABSENT_NAMED_MAX).cloned();
    let more = refused.len().saturating_sub(ABSENT_NAMED_MAX);
    let more = (more > 0).then(|| format!("and {more} more"));
    let all: Vec<String> = named.chain(more).collect();
    format!("{REFUSED}{}", all.join(", "))
}

/// A note or message without what is refused.
pub(crate) fn without_refusals(message: &str) -> &str {
    message.split(REFUSED).next().unwrap_or(message)
}

/// A condition that is to be set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) kind: &'static str,
    pub(crate) status: bool,
    pub(crate) reason: Arc<str>,
    pub(crate) message: Arc<str>,
}

impl Wanted {
    fn new(kind: &'static str, status: bool, reason: &str, message: String) -> Self {
        Self {
            kind,
            status,
            reason: reason.into(),
            message: message.into(),
        }
    }

    const fn status_text(&self) -> &'static str {
        if self.status { "True" } else { "False" }
    }

    /// Whether this says something else than what is there, so that the user should hear of it.
    pub(crate) fn is_news(&self, present: &[Condition]) -> bool {
        let old = present.iter().find(|c| c.kind.as_ref() == self.kind);
        old.is_none_or(|c| c.status.as_ref() != self.status_text() || c.reason != self.reason)
    }

    /// Whether the words are others than those that are there, but for what is refused: of that
    /// there are Events of their own.
    pub(crate) fn says_other(&self, present: &[Condition]) -> bool {
        let old = present.iter().find(|c| c.kind.as_ref() == self.kind);
        old.is_some_and(|c| without_refusals(&c.message) != without_refusals(&self.message))
    }
}

/// The list of conditions with these set and those of `absent` kinds removed. Conditions of other
/// writers stay. The time of the last transition moves only when the status does.
pub(crate) fn set(
    present: &[Condition],
    wanted: &[Wanted],
    absent: &[&str],
    generation: i64,
    now: Timestamp,
) -> Vec<Condition> {
    let mut conditions: Vec<Condition> = present
        .iter()
        .filter(|c| !absent.contains(&c.kind.as_ref()))
        .cloned()
        .collect();
    for wanted in wanted {
        let old = conditions
            .iter_mut()
            .find(|c| c.kind.as_ref() == wanted.kind);
        let last_transition = old
            .as_ref()
            .filter(|c| c.status.as_ref() == wanted.status_text())
            .map_or(now, |c| c.last_transition);
        let new = Condition {
            kind: wanted.kind.into(),
            status: wanted.status_text().into(),
            reason: Arc::clone(&wanted.reason),
            message: Arc::clone(&wanted.message),
            observed_generation: Some(generation),
            last_transition,
        };
        match old {
            Some(old) => *old = new,
            None => conditions.push(new),
        }
    }
    conditions
}
