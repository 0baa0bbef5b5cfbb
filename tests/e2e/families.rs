//! IPv4-only, IPv6-only and dual-stack clusters of both orders in one clusterset.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tombolo_testbed::Cluster;

use crate::kit::{apply, at_last, by_hand, condition, derived, export, slices, text, texts};
use crate::plain::{CLUSTERS, Plain, clear};
use crate::process::Process;

pub(crate) const NAME: &str = "e2e_families_of_all_kinds_in_one_clusterset";

const V4: &str = "IPv4";
const V6: &str = "IPv6";

/// A service: its name, who exports it, and the families that its import has in each cluster, in
/// their order; none: not supported there.
struct Service {
    name: &'static str,
    exporters: &'static [&'static str],
    imports: [(&'static str, &'static [&'static str]); 5],
}

const SERVICES: [Service; 6] = [
    Service {
        name: "dual",
        exporters: &["dual"],
        imports: everywhere(&[V4], &[V6], &[V4, V6]),
    },
    Service {
        name: "flip",
        exporters: &["flip"],
        imports: everywhere(&[V4], &[V6], &[V6, V4]),
    },
    Service {
        name: "both",
        exporters: &["dual", "flip"],
        // Dual is the oldest: its order.
        imports: everywhere(&[V4], &[V6], &[V4, V6]),
    },
    Service {
        name: "four",
        exporters: &["four"],
        imports: everywhere(&[V4], &[], &[V4]),
    },
    Service {
        name: "six",
        exporters: &["six"],
        imports: everywhere(&[], &[V6], &[V6]),
    },
    Service {
        name: "narrow",
        exporters: &["dual", "four"],
        // Narrowed to what both share.
        imports: everywhere(&[V4], &[], &[V4]),
    },
];

/// The families in clusters that have only IPv4, only IPv6, and both.
const fn everywhere(
    four: &'static [&'static str],
    six: &'static [&'static str],
    both: &'static [&'static str],
) -> [(&'static str, &'static [&'static str]); 5] {
    [
        ("four", four),
        ("five", four),
        ("six", six),
        ("dual", both),
        ("flip", both),
    ]
}

pub(crate) fn run(plain: &Plain) -> Result<()> {
    let ns = "families";
    for cluster in plain.testbed.clusters() {
        clear(cluster, &[])?;
        cluster.create_namespace(ns)?;
    }
    let names = CLUSTERS.map(|(name, _)| name);
    let mut named = Vec::new();
    for name in names {
        named.push((name, plain.testbed.cluster(name)?));
    }
    let kubeconfig = plain.kubeconfig("families.kubeconfig", &named)?;
    let tombolo = Process::up(&plain.testbed, &kubeconfig, &names)?;
    tombolo.wait_ready()?;
    let result = check_all(plain, ns);
    tombolo.stop()?;
    result.with_context(|| tombolo.log_tail())
}

fn check_all(plain: &Plain, ns: &str) -> Result<()> {
    // Without a selector a headless Service has both families wherever it is.
    let headless = "  clusterIP: None\n  selector: {app: nobody}\n";
    for (headless, spec) in [(false, ""), (true, headless)] {
        for service in &SERVICES {
            let name = full_name(service, headless);
            for exporter in service.exporters {
                let cluster = plain.testbed.cluster(exporter)?;
                let families = cluster.spec().families.to_string();
                let families: Vec<&str> = families.split(',').collect();
                apply(cluster, ns, &by_hand(&name, &families, spec))?;
                export(cluster, ns, &name)?;
                // Creation times have seconds: the first of two exporters is the older one.
                crate::kit::rest(std::time::Duration::from_millis(1_100));
            }
        }
    }
    for headless in [false, true] {
        for service in &SERVICES {
            for (importer, families) in service.imports {
                let cluster = plain.testbed.cluster(importer)?;
                let name = full_name(service, headless);
                let narrowed = service.exporters.len() > 1;
                at_last(&format!("{name} in {importer}"), || {
                    check(cluster, ns, &name, families, narrowed)
                })?;
            }
        }
    }
    Ok(())
}

fn full_name(service: &Service, headless: bool) -> String {
    let end = if headless { "-headless" } else { "" };
    format!("{}{end}", service.name)
}

/// Whether an import is as it should be. One that was `narrowed` may have a Service of before, as
/// families are never taken from one.
fn check(cluster: &Cluster, ns: &str, name: &str, families: &[&str], narrowed: bool) -> Result<()> {
    let headless = name.ends_with("-headless");
    let import = cluster
        .object(ns, "serviceimport", name)?
        .context("no import")?;
    let own_derived = |service: &Value| {
        let label = &service["metadata"]["labels"]["multicluster.kubernetes.io/service-name"];
        text(label) == name
    };
    let services: Vec<Value> = derived(cluster, ns)?
        .into_iter()
        .filter(own_derived)
        .collect();
    let slices = slices(cluster, ns, name)?;
    let ready = condition(&import, "Ready");
    if families.is_empty() {
        let wanted = ("False".to_owned(), "IPFamilyNotSupported".to_owned());
        ensure!(ready == Some(wanted), "{ready:?}");
        ensure!(
            services.is_empty() && slices.is_empty(),
            "there is something"
        );
        return Ok(());
    }
    let wanted = ("True".to_owned(), "Ready".to_owned());
    ensure!(ready == Some(wanted), "{ready:?}");
    let got = texts(&import["spec"]["ipFamilies"]);
    ensure!(got == families, "import's families {got:?}");
    ensure!(services.len() == 1, "{services:?}");
    let got: BTreeSet<String> = texts(&services[0]["spec"]["ipFamilies"])
        .into_iter()
        .collect();
    let wanted: BTreeSet<String> = families.iter().map(|&f| f.to_owned()).collect();
    let fits = got == wanted || narrowed && got.is_superset(&wanted);
    ensure!(fits, "the derived Service's families {got:?}");
    let of_slices: BTreeSet<String> = slices.iter().map(|s| text(&s["addressType"])).collect();
    ensure!(of_slices == wanted, "the slices' families {of_slices:?}");
    let ips = texts(&import["spec"]["ips"]);
    if headless {
        ensure!(ips.is_empty(), "{ips:?}");
        return Ok(());
    }
    let of_ips: Vec<&str> = ips
        .iter()
        .map(|ip| if ip.contains(':') { V6 } else { V4 })
        .collect();
    ensure!(of_ips == families, "{ips:?}");
    let addresses: BTreeSet<String> = texts(&services[0]["spec"]["clusterIPs"])
        .into_iter()
        .collect();
    ensure!(ips.iter().all(|ip| addresses.contains(ip)), "{ips:?}");
    Ok(())
}
