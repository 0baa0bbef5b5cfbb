//! The checks that stand for texts. Each says what is wrong, or nothing.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::Seen;
use crate::cases::world::{Condition, Held, ServiceExport, keys};

/// Tombolo's output holds what it writes: an object that it leaves alone is there in the input and
/// not in the output. (That the input's files stay as they are is checked for every case.)
pub(super) fn untouched(
    seen: &Seen<'_>,
    cluster: &str,
    kind: &str,
    namespace: &str,
    name: &str,
) -> Vec<String> {
    let held = seen.world.held(cluster);
    let same = |(k, meta): (&str, &str)| (k, meta) == (kind, name);
    let written = held
        .metadata()
        .any(|(kind, meta)| same((kind, &meta.name)) && meta.namespace == namespace);
    let there = seen
        .case
        .inputs(seen.stage)
        .is_ok_and(|inputs| inputs.get(cluster, kind, namespace, name).is_some());
    let mut problems = Vec::new();
    if written {
        problems.push("it was written".to_owned());
    }
    if !there {
        problems.push("the input does not have it".to_owned());
    }
    problems
}

/// E13.
pub(super) fn blocked_import_names_what_is_in_its_way(seen: &Seen<'_>) -> Vec<String> {
    let key = ("shop".to_owned(), "basket".to_owned());
    let held = seen.world.held("west");
    let mut problems = Vec::new();
    if let Some(import) = held.imports.get(&key) {
        let ready = import
            .status
            .condition("Ready")
            .cloned()
            .unwrap_or_default();
        if (ready.status.as_str(), ready.reason.as_str()) != ("False", "Pending") {
            problems.push(format!("Ready is {ready:?}"));
        }
        if !ready.message.contains("derived-5vaodk56ln") {
            problems.push(format!("the message does not name it: {}", ready.message));
        }
    } else {
        problems.push("no ServiceImport (BEHAVIOUR §3 has one that is not ready)".to_owned());
    }
    let slices = held.slices.len();
    if slices > 0 {
        problems.push(format!("{slices} slices in west"));
    }
    if seen.run.code.is_none() {
        problems.push("the run did not settle".to_owned());
    }
    problems
}

/// No ServiceImport, Service or EndpointSlice has this text in it.
pub(super) fn nobody_serves(seen: &Seen<'_>, text: &str) -> Vec<String> {
    let mentions = seen.world.product_mentions(text);
    mentions
        .then(|| format!("{text} is there"))
        .into_iter()
        .collect()
}

/// E15: nothing that the runner counts was made by somebody else.
pub(super) fn every_slice_is_the_products(seen: &Seen<'_>) -> Vec<String> {
    let slices = seen
        .world
        .clusters
        .values()
        .flat_map(|held| held.slices.values());
    let foreign = slices.filter(|slice| {
        let manager = slice.metadata.label(keys::SLICE_MANAGED_BY);
        manager.is_none_or(|manager| manager != "controller.tombolo.dev")
    });
    foreign
        .map(|slice| format!("{} is somebody else's", slice.metadata.name))
        .collect()
}

/// E17.
pub(super) fn export_still_exists(seen: &Seen<'_>) -> Vec<String> {
    let key = ("shop".to_owned(), "login".to_owned());
    match seen.world.held("east").exports.get(&key) {
        None => vec!["it is gone".to_owned()],
        Some(export) if export.metadata.deletion_timestamp.is_some() => {
            vec!["it is going away".to_owned()]
        }
        Some(_) => Vec::new(),
    }
}

/// E17: nothing of any of the three kinds, in any cluster, as the case has no other service.
pub(super) fn only_exports_are_left(seen: &Seen<'_>) -> Vec<String> {
    let objects = seen.world.clusters.values().flat_map(Held::metadata);
    let left = objects.filter(|(kind, _)| *kind != "ServiceExport");
    left.map(|(kind, meta)| format!("{kind} {} is left", meta.name))
        .collect()
}

/// E19. That no Namespace is written at all is a rule of the output's reader.
pub(super) fn nothing_in_shop_in_west(seen: &Seen<'_>) -> Vec<String> {
    let objects = seen.world.held("west").metadata();
    let there = objects.filter(|(_, meta)| meta.namespace == "shop");
    there
        .map(|(kind, meta)| format!("{kind} {}", meta.name))
        .collect()
}

/// E19.
pub(super) fn no_line_is_repeated(seen: &Seen<'_>) -> Vec<String> {
    let mut once = BTreeSet::new();
    let lines = seen
        .run
        .stderr
        .lines()
        .filter(|line| !line.trim().is_empty());
    let repeated = lines.filter(|line| !once.insert(*line));
    repeated.map(|line| format!("twice: {line}")).collect()
}

/// E19: nothing is left that would hold the namespace, and no object that is made has a finalizer.
pub(super) fn namespace_can_go(seen: &Seen<'_>) -> Vec<String> {
    let mut problems = nothing_in_shop_in_west(seen);
    if seen.world.product_mentions("\"finalizers\"") {
        problems.push("an object has a finalizer".to_owned());
    }
    problems
}

/// I01: each bad name by itself, as the only cluster.
pub(super) fn more_bad_names_are_refused(seen: &Seen<'_>) -> Vec<String> {
    let long = "a".repeat(64);
    let mut problems = Vec::new();
    for name in [long.as_str(), "-east", "east."] {
        let found =
            bad_directory_is_refused(seen, name).unwrap_or_else(|error| vec![format!("{error:#}")]);
        problems.extend(
            found
                .into_iter()
                .map(|problem| format!("{name}: {problem}")),
        );
    }
    // A directory without a name of its own cannot be made, but given: the argument is empty.
    let out = seen.scratch.join("out-of-nothing");
    match (seen.launch)(&[Path::new("")], &out) {
        Ok(run) if run.code == Some(0) || run.code == Some(2) => {
            problems.push("an empty name was accepted".to_owned());
        }
        Ok(_) if out.exists() => problems.push("an empty name left output".to_owned()),
        Ok(_) => {}
        Err(error) => problems.push(format!("{error:#}")),
    }
    problems
}

fn bad_directory_is_refused(seen: &Seen<'_>, name: &str) -> Result<Vec<String>> {
    let source = seen.scratch.join(name);
    copy(&seen.case.clusters_dir().join("west"), &source)?;
    let out = seen.scratch.join(format!("out-of-{name}"));
    let run = (seen.launch)(&[&source], &out)?;
    let mut problems = Vec::new();
    if run.code != Some(1) {
        problems.push(format!("exit code {:?}", run.code));
    }
    if !run.stderr.contains(name) {
        problems.push(format!("the message does not name it: {}", run.stderr));
    }
    if out.exists() {
        problems.push("there is output".to_owned());
    }
    Ok(problems)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let path: PathBuf = entry?.path();
        if let Some(name) = path.file_name() {
            fs::copy(&path, to.join(name))?;
        }
    }
    Ok(())
}

/// I01.
pub(super) fn refusal_fails(seen: &Seen<'_>) -> Vec<String> {
    match seen.refusal {
        Some(refusal) if refusal.code == Some(1) => Vec::new(),
        Some(refusal) => vec![format!("exit code {:?}, expected 1", refusal.code)],
        None => vec!["nothing was refused".to_owned()],
    }
}

/// I01: the message has one of the words of each list.
pub(super) fn refusal_says(seen: &Seen<'_>, words: &[&[&str]]) -> Vec<String> {
    let message = seen.refusal.map_or("", |refusal| refusal.stderr.as_str());
    let missing = words
        .iter()
        .filter(|any| !any.iter().any(|word| message.contains(word)));
    missing
        .map(|any| format!("no word of {any:?} in: {message}"))
        .collect()
}

/// M07 and M23: no slice has a port of this name (and protocol).
pub(super) fn no_slice_port(seen: &Seen<'_>, name: &str, protocol: Option<&str>) -> Vec<String> {
    let slices = seen
        .world
        .clusters
        .values()
        .flat_map(|held| held.slices.values());
    let has = slices.filter(|slice| {
        let is = |of: &str| protocol.is_none_or(|protocol| protocol == of);
        slice
            .ports
            .iter()
            .any(|port| port.name == name && is(&port.protocol))
    });
    has.map(|slice| format!("{} has one", slice.metadata.name))
        .collect()
}

/// M07.
pub(super) fn no_import_has_one_port_twice(seen: &Seen<'_>) -> Vec<String> {
    let imports = seen
        .world
        .clusters
        .values()
        .flat_map(|held| held.imports.values());
    let twice = imports.filter(|import| {
        let ports = &import.spec.ports;
        let numbers: BTreeSet<_> = ports
            .iter()
            .map(|port| (&port.protocol, port.number))
            .collect();
        numbers.len() < ports.len()
    });
    twice
        .map(|import| format!("{} has", import.metadata.name))
        .collect()
}

/// M07 and M11: the message of the condition Conflict of every export has all these words.
pub(super) fn conflict_messages_name(seen: &Seen<'_>, words: &[&str]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut count = 0;
    for (cluster, export) in exports(seen) {
        count += 1;
        let conflict = export.status.condition("Conflict");
        let message = conflict.map_or("", |conflict| conflict.message.as_str());
        for word in words.iter().filter(|word| !message.contains(**word)) {
            problems.push(format!("{cluster}: no {word} in: {message}"));
        }
    }
    if count != 2 {
        problems.push(format!("{count} exports"));
    }
    problems
}

/// M13.
pub(super) fn no_slice_label(seen: &Seen<'_>, key: &str) -> Vec<String> {
    let slices = seen
        .world
        .clusters
        .values()
        .flat_map(|held| held.slices.values());
    let has = slices.filter(|slice| slice.metadata.label(key).is_some());
    has.map(|slice| format!("{} has", slice.metadata.name))
        .collect()
}

/// M17.
pub(super) fn refused_type_is_named(seen: &Seen<'_>) -> Vec<String> {
    let refused: Vec<Condition> = exports(seen)
        .filter_map(|(_, export)| export.status.condition("Valid").cloned())
        .filter(|valid| valid.status == "False")
        .collect();
    let named = |valid: &Condition| valid.message.contains("ExternalName");
    if refused.len() == 1 && refused.iter().all(named) {
        return Vec::new();
    }
    vec![format!("not one message that names it: {refused:?}")]
}

/// S01.
pub(super) fn api_servers_are_left_alone(seen: &Seen<'_>) -> Vec<String> {
    let kinds = ["Service", "EndpointSlice"];
    let objects = ["east", "west"]
        .iter()
        .flat_map(|cluster| kinds.map(|kind| (*cluster, kind)));
    objects
        .flat_map(|(cluster, kind)| untouched(seen, cluster, kind, "default", "kubernetes"))
        .collect()
}

/// S01: Tombolo has no such rule (BEHAVIOUR §7 leaves it to namespaces that are not global), so
/// the first half holds: what the other fields say, which is checked as everywhere.
pub(super) fn no_rule_against_default(seen: &Seen<'_>) -> Vec<String> {
    let valid = |export: &ServiceExport| {
        export
            .status
            .condition("Valid")
            .is_some_and(|valid| valid.status == "True")
    };
    let all = exports(seen).all(|(_, export)| valid(export)) && exports(seen).count() == 1;
    (!all)
        .then(|| "the export is not valid".to_owned())
        .into_iter()
        .collect()
}

fn exports<'a>(seen: &'a Seen<'_>) -> impl Iterator<Item = (&'a str, &'a ServiceExport)> {
    let clusters = seen.world.clusters.iter();
    clusters.flat_map(|(cluster, held)| held.exports.values().map(|e| (cluster.as_str(), e)))
}
