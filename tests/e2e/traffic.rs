//! Who answers at a clusterset IP.

use anyhow::{Result, ensure};

use crate::Test;
use crate::world::{
    World, apply, deploy, deployment, eventually, export, kubectl, object, pods, rollout, slices,
    unexport, wait_answers, wait_import,
};

pub(crate) const TESTS: &[Test] = &[(
    "e2e_clusterset_ip_reaches_the_exporters_pods",
    clusterset_ip,
)];

/// Over the life of an export: only the pods of exporting clusters, over TCP and UDP, IPv4 and
/// IPv6, from every cluster.
fn clusterset_ip(world: &mut World, ns: &str) -> Result<()> {
    let (east, west) = (world.east(), world.west());
    deploy(east, ns, "web", 2)?;
    // Of the same name, but not exported: never reached.
    deploy(west, ns, "web", 1)?;
    for cluster in [east, west] {
        apply(cluster, ns, &deployment("client", 1))?;
        rollout(cluster, ns, "client")?;
        rollout(cluster, ns, "web")?;
    }
    let local = object(west, ns, "service", "web")?;
    export(east, ns, "web")?;
    let mut addresses = Vec::new();
    for cluster in [east, west] {
        let ips = wait_import(cluster, ns, "web")?;
        ensure!(ips.len() == 2, "two families: {ips:?}");
        addresses.push((cluster, ips));
    }
    let reach = |wanted: &[String]| {
        for (cluster, ips) in &addresses {
            for ip in ips {
                wait_answers(cluster, ns, ip, wanted)?;
            }
        }
        Ok::<_, anyhow::Error>(())
    };
    reach(&pods(east, ns, "web")?)?;

    for replicas in ["--replicas=3", "--replicas=1"] {
        kubectl(east, ns, &["scale", "deployment/web", replicas])?;
        rollout(east, ns, "web")?;
        reach(&pods(east, ns, "web")?)?;
    }

    export(west, ns, "web")?;
    let mut both = pods(east, ns, "web")?;
    both.extend(pods(west, ns, "web")?);
    both.sort();
    reach(&both)?;

    unexport(east, ns, "web")?;
    reach(&pods(west, ns, "web")?)?;

    unexport(west, ns, "web")?;
    for cluster in [east, west] {
        eventually("the import goes", || {
            Ok(object(cluster, ns, "serviceimport", "web")?.is_none()
                && slices(cluster, ns, "web")?.is_empty()
                && derived(cluster, ns)?.is_empty())
        })?;
    }
    ensure!(
        object(west, ns, "service", "web")? == local,
        "the user's Service was changed"
    );
    Ok(())
}

/// The derived Services of a namespace.
fn derived(cluster: &tombolo_testbed::Cluster, ns: &str) -> Result<Vec<serde_json::Value>> {
    crate::world::list(
        cluster,
        ns,
        "services",
        "multicluster.kubernetes.io/service-name",
    )
}
