//! API servers and controllers that stop and start again.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::Value;
use tombolo_testbed::Cluster;

use crate::Test;
use crate::world::{
    World, deploy, eventually, export, kubectl, list, pods, rollout, slices, unexport, wait_import,
    writes,
};

pub(crate) const TESTS: &[Test] = &[
    (
        "e2e_an_api_server_that_restarts_is_caught_up_with",
        api_server,
    ),
    (
        "e2e_a_restart_with_nothing_to_do_writes_nothing",
        idle_restart,
    ),
];

/// The resource versions of all objects of ours in a namespace.
fn versions(cluster: &Cluster, ns: &str) -> Result<Vec<Value>> {
    let mut versions = Vec::new();
    for kind in ["serviceimports", "services", "endpointslices"] {
        for object in list(cluster, ns, kind, "app.kubernetes.io/managed-by=tombolo")? {
            let meta = &object["metadata"];
            versions.push(serde_json::json!([
                kind,
                meta["name"],
                meta["resourceVersion"]
            ]));
        }
    }
    Ok(versions)
}

fn api_server(world: &mut World, ns: &str) -> Result<()> {
    let (east, west) = (world.east(), world.west());
    deploy(east, ns, "web", 1)?;
    rollout(east, ns, "web")?;
    export(east, ns, "web")?;
    wait_import(west, ns, "web")?;
    eventually("slices", || Ok(slices(west, ns, "web")?.len() == 2))?;
    let before = versions(west, ns)?;
    west.apiserver().kill()?;
    kubectl(east, ns, &["scale", "deployment/web", "--replicas=3"])?;
    rollout(east, ns, "web")?;
    west.apiserver().restart()?;
    west.wait_apiserver()?;
    let wanted = pods(east, ns, "web")?.len();
    eventually("the new endpoints", || {
        let slices = slices(west, ns, "web")?;
        let len = |slice: &Value| slice["endpoints"].as_array().map_or(0, Vec::len);
        Ok(slices.len() == 2 && slices.iter().all(|slice| len(slice) == wanted))
    })?;
    let after = versions(west, ns)?;
    let kept = |kind: &str| {
        let of = |all: &[Value]| {
            all.iter()
                .filter(|v| v[0] == kind)
                .cloned()
                .collect::<Vec<_>>()
        };
        of(&before) == of(&after)
    };
    ensure!(
        kept("services") && kept("serviceimports"),
        "{before:?}, then {after:?}"
    );
    unexport(east, ns, "web")
}

fn idle_restart(world: &mut World, ns: &str) -> Result<()> {
    {
        let (east, west) = (world.east(), world.west());
        deploy(east, ns, "web", 1)?;
        rollout(east, ns, "web")?;
        export(east, ns, "web")?;
        wait_import(west, ns, "web")?;
        eventually("slices", || Ok(slices(west, ns, "web")?.len() == 2))?;
    }
    // What is still going on from before comes to rest.
    rest(Duration::from_secs(3));
    let count =
        |world: &World| Ok::<_, anyhow::Error>([writes(world.east())?, writes(world.west())?]);
    let before = count(world)?;
    let versions_before = versions(world.west(), ns)?;
    world.restart_tombolo()?;
    rest(Duration::from_secs(5));
    let after = count(world)?;
    ensure!(before == after, "writes: {before:?}, then {after:?}");
    ensure!(versions(world.west(), ns)? == versions_before);
    unexport(world.east(), ns, "web")
}

/// Gives whatever should not happen the time to happen.
#[expect(
    clippy::disallowed_methods,
    reason = "there is no runtime to be blocked"
)]
fn rest(time: Duration) {
    std::thread::sleep(time);
}
