//! Who may write a partition: two clusters of one name (R07), leaving, draining, taking over.

use anyhow::{Context as _, Result, ensure};

use crate::Test;
use crate::kit::{
    TIMEOUT, address, clusters, eventually, export, imported, rest, serve, wait_imported,
};
use crate::objects::standard;
use crate::sites::{CLUSTERS, OTHER, Sites, text_of};

pub(crate) const TESTS: &[Test] = &[
    ("e2e_r07_two_clusters_claim_one_name", two_claim_one_name),
    ("e2e_a_cluster_is_drained_and_brought_back", drain),
    ("e2e_a_cluster_leaves_and_comes_back", leave),
];

/// The UID by which a cluster is known.
fn uid(sites: &Sites, cluster: &str) -> Result<String> {
    let args = [
        "get",
        "namespace",
        "kube-system",
        "-o",
        "jsonpath={.metadata.uid}",
    ];
    sites.cluster(cluster).kubectl(&args)
}

fn two_claim_one_name(sites: &mut Sites, ns: &str) -> Result<()> {
    standard(sites, ns)?;
    // Of the first, something that the second does not have.
    let east = sites.cluster("east");
    serve(east, ns, "search", &[address("east", 5)])?;
    export(east, ns, "search")?;
    wait_imported(
        sites.cluster("north"),
        ns,
        "search",
        &[("east", &[address("east", 5)])],
    )?;
    let other = sites.cluster(OTHER);
    serve(other, ns, "checkout", &[address(OTHER, 0)])?;
    export(other, ns, "checkout")?;
    let before = sites.partition("east")?;

    sites.launch(OTHER, "east", &[])?;
    let (theirs, ours) = (uid(sites, "east")?, uid(sites, OTHER)?);
    eventually("the second is refused", || {
        let said = sites.ask(OTHER, "/readyz").unwrap_or_default();
        let is_it = |text: &str| said.1.contains(text);
        Ok(said.0 == 503 && is_it(&theirs) && is_it(&ours) && is_it("--take-over"))
    })?;
    rest(15);
    ensure!(
        sites.partition("east")? == before,
        "east's keys have changed"
    );
    sites.wait_ready("east")?;

    // On purpose: it takes the name, and the first is told whose it is now.
    sites.part(OTHER).stop(TIMEOUT)?;
    sites.launch(OTHER, "east", &["--take-over"])?;
    sites.wait_ready(OTHER)?;
    let wanted: [(&str, &[String]); 2] = [
        ("east", &[address(OTHER, 0)]),
        ("west", &[address("west", 0)]),
    ];
    for name in ["west", "north"] {
        let cluster = sites.cluster(name);
        wait_imported(cluster, ns, "checkout", &wanted)?;
        eventually("no leftovers", || {
            Ok(cluster.object(ns, "serviceimport", "search")?.is_none())
        })?;
    }
    eventually("the first is refused", || {
        let (status, said) = sites.ask("east", "/readyz")?;
        Ok(status == 503 && said.contains(&theirs) && said.contains(&ours))
    })?;

    // And back, in the same way.
    sites.part(OTHER).stop(TIMEOUT)?;
    sites.part("east").stop(TIMEOUT)?;
    sites.launch("east", "east", &["--take-over"])?;
    sites.wait_ready("east")?;
    let wanted: [(&str, &[String]); 2] = [
        ("east", &[address("east", 0)]),
        ("west", &[address("west", 0)]),
    ];
    wait_imported(sites.cluster("north"), ns, "checkout", &wanted)
}

fn drain(sites: &mut Sites, ns: &str) -> Result<()> {
    standard(sites, ns)?;
    let (east, west) = ([address("east", 0)], [address("west", 0)]);
    sites.must(&["drain", "east"])?;
    for name in CLUSTERS {
        let cluster = sites.cluster(name);
        wait_imported(cluster, ns, "checkout", &[("west", &west)])?;
        eventually("status says so", || {
            let import = cluster.object(ns, "serviceimport", "checkout")?;
            let import = import.context("no import")?;
            let says = import["status"]["conditions"].to_string();
            Ok(clusters(&import) == ["west"] && says.contains("cluster east is drained"))
        })?;
    }
    // Without west nobody would serve it.
    let refused = sites.operate(&["drain", "west"])?;
    let said = text_of(&refused);
    ensure!(!refused.status.success(), "{said}");
    ensure!(
        said.contains(&format!("{ns}/checkout")) && said.contains("--yes"),
        "{said}"
    );
    sites.must(&["drain", "west", "--yes"])?;
    for name in CLUSTERS {
        wait_imported(sites.cluster(name), ns, "checkout", &[])?;
    }
    sites.must(&["undrain", "east"])?;
    sites.must(&["undrain", "west"])?;
    let wanted: [(&str, &[String]); 2] = [("east", &east), ("west", &west)];
    for name in CLUSTERS {
        wait_imported(sites.cluster(name), ns, "checkout", &wanted)?;
    }
    Ok(())
}

fn leave(sites: &mut Sites, ns: &str) -> Result<()> {
    standard(sites, ns)?;
    let (east, west) = ([address("east", 0)], [address("west", 0)]);
    let said = sites.must(&["leave", "west"])?;
    ensure!(said.contains("--take-over"), "{said}");
    for name in ["east", "north"] {
        wait_imported(sites.cluster(name), ns, "checkout", &[("east", &east)])?;
    }
    let keys = |sites: &Sites| -> Result<usize> {
        let lines = sites.partition("west")?;
        let own = lines.iter().filter(|line| line.contains("/clusters/west/"));
        Ok(own.count())
    };
    ensure!(keys(sites)? == 1, "only `left` is there");
    // It says so, is not ready, and publishes nothing, also after a restart.
    sites.part("west").stop(TIMEOUT)?;
    sites.launch("west", "west", &[])?;
    eventually("it is told that it has left", || {
        let said = sites.ask("west", "/readyz").unwrap_or_default();
        Ok(said.0 == 503 && said.1.contains("has left the clusterset for good"))
    })?;
    ensure!(keys(sites)? == 1, "it publishes");
    // What it had itself, it has.
    ensure!(imported(sites.cluster("west"), ns, "checkout")?.contains_key("west"));
    sites.part("west").stop(TIMEOUT)?;
    sites.launch("west", "west", &["--take-over"])?;
    sites.wait_ready("west")?;
    let wanted: [(&str, &[String]); 2] = [("east", &east), ("west", &west)];
    for name in CLUSTERS {
        wait_imported(sites.cluster(name), ns, "checkout", &wanted)?;
    }
    Ok(())
}
