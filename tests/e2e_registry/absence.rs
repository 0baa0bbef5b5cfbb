//! Clusters that are not heard of (R03) and those that see nothing (R05).

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tokio::time::Instant;

use crate::Test;
use crate::kit::{
    address, clusters, eventually, export, imported, rest, say, serve, wait_imported,
};
use crate::objects::standard;
use crate::sites::{CLUSTERS, HOLD_SECS, LEASE_SECS, Sites};

pub(crate) const TESTS: &[Test] = &[
    ("e2e_r03_a_cluster_disappears_for_good", disappears),
    (
        "e2e_r05_a_cluster_that_sees_nothing_withdraws_nothing",
        blind,
    ),
];

/// From a sign of life to the next: so much of the lease may have passed already.
const SIGN_SECS: u64 = LEASE_SECS / 3;

fn ready_message(sites: &Sites, on: &str, ns: &str, name: &str) -> Result<String> {
    let import = sites.cluster(on).object(ns, "serviceimport", name)?;
    Ok(import.context("no import")?["status"]["conditions"].to_string())
}

fn disappears(sites: &mut Sites, ns: &str) -> Result<()> {
    standard(sites, ns)?;
    let east = sites.cluster("east");
    serve(east, ns, "search", &[address("east", 5)])?;
    export(east, ns, "search")?;
    let search = [address("east", 5)];
    wait_imported(sites.cluster("north"), ns, "search", &[("east", &search)])?;
    let before = sites
        .cluster("north")
        .object(ns, "serviceimport", "checkout")?;

    let began = Instant::now();
    sites.part("east").kill()?;
    sites.cluster("east").apiserver().kill()?;
    let west = [address("west", 0)];
    for name in ["west", "north"] {
        wait_imported(sites.cluster(name), ns, "checkout", &[("west", &west)])?;
    }
    let took = began.elapsed();
    say(&format!(
        "the endpoints of a dead cluster were withdrawn after {took:?}"
    ));
    let least = Duration::from_secs(LEASE_SECS - SIGN_SECS + HOLD_SECS);
    ensure!(took >= least, "withdrawn after {took:?} already");
    // The import and its address stay; what only east had is kept, and said to be.
    let import = sites
        .cluster("north")
        .object(ns, "serviceimport", "checkout")?;
    let import = import.context("gone")?;
    ensure!(clusters(&import) == ["west"], "{import}");
    ensure!(import["spec"] == before.context("gone")?["spec"]);
    let kept = imported(sites.cluster("north"), ns, "search")?;
    ensure!(
        kept == [("east".to_owned(), search.to_vec())].into(),
        "{kept:?}"
    );
    eventually("it says that they are kept", || {
        let says = ready_message(sites, "north", ns, "search")?;
        Ok(says.contains("cluster east is not heard of") && says.contains("the last"))
    })?;
    let state = sites.get("north", "/metrics")?;
    ensure!(
        state.contains(r#"peer="east",state="withdrawn""#),
        "{state}"
    );

    // A restart begins no new hold.
    sites.restart("north")?;
    rest(3);
    ensure!(!imported(sites.cluster("north"), ns, "checkout")?.contains_key("east"));

    sites.cluster("east").apiserver().restart()?;
    sites.cluster("east").wait_apiserver()?;
    sites.launch("east", "east", &[])?;
    sites.wait_ready("east")?;
    let east = [address("east", 0)];
    let wanted: [(&str, &[String]); 2] = [("east", &east), ("west", &west)];
    for name in CLUSTERS {
        wait_imported(sites.cluster(name), ns, "checkout", &wanted)?;
    }
    Ok(())
}

/// The permission to list ServiceExports, taken or given back.
fn permit(sites: &Sites, verbs: &str) -> Result<()> {
    let east = sites.cluster("east");
    let get = ["get", "clusterrole", "tombolo-controller", "-o", "json"];
    let mut role: serde_json::Value = serde_json::from_str(&east.kubectl(&get)?)?;
    for rule in role["rules"].as_array_mut().into_iter().flatten() {
        let names = rule["resources"].to_string();
        if names.contains(r#""serviceexports""#) {
            rule["verbs"] = serde_json::from_str(verbs)?;
        }
    }
    east.kubectl_with_input(&["replace", "-f", "-"], &role.to_string())?;
    Ok(())
}

fn blind(sites: &mut Sites, ns: &str) -> Result<()> {
    standard(sites, ns)?;
    let data = |sites: &Sites| -> Result<Vec<String>> {
        let lines = sites.partition("east")?.into_iter();
        Ok(lines.filter(|line| line.contains("/ns/")).collect())
    };
    let before = data(sites)?;
    permit(sites, "[\"update\"]")?;
    sites.part("east").kill()?;
    sites.launch("east", "east", &[])?;
    eventually("it says what is missing", || {
        let said = sites.ask("east", "/readyz").unwrap_or_default();
        Ok(said.0 == 503 && said.1.contains("ServiceExport"))
    })?;
    eventually("peers are told", || {
        let says = ready_message(sites, "north", ns, "checkout")?;
        Ok(says.contains("cluster east cannot see its own objects since"))
    })?;
    // Longer than lease and hold: nothing is withdrawn, nothing called published.
    rest(LEASE_SECS + HOLD_SECS + 5);
    ensure!(data(sites)? == before, "keys have changed");
    let epoch = |key: &str| -> Result<String> {
        let lines = sites.partition("east")?;
        let line = lines.iter().find(|line| line.contains(key)).cloned();
        Ok(line.unwrap_or_default())
    };
    let synced = epoch("/synced ")?;
    let synced = synced.split_whitespace().last().unwrap_or_default();
    ensure!(!epoch("/session ")?.contains(synced), "it is called synced");
    let (east, west) = ([address("east", 0)], [address("west", 0)]);
    let wanted: [(&str, &[String]); 2] = [("east", &east), ("west", &west)];
    wait_imported(sites.cluster("north"), ns, "checkout", &wanted)?;
    let state = sites.get("north", "/metrics")?;
    ensure!(state.contains(r#"peer="east",state="blind""#), "{state}");
    // Back without a restart.
    permit(sites, r#"["get", "list", "watch"]"#)?;
    sites.wait_ready("east")?;
    eventually("all is well", || {
        let says = ready_message(sites, "north", ns, "checkout")?;
        Ok(!says.contains("cannot see"))
    })
}
