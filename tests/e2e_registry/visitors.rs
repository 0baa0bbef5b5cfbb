//! `tombolo up context:NAME --registry`: a cluster that looks on, and then takes part.

use anyhow::{Context as _, Result, ensure};

use crate::Test;
use crate::kit::{TIMEOUT, address, eventually, export, imported, serve, wait_imported};
use crate::objects::standard;
use crate::sites::{CLUSTERS, OTHER, Sites};

pub(crate) const TESTS: &[Test] = &[("e2e_a_visitor_looks_on_and_then_joins", visits)];

fn visits(sites: &mut Sites, ns: &str) -> Result<()> {
    standard(sites, ns)?;
    let other = sites.cluster(OTHER);
    serve(other, ns, "guest", &[address(OTHER, 0)])?;
    export(other, ns, "guest")?;
    sites.visit(&["--read-only"])?;
    sites.wait_ready(OTHER)?;
    let other = sites.cluster(OTHER);
    let (east, west) = ([address("east", 0)], [address("west", 0)]);
    let both: [(&str, &[String]); 2] = [("east", &east), ("west", &west)];
    wait_imported(other, ns, "checkout", &both)?;
    // What it exports is there for itself, and says that nobody else has it.
    let guest = [address(OTHER, 0)];
    wait_imported(other, ns, "guest", &[(OTHER, &guest)])?;
    let exported = other
        .object(ns, "serviceexport", "guest")?
        .context("no export")?;
    let conditions = exported["status"]["conditions"].to_string();
    ensure!(conditions.contains("\"Pending\""), "{conditions}");
    let written = sites.must(&["registry", "get", "--cluster", OTHER])?;
    ensure!(!written.contains(OTHER), "{written}");
    ensure!(imported(sites.cluster("east"), ns, "guest")?.is_empty());

    sites.part(OTHER).stop(TIMEOUT)?;
    sites.visit(&[])?;
    for name in CLUSTERS {
        wait_imported(sites.cluster(name), ns, "guest", &[(OTHER, &guest)])?;
    }
    sites.part(OTHER).stop(TIMEOUT)?;
    sites.must(&["leave", OTHER, "--yes"])?;
    eventually("its import goes", || {
        let import = sites.cluster("east").object(ns, "serviceimport", "guest")?;
        Ok(import.is_none())
    })
}
