//! Namespaces that come late, go, or stay half gone.

use anyhow::{Result, ensure};

use crate::Test;
use crate::kit::{
    apply, by_hand, condition, eventually, export, wait_condition, wait_gone, wait_import,
};
use crate::world::World;

pub(crate) const TESTS: &[Test] = &[
    (
        "e2e_a_namespace_made_later_gets_its_imports",
        late_namespace,
    ),
    ("e2e_a_terminating_namespace_is_left_alone", terminating),
];

fn late_namespace(world: &World, ns: &str) -> Result<()> {
    let (east, west) = (world.east(), world.west());
    let late = format!("{ns}-x");
    east.create_namespace(&late)?;
    apply(east, &late, &by_hand("web", &["IPv4", "IPv6"], ""))?;
    export(east, &late, "web")?;
    let wanted = ["Ready", "True", "Exported"];
    let export = wait_condition(east, &late, ["serviceexport", "web"], wanted)?;
    ensure!(condition(&export, "Valid") == Some(("True".into(), "Valid".into())));
    west.create_namespace(&late)?;
    wait_import(west, &late, "web")?;
    // It goes with its export: the import elsewhere goes too.
    east.kubectl(&["delete", "namespace", &late, "--timeout=120s"])?;
    wait_gone(west, &late, "web")?;
    west.kubectl(&["delete", "namespace", &late, "--timeout=120s"])?;
    Ok(())
}

/// A finalizer holds the importing namespace: what was in it goes, and nothing is made in it.
fn terminating(world: &World, ns: &str) -> Result<()> {
    let (east, west) = (world.east(), world.west());
    let held = format!("{ns}-x");
    for cluster in [east, west] {
        cluster.create_namespace(&held)?;
    }
    let hold = "apiVersion: v1
kind: ConfigMap
metadata: {name: hold, finalizers: [example.com/hold]}
";
    apply(west, &held, hold)?;
    apply(east, &held, &by_hand("web", &["IPv4"], ""))?;
    export(east, &held, "web")?;
    wait_import(west, &held, "web")?;
    west.kubectl(&["delete", "namespace", &held, "--wait=false"])?;
    wait_gone(west, &held, "web")?;
    // Further exports are no reason to write there either.
    apply(east, &held, &by_hand("more", &["IPv4"], ""))?;
    export(east, &held, "more")?;
    let wanted = ["Ready", "True", "Exported"];
    wait_condition(east, &held, ["serviceexport", "more"], wanted)?;
    wait_import(east, &held, "more")?;
    ensure!(west.object(&held, "serviceimport", "more")?.is_none());
    let log = world.log()?;
    let refused: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("write refused") && line.contains(&held))
        .collect();
    ensure!(refused.is_empty(), "{refused:?}");

    let patch = r#"{"metadata":{"finalizers":null}}"#;
    let args = [
        "-n",
        &held,
        "patch",
        "configmap",
        "hold",
        "--type=merge",
        "-p",
        patch,
    ];
    west.kubectl(&args)?;
    eventually("the namespace ends", || {
        let args = [
            "get",
            "namespace",
            &held,
            "--ignore-not-found",
            "-o",
            "name",
        ];
        Ok(west.kubectl(&args)?.is_empty())
    })?;
    west.create_namespace(&held)?;
    for name in ["web", "more"] {
        wait_import(west, &held, name)?;
    }
    for cluster in [east, west] {
        cluster.kubectl(&["delete", "namespace", &held, "--wait=false"])?;
    }
    Ok(())
}
