//! What is worth telling a person beside the conditions of the objects.

use std::sync::Arc;

use crate::engine::{Engine, Step};
use crate::import::unknown_distribution;
use crate::merge::Merged;
use crate::names::{ObjectName, ServiceKey};
use crate::object::{GlobalMark, ImportObject, Kind, Object, ObjectRef};
use crate::own::ANNOTATION_GLOBAL;

/// The reason of a trafficDistribution that the cluster does not know.
const REASON_DISTRIBUTION: &str = "TrafficDistributionUnknown";

/// Something that was left out, or not understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// What it is about.
    pub object: ObjectRef,
    /// A word for tools.
    pub reason: &'static str,
    /// A sentence for people.
    pub message: String,
}

impl Engine {
    /// Everything that is to be told at present, in no order.
    pub fn notes(&self) -> impl Iterator<Item = Note> {
        self.of_exports()
            .chain(self.of_namespaces())
            .chain(self.of_imports())
            .chain(self.of_refusals())
    }

    /// Tells the user of an import, once its Service is made, what that lacks.
    pub(super) fn tell_of_distribution(
        &mut self,
        step: &mut Step<'_>,
        import: &ImportObject,
        merged: &Merged,
    ) {
        let distribution = merged.traffic_distribution.as_deref();
        let message = unknown_distribution(distribution, &self.config.known_distributions);
        if let Some(message) = message {
            let about = Object::ServiceImport(Arc::new(import.clone()));
            self.tell(step, &about, true, REASON_DISTRIBUTION, message.into());
        }
    }

    /// What is left out of this cluster's exports.
    fn of_exports(&self) -> impl Iterator<Item = Note> {
        self.own.iter().flat_map(|(service, local)| {
            local.notes.iter().map(move |(reason, message)| Note {
                object: ObjectRef {
                    kind: Kind::ServiceExport,
                    key: service.clone(),
                },
                reason,
                message: message.clone(),
            })
        })
    }

    /// Namespaces whose mark says neither yes nor no (BEHAVIOUR §7).
    fn of_namespaces(&self) -> impl Iterator<Item = Note> {
        self.world.namespaces.values().filter_map(|namespace| {
            let GlobalMark::Other(value) = &namespace.global else {
                return None;
            };
            let name = ObjectName::new(namespace.name.as_str());
            Some(Note {
                object: ObjectRef {
                    kind: Kind::Namespace,
                    key: ServiceKey::new(namespace.name.clone(), name),
                },
                reason: "GlobalMarkUnknown",
                message: format!(
                    "its annotation {ANNOTATION_GLOBAL} is {value:?}, which is neither true nor \
                     false, and counts as false"
                ),
            })
        })
    }

    /// Imports whose Service lacks what this cluster's release does not know (BEHAVIOUR §3).
    fn of_imports(&self) -> impl Iterator<Item = Note> {
        self.world.imports.iter().filter_map(|(service, import)| {
            let distribution = import.spec.as_ref()?.traffic_distribution.as_deref();
            let known = &self.config.known_distributions;
            let message = unknown_distribution(distribution, known)?;
            Some(Note {
                object: ObjectRef {
                    kind: Kind::ServiceImport,
                    key: service.clone(),
                },
                reason: REASON_DISTRIBUTION,
                message,
            })
        })
    }
}
