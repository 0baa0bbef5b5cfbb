//! The engine's effects on a store, answered as an API server would.

use std::sync::Arc;

use jiff::Timestamp;
use tombolo_model::io::{Effect, Input, Outcome, Refusal, RefusalKind};
use tombolo_model::object::{Meta, Object, ObjectRef};

use super::{
    EVENTS_MAX, NamespaceState, Store, change_meta, generation, set_resource_version,
    with_status_of, without_status,
};

/// The answer to an effect.
#[derive(Clone, Debug)]
pub struct Reply {
    /// How it ended.
    pub outcome: Outcome,
    /// What a watch would show of it.
    pub changes: Vec<Input>,
}

impl Reply {
    fn written(object: Object) -> Self {
        Self {
            changes: vec![Input::Applied(object.clone())],
            outcome: Outcome::Written(object),
        }
    }

    fn unchanged(outcome: Outcome) -> Self {
        Self {
            outcome,
            changes: Vec::new(),
        }
    }

    fn outdated(current: Option<&Object>) -> Self {
        Self::unchanged(Outcome::Outdated(current.cloned()))
    }

    fn refused(kind: RefusalKind, message: String) -> Self {
        Self::unchanged(Outcome::Refused(Refusal {
            kind,
            message: message.into(),
        }))
    }
}

impl Store {
    /// Carries an effect out. `None`: it has no outcome (an Event), or is one on the registry.
    pub fn execute(&mut self, effect: &Effect, now: Timestamp) -> Option<Reply> {
        match effect {
            Effect::Create(object) => Some(self.create(object, now)),
            Effect::Update { old, new } => Some(self.update(old, new)),
            Effect::UpdateStatus { old, new } => Some(self.update_status(old, new)),
            Effect::Delete(object) => Some(self.delete_exactly(object)),
            Effect::Event(event) => {
                if self.events.len() == EVENTS_MAX {
                    self.events.pop_front();
                }
                self.events.push_back(event.clone());
                None
            }
            Effect::Publish { .. } | Effect::Synced(_) | Effect::Report(_) => None,
        }
    }

    fn create(&mut self, object: &Object, now: Timestamp) -> Reply {
        let reference = object.reference();
        if let Some(current) = self.objects.get(&reference) {
            return Reply::outdated(Some(current));
        }
        let namespace = &reference.key.namespace;
        match self.namespace(namespace) {
            NamespaceState::Active => {}
            NamespaceState::Terminating => {
                let message = format!("namespace {namespace} is being terminated");
                return Reply::refused(RefusalKind::NamespaceTerminating, message);
            }
            NamespaceState::Missing => {
                let message = format!("namespace {namespace} not found");
                return Reply::refused(RefusalKind::Other, message);
            }
        }
        let mut new = without_status(object.clone());
        if let Object::Service(service) = &new {
            match self.admit((**service).clone(), None) {
                Ok(admitted) => new = Object::Service(Arc::new(admitted)),
                Err(refusal) => return Reply::unchanged(Outcome::Refused(refusal)),
            }
        }
        let (uid, generation) = (self.uid(&reference), generation(None, &new));
        change_meta(&mut new, |meta| {
            meta.uid = uid;
            meta.generation = generation;
            meta.created = Some(now);
            meta.terminating = false;
        });
        Reply::written(self.put(reference, new))
    }

    fn update(&mut self, old: &Object, new: &Object) -> Reply {
        let reference = new.reference();
        let current = match self.current(&reference, old) {
            Ok(current) => current,
            Err(reply) => return reply,
        };
        let mut new = with_status_of(new.clone(), &current);
        match (&new, &current) {
            (Object::Service(service), Object::Service(present)) => {
                match self.admit((**service).clone(), Some(present)) {
                    Ok(admitted) => new = Object::Service(Arc::new(admitted)),
                    Err(refusal) => return Reply::unchanged(Outcome::Refused(refusal)),
                }
            }
            (Object::EndpointSlice(slice), Object::EndpointSlice(present))
                if slice.address_type != present.address_type =>
            {
                let message = "addressType: cannot be changed".to_owned();
                return Reply::refused(RefusalKind::Invalid, message);
            }
            (_, _) => {}
        }
        let generation = generation(Some(&current), &new);
        self.replace(reference, &current, new, generation)
    }

    fn update_status(&mut self, old: &Object, new: &Object) -> Reply {
        let reference = new.reference();
        let current = match self.current(&reference, old) {
            Ok(current) => current,
            Err(reply) => return reply,
        };
        let new = with_status_of(current.clone(), new);
        let generation = current.meta().map_or(0, |meta| meta.generation);
        self.replace(reference, &current, new, generation)
    }

    fn delete_exactly(&mut self, object: &Object) -> Reply {
        let reference = object.reference();
        match self.current(&reference, object) {
            Err(reply) => reply,
            Ok(_) => Reply {
                changes: self.delete(&reference),
                outcome: Outcome::Deleted,
            },
        }
    }

    /// The object as it stands, if it is the one that the engine knows.
    fn current(&self, reference: &ObjectRef, known: &Object) -> Result<Object, Reply> {
        let uid = |object: &Object| object.meta().map(|meta| Arc::clone(&meta.uid));
        match self.objects.get(reference) {
            Some(current)
                if current.resource_version() == known.resource_version()
                    && uid(current) == uid(known) =>
            {
                Ok(current.clone())
            }
            other => Err(Reply::outdated(other)),
        }
    }

    /// Writes an object over the one that is there; what only a server sets stays as it was.
    fn replace(
        &mut self,
        reference: ObjectRef,
        current: &Object,
        mut new: Object,
        generation: i64,
    ) -> Reply {
        if let Some(present) = current.meta() {
            change_meta(&mut new, |meta| {
                let Meta {
                    uid,
                    created,
                    terminating,
                    ..
                } = present.clone();
                (meta.uid, meta.created, meta.terminating) = (uid, created, terminating);
                meta.generation = generation;
            });
        }
        set_resource_version(&mut new, current.resource_version());
        if new == *current {
            return Reply::unchanged(Outcome::Written(new));
        }
        Reply::written(self.put(reference, new))
    }
}
