//! Ports that differ: between clusters, and from pod to pod.

use anyhow::{Result, ensure};

use crate::Test;
use crate::kit::{
    To, apply, ask, deployment, eventually, export, pods, rollout, service_of, wait_answers_of,
    wait_condition, wait_import, workload,
};
use crate::world::World;

pub(crate) const TESTS: &[Test] = &[
    ("e2e_ports_reach_only_clusters_that_have_them", between),
    ("e2e_named_target_ports_differ_from_pod_to_pod", by_pod),
];

fn between(world: &World, ns: &str) -> Result<()> {
    let (east, west) = (world.east(), world.west());
    let http = "  - {name: http, port: 80, targetPort: 8080}\n";
    let more = format!("{http}  - {{name: metrics, port: 9100, targetPort: 9100}}\n");
    let selector = "  selector: {app: web}\n";
    for (cluster, ports) in [(east, http), (west, &more)] {
        let pod = workload("web", "web", 1, "command: [answer, '8080', '9100']");
        apply(cluster, ns, &pod)?;
        apply(cluster, ns, &service_of("web", ports, selector))?;
        apply(cluster, ns, &deployment("client", 1))?;
        rollout(cluster, ns, "web")?;
        rollout(cluster, ns, "client")?;
        export(cluster, ns, "web")?;
        let wanted = ["Ready", "True", "Exported"];
        wait_condition(cluster, ns, ["serviceexport", "web"], wanted)?;
    }
    let of_west = pods(west, ns, "web")?;
    let mut both = pods(east, ns, "web")?;
    both.extend(of_west.clone());
    both.sort();
    for cluster in [east, west] {
        for ip in &wait_import(cluster, ns, "web")? {
            let to = |port| To {
                protocol: "tcp",
                address: ip,
                port,
            };
            wait_answers_of(cluster, ns, to(80), &both)?;
            // East's pods listen there too, but its Service has no such port.
            wait_answers_of(cluster, ns, to(9100), &of_west)?;
        }
    }
    Ok(())
}

fn by_pod(world: &World, ns: &str) -> Result<()> {
    let (east, west) = (world.east(), world.west());
    for (name, port) in [("old", 8080), ("new", 9090)] {
        let container =
            format!("command: [answer, '{port}'], ports: [{{name: web, containerPort: {port}}}]");
        apply(east, ns, &workload(name, "web", 1, &container))?;
        rollout(east, ns, name)?;
    }
    let ports = "  - {name: http, port: 80, targetPort: web}\n";
    let service = service_of("web", ports, "  selector: {app: web}\n");
    apply(east, ns, &service)?;
    export(east, ns, "web")?;
    let all = pods(east, ns, "web")?;
    ensure!(all.len() == 2, "{all:?}");
    // `new-…` comes before `old-…`.
    let wanted = [
        format!("{} port=9090", all[0]),
        format!("{} port=8080", all[1]),
    ];
    for cluster in [east, west] {
        apply(cluster, ns, &deployment("client", 1))?;
        rollout(cluster, ns, "client")?;
        for ip in &wait_import(cluster, ns, "web")? {
            let to = To {
                protocol: "tcp",
                address: ip,
                port: 80,
            };
            eventually("each pod answers on its own port", || {
                let mut answers = ask(cluster, ns, to, 20)?;
                answers.sort();
                answers.dedup();
                Ok(answers == wanted)
            })?;
        }
    }
    Ok(())
}
