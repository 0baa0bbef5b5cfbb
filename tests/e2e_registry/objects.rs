//! What one cluster exports, the others import; and how many writes that takes.

use anyhow::{Context as _, Result, ensure};

use crate::Test;
use crate::kit::{
    address, clusters, endpoints, eventually, export, imported, rest, say, serve, unexport,
    wait_imported,
};
use crate::sites::{CLUSTERS, Sites};

pub(crate) const TESTS: &[Test] = &[
    ("e2e_exports_become_imports_everywhere", exports),
    ("e2e_a_rollout_takes_few_transactions", rollout),
    (
        "e2e_a_restart_with_nothing_to_do_writes_its_session_only",
        idle_restart,
    ),
];

/// The standard setup: checkout is exported by east and west, with an endpoint each.
pub(crate) fn standard(sites: &Sites, ns: &str) -> Result<()> {
    for name in ["east", "west"] {
        let cluster = sites.cluster(name);
        serve(cluster, ns, "checkout", &[address(name, 0)])?;
        export(cluster, ns, "checkout")?;
    }
    let (east, west) = ([address("east", 0)], [address("west", 0)]);
    for name in CLUSTERS {
        let wanted: [(&str, &[String]); 2] = [("east", &east), ("west", &west)];
        wait_imported(sites.cluster(name), ns, "checkout", &wanted)?;
    }
    Ok(())
}

fn exports(sites: &mut Sites, ns: &str) -> Result<()> {
    standard(sites, ns)?;
    let mut addresses = Vec::new();
    for name in CLUSTERS {
        let cluster = sites.cluster(name);
        eventually("both clusters and an address", || {
            let import = cluster.object(ns, "serviceimport", "checkout")?;
            let import = import.context("no import")?;
            let ips = import["spec"]["ips"].as_array().map_or(0, Vec::len);
            Ok(clusters(&import) == ["east", "west"] && ips == 1)
        })?;
        let import = cluster
            .object(ns, "serviceimport", "checkout")?
            .context("gone")?;
        addresses.push(import["spec"]["ips"].clone());
    }
    // A change arrives, in both directions.
    let more = [address("east", 1), address("east", 2)];
    endpoints(sites.cluster("east"), ns, "checkout", &more)?;
    let west = [address("west", 0)];
    for name in CLUSTERS {
        let wanted: [(&str, &[String]); 2] = [("east", &more), ("west", &west)];
        wait_imported(sites.cluster(name), ns, "checkout", &wanted)?;
    }
    unexport(sites.cluster("west"), ns, "checkout")?;
    for name in CLUSTERS {
        wait_imported(sites.cluster(name), ns, "checkout", &[("east", &more)])?;
    }
    // The clusterset IP did not move.
    for (name, before) in CLUSTERS.iter().zip(addresses) {
        let import = sites
            .cluster(name)
            .object(ns, "serviceimport", "checkout")?;
        ensure!(import.context("gone")?["spec"]["ips"] == before);
    }
    unexport(sites.cluster("east"), ns, "checkout")?;
    for name in CLUSTERS {
        let cluster = sites.cluster(name);
        eventually("the import goes", || {
            let import = cluster.object(ns, "serviceimport", "checkout")?;
            Ok(import.is_none() && imported(cluster, ns, "checkout")?.is_empty())
        })?;
    }
    Ok(())
}

/// Hundred new pods instead of hundred old ones: 200 operations in transactions of at most 128.
fn rollout(sites: &mut Sites, ns: &str) -> Result<()> {
    let pods = |from: u32| {
        (from..from + 100)
            .map(|n| address("east", n))
            .collect::<Vec<_>>()
    };
    let east = sites.cluster("east");
    serve(east, ns, "web", &pods(0))?;
    export(east, ns, "web")?;
    wait_imported(sites.cluster("north"), ns, "web", &[("east", &pods(0))])?;
    rest(11);
    let before = sites.revision()?;
    endpoints(east, ns, "web", &pods(100))?;
    wait_imported(sites.cluster("north"), ns, "web", &[("east", &pods(100))])?;
    let transactions = sites.revision()? - before;
    say(&format!(
        "a rollout of 100 pods took {transactions} transactions"
    ));
    ensure!(transactions == 2, "{transactions} transactions");
    unexport(east, ns, "web")
}

fn idle_restart(sites: &mut Sites, ns: &str) -> Result<()> {
    standard(sites, ns)?;
    // What is reported of what happened before is reported by then.
    rest(11);
    let before = sites.revision()?;
    let partition = sites.partition("east")?;
    sites.restart("east")?;
    rest(12);
    let writes = sites.revision()? - before;
    ensure!(writes == 2, "{writes} writes instead of session and synced");
    let is_data = |line: &&String| line.contains("/ns/");
    let data = |lines: &[String]| lines.iter().filter(is_data).cloned().collect::<Vec<_>>();
    let after = sites.partition("east")?;
    ensure!(
        data(&partition) == data(&after),
        "{partition:?}, then {after:?}"
    );
    Ok(())
}
