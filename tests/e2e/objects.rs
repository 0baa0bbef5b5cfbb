//! What stands in the API: conflicts, strangers' objects, repaired ones.

use anyhow::{Context as _, Result, ensure};

use crate::Test;
use crate::kit::{
    apply, by_hand, deploy, derived, eventually, export, kubectl, rollout, service, slices, text,
    texts, unexport, wait_condition, wait_gone, wait_import,
};
use crate::world::World;

pub(crate) const TESTS: &[Test] = &[
    ("e2e_conflicts_show_on_all_sides_and_go", conflicts),
    ("e2e_a_strangers_derived_service_is_left_alone", stranger),
    ("e2e_edited_and_deleted_objects_are_put_right", repairs),
    ("e2e_an_import_made_by_hand_is_adopted", adopted),
];

fn conflicts(world: &World, ns: &str) -> Result<()> {
    let (east, north, west) = (world.east(), world.north(), world.west());
    let show = |wanted: [&str; 3], part: &str| {
        for cluster in [east, west] {
            let export = wait_condition(cluster, ns, ["serviceexport", "web"], wanted)?;
            let message = export["status"]["conditions"].to_string();
            ensure!(message.contains(part), "{message}");
        }
        Ok::<_, anyhow::Error>(())
    };
    apply(east, ns, &service("web", ""))?;
    let other = service("web", "").replace("port: 80", "port: 81");
    apply(west, ns, &other)?;
    export(east, ns, "web")?;
    let wanted = ["Ready", "True", "Exported"];
    wait_condition(east, ns, ["serviceexport", "web"], wanted)?;
    export(west, ns, "web")?;
    show(
        ["Conflict", "True", "PortConflict"],
        "1/2 clusters disagree",
    )?;
    // Not by `apply`, which mixes up ports of one number and two protocols.
    let args = ["-n", ns, "replace", "-f", "-"];
    let sticky = service("web", "  sessionAffinity: ClientIP\n");
    west.kubectl_with_input(&args, &sticky)?;
    let wanted = ["Conflict", "True", "SessionAffinityConflict"];
    show(wanted, "1/2 clusters disagree")?;
    west.kubectl_with_input(&args, &service("web", ""))?;
    show(["Conflict", "False", "NoConflicts"], "")?;
    wait_import(north, ns, "web")?;
    unexport(east, ns, "web")?;
    unexport(west, ns, "web")?;
    wait_gone(north, ns, "web")
}

fn stranger(world: &World, ns: &str) -> Result<()> {
    let (east, west) = (world.east(), world.west());
    apply(east, ns, &service("web", ""))?;
    export(east, ns, "web")?;
    wait_import(west, ns, "web")?;
    let import = west
        .object(ns, "serviceimport", "web")?
        .context("no import")?;
    let annotation = "multicluster.kubernetes.io/derived-service";
    let derived = text(&import["metadata"]["annotations"][annotation]);
    unexport(east, ns, "web")?;
    wait_gone(west, ns, "web")?;
    apply(west, ns, &service(&derived, ""))?;
    let theirs = west.object(ns, "service", &derived)?;
    export(east, ns, "web")?;
    let wanted = ["Ready", "False", "Pending"];
    let import = wait_condition(west, ns, ["serviceimport", "web"], wanted)?;
    ensure!(
        import["status"].to_string().contains(&derived),
        "it names {derived}"
    );
    ensure!(
        slices(west, ns, "web")?.is_empty(),
        "no slice beside a stranger's Service"
    );
    ensure!(
        west.object(ns, "service", &derived)? == theirs,
        "it was changed"
    );
    kubectl(west, ns, &["delete", "service", &derived])?;
    wait_import(west, ns, "web").map(drop)
}

fn repairs(world: &World, ns: &str) -> Result<()> {
    let (east, west) = (world.east(), world.west());
    deploy(east, ns, "web", 1)?;
    rollout(east, ns, "web")?;
    export(east, ns, "web")?;
    let ips = wait_import(west, ns, "web")?;
    let ready = || Ok::<_, anyhow::Error>(slices(west, ns, "web")?.len() == 2);
    eventually("slices", ready)?;
    let before = slices(west, ns, "web")?;

    let name = text(&before[0]["metadata"]["name"]);
    let patch = r#"{"endpoints":[]}"#;
    kubectl(
        west,
        ns,
        &["patch", "endpointslice", &name, "--type=merge", "-p", patch],
    )?;
    eventually("the edited slice is put right", || {
        let slice = west.object(ns, "endpointslice", &name)?.context("gone")?;
        Ok(slice["endpoints"] == before[0]["endpoints"])
    })?;

    kubectl(west, ns, &["delete", "endpointslice", &name])?;
    eventually("the deleted slice is back", ready)?;

    let of_import = "multicluster.kubernetes.io/service-name";
    kubectl(west, ns, &["delete", "service", "-l", of_import])?;
    eventually("the derived Service is back with its addresses", || {
        let services = derived(west, ns)?;
        let addresses = services
            .first()
            .map(|service| texts(&service["spec"]["clusterIPs"]));
        Ok(addresses.as_ref() == Some(&ips))
    })?;

    kubectl(west, ns, &["delete", "serviceimport", "web"])?;
    eventually("the import is back, and all that it owns", || {
        let import = west.object(ns, "serviceimport", "web")?;
        let uid = import.map(|import| text(&import["metadata"]["uid"]));
        let owned = |object: &serde_json::Value| {
            let owner = &object["metadata"]["ownerReferences"][0]["uid"];
            uid.as_ref() == Some(&text(owner))
        };
        let (services, slices) = (derived(west, ns)?, slices(west, ns, "web")?);
        Ok(services.len() == 1 && slices.len() == 2 && services.iter().chain(&slices).all(owned))
    })?;
    wait_import(west, ns, "web").map(drop)
}

/// One without an export is never touched, one with an export is taken over.
fn adopted(world: &World, ns: &str) -> Result<()> {
    let (east, west) = (world.east(), world.west());
    for name in ["lonely", "web"] {
        let import = format!(
            "apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceImport
metadata: {{name: {name}}}
spec: {{type: ClusterSetIP, ports: [{{port: 7}}]}}
"
        );
        apply(west, ns, &import)?;
    }
    let lonely = west.object(ns, "serviceimport", "lonely")?;
    apply(east, ns, &by_hand("web", &["IPv4"], ""))?;
    export(east, ns, "web")?;
    let ips = wait_import(west, ns, "web")?;
    ensure!(!ips.is_empty());
    let import = west
        .object(ns, "serviceimport", "web")?
        .context("no import")?;
    ensure!(import["spec"]["ports"][0]["port"] == 80, "{import}");
    unexport(east, ns, "web")?;
    wait_gone(west, ns, "web")?;
    ensure!(west.object(ns, "serviceimport", "lonely")? == lonely);
    Ok(())
}
