//! What a cluster holds of manifests: each object once, in a namespace that exists.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use tombolo_model::names::{Namespace, ObjectName, ServiceKey};
use tombolo_model::object::{GlobalMark, Kind, NamespaceObject, ObjectRef};
use tombolo_model::service::IpFamily;

use super::{Declared, Found, FoundIn, Place, Problem, Tree, describe};
use crate::convert::families_named;

/// The objects of a cluster as its manifests declare them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Manifests {
    /// Whether Namespaces are declared. If none is, every namespace that an object uses exists.
    declares_namespaces: bool,
    /// The namespaces of objects that nobody needs.
    mentioned: BTreeSet<Namespace>,
    objects: BTreeMap<ObjectRef, Declared>,
    /// How often steps have deleted what no manifest declares, such as an object that Tombolo made.
    erased: BTreeMap<ObjectRef, u32>,
}

/// A difference between two states of a cluster's manifests.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// An object is new or another one.
    Apply(Declared),
    /// An object is gone.
    Delete(ObjectRef),
    /// An object that no manifest declares is deleted by hand; the cluster may have it.
    Erase(ObjectRef),
}

/// Changes to one cluster, as `plan --then` has them.
#[derive(Clone, Debug, Default)]
pub struct ClusterStep {
    /// Objects that appear or replace those of their name.
    pub(crate) apply: Vec<FoundIn<Declared>>,
    /// Objects that go.
    pub(crate) delete: Vec<FoundIn<ObjectRef>>,
}

impl Manifests {
    /// What the files of a directory declare, and everything that is wrong with them.
    pub fn of(tree: &Tree) -> (Self, Vec<Problem>) {
        let mut problems: Vec<Problem> = tree.problems().collect();
        let mut first: BTreeMap<ObjectRef, (&Arc<Path>, &Found<Declared>)> = BTreeMap::new();
        for (path, found) in tree.objects() {
            match first.entry(found.what.reference()) {
                Entry::Vacant(entry) => {
                    entry.insert((path, found));
                }
                // A copy says nothing new.
                Entry::Occupied(entry) if entry.get().1.what == found.what => {}
                Entry::Occupied(entry) => {
                    let (there, earlier) = entry.get();
                    let reason = format!(
                        "{} is declared already in {}, document {}: that one counts",
                        describe(entry.key()),
                        there.display(),
                        earlier.place.document
                    );
                    problems.push(problem(path, found.place, reason));
                }
            }
        }
        let mut manifests = Self {
            declares_namespaces: first.keys().any(|r| r.kind == Kind::Namespace),
            mentioned: tree.other_namespaces().cloned().collect(),
            objects: BTreeMap::new(),
            erased: BTreeMap::new(),
        };
        // Namespaces come first in the order of kinds.
        for (reference, (path, found)) in first {
            if manifests.declares_namespaces && !manifests.has_namespace(&reference) {
                problems.push(problem(path, found.place, no_namespace(&reference)));
            } else {
                manifests.objects.insert(reference, found.what.clone());
            }
        }
        manifests.imply_namespaces();
        problems.sort_unstable();
        (manifests, problems)
    }

    /// All objects, Namespaces first.
    pub fn objects(&self) -> impl Iterator<Item = &Declared> {
        self.objects.values()
    }

    /// One object.
    pub fn get(&self, reference: &ObjectRef) -> Option<&Declared> {
        self.objects.get(reference)
    }

    /// The families that the cluster's own Services name.
    pub fn families_named(&self) -> Vec<IpFamily> {
        let services = self.objects().filter_map(|object| match object {
            Declared::Service(service) => Some(families_named(&service.object)),
            Declared::Namespace(_)
            | Declared::EndpointSlice(_)
            | Declared::ServiceExport(_)
            | Declared::ServiceImport(_) => None,
        });
        let mut families: Vec<IpFamily> = services.flatten().collect();
        families.sort_unstable();
        families.dedup();
        families
    }

    /// What has to be done to get from here to `next`: first what goes, Namespaces last, then
    /// what comes, Namespaces first.
    pub fn changes_to(&self, next: &Self) -> Vec<Change> {
        let gone = self.objects.keys().rev();
        let gone = gone.filter(|reference| !next.objects.contains_key(*reference));
        let mut changes: Vec<Change> = gone.cloned().map(Change::Delete).collect();
        let erased = next
            .erased
            .iter()
            .filter(|(reference, times)| self.erased.get(*reference) != Some(times));
        changes.extend(erased.map(|(reference, _)| Change::Erase(reference.clone())));
        let other = next
            .objects
            .iter()
            .filter(|(reference, object)| self.objects.get(*reference) != Some(object));
        changes.extend(other.map(|(_, object)| Change::Apply(object.clone())));
        changes
    }

    /// The state after a step, and what of the step could not be done.
    #[must_use]
    pub fn after(&self, step: &ClusterStep) -> (Self, Vec<Problem>) {
        let mut next = self.clone();
        let mut problems = Vec::new();
        for (path, found) in &step.delete {
            if next.delete(&found.what) {
                continue;
            }
            if may_be_made(found.what.kind) {
                *next.erased.entry(found.what.clone()).or_default() += 1;
            } else {
                let reason = format!("{} is not there to be deleted", describe(&found.what));
                problems.push(problem(path, found.place, reason));
            }
        }
        let is_namespace = |declared: &Declared| matches!(declared, Declared::Namespace(_));
        let (namespaces, others): (Vec<_>, Vec<_>) =
            step.apply.iter().partition(|(_, f)| is_namespace(&f.what));
        // Those that were implied until now stay.
        next.declares_namespaces |= !namespaces.is_empty();
        for (path, found) in namespaces.into_iter().chain(others) {
            let reference = found.what.reference();
            if next.declares_namespaces && !next.has_namespace(&reference) {
                problems.push(problem(path, found.place, no_namespace(&reference)));
            } else {
                next.objects.insert(reference, found.what.clone());
            }
        }
        next.imply_namespaces();
        (next, problems)
    }

    /// Takes an object out, a Namespace with everything in it.
    fn delete(&mut self, reference: &ObjectRef) -> bool {
        let was_there = self.objects.remove(reference).is_some();
        if was_there && reference.kind == Kind::Namespace {
            let namespace = &reference.key.namespace;
            self.objects.retain(|r, _| r.key.namespace != *namespace);
        }
        was_there
    }

    /// Whether the object is a Namespace or in one that is there.
    fn has_namespace(&self, reference: &ObjectRef) -> bool {
        let namespace = &reference.key.namespace;
        reference.kind == Kind::Namespace || self.objects.contains_key(&namespace_ref(namespace))
    }

    /// Where none is declared, the namespaces are those that objects use.
    fn imply_namespaces(&mut self) {
        if self.declares_namespaces {
            return;
        }
        let used: Vec<Namespace> = {
            let others = self.objects.keys().filter(|r| r.kind != Kind::Namespace);
            let used = others.map(|r| r.key.namespace.clone());
            used.chain(self.mentioned.iter().cloned()).collect()
        };
        self.objects.retain(|r, _| r.kind != Kind::Namespace);
        for namespace in used {
            self.objects
                .entry(namespace_ref(&namespace))
                .or_insert_with(|| implied(namespace));
        }
    }
}

/// Whether Tombolo makes objects of this kind.
fn may_be_made(kind: Kind) -> bool {
    match kind {
        Kind::Service | Kind::EndpointSlice | Kind::ServiceImport => true,
        Kind::Namespace | Kind::ServiceExport => false,
    }
}

fn namespace_ref(namespace: &Namespace) -> ObjectRef {
    ObjectRef {
        kind: Kind::Namespace,
        key: ServiceKey::new(namespace.clone(), ObjectName::new(namespace.as_str())),
    }
}

fn implied(name: Namespace) -> Declared {
    Declared::Namespace(Arc::new(NamespaceObject {
        name,
        labels: Arc::default(),
        global: GlobalMark::Absent,
        terminating: false,
        resource_version: "".into(),
    }))
}

fn no_namespace(reference: &ObjectRef) -> String {
    format!(
        "{} cannot exist: the cluster declares Namespaces, but not {}",
        describe(reference),
        reference.key.namespace
    )
}

fn problem(path: &Arc<Path>, place: Place, reason: String) -> Problem {
    Problem {
        file: Arc::clone(path),
        place: Some(place),
        reason,
    }
}
