//! API servers that go and come back, and watches that have missed too much.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::Breaking;
use crate::fragile::Fragile;
use crate::kit::{
    Version, apply, at_last, by_hand, endpoints, export_of, rest, slice_of, texts, unexport,
    versions, wait_gone, wait_import,
};

pub(crate) const TESTS: &[Breaking] = &[
    ("e2e_api_servers_restart_under_load", under_load),
    ("e2e_a_watch_that_expired_lists_again", expired),
];

/// Services whose endpoints change, and as many that stay as they are.
const SERVICES: usize = 12;

/// Makes services in the left cluster and waits until the right one has imported them.
fn populate(fragile: &Fragile, ns: &str, names: &[String]) -> Result<()> {
    let mut yaml = String::new();
    for name in names {
        yaml += "\n---\n";
        yaml += &by_hand(name, &["IPv4"], "  ipFamilies: [IPv4]\n");
        yaml += &export_of(name);
    }
    let single = yaml.replace("PreferDualStack", "SingleStack");
    apply(fragile.left(), ns, &single)?;
    for name in names {
        wait_import(fragile.right(), ns, name)?;
        wait_address(fragile, ns, name, "10.77.0.1")?;
    }
    Ok(())
}

/// Waits until the right cluster has exactly this endpoint of a service.
fn wait_address(fragile: &Fragile, ns: &str, name: &str, address: &str) -> Result<()> {
    at_last(&format!("{name} at {address}"), || {
        let endpoints = endpoints(fragile.right(), ns, name, "left")?;
        let found: Vec<String> = endpoints
            .iter()
            .flat_map(|e| texts(&e["addresses"]))
            .collect();
        ensure!(found == [address], "{found:?}");
        Ok(())
    })
}

/// The versions of what belongs to these services.
fn versions_of(fragile: &Fragile, ns: &str, names: &[String]) -> Result<BTreeSet<Version>> {
    let mut all = versions(fragile.right(), ns)?;
    all.retain(|version| names.contains(&version.import));
    Ok(all)
}

fn named(stem: &str) -> Vec<String> {
    (0..SERVICES).map(|n| format!("{stem}{n}")).collect()
}

fn under_load(fragile: &Fragile) -> Result<()> {
    let ns = "load";
    fragile.namespace(ns)?;
    let (still, moving) = (named("still"), named("moving"));
    let tombolo = fragile.up(&[])?;
    tombolo.wait_ready()?;
    populate(fragile, ns, &still)?;
    populate(fragile, ns, &moving)?;
    let before = versions_of(fragile, ns, &still)?;
    ensure!(before.len() == 3 * SERVICES, "{before:?}");
    let (left, right) = (fragile.left(), fragile.right());
    let rounds = 12;
    std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            (2..=rounds).try_for_each(|round| {
                let address = format!("10.77.0.{round}");
                let slices = moving
                    .iter()
                    .map(|name| slice_of(name, "IPv4", &[&address]));
                apply(left, ns, &slices.collect::<String>())
            })
        });
        right.apiserver().kill()?;
        // Long enough that changes pile up.
        rest(Duration::from_secs(2));
        right.apiserver().restart()?;
        right.wait_apiserver()?;
        right.apiserver().restart()?;
        right.wait_apiserver()?;
        load.join()
            .map_err(|_| anyhow::anyhow!("the load panicked"))?
    })?;
    let last = format!("10.77.0.{rounds}");
    for name in &moving {
        wait_address(fragile, ns, name, &last)?;
    }
    // The exporting cluster's too, with nothing to do.
    left.apiserver().restart()?;
    left.wait_apiserver()?;
    let slice = slice_of("moving0", "IPv4", &["10.77.0.200"]);
    apply(left, ns, &slice)?;
    wait_address(fragile, ns, "moving0", "10.77.0.200")?;
    let after = versions_of(fragile, ns, &still)?;
    ensure!(before == after, "{before:?}, then {after:?}");
    tombolo.stop()
}

/// While the controller stands still, what it has not heard is compacted away in etcd and
/// forgotten by the API server.
fn expired(fragile: &Fragile) -> Result<()> {
    let ns = "expired";
    fragile.namespace(ns)?;
    let still = named("still");
    let tombolo = fragile.up(&["--log", "info,tombolo_cluster=debug"])?;
    tombolo.wait_ready()?;
    populate(fragile, ns, &still)?;
    populate(fragile, ns, &["goes".to_owned(), "moves".to_owned()])?;
    let before = versions_of(fragile, ns, &still)?;
    let left = fragile.left();
    tombolo.part.pause()?;
    unexport(left, ns, "goes")?;
    apply(left, ns, &slice_of("moves", "IPv4", &["10.77.0.9"]))?;
    let new = by_hand("comes", &["IPv4"], "") + &export_of("comes");
    apply(left, ns, &new)?;
    compact(fragile)?;
    left.apiserver().restart()?;
    left.wait_apiserver()?;
    let said = tombolo.log()?.len();
    tombolo.part.resume()?;
    wait_import(fragile.right(), ns, "comes")?;
    wait_gone(fragile.right(), ns, "goes")?;
    wait_address(fragile, ns, "moves", "10.77.0.9")?;
    let after = versions_of(fragile, ns, &still)?;
    ensure!(before == after, "{before:?}, then {after:?}");
    let log = tombolo.log()?;
    let heard = &log[said..];
    ensure!(
        heard.contains("too old resource version"),
        "no watch expired: {heard}"
    );
    tombolo.stop()
}

/// Compacts etcd at its present revision.
fn compact(fragile: &Fragile) -> Result<()> {
    let etcd = fragile
        .testbed
        .etcd()
        .context("no etcd")?
        .first()
        .endpoint();
    let call = |path: &str, body: &Value| {
        let output = Command::new("curl")
            .args(["-sf", "-m", "10", "-d", &body.to_string()])
            .arg(format!("{etcd}/v3/kv/{path}"))
            .output()?;
        ensure!(output.status.success(), "{path}: {output:?}");
        Ok::<Value, anyhow::Error>(serde_json::from_slice(&output.stdout)?)
    };
    let key = data_encoding::BASE64.encode(b"/left");
    let range = call("range", &json!({"key": key}))?;
    let revision = range["header"]["revision"].clone();
    call(
        "compaction",
        &json!({"revision": revision, "physical": true}),
    )?;
    Ok(())
}
