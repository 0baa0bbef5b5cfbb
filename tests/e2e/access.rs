//! What the shipped rights let the controller do, and what they do not. That they suffice is shown
//! by all other tests, which run under them.

use anyhow::{Context as _, Result, bail, ensure};
use tombolo_testbed::Cluster;

use crate::Test;
use crate::kit::{apply, by_hand, derived, export, slices, text, wait_import};
use crate::process::{ACCOUNT, USER, token};
use crate::world::World;

pub(crate) const TESTS: &[Test] = &[
    ("e2e_the_policy_keeps_others_objects_safe", policy),
    ("e2e_no_right_is_wider_than_needed", rights),
];

/// kubectl as the controller, with `input` as its manifest if there is one.
fn as_controller(cluster: &Cluster, ns: &str, args: &[&str], input: &str) -> Result<String> {
    let token = token(cluster, ACCOUNT)?;
    let file = cluster
        .folder()
        .join(format!("as-controller-{ns}.kubeconfig"));
    let config = serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "it",
        "clusters": [{"name": "it", "cluster": {
            "server": cluster.server(),
            "certificate-authority-data": data_encoding::BASE64.encode(cluster.authority().as_bytes()),
        }}],
        "users": [{"name": "it", "user": {"token": token}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
    });
    std::fs::write(&file, config.to_string())?;
    let file = file.display().to_string();
    let args = [&["--kubeconfig", &file, "-n", ns][..], args].concat();
    cluster.kubectl_with_input(&args, input)
}

/// Fails unless the policy has refused it.
fn refused(what: &str, result: Result<String>) -> Result<()> {
    let Err(error) = result else {
        bail!("{what}: was let through");
    };
    let message = format!("{error:#}");
    let wanted = "the controller may only write Services and EndpointSlices that it made";
    ensure!(message.contains(wanted), "{what}: {message}");
    Ok(())
}

fn policy(world: &World, ns: &str) -> Result<()> {
    let (east, west) = (world.east(), world.west());
    apply(east, ns, &by_hand("web", &["IPv4"], ""))?;
    apply(west, ns, &by_hand("theirs", &["IPv4"], ""))?;
    export(east, ns, "web")?;
    wait_import(west, ns, "web")?;
    let before = [
        west.object(ns, "service", "theirs")?,
        west.object(ns, "endpointslice", "theirs-ipv4")?,
    ];
    let mark = r#"{"metadata":{"labels":{"app.kubernetes.io/managed-by":"tombolo"}}}"#;
    let unmark =
        r#"{"metadata":{"labels":{"app.kubernetes.io/managed-by":null},"ownerReferences":null}}"#;
    for object in ["service/theirs", "endpointslice/theirs-ipv4"] {
        let annotate = r#"{"metadata":{"annotations":{"a":"b"}}}"#;
        for (what, patch) in [("changed", annotate), ("taken over", mark)] {
            let args = ["patch", object, "--type=merge", "-p", patch];
            refused(
                &format!("{object} {what}"),
                as_controller(west, ns, &args, ""),
            )?;
        }
        let args = ["delete", object, "--wait=false"];
        refused(
            &format!("{object} deleted"),
            as_controller(west, ns, &args, ""),
        )?;
    }
    let unmarked = by_hand("unmarked", &[], "");
    refused(
        "a Service made",
        as_controller(west, ns, &["create", "-f", "-"], &unmarked),
    )?;
    let slice = crate::kit::slice_of("theirs", "IPv6", &["fd77::2"]);
    refused(
        "a slice made",
        as_controller(west, ns, &["create", "-f", "-"], &slice),
    )?;
    let own = derived(west, ns)?;
    let own = text(&own.first().context("no derived Service")?["metadata"]["name"]);
    let slices = slices(west, ns, "web")?;
    let slice = text(&slices.first().context("no slice")?["metadata"]["name"]);
    for own in [format!("service/{own}"), format!("endpointslice/{slice}")] {
        let args = ["patch", &own, "--type=merge", "-p", unmark];
        refused(
            &format!("{own} given away"),
            as_controller(west, ns, &args, ""),
        )?;
        let args = ["annotate", &own, "tombolo.dev/test=1"];
        as_controller(west, ns, &args, "").context("its own object")?;
    }
    let after = [
        west.object(ns, "service", "theirs")?,
        west.object(ns, "endpointslice", "theirs-ipv4")?,
    ];
    ensure!(before == after, "a stranger's object was changed");
    Ok(())
}

/// What the controller may not do, in any namespace but where one is named.
const NEVER: &[&[&str]] = &[
    &["get", "secrets"],
    &["list", "pods"],
    &["create", "pods/exec"],
    &["list", "nodes"],
    &["get", "configmaps"],
    &["patch", "namespaces"],
    &["delete", "namespaces"],
    &["create", "serviceexports.multicluster.x-k8s.io"],
    &["patch", "serviceexports.multicluster.x-k8s.io"],
    &["delete", "serviceexports.multicluster.x-k8s.io"],
    &["update", "services"],
    &["list", "clusterproperties.about.k8s.io"],
    &["delete", "events.events.k8s.io"],
    &["get", "leases.coordination.k8s.io"],
    &["get", "leases.coordination.k8s.io", "-n", "kube-system"],
    &["list", "leases.coordination.k8s.io", "-n", "tombolo-system"],
    &[
        "delete",
        "leases.coordination.k8s.io/tombolo-controller",
        "-n",
        "tombolo-system",
    ],
    &[
        "update",
        "leases.coordination.k8s.io/other",
        "-n",
        "tombolo-system",
    ],
    &["patch", "customresourcedefinitions.apiextensions.k8s.io"],
    &["*", "*"],
];

fn rights(world: &World, ns: &str) -> Result<()> {
    let west = world.west();
    let can = |user: &str, args: &[&str]| {
        let args = [&["auth", "can-i", "-q", "--as", user][..], args].concat();
        west.kubectl(&args).is_ok()
    };
    for no in NEVER {
        let args = [*no, &["-A"]].concat();
        let args = if no.contains(&"-n") { *no } else { &args };
        ensure!(!can(USER, args), "the controller may {no:?}");
    }
    // Who may edit a namespace may export from it, who may view it sees both kinds.
    for (role, yes, no) in [
        ("edit", "create", "serviceimports"),
        ("view", "get", "none"),
    ] {
        let user = format!("{ns}-{role}");
        let args = [
            "create",
            "rolebinding",
            role,
            "--clusterrole",
            role,
            "--user",
            &user,
        ];
        crate::kit::kubectl(west, ns, &args)?;
        let group = "multicluster.x-k8s.io";
        let exports = format!("serviceexports.{group}");
        // Aggregated roles and bindings are known to the API server a moment later.
        crate::kit::eventually("the aggregated role counts", || {
            Ok(can(&user, &[yes, &exports, "-n", ns]))
        })?;
        ensure!(can(
            &user,
            &["list", &format!("serviceimports.{group}"), "-n", ns]
        ));
        ensure!(!can(&user, &["create", &format!("{no}.{group}"), "-n", ns]));
        ensure!(!can(
            &user,
            &["patch", &exports, "--subresource=status", "-n", ns]
        ));
    }
    let args = [
        "delete",
        &format!("serviceexports.{}", "multicluster.x-k8s.io"),
        "-n",
        ns,
    ];
    ensure!(!can(&format!("{ns}-view"), &args));
    Ok(())
}
