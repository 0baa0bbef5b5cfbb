//! The export side of the engine: judging ServiceExports and telling their users.

use std::collections::BTreeMap;
use std::sync::Arc;

use mcs_api::condition::{ExportCondition, ExportReadyReason};

use crate::engine::{Engine, Participation, Step};
use crate::export::{ExportInput, LocalExport, OwnService, Verdict, evaluate};
use crate::fleet::{ClusterService, Recorded};
use crate::merge::{Claim, Merged, merge};
use crate::names::{ClusterName, ServiceKey};
use crate::object::Object;
use crate::status::{self, Publication};
use crate::world::World;

impl Engine {
    /// Judges the ServiceExport of a service, if there is one.
    pub(super) fn judge_export(&mut self, service: &ServiceKey, participation: &Participation) {
        let export = self
            .world
            .exports
            .get(service)
            .filter(|export| !export.meta.terminating);
        let Some(export) = export else {
            self.own.remove(service);
            return;
        };
        let object = self.world.services.get(service);
        let none = BTreeMap::new();
        let local = evaluate(ExportInput {
            export,
            namespace_problem: match participation {
                Participation::NotGlobal(problem) => Some(problem),
                Participation::Absent | Participation::Terminating | Participation::Global => None,
            },
            service: object.map(|object| &**object),
            is_derived: object.is_some_and(|object| World::is_derived(object)),
            slices: self.world.local_slices(service).unwrap_or(&none),
            service_cidrs: &self.service_cidrs,
            member: self.recorded.members.get(&self.config.cluster),
            joined: self.recorded.joined(&self.config.cluster),
        });
        // What did not change keeps its place in memory, so that comparing it stays cheap.
        if self.own.get(service).is_none_or(|old| **old != local) {
            self.own.insert(service.clone(), Arc::new(local));
        }
    }

    /// Takes in what operators recorded: this cluster's own limits, and what its exports' age
    /// counts from.
    pub(super) fn set_recorded(&mut self, recorded: Arc<Recorded>) {
        let own = &self.config.cluster;
        let old = std::mem::replace(&mut self.recorded, recorded);
        let is_same = old.members.get(own) == self.recorded.members.get(own)
            && old.joined(own) == self.recorded.joined(own);
        if !is_same {
            self.dirty.services.extend(self.own.keys().cloned());
        }
    }

    /// The service as this cluster exports it.
    pub(super) fn own_service(&self, service: &ServiceKey) -> Option<&Arc<OwnService>> {
        match &self.own.get(service)?.verdict {
            Verdict::Exported(own) => Some(own),
            Verdict::Invalid { .. } | Verdict::Refused { .. } => None,
        }
    }

    /// What the clusters state about a service: the peers through the registry, this cluster
    /// straight from its own objects.
    pub(super) fn stated(
        &self,
        service: &ServiceKey,
    ) -> BTreeMap<&ClusterName, &Arc<ClusterService>> {
        let peers = self
            .fleet
            .get(service)
            .into_iter()
            .flat_map(|fleet| fleet.clusters());
        let mut all: BTreeMap<_, _> = peers
            .filter(|(cluster, _)| **cluster != self.config.cluster)
            .collect();
        if let Some(own) = self.own_service(service) {
            all.insert(&self.config.cluster, &own.stated);
        }
        all
    }

    /// The merge of a service. Where the registry already says what this cluster does, the one
    /// that is shared by all readers.
    pub(super) fn merged(&self, service: &ServiceKey) -> Option<Arc<Merged>> {
        let fleet = self.fleet.get(service);
        let own = self.own_service(service).map(|own| &own.stated);
        let echoed = fleet.and_then(|fleet| fleet.clusters().get(&self.config.cluster));
        let claim = |state: &Arc<ClusterService>| (Arc::clone(&state.export), state.joined);
        if own.map(claim) == echoed.map(claim) {
            return fleet?.merged().cloned();
        }
        let stated = self.stated(service).into_iter();
        merge(stated.map(|(cluster, state)| Claim::of(cluster, state))).map(Arc::new)
    }

    /// What the import of a service is made of, and what the clusters disagree on.
    pub fn merge_of(&self, service: &ServiceKey) -> Option<Arc<Merged>> {
        self.merged(service)
    }

    /// Writes the conditions of the ServiceExport.
    pub(super) fn plan_export_status(&mut self, step: &mut Step<'_>, merged: Option<&Merged>) {
        let (now, service) = (step.now, step.service);
        let (Some(export), Some(local)) = (self.world.exports.get(service), self.own.get(service))
        else {
            self.told.remove(service);
            return;
        };
        let (export, local) = (Arc::clone(export), Arc::clone(local));
        let publication = match &local.verdict {
            Verdict::Exported(own) => match self.publication(service, own) {
                // It was acknowledged before this engine began: that the registry has not been
                // asked yet is no step back, so a restart writes nothing.
                Publication::Pending if was_acknowledged(&export.conditions) => {
                    Publication::Acknowledged
                }
                publication => publication,
            },
            Verdict::Invalid { .. } | Verdict::Refused { .. } => Publication::Pending,
        };
        let mut wanted = status::of_export(service, &local, &publication, merged);
        if self.trusted.is_none() {
            // Before the registry was ever listed nobody knows who else exports the service.
            wanted.retain(|condition| condition.kind != ExportCondition::Conflict.as_str());
        }
        let absent: &[&str] = match local.verdict {
            Verdict::Invalid { .. } => &[ExportCondition::Conflict.as_str()],
            Verdict::Refused { .. } | Verdict::Exported(_) => &[],
        };
        let generation = export.meta.generation;
        let time = self.time_of_day(now);
        let conditions = status::set(&export.conditions, &wanted, absent, generation, time);
        let old = Object::ServiceExport(Arc::clone(&export));
        let new = Object::ServiceExport(Arc::new(crate::object::ExportObject {
            conditions,
            ..(*export).clone()
        }));
        if self.update_status(step, &old, new) {
            self.tell_export(step, &old, &export.conditions, &wanted);
        }
        self.tell_notes(step, &old, &local);
    }

    /// An Event for each condition that changed in a way that a user should hear of.
    fn tell_export(
        &mut self,
        step: &mut Step<'_>,
        about: &Object,
        present: &[crate::object::Condition],
        wanted: &[status::Wanted],
    ) {
        for condition in wanted.iter().filter(|condition| condition.is_news(present)) {
            let had_conflict = || {
                present.iter().any(|c| {
                    c.kind.as_ref() == ExportCondition::Conflict.as_str()
                        && c.status.as_ref() == "True"
                })
            };
            let event = match (condition.kind, condition.status) {
                ("Valid", false) => Some((true, "NotExported")),
                ("Ready", true) => Some((false, "Exported")),
                ("Ready", false) if *condition.reason == *ExportReadyReason::Failed.as_str() => {
                    Some((true, "ExportFailed"))
                }
                ("Conflict", true) => Some((true, "Conflict")),
                ("Conflict", false) if had_conflict() => Some((false, "ConflictResolved")),
                _ => None,
            };
            if let Some((warning, reason)) = event {
                let message = Arc::clone(&condition.message);
                self.tell(step, about, warning, reason, message);
            }
        }
    }

    /// An Event for each thing that was left out of an export, once.
    fn tell_notes(&mut self, step: &mut Step<'_>, about: &Object, local: &LocalExport) {
        let service = step.service;
        if let Some(told) = self.told.get_mut(service) {
            told.retain(|message| local.notes.iter().any(|(_, note)| note == message));
        }
        for (reason, message) in &local.notes {
            if self
                .told
                .entry(service.clone())
                .or_default()
                .insert(message.clone())
            {
                self.tell(step, about, true, reason, message.as_str().into());
            }
        }
    }
}

/// Whether a ServiceExport says that the registry has it.
fn was_acknowledged(conditions: &[crate::object::Condition]) -> bool {
    conditions.iter().any(|condition| {
        condition.kind.as_ref() == ExportCondition::Ready.as_str()
            && condition.status.as_ref() == "True"
    })
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::config::Config;
    use crate::io::{Effect, Input, Source};
    use crate::names::{Namespace, ObjectName};
    use crate::object::{
        Condition, ExportObject, GlobalMark, Meta, NamespaceObject, ServiceKind, ServiceObject,
    };
    use crate::record::Labels;
    use crate::service::{Affinity, InternalTrafficPolicy, IpFamily, Port, Protocol};

    fn key() -> ServiceKey {
        ServiceKey::new(Namespace::try_new("shop").unwrap(), ObjectName::new("web"))
    }

    fn meta() -> Meta {
        let mut meta = Meta::to_create(key());
        meta.uid = "u".into();
        meta.resource_version = "1".into();
        meta.created = Some(Timestamp::UNIX_EPOCH);
        meta
    }

    fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Condition {
        Condition {
            kind: kind.into(),
            status: status.into(),
            reason: reason.into(),
            message: message.into(),
            observed_generation: Some(0),
            last_transition: Timestamp::UNIX_EPOCH,
        }
    }

    fn objects() -> [Object; 3] {
        let service = ServiceObject {
            meta: meta(),
            kind: ServiceKind::ClusterIp,
            headless: false,
            cluster_ips: vec!["10.0.0.1".parse().unwrap()],
            families: vec![IpFamily::V4],
            ports: vec![Port {
                name: "".into(),
                protocol: Protocol::Tcp,
                port: 80,
                app_protocol: None,
            }],
            affinity: Affinity::None,
            internal_traffic_policy: InternalTrafficPolicy::Cluster,
            traffic_distribution: None,
            has_selector: false,
        };
        let valid = "Service shop/web can be exported";
        let ready = "the registry has acknowledged the export";
        let export = ExportObject {
            meta: meta(),
            labels: Labels::new(),
            annotations: Labels::new(),
            conditions: vec![
                condition("Valid", "True", "Valid", valid),
                condition("Ready", "True", "Exported", ready),
                condition("Conflict", "True", "TypeConflict", "west has another type"),
            ],
        };
        let namespace = NamespaceObject {
            name: key().namespace,
            labels: Arc::default(),
            global: GlobalMark::Absent,
            terminating: false,
            resource_version: "1".into(),
        };
        [
            Object::Namespace(Arc::new(namespace)),
            Object::Service(Arc::new(service)),
            Object::ServiceExport(Arc::new(export)),
        ]
    }

    #[test]
    fn a_restart_before_the_registry_is_heard_changes_no_status() {
        let now = Timestamp::UNIX_EPOCH;
        let cluster = ClusterName::try_new("east").unwrap();
        let mut engine = Engine::new(Config::new(cluster));
        for source in crate::engine::LOCAL_SOURCES {
            engine.observe(now, Input::ListBegan(source));
            for object in objects() {
                if Source::Objects(object.kind()) == source {
                    engine.observe(now, Input::Applied(object));
                }
            }
            let revision = "1".into();
            engine.observe(now, Input::ListEnded { source, revision });
        }
        engine.observe(now, Input::Families(vec![IpFamily::V4]));
        let actions = engine.act(now);
        let is_status = |effect: &Effect| matches!(effect, Effect::UpdateStatus { .. });
        let statuses: Vec<_> = actions.iter().filter(|a| is_status(&a.effect)).collect();
        assert_eq!(statuses, Vec::<&crate::io::Action>::new());
    }
}
