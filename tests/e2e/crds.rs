//! The CRDs: late, gone and back, of other releases; and rights that are missing.

use anyhow::{Context as _, Result, ensure};
use tombolo_testbed::{Builder, Cache, Cluster, Progress};

use crate::Breaking;
use crate::fragile::Fragile;
use crate::kit::{apply, at_last, by_hand, eventually, export_of, slices, text, wait_import};
use crate::process::{apply_crds, apply_rights};

pub(crate) const TESTS: &[Breaking] = &[
    ("e2e_crds_come_late_go_and_come_back", late),
    ("e2e_crds_are_raised_and_never_lowered", releases),
    ("e2e_a_missing_right_is_named", rights),
];

const NAMES: [&str; 2] = [
    "serviceexports.multicluster.x-k8s.io",
    "serviceimports.multicluster.x-k8s.io",
];

/// Removes the CRDs, and with them all that is of their kinds.
pub(crate) fn remove(cluster: &Cluster) -> Result<()> {
    let args = ["delete", "crd", "--ignore-not-found", "--timeout=60s"];
    cluster.kubectl(&[&args[..], &NAMES].concat())?;
    forget(cluster)
}

/// Puts the CRDs of a release that has only v1alpha1, with fewer fields, in the place of others.
pub(crate) fn replace_by_old(cluster: &Cluster) -> Result<()> {
    remove(cluster)?;
    let builder = Builder::new(Cache::from_env()?, Progress::silent());
    cluster.apply_crds(&builder.mcs_crds(Some("0.2.0"))?)?;
    forget(cluster)
}

/// Lets kubectl forget which versions the server had: it would ask for these for ten minutes, and
/// find nothing.
pub(crate) fn forget(cluster: &Cluster) -> Result<()> {
    match std::fs::remove_dir_all(cluster.folder().join("kubectl-cache")) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

fn late(fragile: &Fragile) -> Result<()> {
    let ns = "late";
    fragile.namespace(ns)?;
    let (left, right) = (fragile.left(), fragile.right());
    apply(
        left,
        ns,
        &(by_hand("web", &["IPv4"], "") + &export_of("web")),
    )?;
    remove(right)?;
    let tombolo = fragile.up(&[])?;
    at_last("it says what is missing", || {
        let said = tombolo.readiness()?;
        for kind in ["ServiceExport", "ServiceImport"] {
            let wanted = format!("cluster right: the CRD of {kind} is missing");
            ensure!(said.contains(&wanted), "{said}");
        }
        Ok(())
    })?;
    ensure!(slices(right, ns, "web")?.is_empty());
    for _ in 0..2 {
        apply_crds(right)?;
        tombolo.wait_ready()?;
        wait_import(right, ns, "web")?;
        eventually("a slice", || Ok(slices(right, ns, "web")?.len() == 1))?;
        // The import goes with its CRD, and what it owns with it.
        remove(right)?;
        eventually("it says so", || {
            Ok(tombolo.readiness()?.contains("is missing"))
        })?;
    }
    tombolo.stop()
}

/// I03: what is older is raised, what is newer is left as it is.
fn releases(fragile: &Fragile) -> Result<()> {
    let ns = "releases";
    fragile.namespace(ns)?;
    let (left, right) = (fragile.left(), fragile.right());
    replace_by_old(right)?;
    // Objects of the old release are kept.
    let export = export_of("web").replace("v1beta1", "v1alpha1");
    apply(right, ns, &(by_hand("web", &["IPv4"], "") + &export))?;
    let uid = |cluster: &Cluster| {
        let export = cluster
            .object(ns, "serviceexport", "web")?
            .context("no export")?;
        Ok::<_, anyhow::Error>(text(&export["metadata"]["uid"]))
    };
    let before = uid(right)?;
    apply_crds(right)?;
    forget(right)?;
    ensure!(uid(right)? == before);
    let crds = |cluster: &Cluster| {
        let mut all = Vec::new();
        for name in NAMES {
            all.push(cluster.object("default", "crd", name)?.context("no CRD")?);
        }
        Ok::<_, anyhow::Error>(all)
    };
    for crd in crds(right)? {
        let version = &crd["metadata"]["labels"]["multicluster.x-k8s.io/release-version"];
        ensure!(version == "v0.5.2", "{version}");
        let stored = crd["spec"]["versions"].as_array().into_iter().flatten();
        let stored: Vec<String> = stored
            .filter(|version| version["storage"] == true)
            .map(|version| text(&version["name"]))
            .collect();
        ensure!(stored == ["v1beta1"], "{stored:?}");
    }
    let raised = crds(right)?;
    apply_crds(right)?;
    ensure!(crds(right)? == raised, "the same again changed something");
    // Somebody else's newer ones, with a field that nobody here knows.
    for name in NAMES {
        let labels = r#"{"metadata":{"labels":{"multicluster.x-k8s.io/release-version":"v0.9.0",
            "multicluster.x-k8s.io/crd-schema-revision":"3","app.kubernetes.io/managed-by":"Helm"}}}"#;
        right.kubectl(&["patch", "crd", name, "--type=merge", "-p", labels])?;
        let field = r#"[{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/extra",
            "value":{"type":"string"}}]"#;
        right.kubectl(&["patch", "crd", name, "--type=json", "-p", field])?;
    }
    let newer = crds(right)?;
    let said = apply_crds(right)?;
    ensure!(crds(right)? == newer, "newer CRDs were changed");
    ensure!(said.contains("v0.9.0"), "{said}");
    let tombolo = fragile.up(&[])?;
    tombolo.wait_ready()?;
    wait_import(left, ns, "web")?;
    wait_import(right, ns, "web")?;
    tombolo.stop()?;
    remove(right)
}

/// S05: what is missing is named, and its return is noticed.
fn rights(fragile: &Fragile) -> Result<()> {
    let ns = "rights";
    fragile.namespace(ns)?;
    let right = fragile.right();
    let rights = include_str!("../../deploy/base/rbac.yaml");
    let rule = "- apiGroups: [multicluster.x-k8s.io]
  resources: [serviceexports]
  verbs: [get, list, watch]
";
    ensure!(rights.matches(rule).count() == 1, "no such rule");
    right.apply(&rights.replace(rule, ""))?;
    apply(
        fragile.left(),
        ns,
        &(by_hand("web", &["IPv4"], "") + &export_of("web")),
    )?;
    let tombolo = fragile.up(&[])?;
    at_last("it says what is missing", || {
        let said = tombolo.readiness()?;
        let wanted = "cluster right: ServiceExports are not listed yet: forbidden";
        ensure!(said.contains(wanted), "{said}");
        ensure!(
            said.contains("serviceexports.multicluster.x-k8s.io"),
            "{said}"
        );
        Ok(())
    })?;
    apply_rights(right)?;
    tombolo.wait_ready()?;
    wait_import(right, ns, "web")?;
    tombolo.stop()
}
