//! Everything is killed while everything changes.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::time::{Instant, interval};

use crate::Test;
use crate::kit::{address, export, pause_for, say, serve, slice, wait_imported};
use crate::regions::{FAR, Far, LOCAL};
use crate::sites::{CLUSTERS, OTHER, Sites, text_of};

pub(crate) const TESTS: &[Test] = &[(
    "e2e_killed_under_load_all_come_to_the_same",
    killed_under_load,
)];

/// Keys that change in a second.
const RATE: u32 = 200;
const LOAD_SECS: u32 = 60;
/// Services of each cluster under load, each with so many addresses.
const SERVICES: u32 = 10;
const ADDRESSES: u32 = 20;
/// Each change of a service takes one address and gives another.
const KEYS_A_CHANGE: u32 = 2;
const CHANGES: u32 = LOAD_SECS * RATE / KEYS_A_CHANGE / 3;

/// The clusters that are compared in the end: one of them reads a copy.
const READERS: [&str; 4] = [CLUSTERS[0], CLUSTERS[1], CLUSTERS[2], OTHER];

/// The service that a cluster's change is of, and how often that has changed by then.
fn place_of(change: u32) -> (u32, u32) {
    (change % SERVICES, change / SERVICES)
}

/// What the slice of a service holds after so many changes of it.
fn addresses_at(cluster: &str, service: u32, changes: u32) -> Vec<String> {
    let from = service * 1_000 + changes;
    (from..from + ADDRESSES)
        .map(|n| address(cluster, n))
        .collect()
}

fn name_of(service: u32) -> String {
    format!("s{service}")
}

fn killed_under_load(sites: &mut Sites, ns: &str) -> Result<()> {
    Far::ensure(sites)?;
    for cluster in CLUSTERS {
        for service in 0..SERVICES {
            let addresses = addresses_at(cluster, service, 0);
            serve(sites.cluster(cluster), ns, &name_of(service), &addresses)?;
            export(sites.cluster(cluster), ns, &name_of(service))?;
        }
    }
    let first = sites.revision()?;
    let began = Instant::now();
    let mut loads = Vec::new();
    for cluster in CLUSTERS {
        let client = sites.kube(sites.cluster(cluster))?;
        loads.push(sites.beside(load(client, ns.to_owned(), cluster)));
    }
    for step in 1..12 {
        let due = began + Duration::from_secs(u64::from(LOAD_SECS)) * step / 12;
        pause_for(due.saturating_duration_since(Instant::now()));
        hurt(sites, step)?;
    }
    for load in loads {
        sites.wait(load)??;
    }
    let ended = Instant::now();
    let took = ended.duration_since(began);
    let keys = CHANGES * KEYS_A_CHANGE * u32::try_from(CLUSTERS.len())?;
    let writes = sites.revision()? - first;
    say(&format!("{keys} keys in {took:?}, {writes} transactions"));
    for on in READERS {
        sites.wait_ready(on)?;
        for service in 0..SERVICES {
            let last = last_of(service);
            let last: Vec<(&str, &[String])> =
                last.iter().map(|(name, all)| (*name, &all[..])).collect();
            wait_imported(sites.cluster(on), ns, &name_of(service), &last)?;
        }
    }
    say(&format!("all is in order {:?} later", ended.elapsed()));
    for etcd in [&sites.etcd, &sites.far()?.etcd] {
        let checked = sites.operate_at(etcd, &["registry", "check"])?;
        let text = text_of(&checked);
        ensure!(text.contains("nothing is wrong"), "{text}");
    }
    sites.far()?.wait_same(sites, LOCAL)?;
    sites.far()?.wait_same(sites, FAR)?;
    same_merge(sites, ns)
}

/// Changes one service of a cluster after the other, at an even pace.
async fn load(client: kube::Client, ns: String, cluster: &'static str) -> Result<()> {
    let slices: Api<EndpointSlice> = Api::namespaced(client, &ns);
    let pause = Duration::from_secs(u64::from(LOAD_SECS)) / CHANGES;
    let mut turns = interval(pause);
    for change in 0..CHANGES {
        turns.tick().await;
        let (service, before) = place_of(change);
        let name = name_of(service);
        let wanted = slice(&name, &addresses_at(cluster, service, before + 1));
        let patch = Patch::Merge(json!({ "endpoints": wanted["endpoints"] }));
        let name = format!("{name}-1");
        let params = PatchParams::default();
        let done = slices.patch(&name, &params, &patch);
        done.await.with_context(|| format!("{cluster}: {name}"))?;
    }
    Ok(())
}

/// What each cluster has of a service when all is done.
fn last_of(service: u32) -> Vec<(&'static str, Vec<String>)> {
    let changes = CHANGES / SERVICES;
    CLUSTERS
        .iter()
        .map(|cluster| (*cluster, addresses_at(cluster, service, changes)))
        .collect()
}

/// What is killed, at which twelfth of the time.
fn hurt(sites: &mut Sites, step: u32) -> Result<()> {
    match step {
        1..=3 => sites.etcd.members()[step as usize - 1].part().restart(),
        4 | 9 => sites.far()?.replicator_from(LOCAL).restart(),
        5 => sites.etcd.kill_all(),
        7 => sites.etcd.restart_all(),
        6 => sites.part("west").restart(),
        8 => sites.part("east").restart(),
        10 => sites.part("north").restart(),
        _ => Ok(()),
    }
}

/// All clusters have the same import, but for their own address of it.
fn same_merge(sites: &Sites, ns: &str) -> Result<()> {
    for service in 0..SERVICES {
        let mut all = Vec::new();
        for on in READERS {
            let import = sites
                .cluster(on)
                .object(ns, "serviceimport", &name_of(service))?;
            let mut import = import.context("no import")?;
            import["spec"]["ips"].take();
            all.push((import["spec"].clone(), import["status"]["clusters"].clone()));
        }
        ensure!(all.iter().all(|one| *one == all[0]), "{all:?}");
    }
    Ok(())
}
