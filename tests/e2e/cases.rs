//! The cases of `tests/cases` on real API servers: what they say is applied there, and what
//! Tombolo makes of it is held against the same expectations as that of `plan` and `up`.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tombolo_testbed::Cluster;
use tombolo_testkit::cases::{Case, Inputs, Object, World, check};

use crate::kit::{at_last, rest};
use crate::plain::{Plain, clear};
use crate::process::{Process, TOMBOLO};

/// Creation times have seconds: exports of different times are made further apart than one.
const APART: Duration = Duration::from_millis(1_100);
/// What is wrong only for a moment, or right only for a moment, has this long to show.
const SETTLED: Duration = Duration::from_secs(1);

/// All cases that FORMAT.md lets run on real servers: those that do not need equal creation times.
pub(crate) fn all() -> Result<Vec<Case>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut cases = Vec::new();
    for case in Case::all(&root)? {
        if !has_equal_times(&case)? {
            cases.push(case);
        }
    }
    Ok(cases)
}

fn created(object: &Object<'_>) -> Option<String> {
    let time = object.value.pointer("/metadata/creationTimestamp")?;
    Some(time.as_str()?.to_owned())
}

/// Whether two exports of one service were made in the same second.
fn has_equal_times(case: &Case) -> Result<bool> {
    for stage in 0..case.stages() {
        let inputs = case.inputs(stage)?;
        let mut seen = BTreeSet::new();
        for object in inputs.objects().filter(is_export) {
            if !seen.insert((object.namespace, object.name, created(&object))) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

fn is_export(object: &Object<'_>) -> bool {
    object.kind == "ServiceExport"
}

/// The clusters of a case, and who stands for each.
struct Cast<'a>(Vec<(String, &'a Cluster)>);

impl<'a> Cast<'a> {
    fn new(plain: &'a Plain, case: &Case, inputs: &Inputs) -> Result<Self> {
        let mut cast: Vec<(String, &Cluster)> = Vec::new();
        let refused = case.refused();
        for name in inputs.clusters() {
            if refused.contains(&name.as_str()) {
                continue;
            }
            let families = case.families().get(name);
            let families = families.map_or_else(|| "IPv4".to_owned(), |list| list.join(","));
            let taken: Vec<&Cluster> = cast.iter().map(|(_, cluster)| *cluster).collect();
            let cluster = plain.with_families(&families, &taken);
            let cluster = cluster.with_context(|| format!("no cluster with {families}"))?;
            cast.push((name.clone(), cluster));
        }
        Ok(Self(cast))
    }

    fn cluster(&self, name: &str) -> Option<&'a Cluster> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, cluster)| *cluster)
    }

    fn names(&self) -> Vec<String> {
        self.0.iter().map(|(name, _)| name.clone()).collect()
    }

    /// What all of them hold.
    fn world(&self) -> Result<World> {
        let kinds = "serviceexports,serviceimports,services,endpointslices";
        let mut held = Vec::new();
        for (name, cluster) in &self.0 {
            let text = cluster.kubectl(&["get", kinds, "-A", "-o", "json"])?;
            let mut list: Value = serde_json::from_str(&text)?;
            let items = list["items"].as_array_mut().map(std::mem::take);
            held.push((name.clone(), items.unwrap_or_default()));
        }
        World::of_clusters(held)
    }
}

pub(crate) fn run(plain: &Plain, case: &Case) -> Result<()> {
    let inputs = case.inputs(0)?;
    let cast = Cast::new(plain, case, &inputs)?;
    for (name, cluster) in &cast.0 {
        let keep = inputs.objects().filter(|o| {
            let plain = |key: &str| o.value["metadata"][key].is_null();
            o.cluster == name && o.kind == "Namespace" && plain("labels") && plain("annotations")
        });
        let keep: Vec<&str> = keep.map(|object| object.name).collect();
        clear(cluster, &keep)?;
    }
    change(&cast, &Inputs::default(), &inputs)?;
    refuse(plain, case, &cast)?;
    let named: Vec<(&str, &Cluster)> = cast.0.iter().map(|(n, c)| (n.as_str(), *c)).collect();
    let kubeconfig = plain.kubeconfig("case.kubeconfig", &named)?;
    let contexts: Vec<&str> = named.iter().map(|(name, _)| *name).collect();
    let tombolo = Process::up(&plain.testbed, &kubeconfig, &contexts)?;
    tombolo.wait_ready()?;
    let result = stages(case, &cast);
    tombolo.stop()?;
    result.with_context(|| tombolo.log_tail())
}

fn stages(case: &Case, cast: &Cast<'_>) -> Result<()> {
    let names = cast.names();
    for stage in 0..case.stages() {
        if stage > 0 {
            change(cast, &case.inputs(stage - 1)?, &case.inputs(stage)?)?;
        }
        let is_right = || {
            let problems = check(case, stage, &names, &cast.world()?);
            ensure!(problems.is_empty(), "\n{}", problems.join("\n"));
            Ok(())
        };
        at_last(&format!("stage {stage}"), is_right)?;
        rest(SETTLED);
        is_right().with_context(|| format!("stage {stage}, a while later"))?;
    }
    Ok(())
}

/// Clusters with names that cannot be are refused before anything is written.
fn refuse(plain: &Plain, case: &Case, cast: &Cast<'_>) -> Result<()> {
    let refused = case.refused();
    if refused.is_empty() {
        return Ok(());
    }
    let before = cast.world()?;
    let any = plain
        .with_families("IPv4,IPv6", &[])
        .context("no cluster")?;
    for name in refused {
        let mut named: Vec<(&str, &Cluster)> = vec![(name, any)];
        named.extend(
            cast.0
                .iter()
                .map(|(name, cluster)| (name.as_str(), *cluster)),
        );
        let kubeconfig = plain.kubeconfig("refused.kubeconfig", &named)?;
        let mut command = std::process::Command::new(TOMBOLO);
        command
            .args(["up", "--admin", "off", "--kubeconfig"])
            .arg(&kubeconfig);
        command.args(named.iter().map(|(name, _)| format!("context:{name}")));
        let output = command.output()?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.code() != Some(0), "{name} was not refused");
        ensure!(text.contains(name), "{name} is not named: {text}");
    }
    let same = format!("{:?}", cast.world()?) == format!("{before:?}");
    ensure!(same, "something was written");
    Ok(())
}

/// Brings the clusters from one state to another: first what goes, then what comes.
fn change(cast: &Cast<'_>, before: &Inputs, after: &Inputs) -> Result<()> {
    for (name, cluster) in &cast.0 {
        let gone = |object: &Object<'_>| object.cluster == name && get(after, object).is_none();
        let gone: Vec<Object<'_>> = before.objects().filter(gone).collect();
        let namespaces: BTreeSet<&str> = gone
            .iter()
            .filter(|object| object.kind == "Namespace")
            .map(|object| object.name)
            .collect();
        for object in &gone {
            if namespaces.contains(object.namespace) {
                continue;
            }
            let mut args = vec!["delete", object.kind, object.name, "--timeout=60s"];
            if !object.namespace.is_empty() {
                args.extend(["-n", object.namespace]);
            }
            cluster.kubectl(&args)?;
        }
        let comes = |object: &Object<'_>| {
            object.cluster == name
                && !is_export(object)
                && get(before, object) != Some(object.value)
        };
        let mut comes: Vec<Object<'_>> = after.objects().filter(comes).collect();
        comes.sort_by_key(|object| object.kind != "Namespace");
        for object in comes {
            put(cluster, &object, get(before, &object).is_some())?;
        }
    }
    let mut exports: Vec<Object<'_>> = after
        .objects()
        .filter(|object| is_export(object) && get(before, object) != Some(object.value))
        .collect();
    exports.sort_by_key(created);
    let mut last = None;
    for object in exports {
        let Some(cluster) = cast.cluster(object.cluster) else {
            continue;
        };
        let time = created(&object);
        if last.as_ref().is_some_and(|last| *last != time) {
            rest(APART);
        }
        last = Some(time);
        put(cluster, &object, get(before, &object).is_some())?;
    }
    Ok(())
}

fn get<'a>(inputs: &'a Inputs, object: &Object<'_>) -> Option<&'a Value> {
    inputs.get(object.cluster, object.kind, object.namespace, object.name)
}

/// Makes or replaces an object; what the API server has made itself stays as it is.
fn put(cluster: &Cluster, object: &Object<'_>, is_there: bool) -> Result<()> {
    if !is_there {
        let mut args = vec![
            "get",
            object.kind,
            object.name,
            "--ignore-not-found",
            "-o",
            "name",
        ];
        if !object.namespace.is_empty() {
            args.extend(["-n", object.namespace]);
        }
        if !cluster.kubectl(&args)?.is_empty() {
            return Ok(());
        }
    }
    let verb = if is_there { "replace" } else { "create" };
    let result = cluster.kubectl_with_input(&[verb, "-f", "-"], &object.value.to_string());
    result
        .map(drop)
        .with_context(|| format!("{verb} {object:?}"))
}
