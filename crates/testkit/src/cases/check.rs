//! Compares what the product wrote with what a stage of a case says, and with what holds for
//! every object that Tombolo writes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use serde_json::Value;

use super::Case;
use super::expect::{Conflict, ConflictExact, ConflictWords, Content, Export};
use super::import;
use super::inputs::Inputs;
use super::slices;
use super::stage::{Name, Stage};
use super::world::{Condition, Held, Meta, ServiceExport, World, keys};

/// The reasons of the condition Conflict, in the order in which they are written.
const CONFLICT_REASONS: [&str; 9] = [
    "PortConflict",
    "TypeConflict",
    "SessionAffinityConflict",
    "SessionAffinityConfigConflict",
    "AnnotationsConflict",
    "LabelsConflict",
    "InternalTrafficPolicyConflict",
    "TrafficDistributionConflict",
    "IPFamilyConflict",
];

/// A condition's message may have this many bytes (BEHAVIOUR §2).
const MESSAGE_LEN_MAX: usize = 4096;

/// What is wrong with a result; nothing when it is right.
#[derive(Debug, Default)]
pub(crate) struct Problems(Vec<String>);

impl Problems {
    /// Says what is wrong at a place.
    pub(crate) fn say(&mut self, place: &str, what: impl AsRef<str>) {
        self.0.push(format!("{place}: {}", what.as_ref()));
    }

    /// Says so where two values differ.
    pub(crate) fn same<T: Debug + PartialEq + ?Sized>(&mut self, place: &str, want: &T, got: &T) {
        if want != got {
            self.0
                .push(format!("{place}: expected {want:?}, got {got:?}"));
        }
    }

    /// Says so where something does not hold.
    pub(crate) fn holds(&mut self, place: &str, holds: bool, what: &str) {
        if !holds {
            self.say(place, what);
        }
    }

    /// One line for each problem.
    pub(crate) fn into_lines(self) -> Vec<String> {
        self.0
    }
}

/// Checks everything that a stage of a case says but its DNS part and its prose. `clusters` are
/// those that took part, which are fewer where a case has clusters that must be refused.
pub fn check(case: &Case, stage: usize, clusters: &[String], world: &World) -> Vec<String> {
    let mut problems = Problems::default();
    let inputs = match case.inputs(stage) {
        Ok(inputs) => inputs,
        Err(error) => return vec![format!("{error:#}")],
    };
    let expected = &case.stages[stage];
    for (cluster, held) in &world.clusters {
        problems.holds(
            cluster,
            clusters.contains(cluster),
            "a cluster that takes no part",
        );
        for (kind, meta) in held.metadata() {
            let place = format!("{cluster} {kind} {}/{}", meta.namespace, meta.name);
            check_metadata(&mut problems, &place, kind, meta);
        }
        slices::check_all(&mut problems, cluster, held);
        import::check_addresses(&mut problems, cluster, held);
    }
    for cluster in clusters {
        check_exports(
            &mut problems,
            expected,
            &inputs,
            cluster,
            world.held(cluster),
        );
        check_services(&mut problems, case, stage, cluster, world.held(cluster));
    }
    problems.into_lines()
}

/// What an API server would refuse, or nobody could tell as ours.
fn check_metadata(problems: &mut Problems, place: &str, kind: &str, meta: &Meta) {
    problems.holds(
        place,
        meta.name.len() <= 253,
        "the name is longer than 253 characters",
    );
    problems.holds(
        place,
        is_subdomain(&meta.name),
        "the name is no DNS subdomain",
    );
    problems.holds(place, meta.deletion_timestamp.is_none(), "is going away");
    if kind == "ServiceExport" {
        return;
    }
    for (key, value) in &meta.labels {
        let what = format!("label {key}={value} is not valid");
        problems.holds(place, is_label_value(value), &what);
    }
    let managed_by = meta.label(keys::MANAGED_BY).map(String::as_str);
    problems.same(
        &format!("{place} managed-by"),
        &Some("tombolo"),
        &managed_by,
    );
}

fn is_subdomain(name: &str) -> bool {
    name.split('.').all(|label| {
        let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
        !label.is_empty()
            && label.bytes().all(inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    })
}

fn is_label_value(value: &str) -> bool {
    let inner = |c: u8| c.is_ascii_alphanumeric() || b"-_.".contains(&c);
    let edge = |c: Option<u8>| c.is_none_or(|c| c.is_ascii_alphanumeric());
    value.len() <= 63
        && value.bytes().all(inner)
        && edge(value.bytes().next())
        && edge(value.bytes().next_back())
}

/// Every ServiceExport is shown, with its conditions and else as the user wrote it.
fn check_exports(
    problems: &mut Problems,
    expected: &Stage,
    inputs: &Inputs,
    cluster: &str,
    held: &Held,
) {
    let written: BTreeMap<Name, &Value> = inputs
        .objects()
        .filter(|object| object.cluster == cluster && object.kind == "ServiceExport")
        .map(|object| {
            (
                (object.namespace.to_owned(), object.name.to_owned()),
                object.value,
            )
        })
        .collect();
    let shown: BTreeSet<&Name> = held.exports.keys().collect();
    problems.same(
        &format!("{cluster} ServiceExports"),
        &written.keys().collect(),
        &shown,
    );
    for (key, export) in &held.exports {
        let place = format!("{cluster} ServiceExport {}/{}", key.0, key.1);
        if let Some(input) = written.get(key) {
            check_kept(problems, &place, input, &export.whole);
        }
        check_conditions(problems, &place, export);
        let id = (cluster.to_owned(), key.0.clone(), key.1.clone());
        match expected.exports.get(&id) {
            Some(want) => check_export(problems, &place, want, export),
            None => problems.say(&place, "the case says nothing about it"),
        }
    }
}

/// Tombolo edits nothing of a user's object but its status.
fn check_kept(problems: &mut Problems, place: &str, input: &Value, output: &Value) {
    for pointer in ["/spec", "/metadata/labels", "/metadata/annotations"] {
        let written = |value: &Value| {
            let part = value.pointer(pointer).cloned().unwrap_or(Value::Null);
            // An API server leaves out what is empty.
            if part == serde_json::json!({}) {
                Value::Null
            } else {
                part
            }
        };
        problems.same(
            &format!("{place} {pointer}"),
            &written(input),
            &written(output),
        );
    }
}

fn check_conditions(problems: &mut Problems, place: &str, export: &ServiceExport) {
    let conditions = &export.status.conditions;
    let types: BTreeSet<&str> = conditions.iter().map(|c| c.kind.as_str()).collect();
    problems.holds(
        place,
        types.len() == conditions.len(),
        "two conditions of one type",
    );
    for condition in conditions {
        let place = format!("{place} {}", condition.kind);
        check_condition(problems, &place, condition);
    }
    let Some(conflict) = export.status.condition("Conflict") else {
        return;
    };
    let order = |reason: &str| CONFLICT_REASONS.iter().position(|known| *known == reason);
    let reasons: Vec<Option<usize>> = conflict.reason.split(',').map(order).collect();
    let ordered = conflict.status == "False" || reasons.is_sorted() && !reasons.contains(&None);
    problems.holds(
        place,
        ordered,
        &format!("Conflict reasons, or their order: {}", conflict.reason),
    );
}

pub(crate) fn check_condition(problems: &mut Problems, place: &str, condition: &Condition) {
    let size = condition.message.len();
    problems.holds(
        place,
        size <= MESSAGE_LEN_MAX,
        &format!("a message of {size} bytes"),
    );
    problems.holds(place, !condition.message.trim().is_empty(), "no message");
    problems.holds(
        place,
        condition.last_transition_time.is_some(),
        "no lastTransitionTime",
    );
    problems.holds(
        place,
        condition.observed_generation.is_some(),
        "no observedGeneration",
    );
}

fn check_export(problems: &mut Problems, place: &str, want: &Export, export: &ServiceExport) {
    let conditions = [
        ("Valid", &want.valid, &want.reason),
        ("Ready", &want.ready, &want.ready_reason),
    ];
    for (kind, status, reasons) in conditions {
        let place = format!("{place} {kind}");
        let Some(status) = status else {
            continue;
        };
        let Some(condition) = export.status.condition(kind) else {
            problems.say(&place, "the condition is missing");
            continue;
        };
        problems.same(&format!("{place} status"), status, &condition.status);
        let allowed: Vec<&str> = match (kind, status.as_str()) {
            ("Valid", "True") => vec!["Valid"],
            ("Ready", "True") => vec!["Exported"],
            _ => reasons.iter().map(String::as_str).collect(),
        };
        let fits = allowed.contains(&condition.reason.as_str());
        let what = format!(
            "expected one of {allowed:?} as reason, got {}",
            condition.reason
        );
        problems.holds(&place, fits, &what);
    }
    if let Some(conflict) = &want.conflict {
        let place = format!("{place} Conflict");
        check_conflict(
            problems,
            &place,
            conflict,
            export.status.condition("Conflict"),
        );
    }
}

fn check_conflict(problems: &mut Problems, place: &str, want: &Conflict, got: Option<&Condition>) {
    match (want, got) {
        (Conflict::Words(ConflictWords::AbsentOrFalse), None) => {}
        (Conflict::Words(ConflictWords::AbsentOrFalse), Some(condition)) => {
            problems.same(&format!("{place} status"), "False", &condition.status);
        }
        (Conflict::Exact(_), None) => problems.say(place, "the condition is missing"),
        (Conflict::Exact(want), Some(condition)) => {
            problems.same(&format!("{place} status"), &want.status, &condition.status);
            check_reasons(problems, place, want, condition);
        }
    }
}

fn check_reasons(problems: &mut Problems, place: &str, want: &ConflictExact, got: &Condition) {
    let all: BTreeSet<&str> = got.reason.split(',').collect();
    let must: BTreeSet<&str> = want.reasons.iter().map(String::as_str).collect();
    let may: BTreeSet<&str> = want.optional_reasons.iter().map(String::as_str).collect();
    let needed: BTreeSet<&str> = all.difference(&may).copied().collect();
    let wanted: BTreeSet<&str> = must.difference(&may).copied().collect();
    problems.same(&format!("{place} reasons"), &wanted, &needed);
}

/// What the cluster imports is what the stage says, and no object belongs to anything else.
fn check_services(problems: &mut Problems, case: &Case, stage: usize, cluster: &str, held: &Held) {
    let expected = &case.stages[stage];
    let mut imported: BTreeSet<&Name> = BTreeSet::new();
    for (key, service) in &expected.services {
        if !service
            .imported_in
            .iter()
            .any(|importer| importer == cluster)
        {
            continue;
        }
        imported.insert(key);
        match service.content(cluster) {
            Ok(content) => {
                let place = format!("{cluster} {}/{}", key.0, key.1);
                let target = import::Target {
                    place: &place,
                    cluster,
                    key,
                    held,
                };
                check_content(problems, case, stage, &target, &content);
            }
            Err(error) => problems.say(cluster, format!("{error:#}")),
        }
    }
    // Something is in its way: the import may be there, and nothing else (E13's prose).
    let blocked = expected
        .blocked
        .iter()
        .filter(|blocked| blocked.cluster == cluster)
        .map(|blocked| (blocked.namespace.clone(), blocked.name.clone()))
        .collect::<Vec<Name>>();
    check_nothing_else(problems, cluster, held, &imported, &blocked);
    for (_, (namespace, name)) in expected.gone.iter().filter(|(gone, _)| gone == cluster) {
        let key = (namespace.clone(), name.clone());
        let left = held.imports.contains_key(&key)
            || held.derived_of(&key).next().is_some()
            || held.slices_of(&key).next().is_some();
        problems.holds(cluster, !left, &format!("{namespace}/{name} is not gone"));
    }
}

fn check_content(
    problems: &mut Problems,
    case: &Case,
    stage: usize,
    target: &import::Target<'_>,
    content: &Content,
) {
    import::check(problems, target, content);
    if let Some(sources) = &content.slices {
        let may_also = &case.stages[stage].services[target.key].slices_may_also;
        let own = case.inputs(stage).unwrap_or_default();
        let decided = slices::decide(problems, case.id(), target.place, may_also);
        slices::check_union(problems, target, sources, &decided, &own);
    }
}

fn check_nothing_else(
    problems: &mut Problems,
    cluster: &str,
    held: &Held,
    imported: &BTreeSet<&Name>,
    blocked: &[Name],
) {
    for key in held.imports.keys() {
        let known = imported.contains(key) || blocked.contains(key);
        let place = format!("{cluster} ServiceImport {}/{}", key.0, key.1);
        problems.holds(&place, known, "must not be there");
    }
    let derived = held
        .services
        .values()
        .map(|service| ("Service", &service.metadata));
    let slices = held
        .slices
        .values()
        .map(|slice| ("EndpointSlice", &slice.metadata));
    for (kind, meta) in derived.chain(slices) {
        let service = meta.label(keys::SERVICE_NAME).cloned().unwrap_or_default();
        let known = imported.contains(&(meta.namespace.clone(), service));
        let place = format!("{cluster} {kind} {}/{}", meta.namespace, meta.name);
        problems.holds(&place, known, "must not be there");
    }
}
