//! A change costs what it touches.

use std::fmt::Write as _;
use std::fs;

use jiff::SignedDuration;

use super::*;
use crate::args::SourceArgs;
use crate::controller::settings::HoldArgs;
use crate::rules::{NamesArg, RuleArgs, SlicesArg};
use crate::zones::ZoneArgs;

/// A cluster that exports so many services, each with one endpoint.
fn manifests(services: usize, port: u16) -> Vec<(String, String)> {
    (0..services)
        .map(|i| {
            let mut text = String::new();
            write!(
                text,
                "apiVersion: v1\nkind: Service\nmetadata: {{name: s{i}, namespace: shop}}\n\
                 spec: {{ports: [{{port: 80}}]}}\n---\n\
                 apiVersion: multicluster.x-k8s.io/v1beta1\nkind: ServiceExport\n\
                 metadata: {{name: s{i}, namespace: shop, creationTimestamp: '2026-01-01T00:00:00Z'}}\n---\n\
                 apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\n\
                 metadata: {{name: s{i}-0, namespace: shop, labels: {{kubernetes.io/service-name: s{i}}}}}\n\
                 ports: [{{port: {port}}}]\nendpoints: [{{addresses: [10.0.0.{i}]}}]\n"
            )
            .unwrap();
            (format!("s{i}.yaml"), text)
        })
        .collect()
}

fn setup(root: &std::path::Path) -> Setup {
    Setup::try_from(&SourceArgs {
        kubeconfig: None,
        sources: vec![root.to_owned()],
        out: None,
        families: Vec::new(),
        vip_cidr: Vec::new(),
        zones: ZoneArgs {
            zone: vec!["clusterset.local".to_owned()],
            ttl: 5,
        },
        rules: RuleArgs {
            namespaces: None,
            global_by_default: true,
            endpoint_slices: SlicesArg::All,
            derived_names: NamesArg::Hash,
            foreign_slices: Vec::new(),
        },
    })
    .unwrap()
}

async fn up(root: &std::path::Path) -> Up {
    joined(setup(root), &Joining::alone()).await
}

async fn joined(setup: Setup, joining: &Joining) -> Up {
    let now = "2026-02-01T00:00:00Z".parse().unwrap();
    let mut up = Up::start(setup, now, joining).await.unwrap();
    up.settle(now).unwrap();
    up
}

#[tokio::test]
async fn a_change_of_one_file_recomputes_only_its_service() {
    let root = tempfile::tempdir().unwrap();
    for cluster in ["berlin", "oslo", "rome"] {
        fs::create_dir(root.path().join(cluster)).unwrap();
        for (file, text) in manifests(40, 8080) {
            fs::write(root.path().join(cluster).join(file), text).unwrap();
        }
    }
    let mut up = up(root.path()).await;
    let before = up.clusterset.planned_total();
    let (file, text) = manifests(40, 9090).remove(7);
    fs::write(root.path().join("oslo").join(file), text).unwrap();
    let now = "2026-02-01T00:00:10Z".parse().unwrap();
    up.rescan(&[0, 1, 2], now);
    up.settle(now).unwrap();

    // The change is seen in oslo, published, heard of in all three, and each write is answered:
    // a dozen plans of one service, whatever the number of services.
    let planned = up.clusterset.planned_total() - before;
    assert!(
        (1..=20).contains(&planned),
        "{planned} plans for one changed service"
    );
    let ports: Vec<u16> = up
        .clusterset
        .stores()
        .flat_map(tombolo_cluster::store::Store::objects)
        .filter_map(|object| match object {
            tombolo_model::object::Object::EndpointSlice(slice) => Some(slice),
            _ => None,
        })
        .filter(|slice| {
            tombolo_model::own::import_of(slice).is_some_and(|s| s.name.as_str() == "s7")
        })
        .filter(|slice| slice.meta.key.name.as_str().contains(".oslo-"))
        .flat_map(|slice| slice.ports.iter().map(|port| port.port))
        .collect();
    assert_eq!(ports, [9090, 9090, 9090]);
}

#[tokio::test]
async fn a_scan_without_changes_plans_nothing() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("oslo")).unwrap();
    for (file, text) in manifests(5, 8080) {
        fs::write(root.path().join("oslo").join(file), text).unwrap();
    }
    let mut up = up(root.path()).await;
    let before = up.clusterset.planned_total();
    up.rescan(&[0], "2026-02-01T00:00:10Z".parse().unwrap());
    up.settle("2026-02-01T00:00:10Z".parse().unwrap()).unwrap();
    assert_eq!(up.clusterset.planned_total(), before);
}

#[tokio::test]
async fn a_cluster_becomes_dual_stack_when_its_services_do() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("oslo")).unwrap();
    for (file, text) in manifests(2, 8080) {
        fs::write(root.path().join("oslo").join(file), text).unwrap();
    }
    let mut up = up(root.path()).await;
    let (_, text) = manifests(1, 8080).remove(0);
    let dual =
        "spec: {ipFamilyPolicy: RequireDualStack, ipFamilies: [IPv6, IPv4], ports: [{port: 80}]}";
    let text = text.replace("spec: {ports: [{port: 80}]}", dual);
    fs::write(root.path().join("oslo/s0.yaml"), text).unwrap();
    let now = "2026-02-01T00:00:10Z".parse().unwrap();
    up.rescan(&[0], now);
    up.settle(now).unwrap();

    let view = up.view();
    assert_eq!(view.clusters[0].families, ["IPv4", "IPv6"]);
    assert_eq!(view.clusters[0].imports[0].ip_families, ["IPv6", "IPv4"]);
    assert_eq!(view.clusters[0].imports[0].ips.len(), 2);
    assert!(view.errors.is_empty(), "{:?}", view.errors);
}

#[tokio::test]
async fn an_import_that_is_there_already_keeps_its_address() {
    let root = tempfile::tempdir().unwrap();
    for cluster in ["berlin", "oslo"] {
        fs::create_dir(root.path().join(cluster)).unwrap();
    }
    for (file, text) in manifests(1, 8080) {
        fs::write(root.path().join("oslo").join(file), text).unwrap();
    }
    let import = "apiVersion: multicluster.x-k8s.io/v1beta1\nkind: ServiceImport\nmetadata:\n  \
                  name: s0\n  namespace: shop\n  labels: {app.kubernetes.io/managed-by: tombolo}\n  \
                  annotations: {tombolo.dev/addresses: 240.16.0.77}\n\
                  spec: {type: ClusterSetIP, ports: [{port: 80}]}\n";
    fs::write(root.path().join("berlin/import.yaml"), import).unwrap();
    let view = up(root.path()).await.view();
    assert_eq!(view.clusters[0].imports[0].ips, ["240.16.0.77"]);
}

#[tokio::test(start_paused = true)]
async fn the_hold_is_measured_by_a_clock_that_nobody_sets() {
    let root = tempfile::tempdir().unwrap();
    let path = |cluster: &str| root.path().join(cluster);
    for set in ["a/berlin", "b/oslo"] {
        fs::create_dir_all(path(set)).unwrap();
    }
    let (file, text) = manifests(1, 8080).remove(0);
    fs::write(path("b/oslo").join(file), text).unwrap();
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n";
    fs::write(path("a/berlin/namespace.yaml"), namespace).unwrap();
    let joining = Joining::alone();
    let hold = HoldArgs {
        hold: SignedDuration::from_mins(10),
        keep_last: false,
    };
    let mut berlin = setup(&path("a"));
    berlin.rules = berlin.rules.with_hold(hold);
    let oslo = joined(setup(&path("b")), &joining).await;
    let mut berlin = joined(berlin, &joining).await;
    let endpoints = |up: &Up| up.view().clusters[0].imports[0].endpoints;
    assert_eq!(endpoints(&berlin), 1);
    oslo.close().await;
    let began: Timestamp = "2026-02-01T00:00:00Z".parse().unwrap();
    berlin.settle(began).unwrap();
    // The clock is set forward.
    let day = began + SignedDuration::from_hours(24);
    berlin.settle(day).unwrap();
    assert_eq!(endpoints(&berlin), 1);
    tokio::time::advance(Duration::from_secs(601)).await;
    berlin.settle(day).unwrap();
    assert_eq!(endpoints(&berlin), 0);
}
