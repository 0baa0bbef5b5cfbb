//! Nothing is written without need: not after a restart, not to a server that drops fields, and
//! not against somebody who insists.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use crate::fragile::Fragile;
use crate::kit::{
    apply, at_last, by_hand, deploy, derived, endpoints, eventually, export, export_of, rest,
    rollout, slices, text, texts, versions, wait_condition, wait_import, writes,
};
use crate::world::World;
use crate::{Alone, Breaking};

pub(crate) const ALONE: &[Alone] = &[(
    "e2e_a_restart_with_nothing_to_do_writes_nothing",
    idle_restart,
)];

pub(crate) const TESTS: &[Breaking] = &[
    ("e2e_an_old_crd_that_drops_fields_ends_in_no_loop", pruned),
    ("e2e_a_second_controller_ends_in_no_loop", contended),
    (
        "e2e_slices_that_somebody_insists_on_end_in_no_loop",
        contended_slice,
    ),
];

/// A loop would have written by then.
const LOOP: Duration = Duration::from_secs(5);

fn idle_restart(world: &mut World, ns: &str) -> Result<()> {
    deploy(world.east(), ns, "web", 1)?;
    rollout(world.east(), ns, "web")?;
    export(world.east(), ns, "web")?;
    for cluster in world.testbed.clusters() {
        wait_import(cluster, ns, "web")?;
        eventually("slices", || Ok(slices(cluster, ns, "web")?.len() == 2))?;
    }
    // What is still going on from before comes to rest.
    rest(LOOP);
    let count = |world: &World| {
        let clusters = world.testbed.clusters().iter();
        clusters.map(writes).collect::<Result<Vec<u64>>>()
    };
    let before = count(world)?;
    let versions_before = versions(world.west(), ns)?;
    world.restart_tombolo()?;
    rest(LOOP);
    let after = count(world)?;
    ensure!(before == after, "writes: {before:?}, then {after:?}");
    ensure!(versions(world.west(), ns)? == versions_before);
    Ok(())
}

/// The CRDs of a release that has neither families nor policies, in its only version v1alpha1.
fn pruned(fragile: &Fragile) -> Result<()> {
    let ns = "pruned";
    fragile.namespace(ns)?;
    let right = fragile.right();
    crate::crds::replace_by_old(right)?;
    let tombolo = fragile.up(&[])?;
    tombolo.wait_ready()?;
    let spec = "  trafficDistribution: PreferClose\n  internalTrafficPolicy: Local\n";
    let yaml = by_hand("web", &["IPv4", "IPv6"], spec) + &export_of("web");
    apply(fragile.left(), ns, &yaml)?;
    at_last("the import has addresses", || {
        let import = right
            .object(ns, "serviceimport", "web")?
            .context("no import")?;
        ensure!(texts(&import["spec"]["ips"]).len() == 2, "{import}");
        ensure!(
            import["spec"]["ipFamilies"].is_null(),
            "nothing was pruned: {import}"
        );
        ensure!(slices(right, ns, "web")?.len() == 2);
        Ok(())
    })?;
    // An export there, in the old version, counts like any other.
    let export = export_of("web").replace("v1beta1", "v1alpha1");
    apply(
        right,
        ns,
        &(by_hand("web", &["IPv4", "IPv6"], spec) + &export),
    )?;
    at_last("both clusters count", || {
        for cluster in [fragile.left(), right] {
            let count = endpoints(cluster, ns, "web", "right")?.len();
            ensure!(count == 2, "{} has {count}", cluster.name());
        }
        Ok(())
    })?;
    rest(LOOP);
    let before = [fragile.writes(fragile.left())?, fragile.writes(right)?];
    rest(LOOP);
    let after = [fragile.writes(fragile.left())?, fragile.writes(right)?];
    ensure!(before == after, "{:?}", &after[1][before[1].len()..]);
    tombolo.stop()?;
    let log = tombolo.log()?;
    let said = log
        .lines()
        .filter(|line| line.contains("the CRD drops fields"));
    let said: Vec<&str> = said.collect();
    ensure!(
        said.iter().any(|line| line.contains("spec.ipFamilies")),
        "{said:?}"
    );
    ensure!(said.len() <= 4, "it says so for each object: {said:?}");
    crate::crds::remove(right)
}

/// Somebody makes the derived Service sticky, again and again.
fn contended(fragile: &Fragile) -> Result<()> {
    let ns = "contended";
    fragile.namespace(ns)?;
    let right = fragile.right();
    let tombolo = fragile.up(&[])?;
    tombolo.wait_ready()?;
    apply(
        fragile.left(),
        ns,
        &(by_hand("web", &["IPv4"], "") + &export_of("web")),
    )?;
    wait_import(right, ns, "web")?;
    let service = text(&derived(right, ns)?.first().context("none")?["metadata"]["name"]);
    let is_left = || {
        let import = right
            .object(ns, "serviceimport", "web")?
            .context("no import")?;
        Ok::<_, anyhow::Error>(import["status"].to_string().contains("Contended"))
    };
    let patch = r#"{"spec":{"sessionAffinity":"ClientIP"}}"#;
    let args = [
        "-n",
        ns,
        "patch",
        "service",
        &service,
        "--type=merge",
        "-p",
        patch,
    ];
    let mut rounds = 0;
    while !is_left()? {
        ensure!(rounds < 50, "it never gives up");
        rounds += 1;
        right.kubectl(&args)?;
    }
    let wanted = ["Ready", "False", "Pending"];
    let import = wait_condition(right, ns, ["serviceimport", "web"], wanted)?;
    ensure!(import["status"].to_string().contains(&service), "{import}");
    let of_service = || {
        let writes = fragile.writes(right)?.into_iter();
        Ok::<_, anyhow::Error>(writes.filter(|write| write.name == service).count())
    };
    let before = of_service()?;
    for _ in 0..3 {
        right.kubectl(&args)?;
        rest(Duration::from_secs(1));
    }
    let after = of_service()?;
    ensure!(before == after, "{before} writes, then {after}");
    tombolo.stop()
}

/// Somebody empties a slice, again and again.
fn contended_slice(fragile: &Fragile) -> Result<()> {
    let ns = "insisted";
    fragile.namespace(ns)?;
    let right = fragile.right();
    let tombolo = fragile.up(&[])?;
    tombolo.wait_ready()?;
    apply(
        fragile.left(),
        ns,
        &(by_hand("web", &["IPv4"], "") + &export_of("web")),
    )?;
    wait_import(right, ns, "web")?;
    eventually("a slice", || Ok(slices(right, ns, "web")?.len() == 1))?;
    let slice = text(&slices(right, ns, "web")?.first().context("none")?["metadata"]["name"]);
    let args = [
        "-n",
        ns,
        "patch",
        "endpointslice",
        &slice,
        "--type=merge",
        "-p",
        r#"{"endpoints":[]}"#,
    ];
    for _ in 0..10 {
        right.kubectl(&args)?;
        let repaired = tombolo_testbed::wait_for("repaired", LOOP, || {
            let is_empty = endpoints(right, ns, "web", "left")?.is_empty();
            Ok((!is_empty).then_some(()))
        });
        if repaired.is_err() {
            let writes = fragile.writes(right)?.len();
            rest(LOOP);
            ensure!(fragile.writes(right)?.len() == writes, "it goes on");
            return tombolo.stop();
        }
    }
    bail!("it never gives up")
}
