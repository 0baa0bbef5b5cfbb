//! Two regions with an etcd each and a replicator both ways (R11).

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use etcd_client::GetOptions;
use tombolo_testbed::{Etcd, EtcdSpec, Part};

use crate::Test;
use crate::kit::{
    TIMEOUT, address, endpoints, eventually, export, imported, rest, serve, unexport, wait_imported,
};
use crate::objects::standard;
use crate::sites::{CLUSTERS, OTHER, Sites, tombolo};

pub(crate) const TESTS: &[Test] = &[("e2e_r11_a_region_is_lost_and_comes_back_empty", lost)];

/// The region of all clusters but one.
pub(crate) const LOCAL: &str = "local";
/// The region of the other.
pub(crate) const FAR: &str = "far";
/// What the other is called there: its own name was taken by whoever visited.
const ISLAND: &str = "island";
const ROOT: &str = "/tombolo/v1/regions";

/// The second region: its etcd, and the replicators of both regions.
pub(crate) struct Far {
    pub(crate) etcd: Etcd,
    replicators: BTreeMap<&'static str, Part>,
}

impl Far {
    /// Starts what of the second region does not run, its cluster's controller among it.
    pub(crate) fn ensure(sites: &mut Sites) -> Result<()> {
        if sites.far.is_none() {
            let etcd = sites.testbed.start_etcd(FAR, &EtcdSpec::members(1))?;
            secure(sites, &etcd)?;
            // At the first region's etcd the rules are on already.
            for grant in [["--source", LOCAL], ["--region=local", FAR]] {
                let args = ["registry", "grant", grant[0], "--replicator", grant[1]];
                let file = sites.password(grant[1]);
                let file = file.to_str().context("no text")?;
                sites.must(&[&args[..], &["--password-file", file]].concat())?;
            }
            let replicators = [
                (
                    LOCAL,
                    replicator(sites, (LOCAL, &sites.etcd), (FAR, &etcd))?,
                ),
                (FAR, replicator(sites, (FAR, &etcd), (LOCAL, &sites.etcd))?),
            ];
            sites.far = Some(Self {
                etcd,
                replicators: replicators.into(),
            });
        }
        let far = sites.far()?;
        for part in far.replicators.values() {
            if !part.is_running() {
                part.restart()?;
            }
        }
        let urls = far.etcd.endpoints().join(",");
        sites.launch_at(&urls, OTHER, ISLAND, &["--region", FAR])?;
        sites.wait_ready(OTHER)
    }

    pub(crate) fn replicator_from(&self, region: &str) -> &Part {
        &self.replicators[region]
    }

    /// Waits until a region's keys and their values are the same at both; the lease of a session
    /// does not count.
    pub(crate) fn wait_same(&self, sites: &Sites, region: &str) -> Result<()> {
        let mut both = (0, 0);
        let same = eventually("both have the same", || {
            let [one, other] = [&sites.etcd, &self.etcd].map(|etcd| keys(sites, etcd, region));
            let (one, other) = (one?, other?);
            both = (one.len(), other.len());
            Ok(one == other && !one.is_empty())
        });
        same.with_context(|| format!("keys of {region} at {LOCAL} and {FAR}: {both:?}"))
    }
}

impl Sites {
    pub(crate) fn far(&self) -> Result<&Far> {
        self.far.as_ref().context("there is no second region")
    }
}

/// Everything below a region but what belongs to the etcd where it is.
fn keys(sites: &Sites, etcd: &Etcd, region: &str) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut client = sites.client_of(etcd)?;
    let options = GetOptions::new().with_prefix();
    let prefix = format!("{ROOT}/{region}/");
    let answer = sites.wait(client.get(prefix.as_str(), Some(options)))?;
    let lock = format!("{prefix}replicator");
    Ok(answer
        .kvs()
        .iter()
        .filter(|entry| entry.key() != lock.as_bytes())
        .map(|entry| (entry.key().to_vec(), entry.value().to_vec()))
        .collect())
}

fn secure(sites: &Sites, etcd: &Etcd) -> Result<()> {
    let grants = [
        vec!["--cluster", ISLAND, "--region", FAR],
        vec!["--replicator", LOCAL],
        vec!["--replicator", FAR, "--source"],
    ];
    sites.secure(etcd, &grants)
}

fn replicator(sites: &Sites, from: (&str, &Etcd), to: (&str, &Etcd)) -> Result<Part> {
    let mut command = tombolo(&["replicator", "--admin", "127.0.0.1:0", "--region", from.0]);
    command.args(["--registry", &from.1.endpoints().join(",")]);
    command.args(["--to", &format!("{}={}", to.0, to.1.endpoints().join(","))]);
    command.args(["--registry-user", &format!("tombolo-replicator-{}", from.0)]);
    command
        .arg("--registry-password-file")
        .arg(sites.password(from.0));
    sites
        .testbed
        .start_program(&format!("replicator-{}", from.0), &command, None)
}

fn lost(sites: &mut Sites, ns: &str) -> Result<()> {
    Far::ensure(sites)?;
    standard(sites, ns)?;
    let (east, west) = ([address("east", 0)], [address("west", 0)]);
    let other = [address(OTHER, 0)];
    let without: [(&str, &[String]); 2] = [("east", &east), ("west", &west)];
    let all: [(&str, &[String]); 3] = [("east", &east), (ISLAND, &other), ("west", &west)];
    for name in ["checkout", "goes"] {
        serve(sites.cluster(OTHER), ns, name, &other)?;
        export(sites.cluster(OTHER), ns, name)?;
    }
    for name in CLUSTERS.iter().chain([&OTHER]) {
        wait_imported(sites.cluster(name), ns, "checkout", &all)?;
        wait_imported(sites.cluster(name), ns, "goes", &[(ISLAND, &other)])?;
    }

    // Longer than a session is missed: what the region had is stale, then withdrawn.
    sites.far()?.etcd.kill_all()?;
    unexport(sites.cluster(OTHER), ns, "goes")?;
    for name in CLUSTERS {
        wait_imported(sites.cluster(name), ns, "checkout", &without)?;
        let kept = imported(sites.cluster(name), ns, "goes")?;
        ensure!(kept.contains_key(ISLAND), "the last is not kept in {name}");
    }
    // Those that are left go on.
    let more = [address("east", 1), address("east", 2)];
    endpoints(sites.cluster("east"), ns, "checkout", &more)?;
    let without: [(&str, &[String]); 2] = [("east", &more), ("west", &west)];
    for name in CLUSTERS {
        wait_imported(sites.cluster(name), ns, "checkout", &without)?;
    }

    // Empty: its own clusters fill it, and what went meanwhile does not come back.
    let far = sites.far()?;
    far.etcd.first().wipe()?;
    far.etcd.restart_all()?;
    secure(sites, &far.etcd)?;
    let all: [(&str, &[String]); 3] = [("east", &more), (ISLAND, &other), ("west", &west)];
    for name in CLUSTERS.iter().chain([&OTHER]) {
        wait_imported(sites.cluster(name), ns, "checkout", &all)?;
        wait_imported(sites.cluster(name), ns, "goes", &[])?;
        eventually("the import goes", || {
            let import = sites.cluster(name).object(ns, "serviceimport", "goes")?;
            Ok(import.is_none())
        })?;
    }
    for region in [LOCAL, FAR] {
        far.wait_same(sites, region)?;
        far.replicator_from(region).check_running()?;
    }
    sites.part(OTHER).check_running()?;
    // Nothing goes in a circle.
    rest(12);
    let before = (sites.revision()?, sites.revision_of(&far.etcd)?);
    rest(10);
    let after = (sites.revision()?, sites.revision_of(&far.etcd)?);
    ensure!(before == after, "{before:?}, then {after:?}");
    sites.part(OTHER).stop(TIMEOUT)
}
