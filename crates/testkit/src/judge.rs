//! What no engine may ever do, whatever it was told: checked at every action.

use tombolo_model::io::{Action, Effect, RecordWrite};
use tombolo_model::object::{Condition, Kind, Meta, Object};
use tombolo_model::record::{Record, RecordKey};

use crate::oracle::expect;
use crate::registry::{Registry, stated};
use crate::site::{Site, written};

/// Broken rules, as sentences.
#[derive(Debug, Default)]
pub struct Violations {
    lines: Vec<String>,
}

impl Violations {
    /// Notes one.
    pub fn add(&mut self, line: String) {
        self.lines.push(line);
    }

    /// All of them.
    pub fn lines(&self) -> &[String] {
        &self.lines
    }
}

/// Judges an action that the engine has just asked for.
pub fn action(site: &mut Site, action: &Action, registry: &Registry) {
    let problems: Vec<String> = [
        twice(site, &action.effect),
        not_ours(&action.effect),
        of_no_export(site, &action.effect),
        transition(&action.effect),
        publication(&action.effect),
        synced_early(site, &action.effect, registry),
    ]
    .into_iter()
    .flatten()
    .collect();
    for problem in problems {
        site.violations.add(problem);
    }
}

/// At most one write is under way per object.
fn twice(site: &Site, effect: &Effect) -> Option<String> {
    let reference = written(effect)?.reference();
    let mut others = site.under_way().filter_map(written);
    let is_twice = others.any(|object| object.reference() == reference);
    is_twice.then(|| format!("a second write of {reference:?} is under way"))
}

fn is_marked(meta: &Meta) -> bool {
    meta.label("app.kubernetes.io/managed-by") == Some("tombolo")
        || meta.label("endpointslice.kubernetes.io/managed-by") == Some("controller.tombolo.dev")
        || meta
            .owners
            .iter()
            .any(|owner| &*owner.kind == "ServiceImport")
}

/// Nothing of a user's is written but the status of a ServiceExport.
fn not_ours(effect: &Effect) -> Option<String> {
    let (old, is_allowed) = match effect {
        Effect::Create(object) => (
            object,
            matches!(
                object.kind(),
                Kind::Service | Kind::EndpointSlice | Kind::ServiceImport
            ) && object.meta().is_some_and(is_marked),
        ),
        // A ServiceImport of others is adopted.
        Effect::Update { old, .. } => (
            old,
            old.kind() == Kind::ServiceImport || old.meta().is_some_and(is_marked),
        ),
        Effect::Delete(old) => (old, old.meta().is_some_and(is_marked)),
        Effect::UpdateStatus { old, .. } => (
            old,
            matches!(old.kind(), Kind::ServiceExport | Kind::ServiceImport),
        ),
        Effect::Publish { .. } | Effect::Synced(_) | Effect::Report(_) | Effect::Event(_) => {
            return None;
        }
    };
    (!is_allowed).then(|| format!("{:?} is not ours: {effect:?}", old.reference()))
}

/// Slices hold nothing that is not exported, by what the engine has observed.
fn of_no_export(site: &Site, effect: &Effect) -> Option<String> {
    if !site.is_orderly {
        return None;
    }
    match effect {
        Effect::Create(Object::EndpointSlice(slice))
        | Effect::Update {
            new: Object::EndpointSlice(slice),
            ..
        } => site.seen().not_exported(slice),
        _ => None,
    }
}

/// lastTransitionTime moves only when status does, and conditions of others stay.
fn transition(effect: &Effect) -> Option<String> {
    let Effect::UpdateStatus { old, new } = effect else {
        return None;
    };
    let (before, after): (&[Condition], &[Condition]) = match (old, new) {
        (Object::ServiceExport(old), Object::ServiceExport(new)) => {
            (&old.conditions, &new.conditions)
        }
        (Object::ServiceImport(old), Object::ServiceImport(new)) => {
            (&old.status.conditions, &new.status.conditions)
        }
        _ => return Some("a status is written of a kind that has none".to_owned()),
    };
    for old in before {
        let is_own = ["Valid", "Ready", "Conflict"].contains(&&*old.kind);
        let new = after.iter().find(|new| new.kind == old.kind);
        match new {
            Some(new) if is_own => {
                if new.status == old.status && new.last_transition != old.last_transition {
                    return Some(format!("lastTransitionTime of {} moves alone", old.kind));
                }
            }
            Some(new) if new == old => {}
            None if is_own => {}
            _ => return Some(format!("condition {} of another is touched", old.kind)),
        }
    }
    None
}

/// Endpoints are published before their export, and an export is withdrawn before its endpoints.
fn publication(effect: &Effect) -> Option<String> {
    let Effect::Publish { writes, .. } = effect else {
        return None;
    };
    let is_export = |w: &RecordWrite| matches!(w.key, RecordKey::Export(_));
    let at = writes.iter().position(is_export)?;
    let is_put = writes[at].record.is_some();
    let wrong = if is_put {
        writes[at..].iter().skip(1).any(|w| w.record.is_some())
    } else {
        writes[..at].iter().any(|w| w.record.is_none())
    };
    wrong.then(|| format!("export and endpoints are written in the wrong order: {writes:?}"))
}

/// `synced` says that all that is known is published.
fn synced_early(site: &Site, effect: &Effect, registry: &Registry) -> Option<String> {
    let Effect::Synced(_) = effect else {
        return None;
    };
    if !site.is_orderly {
        return None;
    }
    let partition = registry.partition(&site.origin());
    let there = stated(&partition);
    let wanted = expect(&site.seen().truth()).records;
    let stray = partition.iter().any(|(key, record)| {
        matches!((key, record), (RecordKey::Endpoint { service, .. }, Record::Endpoint(_)) if !there.contains_key(service))
    });
    (there != wanted || stray).then(|| format!("synced before {wanted:?} is there: {there:?}"))
}
