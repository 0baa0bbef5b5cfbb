//! The registry is compacted (R01) and loses members and its majority (R09).

use std::fs;

use anyhow::{Context as _, Result, ensure};
use etcd_client::PutOptions;
use tokio::time::Instant;

use crate::Test;
use crate::kit::{
    address, endpoints, eventually, export, imported, rest, say, serve, unexport, versions,
    wait_imported,
};
use crate::objects::standard;
use crate::sites::{CLUSTERS, Sites, metric};

pub(crate) const TESTS: &[Test] = &[
    ("e2e_r01_a_watch_falls_behind_a_compaction", compaction),
    ("e2e_r09_etcd_changes_leader_and_members", members),
];

fn compaction(sites: &mut Sites, ns: &str) -> Result<()> {
    standard(sites, ns)?;
    let west = [address("west", 0)];
    let relists = metric(sites, "north", "tombolo_registry_lists_total", "behind")?;
    // Something that is not touched.
    serve(sites.cluster("west"), ns, "still", &[address("west", 7)])?;
    export(sites.cluster("west"), ns, "still")?;
    wait_imported(
        sites.cluster("north"),
        ns,
        "still",
        &[("west", &[address("west", 7)])],
    )?;
    let before = versions(sites.cluster("north"), ns, "still")?;

    // Its connection dies before anything changes, so that nothing waits for it in a buffer.
    sites.part("north").pause()?;
    sites.etcd.kill_all()?;
    sites.etcd.restart_all()?;
    let east = sites.cluster("east");
    unexport(east, ns, "checkout")?;
    serve(east, ns, "search", &[address("east", 5)])?;
    export(east, ns, "search")?;
    wait_imported(
        sites.cluster("west"),
        ns,
        "search",
        &[("east", &[address("east", 5)])],
    )?;
    wait_imported(sites.cluster("west"), ns, "checkout", &[("west", &west)])?;
    let mut client = sites.client()?;
    let mut revision = 0;
    for n in 0..2_000 {
        let put = client.put(format!("/elsewhere/{}", n % 10), "x", None::<PutOptions>);
        let answer = sites.wait(put)?;
        revision = answer
            .header()
            .map_or(0, etcd_client::ResponseHeader::revision);
    }
    sites.wait(client.compact(revision, None))?;
    sites.wait(client.defragment())?;
    sites.part("north").resume()?;
    let north = sites.cluster("north");
    wait_imported(north, ns, "search", &[("east", &[address("east", 5)])])?;
    wait_imported(north, ns, "checkout", &[("west", &west)])?;
    sites.wait_ready("north")?;
    let lists = metric(sites, "north", "tombolo_registry_lists_total", "behind")? - relists;
    ensure!(lists == 1, "{lists} listings");
    let log = fs::read_to_string(sites.part("north").log_file())?;
    let lines = log
        .lines()
        .filter(|line| line.contains("listing the registry again"));
    ensure!(lines.count() == 1, "one line says so");
    ensure!(
        versions(north, ns, "still")? == before,
        "it was written again"
    );
    Ok(())
}

fn members(sites: &mut Sites, ns: &str) -> Result<()> {
    standard(sites, ns)?;
    let north_before = versions(sites.cluster("north"), ns, "checkout")?;
    for member in sites.etcd.members() {
        member.part().kill()?;
        rest(2);
        member.part().restart()?;
        member.wait_healthy()?;
    }
    replace_member(sites)?;
    let more = [address("east", 1), address("east", 2)];
    endpoints(sites.cluster("east"), ns, "checkout", &more)?;
    let west = [address("west", 0)];
    let wanted: [(&str, &[String]); 2] = [("east", &more), ("west", &west)];
    for name in CLUSTERS {
        wait_imported(sites.cluster(name), ns, "checkout", &wanted)?;
    }
    ensure!(versions(sites.cluster("north"), ns, "checkout")?.len() == north_before.len());

    // Without a majority the world is frozen, but local changes take effect.
    let before = versions(sites.cluster("north"), ns, "checkout")?;
    for member in &sites.etcd.members()[..2] {
        member.part().kill()?;
    }
    let last = [address("east", 3)];
    endpoints(sites.cluster("east"), ns, "checkout", &last)?;
    eventually("east sees its own", || {
        let there = imported(sites.cluster("east"), ns, "checkout")?;
        Ok(there.get("east").map(Vec::as_slice) == Some(&last[..]))
    })?;
    // Longer than lease and hold.
    rest(60);
    ensure!(
        versions(sites.cluster("north"), ns, "checkout")? == before,
        "it was not left alone"
    );
    let again = Instant::now();
    for member in &sites.etcd.members()[..2] {
        member.part().restart()?;
    }
    sites.etcd.wait_healthy()?;
    let wanted: [(&str, &[String]); 2] = [("east", &last), ("west", &west)];
    for name in CLUSTERS {
        wait_imported(sites.cluster(name), ns, "checkout", &wanted)?;
    }
    say(&format!(
        "all is in order {:?} after the majority was back",
        again.elapsed()
    ));
    for name in CLUSTERS {
        sites.part(name).check_running().context("restarted")?;
    }
    Ok(())
}

/// A member is taken out, and a new one put in its place.
fn replace_member(sites: &Sites) -> Result<()> {
    let old = &sites.etcd.members()[2];
    let mut client = sites.client()?;
    let members = sites.wait(client.member_list())?;
    let is_it = |member: &&etcd_client::Member| member.name() == old.part().name();
    let id = members.members().iter().find(is_it).context("no member")?;
    let id = id.id();
    // Not before all have been connected for some seconds.
    eventually("etcd takes a member out", || {
        Ok(sites.wait(client.member_remove(id)).is_ok())
    })?;
    let url = old.peer_url();
    eventually("etcd takes a member in", || {
        Ok(sites.wait(client.member_add([url], None)).is_ok())
    })?;
    old.replace()?;
    old.wait_healthy()
}
