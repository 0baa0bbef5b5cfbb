//! Two controllers of one cluster: which of them acts, when one is killed, stopped or stands still.

use anyhow::{Context as _, Result, ensure};

use crate::Breaking;
use crate::fragile::{Fragile, SECOND_USER};
use crate::kit::{apply, eventually, exported, text, wait_import};
use crate::process::{Process, USER};

pub(crate) const TESTS: &[Breaking] = &[
    ("e2e_a_killed_leader_is_replaced", killed),
    ("e2e_a_paused_leader_writes_nothing_more", paused),
    ("e2e_a_leader_that_stops_gives_way_at_once", stopped),
];

fn holder(fragile: &Fragile) -> Result<String> {
    let lease = fragile
        .left()
        .object("tombolo-system", "lease", "tombolo-controller")?;
    Ok(text(&lease.context("no Lease")?["spec"]["holderIdentity"]))
}

fn wait_leads(process: &Process) -> Result<()> {
    eventually("it leads", || {
        // Its admin endpoint is not there at once.
        Ok(process.leads("left").unwrap_or(false))
    })
    .with_context(|| process.log_tail())
}

/// A leader and one that stands by, which have different users.
fn pair(fragile: &Fragile, ns: &str) -> Result<(Process, Process)> {
    fragile.left().create_namespace(ns)?;
    let first = fragile.controller(&fragile.kubeconfig)?;
    wait_leads(&first)?;
    let second = fragile.controller(&fragile.second)?;
    second.wait_ready()?;
    ensure!(!second.leads("left")?, "two lead");
    make(fragile, ns, "before")?;
    wait_import(fragile.left(), ns, "before")?;
    Ok((first, second))
}

fn make(fragile: &Fragile, ns: &str, name: &str) -> Result<()> {
    apply(fragile.left(), ns, &exported(name))
}

fn killed(fragile: &Fragile) -> Result<()> {
    let ns = "killed";
    let (first, second) = pair(fragile, ns)?;
    let was = holder(fragile)?;
    first.part.kill()?;
    make(fragile, ns, "after")?;
    wait_leads(&second)?;
    wait_import(fragile.left(), ns, "after")?;
    ensure!(holder(fragile)? != was);
    second.stop()
}

/// While it stands still another takes over; when it goes on, it has missed that, and has a lot to
/// do.
fn paused(fragile: &Fragile) -> Result<()> {
    let ns = "paused";
    let (first, second) = pair(fragile, ns)?;
    // It stops in the middle of work.
    let many: String = (0..30).map(|n| exported(&format!("busy{n}"))).collect();
    std::thread::scope(|scope| {
        let load = scope.spawn(|| apply(fragile.left(), ns, &many));
        eventually("it is busy", || {
            Ok(fragile
                .left()
                .object(ns, "serviceimport", "busy3")?
                .is_some())
        })?;
        first.part.pause()?;
        load.join()
            .map_err(|_| anyhow::anyhow!("the load panicked"))?
    })?;
    wait_leads(&second)?;
    for n in 0..30 {
        wait_import(fragile.left(), ns, &format!("busy{n}"))?;
    }
    make(fragile, ns, "after")?;
    wait_import(fragile.left(), ns, "after")?;
    let before = fragile.writes_of(fragile.left(), USER)?.len();
    first.part.resume()?;
    eventually("it has noticed", || Ok(!first.leads("left")?))?;
    // It sees the following and may not take part.
    make(fragile, ns, "later")?;
    wait_import(fragile.left(), ns, "later")?;
    first.wait_ready()?;
    let writes = fragile.writes_of(fragile.left(), USER)?;
    // What was on its way when it was stopped fails on its resource version.
    let more = &writes[before..];
    let done = more.iter().filter(|write| write.code < 400).count();
    ensure!(done == 0, "written after its deadline: {more:?}");
    let conflicts = fragile.writes_of(fragile.left(), SECOND_USER)?;
    let failed = conflicts.iter().filter(|write| write.code >= 500).count();
    ensure!(failed == 0, "{conflicts:?}");
    first.stop()?;
    second.stop()
}

fn stopped(fragile: &Fragile) -> Result<()> {
    let ns = "stopped";
    let (first, second) = pair(fragile, ns)?;
    let was = holder(fragile)?;
    first.stop()?;
    ensure!(
        holder(fragile)? != was,
        "{was} has ended and holds the Lease"
    );
    wait_leads(&second)?;
    make(fragile, ns, "after")?;
    wait_import(fragile.left(), ns, "after")?;
    // The last one gives it back to nobody.
    second.stop()?;
    ensure!(holder(fragile)?.is_empty(), "{}", holder(fragile)?);
    Ok(())
}
