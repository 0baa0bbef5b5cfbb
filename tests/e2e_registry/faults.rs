//! The registry is compacted, loses members, and everything is killed while everything changes
//! (R01, R09).

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use etcd_client::PutOptions;
use tokio::time::Instant;

use crate::Test;
use crate::objects::standard;
use crate::sites::{
    CLUSTERS, Sites, address, apply_all, endpoints, eventually, export, imported, metric, object,
    pause_for, rest, say, serve, unexport, versions, wait_imported,
};

pub(crate) const TESTS: &[Test] = &[
    ("e2e_r01_a_watch_falls_behind_a_compaction", compaction),
    ("e2e_r09_etcd_changes_leader_and_members", members),
    (
        "e2e_killed_under_load_all_come_to_the_same",
        killed_under_load,
    ),
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
    rest(crate::sites::LEASE_SECS + crate::sites::HOLD_SECS + 7);
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

/// Changes a second that the registry is given.
const RATE: u32 = 200;
const LOAD_SECS: u32 = 60;
/// Services of each cluster under load, each with so many addresses.
const SERVICES: u32 = 10;
const ADDRESSES: u32 = 20;

/// What the slice of a service holds after so many rounds.
fn addresses_at(cluster: &str, service: u32, round: u32) -> Vec<String> {
    let from = service * 100 + round % 7;
    (from..from + ADDRESSES)
        .map(|n| address(cluster, n))
        .collect()
}

/// Each round changes two addresses of each service of each cluster: 2 × 10 × 3 keys, and as many
/// rounds a second as make the rate.
fn killed_under_load(sites: &mut Sites, ns: &str) -> Result<()> {
    for cluster in CLUSTERS {
        for service in 0..SERVICES {
            let name = format!("s{service}");
            serve(
                sites.cluster(cluster),
                ns,
                &name,
                &addresses_at(cluster, service, 0),
            )?;
            export(sites.cluster(cluster), ns, &name)?;
        }
    }
    let keys_a_round = 2 * SERVICES * u32::try_from(CLUSTERS.len())?;
    let pause = Duration::from_secs(1) * keys_a_round / RATE;
    let rounds = LOAD_SECS * RATE / keys_a_round;
    let began = Instant::now();
    let first = sites.revision()?;
    for round in 1..=rounds {
        let due = began + pause * round;
        for cluster in CLUSTERS {
            apply_all(
                sites.cluster(cluster),
                ns,
                (0..SERVICES)
                    .map(|service| (format!("s{service}"), addresses_at(cluster, service, round))),
            )?;
        }
        hurt(sites, round * 12 / rounds, (round - 1) * 12 / rounds)?;
        pause_for(due.saturating_duration_since(Instant::now()));
    }
    let took = began.elapsed();
    let writes = sites.revision()? - first;
    say(&format!(
        "{} keys in {took:?}, {writes} transactions",
        rounds * keys_a_round
    ));
    for on in CLUSTERS {
        sites.wait_ready(on)?;
        for service in 0..SERVICES {
            let wanted: Vec<(&str, Vec<String>)> = CLUSTERS
                .iter()
                .map(|cluster| (*cluster, addresses_at(cluster, service, rounds)))
                .collect();
            let wanted: Vec<(&str, &[String])> = wanted
                .iter()
                .map(|(name, all)| (*name, all.as_slice()))
                .collect();
            wait_imported(sites.cluster(on), ns, &format!("s{service}"), &wanted)?;
        }
    }
    let checked = sites.must(&["registry", "check"])?;
    ensure!(checked.contains("nothing is wrong"), "{checked}");
    same_merge(sites, ns)
}

/// What is killed, at which twelfth of the time.
fn hurt(sites: &mut Sites, now: u32, before: u32) -> Result<()> {
    if now == before {
        return Ok(());
    }
    match now {
        1..=3 => {
            let member = &sites.etcd.members()[now as usize - 1];
            member.part().kill()?;
            member.part().restart()
        }
        5 => sites.etcd.kill_all(),
        7 => sites.etcd.restart_all(),
        8..=10 => {
            let name = CLUSTERS[now as usize - 8];
            sites.part(name).kill()?;
            sites.launch(name, name, &[])
        }
        _ => Ok(()),
    }
}

/// All clusters have the same import, but for their own address of it.
fn same_merge(sites: &Sites, ns: &str) -> Result<()> {
    for service in 0..SERVICES {
        let name = format!("s{service}");
        let mut all = Vec::new();
        for on in CLUSTERS {
            let import = object(sites.cluster(on), ns, "serviceimport", &name)?;
            let mut import = import.context("no import")?;
            import["spec"]["ips"].take();
            all.push((import["spec"].clone(), import["status"]["clusters"].clone()));
        }
        ensure!(all[0] == all[1] && all[1] == all[2], "{all:?}");
    }
    Ok(())
}
