//! Headless services: host names, readiness, and addresses that are published before it.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::Test;
use crate::kit::{
    apply, endpoints, eventually, export, pods, service, slices, text, wait_gone, wait_import,
    workload,
};
use crate::kit::{deployment, unexport};
use crate::world::World;

pub(crate) const TESTS: &[Test] = &[
    ("e2e_headless_slices_have_hostnames", stateful_set),
    ("e2e_readiness_shows_everywhere", readiness),
    ("e2e_not_ready_addresses_are_published", not_ready),
];

/// A pod is ready once somebody makes `/tmp/ready`.
const WHEN_TOLD: &str = "command: [answer, '8080'], readinessProbe: {periodSeconds: 1, \
                         exec: {command: [/bin/busybox, test, -e, /tmp/ready]}}";

fn stateful_set(world: &World, ns: &str) -> Result<()> {
    let (east, west) = (world.east(), world.west());
    let set = deployment("db", 2)
        .replace("kind: Deployment", "kind: StatefulSet")
        .replace("  replicas: 2", "  serviceName: db\n  replicas: 2");
    apply(east, ns, &service("db", "  clusterIP: None\n"))?;
    apply(east, ns, &set)?;
    export(east, ns, "db")?;
    for cluster in [world.north(), west, east] {
        let ips = wait_import(cluster, ns, "db")?;
        ensure!(
            ips.is_empty(),
            "headless imports have no addresses: {ips:?}"
        );
        eventually("ready endpoints with hostnames", || {
            let mut names = Vec::new();
            for slice in slices(cluster, ns, "db")? {
                ensure!(slice["metadata"]["labels"]["service.kubernetes.io/headless"] == "");
                for endpoint in slice["endpoints"].as_array().into_iter().flatten() {
                    if endpoint["conditions"]["ready"] == true {
                        names.push((text(&slice["addressType"]), text(&endpoint["hostname"])));
                    }
                }
            }
            names.sort();
            let wanted = [
                ("IPv4", "db-0"),
                ("IPv4", "db-1"),
                ("IPv6", "db-0"),
                ("IPv6", "db-1"),
            ];
            Ok(names == wanted.map(|(family, name)| (family.to_owned(), name.to_owned())))
        })?;
    }
    unexport(east, ns, "db")?;
    wait_gone(west, ns, "db")
}

/// Which values `ready` has among the endpoints that come from east.
fn ready(world: &World, ns: &str) -> Result<BTreeSet<Option<bool>>> {
    let endpoints = endpoints(world.west(), ns, "db", "east")?;
    let ready = |endpoint: &Value| endpoint["conditions"]["ready"].as_bool();
    Ok(endpoints.iter().map(ready).collect())
}

fn readiness(world: &World, ns: &str) -> Result<()> {
    let (east, west) = (world.east(), world.west());
    apply(east, ns, &service("db", "  clusterIP: None\n"))?;
    apply(east, ns, &workload("db", "db", 1, WHEN_TOLD))?;
    export(east, ns, "db")?;
    wait_import(west, ns, "db")?;
    let wait = |wanted: bool| {
        eventually(&format!("ready is {wanted}"), || {
            Ok(ready(world, ns)? == BTreeSet::from([Some(wanted)]))
        })
    };
    wait(false)?;
    let pods = pods(east, ns, "db")?;
    let pod = pods.first().context("no pod")?;
    east.exec(ns, pod, &["/bin/busybox", "touch", "/tmp/ready"])?;
    wait(true)?;
    east.exec(ns, pod, &["/bin/busybox", "rm", "/tmp/ready"])?;
    wait(false)
}

fn not_ready(world: &World, ns: &str) -> Result<()> {
    let (east, west) = (world.east(), world.west());
    let spec = "  clusterIP: None\n  publishNotReadyAddresses: true\n";
    apply(east, ns, &service("db", spec))?;
    apply(east, ns, &workload("db", "db", 1, WHEN_TOLD))?;
    export(east, ns, "db")?;
    wait_import(west, ns, "db")?;
    eventually("the address of a pod that is not ready", || {
        Ok(ready(world, ns)? == BTreeSet::from([Some(true)]))
    })?;
    let args = ["get", "pods", "-o"];
    let query = "jsonpath={.items[*].status.containerStatuses[*].ready}";
    let state = crate::kit::kubectl(east, ns, &[&args[..], &[query]].concat())?;
    ensure!(state == "false", "the pod is ready: {state}");
    // The same Service without it.
    apply(
        east,
        ns,
        &service(
            "db",
            "  clusterIP: None\n  publishNotReadyAddresses: false\n",
        ),
    )?;
    eventually("it is not published any more", || {
        Ok(ready(world, ns)? == BTreeSet::from([Some(false)]))
    })?;
    Ok(())
}
