//! Who answers at a clusterset IP.

use anyhow::{Result, ensure};
use tombolo_testbed::Cluster;

use crate::Test;
use crate::kit::{
    To, apply, ask, deploy, deployment, eventually, export, kubectl, names, pods, rollout, service,
    unexport, wait_answers, wait_gone, wait_import,
};
use crate::world::World;

pub(crate) const TESTS: &[Test] = &[
    (
        "e2e_clusterset_ip_reaches_the_exporters_pods",
        clusterset_ip,
    ),
    ("e2e_session_affinity_holds", affinity),
    ("e2e_internal_traffic_policy_local_is_honoured", local),
    ("e2e_traffic_distribution_is_honoured", distribution),
];

/// Pods of a name in a cluster, and a client.
fn populate(cluster: &Cluster, ns: &str, replicas: u8, spec: &str) -> Result<Vec<String>> {
    apply(cluster, ns, &deployment("client", 1))?;
    apply(cluster, ns, &deployment("web", replicas))?;
    apply(cluster, ns, &service("web", spec))?;
    rollout(cluster, ns, "client")?;
    rollout(cluster, ns, "web")?;
    pods(cluster, ns, "web")
}

/// Over the life of an export: only the pods of exporting clusters, over TCP and UDP, IPv4 and
/// IPv6, from every cluster.
fn clusterset_ip(world: &World, ns: &str) -> Result<()> {
    let (east, north, west) = (world.east(), world.north(), world.west());
    populate(east, ns, 2, "")?;
    // Of the same name, but not exported: never reached.
    populate(west, ns, 1, "")?;
    apply(north, ns, &deployment("client", 1))?;
    rollout(north, ns, "client")?;
    let local = west.object(ns, "service", "web")?;
    export(east, ns, "web")?;
    let mut addresses = Vec::new();
    for cluster in [east, north, west] {
        let ips = wait_import(cluster, ns, "web")?;
        ensure!(ips.len() == 2, "two families: {ips:?}");
        addresses.push((cluster, ips));
    }
    let reach = |wanted: &[String]| {
        for (cluster, ips) in &addresses {
            for ip in ips {
                wait_answers(cluster, ns, (ip, 80), wanted)?;
            }
        }
        Ok::<_, anyhow::Error>(())
    };
    reach(&pods(east, ns, "web")?)?;

    for change in [
        &["scale", "deployment/web", "--replicas=3"][..],
        &["scale", "deployment/web", "--replicas=1"],
        &["rollout", "restart", "deployment/web"],
    ] {
        let before = pods(east, ns, "web")?;
        kubectl(east, ns, change)?;
        rollout(east, ns, "web")?;
        let after = pods(east, ns, "web")?;
        ensure!(before != after, "{change:?} changed no pod");
        reach(&after)?;
    }

    export(west, ns, "web")?;
    let mut both = pods(east, ns, "web")?;
    both.extend(pods(west, ns, "web")?);
    both.sort();
    reach(&both)?;

    unexport(east, ns, "web")?;
    reach(&pods(west, ns, "web")?)?;

    unexport(west, ns, "web")?;
    for cluster in [east, north, west] {
        wait_gone(cluster, ns, "web")?;
    }
    ensure!(
        west.object(ns, "service", "web")? == local,
        "the user's Service was changed"
    );
    Ok(())
}

/// A client is answered by one pod of four in two clusters.
fn affinity(world: &World, ns: &str) -> Result<()> {
    let (east, west) = (world.east(), world.west());
    let spec = "  sessionAffinity: ClientIP\n";
    let mut all = populate(east, ns, 2, spec)?;
    all.extend(populate(west, ns, 2, spec)?);
    all.sort();
    export(east, ns, "web")?;
    export(west, ns, "web")?;
    for cluster in [east, west] {
        let ips = wait_import(cluster, ns, "web")?;
        for ip in &ips {
            for protocol in ["tcp", "udp"] {
                let to = To {
                    protocol,
                    address: ip,
                    port: 80,
                };
                let mut last = Vec::new();
                eventually("one pod answers", || {
                    last = names(&ask(cluster, ns, to, 20)?);
                    Ok(last.len() == 1 && all.contains(&last[0]))
                })?;
                let mut again = names(&ask(cluster, ns, to, 20)?);
                // On a busy machine an answer may take longer than the second that it has.
                again.retain(|name| name != "-");
                ensure!(again == last, "{to:?}: {last:?}, then {again:?}");
            }
        }
    }
    Ok(())
}

/// Only pods on the client's own node answer; where there is none, nobody.
fn local(world: &World, ns: &str) -> Result<()> {
    let (east, north, west) = (world.east(), world.north(), world.west());
    let spec = "  internalTrafficPolicy: Local\n";
    for cluster in [east, west] {
        let own = populate(cluster, ns, 2, spec)?;
        export(cluster, ns, "web")?;
        for ip in wait_import(cluster, ns, "web")? {
            wait_answers(cluster, ns, (&ip, 80), &own)?;
        }
    }
    apply(north, ns, &deployment("client", 1))?;
    rollout(north, ns, "client")?;
    let ips = wait_import(north, ns, "web")?;
    let to = To {
        protocol: "tcp",
        address: &ips[0],
        port: 80,
    };
    let answers = ask(north, ns, to, 3)?;
    ensure!(
        answers == ["-", "-", "-"],
        "answered from afar: {answers:?}"
    );
    Ok(())
}

/// East and north are in one zone, west in another.
fn distribution(world: &World, ns: &str) -> Result<()> {
    let (east, north, west) = (world.east(), world.north(), world.west());
    let spec = "  trafficDistribution: PreferClose\n";
    let mut exporters = Vec::new();
    for cluster in [east, west] {
        exporters.push((cluster, populate(cluster, ns, 1, spec)?));
        export(cluster, ns, "web")?;
    }
    deploy(north, ns, "client", 1)?;
    rollout(north, ns, "client")?;
    exporters.push((north, exporters[0].1.clone()));
    for (cluster, closest) in &exporters {
        for ip in wait_import(cluster, ns, "web")? {
            wait_answers(cluster, ns, (&ip, 80), closest)?;
        }
    }
    // With none left in the zone, the others are asked.
    kubectl(east, ns, &["scale", "deployment/web", "--replicas=0"])?;
    for (cluster, _) in &exporters {
        for ip in wait_import(cluster, ns, "web")? {
            wait_answers(cluster, ns, (&ip, 80), &exporters[1].1)?;
        }
    }
    Ok(())
}
