//! Conditions: their types, the reasons each may have, and keeping them in a list.
//!
//! The reasons are those that KEP-1645 names, and one of Tombolo's own, as controllers may add
//! some: [`ValidReason::NamespaceNotGlobal`]. Reading a condition of another implementation can
//! therefore meet a reason that no enum here has; parsing says so with [`UnknownName`].

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use schemars::{Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

#[cfg(test)]
mod tests;

/// A name that is none of those the API has for this purpose.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is not a known {what}")]
pub struct UnknownName {
    /// What the name was read as.
    pub what: &'static str,
    /// The name that was read.
    pub name: String,
}

/// Defines an enum whose variants are names in the API.
macro_rules! names {
    (
        $(#[$doc:meta])*
        $name:ident, $what:literal { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)+ }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)+
        }

        impl $name {
            /// Every variant, in order.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The name that stands in the object.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = UnknownName;

            fn from_str(name: &str) -> Result<Self, UnknownName> {
                match name {
                    $($text => Ok(Self::$variant),)+
                    _ => Err(UnknownName { what: $what, name: name.to_owned() }),
                }
            }
        }
    };
}

names! {
    /// The status of a condition.
    ConditionStatus, "condition status" {
        /// It holds.
        True = "True",
        /// It does not hold.
        False = "False",
        /// It cannot be said.
        Unknown = "Unknown",
    }
}

names! {
    /// The condition types of a `ServiceExport`.
    ExportCondition, "ServiceExport condition" {
        /// Whether the Service can be exported; see [`ValidReason`].
        Valid = "Valid",
        /// Whether it has been exported; see [`ExportReadyReason`].
        Ready = "Ready",
        /// Whether the exporting clusters disagree on it; see [`ConflictReason`].
        Conflict = "Conflict",
    }
}

names! {
    /// Why [`ExportCondition::Valid`] has its status.
    ValidReason, "reason of the condition Valid" {
        /// True: the Service can be exported.
        Valid = "Valid",
        /// False: there is no Service of this name.
        NoService = "NoService",
        /// False: a Service of this type cannot be exported, as an ExternalName.
        InvalidServiceType = "InvalidServiceType",
        /// False: the namespace takes no part in the clusterset. Not among the KEP's reasons.
        NamespaceNotGlobal = "NamespaceNotGlobal",
    }
}

names! {
    /// Why [`ExportCondition::Ready`] has its status.
    ExportReadyReason, "reason of a ServiceExport's condition Ready" {
        /// True: the service has been handed to the control plane.
        Exported = "Exported",
        /// True: the service is ready to be pulled by others.
        Ready = "Ready",
        /// False or Unknown: the export has not got there yet.
        Pending = "Pending",
        /// False: the export failed; the message says why.
        Failed = "Failed",
    }
}

names! {
    /// What the exporting clusters disagree on: why [`ExportCondition::Conflict`] is True.
    ///
    /// Several may hold at once, so the reason of the condition is a list; see
    /// [`ConflictReason::join`]. The order of the variants is the order in that list.
    ConflictReason, "reason of the condition Conflict" {
        /// The ports.
        Port = "PortConflict",
        /// Headless or not.
        Type = "TypeConflict",
        /// The session affinity.
        SessionAffinity = "SessionAffinityConflict",
        /// The settings of the session affinity.
        SessionAffinityConfig = "SessionAffinityConfigConflict",
        /// The exported annotations.
        Annotations = "AnnotationsConflict",
        /// The exported labels.
        Labels = "LabelsConflict",
        /// The internal traffic policy.
        InternalTrafficPolicy = "InternalTrafficPolicyConflict",
        /// The traffic distribution.
        TrafficDistribution = "TrafficDistributionConflict",
        /// The IP families, so that some endpoints cannot be reached over some family.
        IpFamily = "IPFamilyConflict",
    }
}

impl ConflictReason {
    /// The reason while there is no conflict and the condition is False.
    pub const NO_CONFLICTS: &str = "NoConflicts";

    /// The reason of a condition for these conflicts: their names, comma-joined, in order and
    /// each once; [`Self::NO_CONFLICTS`] for none.
    pub fn join(conflicts: impl IntoIterator<Item = Self>) -> String {
        let conflicts: std::collections::BTreeSet<_> = conflicts.into_iter().collect();
        if conflicts.is_empty() {
            return Self::NO_CONFLICTS.to_owned();
        }
        let names: Vec<_> = conflicts.into_iter().map(Self::as_str).collect();
        names.join(",")
    }

    /// The conflicts that the reason of a condition names: the inverse of [`Self::join`].
    pub fn split(reason: &str) -> Result<Vec<Self>, UnknownName> {
        if reason == Self::NO_CONFLICTS {
            return Ok(Vec::new());
        }
        reason.split(',').map(|name| name.trim().parse()).collect()
    }
}

names! {
    /// The condition types of a `ServiceImport`.
    ImportCondition, "ServiceImport condition" {
        /// Whether the service can be used; see [`ImportReadyReason`].
        Ready = "Ready",
    }
}

names! {
    /// Why [`ImportCondition::Ready`] has its status.
    ImportReadyReason, "reason of a ServiceImport's condition Ready" {
        /// True: the service can be used.
        Ready = "Ready",
        /// False or Unknown: the import is being made or changed.
        Pending = "Pending",
        /// False: this cluster has none of the service's IP families.
        IpFamilyNotSupported = "IPFamilyNotSupported",
    }
}

/// The condition of this type, if the list has it.
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// Puts the condition in the place of the one of its type, or at the end, and says whether that
/// changed the list. The time of the last transition moves only when the status does.
pub fn set(conditions: &mut Vec<Condition>, mut condition: Condition) -> bool {
    let Some(present) = conditions
        .iter_mut()
        .find(|present| present.type_ == condition.type_)
    else {
        conditions.push(condition);
        return true;
    };
    if present.status == condition.status {
        condition.last_transition_time = present.last_transition_time.clone();
    }
    let changed = *present != condition;
    *present = condition;
    changed
}

/// A condition as anything may have stored it: the first release of the CRDs (v0.1.0) required
/// no more than type and status.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredCondition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
    observed_generation: Option<i64>,
    last_transition_time: Option<Time>,
    reason: Option<String>,
    message: Option<String>,
}

/// Reads conditions. One without a transition time gets the beginning of the epoch, so that an
/// object left by another implementation can be read at all.
pub(crate) fn deserialize_list<'de, D>(deserializer: D) -> Result<Vec<Condition>, D::Error>
where
    D: Deserializer<'de>,
{
    let stored = Option::<Vec<StoredCondition>>::deserialize(deserializer)?;
    let condition = |stored: StoredCondition| Condition {
        type_: stored.type_,
        status: stored.status,
        observed_generation: stored.observed_generation,
        last_transition_time: stored
            .last_transition_time
            .unwrap_or(Time(Timestamp::UNIX_EPOCH)),
        reason: stored.reason.unwrap_or_default(),
        message: stored.message.unwrap_or_default(),
    };
    Ok(stored
        .unwrap_or_default()
        .into_iter()
        .map(condition)
        .collect())
}

/// The schema of a list of conditions: that of `metav1.Condition` with the validations that its
/// Go type declares and its Rust type does not.
pub(crate) fn list_schema(generator: &mut SchemaGenerator) -> Schema {
    let mut condition = generator.subschema_for::<Condition>();
    for (property, keyword, value) in condition_validations() {
        let property = condition.pointer_mut(&format!("/properties/{property}"));
        let property = property.and_then(Value::as_object_mut);
        property
            .expect("metav1.Condition has this field")
            .insert(keyword.to_owned(), value);
    }
    schemars::json_schema!({
        "type": "array",
        "items": condition,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    })
}

/// Property, keyword and value of each validation that `metav1.Condition` has in Go.
fn condition_validations() -> [(&'static str, &'static str, Value); 9] {
    let statuses: Vec<_> = ConditionStatus::ALL
        .iter()
        .map(|status| status.as_str())
        .collect();
    let label = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
    let type_pattern =
        format!(r"^({label}(\.{label})*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$");
    [
        ("message", "maxLength", json!(32_768)),
        ("observedGeneration", "minimum", json!(0)),
        ("reason", "minLength", json!(1)),
        ("reason", "maxLength", json!(1_024)),
        (
            "reason",
            "pattern",
            json!("^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"),
        ),
        ("status", "enum", json!(statuses)),
        ("type", "maxLength", json!(316)),
        ("type", "pattern", json!(type_pattern)),
        ("lastTransitionTime", "format", json!("date-time")),
    ]
}
