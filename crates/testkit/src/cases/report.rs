//! What `-o json` and `-o yaml` print, compared with the objects of `--out`.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;

use super::check::Problems;
use super::stage::Name;
use super::world::{Held, Port, ServiceImport, World};

/// All that is printed. Fields may be added, so unknown ones are no error.
#[derive(Debug, Deserialize)]
struct Report {
    clusters: Vec<Cluster>,
    conflicts: Vec<Conflict>,
    errors: Vec<Value>,
}

#[derive(Debug, Deserialize)]
struct Cluster {
    name: String,
    families: Vec<String>,
    exports: Vec<Export>,
    imports: Vec<Import>,
}

#[derive(Debug, Deserialize)]
struct Export {
    namespace: String,
    name: String,
    conditions: Vec<Condition>,
}

#[derive(Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    reason: String,
    message: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Import {
    namespace: String,
    name: String,
    #[serde(rename = "type")]
    kind: String,
    ports: Vec<Port>,
    ip_families: Vec<String>,
    ips: Vec<String>,
    clusters: Vec<String>,
    endpoints: usize,
    ready: Ready,
}

#[derive(Debug, Deserialize, PartialEq, Eq)]
struct Ready {
    status: String,
    reason: String,
    message: String,
}

#[derive(Debug, Deserialize)]
struct Conflict {
    namespace: String,
    name: String,
    reason: String,
    message: String,
    clusters: Vec<String>,
}

/// Compares a report with the objects that the same input gave. `families` are those that were
/// asked for by name.
pub fn check_report(
    report: &Value,
    world: &World,
    clusters: &[String],
    families: &BTreeMap<String, Vec<String>>,
) -> Vec<String> {
    let mut problems = Problems::default();
    let report = match parse(report) {
        Ok(report) => report,
        Err(error) => return vec![format!("report: {error:#}")],
    };
    let names: Vec<&String> = report
        .clusters
        .iter()
        .map(|cluster| &cluster.name)
        .collect();
    let mut wanted: Vec<&String> = clusters.iter().collect();
    wanted.sort();
    problems.same("report: clusters", &wanted, &names);
    for cluster in &report.clusters {
        let held = world.held(&cluster.name);
        check_exports(&mut problems, cluster, held);
        check_imports(&mut problems, cluster, held);
        if let Some(families) = families.get(&cluster.name) {
            let place = format!("report: families of {}", cluster.name);
            problems.same(&place, families, &cluster.families);
        }
    }
    check_conflicts(&mut problems, &report.conflicts, world);
    problems.same("report: errors", &Vec::new(), &report.errors);
    problems.into_lines()
}

fn parse(report: &Value) -> Result<Report> {
    serde_json::from_value(report.clone()).context("not of the shape that it should have")
}

fn check_exports(problems: &mut Problems, cluster: &Cluster, held: &Held) {
    let place = format!("report: exports of {}", cluster.name);
    let printed: BTreeMap<Name, BTreeSet<&Condition>> = cluster
        .exports
        .iter()
        .map(|export| {
            (
                name(&export.namespace, &export.name),
                export.conditions.iter().collect(),
            )
        })
        .collect();
    problems.same(&place, &cluster.exports.len(), &printed.len());
    let shown: BTreeMap<Name, BTreeSet<Condition>> = held
        .exports
        .iter()
        .map(|(key, export)| {
            let conditions = export.status.conditions.iter().map(|condition| Condition {
                kind: condition.kind.clone(),
                status: condition.status.clone(),
                reason: condition.reason.clone(),
                message: condition.message.clone(),
            });
            (key.clone(), conditions.collect())
        })
        .collect();
    let shown = shown
        .iter()
        .map(|(key, set)| (key.clone(), set.iter().collect()))
        .collect();
    problems.same(&place, &shown, &printed);
}

fn check_imports(problems: &mut Problems, cluster: &Cluster, held: &Held) {
    let place = format!("report: imports of {}", cluster.name);
    problems.same(&place, &held.imports.len(), &cluster.imports.len());
    for printed in &cluster.imports {
        let key = name(&printed.namespace, &printed.name);
        let place = format!("{place}: {}/{}", key.0, key.1);
        match held.imports.get(&key) {
            Some(import) => check_import(problems, &place, printed, (&key, import), held),
            None => problems.say(&place, "there is no such ServiceImport"),
        }
    }
}

fn check_import(
    problems: &mut Problems,
    place: &str,
    printed: &Import,
    (key, import): (&Name, &ServiceImport),
    held: &Held,
) {
    problems.same(&format!("{place} type"), &import.spec.kind, &printed.kind);
    problems.same(
        &format!("{place} ports"),
        &import.spec.ports,
        &printed.ports,
    );
    problems.same(
        &format!("{place} ipFamilies"),
        &import.spec.ip_families,
        &printed.ip_families,
    );
    problems.same(&format!("{place} ips"), &import.spec.ips, &printed.ips);
    let clusters: Vec<&String> = import
        .status
        .clusters
        .iter()
        .map(|status| &status.cluster)
        .collect();
    problems.same(
        &format!("{place} clusters"),
        &clusters,
        &printed.clusters.iter().collect(),
    );
    let endpoints = held
        .slices_of(key)
        .map(|slice| slice.endpoints.len())
        .sum::<usize>();
    problems.same(
        &format!("{place} endpoints"),
        &endpoints,
        &printed.endpoints,
    );
    let ready = import.status.condition("Ready").map(|ready| Ready {
        status: ready.status.clone(),
        reason: ready.reason.clone(),
        message: ready.message.clone(),
    });
    problems.same(
        &format!("{place} ready"),
        &ready.as_ref(),
        &Some(&printed.ready),
    );
}

/// Each reason on any export has its entry, and nothing else has one.
fn check_conflicts(problems: &mut Problems, printed: &[Conflict], world: &World) {
    let mut wanted: BTreeSet<(Name, &str)> = BTreeSet::new();
    for held in world.clusters.values() {
        for (key, export) in &held.exports {
            let conflict = export
                .status
                .condition("Conflict")
                .filter(|c| c.status == "True");
            let reasons = conflict
                .into_iter()
                .flat_map(|conflict| conflict.reason.split(','));
            wanted.extend(reasons.map(|reason| (key.clone(), reason)));
        }
    }
    let found: BTreeSet<(Name, &str)> = printed
        .iter()
        .map(|conflict| {
            (
                name(&conflict.namespace, &conflict.name),
                conflict.reason.as_str(),
            )
        })
        .collect();
    problems.same("report: conflicts", &wanted, &found);
    for conflict in printed {
        let place = format!("report: conflict {} {}", conflict.name, conflict.reason);
        problems.holds(&place, !conflict.message.is_empty(), "no message");
        problems.holds(&place, !conflict.clusters.is_empty(), "no clusters");
    }
}

fn name(namespace: &str, name: &str) -> Name {
    (namespace.to_owned(), name.to_owned())
}
