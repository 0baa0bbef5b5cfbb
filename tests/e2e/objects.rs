//! What stands in the API: conflicts, headless imports, strangers' objects, repaired slices.

use anyhow::{Context as _, Result, ensure};

use crate::Test;
use crate::world::{
    World, apply, condition, deploy, deployment, eventually, export, kubectl, list, object, pods,
    rollout, service, slices, text, unexport, wait_condition, wait_import,
};

pub(crate) const TESTS: &[Test] = &[
    ("e2e_conflicts_show_on_both_sides_and_go", conflicts),
    ("e2e_headless_slices_have_hostnames", headless),
    ("e2e_a_strangers_derived_service_is_left_alone", stranger),
    ("e2e_edited_and_deleted_objects_are_put_right", repairs),
    (
        "e2e_a_namespace_made_later_gets_its_imports",
        late_namespace,
    ),
];

fn conflicts(world: &mut World, ns: &str) -> Result<()> {
    let (east, west) = (world.east(), world.west());
    apply(east, ns, &service("web", ""))?;
    let other = service("web", "").replace("port: 80", "port: 81");
    apply(west, ns, &other)?;
    export(east, ns, "web")?;
    wait_condition(
        east,
        ns,
        ["serviceexport", "web"],
        ["Ready", "True", "Exported"],
    )?;
    export(west, ns, "web")?;
    for cluster in [east, west] {
        let wanted = ["Conflict", "True", "PortConflict"];
        let export = wait_condition(cluster, ns, ["serviceexport", "web"], wanted)?;
        let message = export["status"]["conditions"].to_string();
        ensure!(message.contains("1/2 clusters disagree"), "{message}");
    }
    // Not by `apply`, which mixes up ports of one number and two protocols.
    let args = ["-n", ns, "replace", "-f", "-"];
    west.kubectl_with_input(&args, &service("web", ""))?;
    for cluster in [east, west] {
        let wanted = ["Conflict", "False", "NoConflicts"];
        wait_condition(cluster, ns, ["serviceexport", "web"], wanted)?;
    }
    unexport(east, ns, "web")?;
    unexport(west, ns, "web")
}

fn headless(world: &mut World, ns: &str) -> Result<()> {
    let (east, west) = (world.east(), world.west());
    let set = deployment("db", 2)
        .replace("kind: Deployment", "kind: StatefulSet")
        .replace("  replicas: 2", "  serviceName: db\n  replicas: 2");
    apply(east, ns, &service("db", "  clusterIP: None\n"))?;
    apply(east, ns, &set)?;
    export(east, ns, "db")?;
    let ips = wait_import(west, ns, "db")?;
    ensure!(
        ips.is_empty(),
        "headless imports have no addresses: {ips:?}"
    );
    eventually("ready endpoints with hostnames", || {
        let mut names = Vec::new();
        for slice in slices(west, ns, "db")? {
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
    unexport(east, ns, "db")
}

fn stranger(world: &mut World, ns: &str) -> Result<()> {
    let (east, west) = (world.east(), world.west());
    apply(east, ns, &service("web", ""))?;
    export(east, ns, "web")?;
    wait_import(west, ns, "web")?;
    let import = object(west, ns, "serviceimport", "web")?.context("no import")?;
    let annotation = "multicluster.kubernetes.io/derived-service";
    let derived = text(&import["metadata"]["annotations"][annotation]);
    unexport(east, ns, "web")?;
    eventually("the import goes", || {
        Ok(object(west, ns, "serviceimport", "web")?.is_none()
            && object(west, ns, "service", &derived)?.is_none())
    })?;
    apply(west, ns, &service(&derived, ""))?;
    let theirs = object(west, ns, "service", &derived)?;
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
        object(west, ns, "service", &derived)? == theirs,
        "it was changed"
    );
    kubectl(west, ns, &["delete", "service", &derived])?;
    wait_import(west, ns, "web")?;
    unexport(east, ns, "web")
}

fn repairs(world: &mut World, ns: &str) -> Result<()> {
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
        let slice = object(west, ns, "endpointslice", &name)?.context("gone")?;
        Ok(slice["endpoints"] == before[0]["endpoints"])
    })?;

    kubectl(west, ns, &["delete", "endpointslice", &name])?;
    eventually("the deleted slice is back", ready)?;

    let derived = "multicluster.kubernetes.io/service-name";
    kubectl(west, ns, &["delete", "service", "-l", derived])?;
    eventually("the derived Service is back with its addresses", || {
        let services = list(west, ns, "services", derived)?;
        let addresses = services
            .first()
            .map(|service| service["spec"]["clusterIPs"].clone());
        Ok(addresses == Some(serde_json::json!(ips)))
    })?;
    ensure!(pods(east, ns, "web")?.len() == 1);
    unexport(east, ns, "web")
}

fn late_namespace(world: &mut World, ns: &str) -> Result<()> {
    let (east, west) = (world.east(), world.west());
    let late = format!("{ns}-x");
    east.create_namespace(&late)?;
    apply(east, &late, &service("web", ""))?;
    export(east, &late, "web")?;
    let wanted = ["Ready", "True", "Exported"];
    let export = wait_condition(east, &late, ["serviceexport", "web"], wanted)?;
    ensure!(condition(&export, "Valid") == Some(("True".into(), "Valid".into())));
    west.create_namespace(&late)?;
    wait_import(west, &late, "web")?;
    for cluster in [west, east] {
        cluster.kubectl(&["delete", "namespace", &late, "--timeout=60s"])?;
    }
    Ok(())
}
