//! A real cluster and a directory of manifests in one clusterset.

use std::fs;

use anyhow::{Result, ensure};
use serde_json::Value;

use crate::Breaking;
use crate::fragile::Fragile;
use crate::kit::{
    apply, at_last, by_hand, endpoints, export_of, exported, slice_of, texts, wait_gone,
    wait_import,
};
use crate::process::Process;

pub(crate) const TESTS: &[Breaking] = &[("e2e_directories_join_a_real_cluster", both)];

fn both(fragile: &Fragile) -> Result<()> {
    let ns = "mixed";
    fragile.namespace(ns)?;
    let left = fragile.left();
    let folder = tempfile::tempdir()?;
    let files = folder.path().join("files");
    fs::create_dir(&files)?;
    let in_namespace = |yaml: &str| yaml.replace("metadata: {", "metadata: {namespace: mixed, ");
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: mixed}\n";
    let web = by_hand("web", &["IPv4"], "").replace("PreferDualStack", "SingleStack");
    let [service, export] = [web, export_of("web")].map(|yaml| in_namespace(&yaml));
    fs::write(files.join("namespace.yaml"), namespace)?;
    fs::write(files.join("service.yaml"), service)?;
    fs::write(files.join("export.yaml"), export)?;
    let out = folder.path().join("out");
    let paths = [&files, &out, &fragile.kubeconfig].map(|path| path.display().to_string());
    let [files_arg, out_arg, kubeconfig] = paths.each_ref().map(String::as_str);
    let args = [
        "up",
        "context:left",
        files_arg,
        "--out",
        out_arg,
        "--kubeconfig",
        kubeconfig,
        "--no-dns",
    ];
    let tombolo = Process::start(&fragile.testbed, &args.map(str::to_owned))?;
    tombolo.wait_ready()?;
    wait_import(left, ns, "web")?;
    let wait_address = |address: &str| {
        at_last(address, || {
            let endpoints = endpoints(left, ns, "web", "files")?;
            let found: Vec<String> = endpoints
                .iter()
                .flat_map(|endpoint: &Value| texts(&endpoint["addresses"]))
                .collect();
            ensure!(found == [address], "{found:?}");
            Ok(())
        })
    };
    wait_address("10.77.0.1")?;

    // An edited file shows in the real cluster, an export there shows in the directory's.
    fs::write(
        files.join("service.yaml"),
        in_namespace(
            &(by_hand("web", &[], "").replace("PreferDualStack", "SingleStack")
                + &slice_of("web", "IPv4", &["10.77.0.2"])),
        ),
    )?;
    wait_address("10.77.0.2")?;
    apply(left, ns, &exported("more"))?;
    at_last("the directory imports it", || {
        let mut found = false;
        for entry in fs::read_dir(out.join("files"))? {
            let text = fs::read_to_string(entry?.path())?;
            found |= text.contains("kind: ServiceImport") && text.contains("name: more");
        }
        ensure!(found, "no import of it");
        Ok(())
    })?;
    fs::remove_file(files.join("export.yaml"))?;
    wait_gone(left, ns, "web")?;
    tombolo.stop()?;
    let log = tombolo.log()?;
    ensure!(log.contains("the imports stay as they are"), "{log}");
    Ok(())
}
