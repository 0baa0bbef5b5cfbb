//! How an import is doing: the status of the ServiceImport, and the Events about it.

use std::sync::Arc;

use jiff::Timestamp;
use mcs_api::condition::ImportCondition;

use crate::compare::Part;
use crate::conflict::show_families;
use crate::engine::imports::{Derived, Import};
use crate::engine::{Engine, Step};
use crate::mirror::kept;
use crate::names::{ClusterName, ServiceKey};
use crate::object::{ImportObject, ImportStatus, Kind, Object, ObjectRef};
use crate::presence::Standing;
use crate::service::ImportType;
use crate::status::{self, Absence, Absences, ImportState};
use crate::writes::Target;

impl Engine {
    /// Makes the status of the ServiceImport what it should be.
    pub(super) fn plan_import_status(
        &mut self,
        step: &mut Step<'_>,
        present: &Arc<ImportObject>,
        import: &Import,
        derived: &Derived,
    ) {
        let (now, service) = (step.now, step.service);
        let Some(state) = self.import_state(now, service, present, import, derived) else {
            return;
        };
        let mut clusters: Vec<_> = import
            .merged
            .parts
            .iter()
            .filter(|(_, part)| part.endpoints_used)
            .map(|(cluster, _)| cluster.clone())
            .collect();
        let absences = self.absences(service, import);
        clusters.retain(|cluster| absences.get(cluster).is_none_or(Absence::is_used));
        if import.frozen {
            // A cluster that is only not heard of stays named, so that a restart knows of it.
            let unheard = present.status.clusters.iter();
            let unheard = unheard.filter_map(|c| ClusterName::try_new(c).ok());
            let known = |c: &ClusterName| {
                import.merged.parts.contains_key(c)
                    || self.trusted.as_ref().is_some_and(|t| t.contains(c))
                    || *c == self.config.cluster
            };
            clusters.extend(unheard.filter(|c| !known(c)).collect::<Vec<_>>());
            clusters.sort();
            clusters.dedup();
        }
        let slices = self.wants_slices(import.merged.kind);
        let state = match state {
            ImportState::Ready(_) => {
                let refused = self.refusing.note(service);
                ImportState::Ready(status::absence_note(&absences) + &refused)
            }
            other @ (ImportState::NoUsableFamily(_) | ImportState::Pending(_)) => other,
        };
        self.write_status(step, present, &clusters, slices, &state);
    }

    /// The clusters behind an import that are not simply there, and what that means for it.
    fn absences(&self, service: &ServiceKey, import: &Import) -> Absences {
        let mut absences = Absences::new();
        let stated = self.stated(service);
        let standings = stated
            .keys()
            .map(|cluster| (*cluster, self.presence.standing(cluster)));
        let mut is_over = false;
        for (cluster, standing) in standings {
            let is_own = *cluster == self.config.cluster;
            let absence = match standing {
                Standing::Live => continue,
                // What this cluster has is known without the registry.
                Standing::Blind(_) | Standing::Stale | Standing::Over if is_own => continue,
                Standing::Blind(since) => Absence::Blind(since),
                Standing::Stale => Absence::Held,
                Standing::Over => Absence::Withdrawn,
                Standing::Drained => Absence::Drained,
            };
            is_over |= absence == Absence::Withdrawn;
            absences.insert(cluster.clone(), absence);
        }
        if is_over {
            let contributors = self.contributors(service, &stated);
            for cluster in kept(&import.merged, &contributors, &import.families) {
                absences.insert(cluster, Absence::Kept);
            }
        }
        absences
    }

    /// How an import is doing; `None` while that is about to be seen.
    fn import_state(
        &self,
        now: Timestamp,
        service: &ServiceKey,
        present: &ImportObject,
        import: &Import,
        derived: &Derived,
    ) -> Option<ImportState> {
        let name = service.sibling(&import.derived);
        let target = Target::Object(
            ObjectRef {
                kind: Kind::Service,
                key: name.clone(),
            },
            Part::Body,
        );
        let own_target = Target::Object(
            ObjectRef {
                kind: Kind::ServiceImport,
                key: service.clone(),
            },
            Part::Body,
        );
        if !import.usable {
            let own = self.families.as_deref().unwrap_or_default();
            return Some(ImportState::NoUsableFamily(format!(
                "the service has {}, this cluster's network has {}",
                show_families(&import.families),
                show_families(own)
            )));
        }
        for (target, what) in [
            (&target, format!("Service {name}")),
            (&own_target, format!("ServiceImport {service}")),
        ] {
            if self.writes.is_contended(target, now) {
                return Some(ImportState::Pending(format!(
                    "Contended: another manager keeps changing {what} back; it is left alone for \
                     ten minutes. Find out who writes it (metadata.managedFields) and stop that"
                )));
            }
        }
        match derived {
            Derived::Foreign => Some(ImportState::Pending(format!(
                "Service {name} is in the way: it was not made for this import. Delete or rename \
                 it, and the clusterset IP will be made"
            ))),
            Derived::Ours(_) | Derived::None if import.merged.kind == ImportType::Headless => {
                Some(ImportState::Ready(String::new()))
            }
            Derived::Ours(_)
                if present
                    .spec
                    .as_ref()
                    .is_some_and(|spec| !spec.ips.is_empty()) =>
            {
                Some(ImportState::Ready(String::new()))
            }
            Derived::Ours(_) | Derived::None => {
                // The usual case is that the Service appears in a moment.
                let failure = self.writes.failure(&target)?;
                Some(ImportState::Pending(format!(
                    "Service {name} could not be made, it is tried again: {}",
                    failure.message
                )))
            }
        }
    }

    pub(super) fn write_status(
        &mut self,
        step: &mut Step<'_>,
        present: &Arc<ImportObject>,
        clusters: &[ClusterName],
        slices: bool,
        state: &ImportState,
    ) {
        let now = self.time_of_day(step.now);
        let wanted = status::of_import(state);
        self.note_trouble(step, present, &wanted);
        let generation = present.meta.generation;
        let old_conditions = &present.status.conditions;
        let conditions = status::set(
            old_conditions,
            std::slice::from_ref(&wanted),
            &[],
            generation,
            now,
        );
        let new = ImportObject {
            status: ImportStatus {
                clusters: clusters
                    .iter()
                    .map(|cluster| cluster.as_str().into())
                    .collect(),
                slices_present: Some(slices),
                conditions,
            },
            ..(**present).clone()
        };
        let old = Object::ServiceImport(Arc::clone(present));
        let new = Object::ServiceImport(Arc::new(new));
        if !self.update_status(step, &old, new) {
            return;
        }
        let message = Arc::clone(&wanted.message);
        if wanted.is_news(old_conditions) {
            debug_assert_eq!(wanted.kind, ImportCondition::Ready.as_str());
            let reason = if wanted.status {
                "Imported"
            } else {
                "NotReady"
            };
            self.tell(step, &old, !wanted.status, reason, message);
        } else if wanted.status && wanted.says_other(old_conditions) {
            let ImportState::Ready(note) = state else {
                return;
            };
            let is_away = !status::without_refusals(note).is_empty();
            let reason = if is_away {
                "ClusterAway"
            } else {
                "ClustersHeardOf"
            };
            self.tell(step, &old, is_away, reason, message);
        }
    }
}
