//! Manifests as people and other implementations write them, read and written back.

use kube_core::{CustomResourceExt, Resource};
use mcs_api::condition::ExportCondition;
use mcs_api::{EndpointSliceObjects, ServiceImportSpec, ServiceImportType, v1alpha1, v1beta1};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

fn read<T: DeserializeOwned>(yaml: &str) -> T {
    serde_saphyr::from_str(yaml).expect("the manifest is readable")
}

/// Reads the manifest as this type and writes it again.
fn round_trip<T: DeserializeOwned + Serialize>(yaml: &str) -> Value {
    serde_json::to_value(read::<T>(yaml)).expect("objects are JSON")
}

const IMPORT: &str = r#"
apiVersion: multicluster.x-k8s.io/VERSION
kind: ServiceImport
metadata:
  name: checkout
  namespace: shop
  creationTimestamp: "2026-02-03T04:05:06Z"
  generation: 3
  resourceVersion: "4711"
  uid: 0a3f5a0e-6f5c-4d57-9d4f-8f3c1f0c9f11
  annotations:
    multicluster.kubernetes.io/derived-service: derived-0123456789
spec:
  type: ClusterSetIP
  ips: [10.96.7.1, "fd00:7::1"]
  ipFamilies: [IPv4, IPv6]
  internalTrafficPolicy: Cluster
  trafficDistribution: PreferClose
  sessionAffinity: ClientIP
  sessionAffinityConfig:
    clientIP:
      timeoutSeconds: 600
  ports:
  - name: http
    protocol: TCP
    appProtocol: kubernetes.io/h2c
    port: 80
  - port: 53
    protocol: UDP
    name: dns
status:
  endpointSliceObjects: Present
  clusters:
  - cluster: north
  - cluster: south.eu
  conditions:
  - type: Ready
    status: "True"
    reason: Ready
    message: ""
    observedGeneration: 3
    lastTransitionTime: "2026-02-03T04:05:07Z"
"#;

const EXPORT: &str = r#"
apiVersion: multicluster.x-k8s.io/VERSION
kind: ServiceExport
metadata:
  name: checkout
  namespace: shop
spec:
  exportedLabels:
    team: payments
  exportedAnnotations:
    example.com/runbook: https://example.com/checkout
status:
  conditions:
  - type: Conflict
    status: "True"
    reason: PortConflict,TypeConflict
    message: "ports: north is used, 1/2 clusters disagree"
    observedGeneration: 1
    lastTransitionTime: "2026-02-03T04:05:07Z"
"#;

fn assert_unchanged<T: DeserializeOwned + Serialize>(manifest: &str, version: &str) {
    let manifest = manifest.replace("VERSION", version);
    assert_eq!(round_trip::<T>(&manifest), read::<Value>(&manifest));
}

#[test]
fn full_objects_of_both_versions_round_trip() {
    assert_unchanged::<v1beta1::ServiceImport>(IMPORT, "v1beta1");
    assert_unchanged::<v1alpha1::ServiceImport>(IMPORT, "v1alpha1");
    assert_unchanged::<v1beta1::ServiceExport>(EXPORT, "v1beta1");
    assert_unchanged::<v1alpha1::ServiceExport>(EXPORT, "v1alpha1");
}

#[test]
fn versions_convert_into_each_other_without_loss() {
    let old: v1alpha1::ServiceImport = read(&IMPORT.replace("VERSION", "v1alpha1"));
    let new = v1beta1::ServiceImport::from(old.clone());
    assert_eq!(
        serde_json::to_value(&new).expect("objects are JSON"),
        read::<Value>(&IMPORT.replace("VERSION", "v1beta1"))
    );
    assert_eq!(v1alpha1::ServiceImport::from(new), old);

    let old: v1alpha1::ServiceExport = read(&EXPORT.replace("VERSION", "v1alpha1"));
    let new = v1beta1::ServiceExport::from(old.clone());
    assert_eq!(new.spec.exported_labels["team"], "payments");
    assert_eq!(v1alpha1::ServiceExport::from(new), old);
}

#[test]
fn an_export_needs_no_spec_and_gets_none() {
    let bare = json!({
        "apiVersion": "multicluster.x-k8s.io/v1beta1", "kind": "ServiceExport",
        "metadata": {"name": "checkout", "namespace": "shop"},
    });
    for spec in [
        "",
        "spec:",
        "spec: {}",
        "spec: {exportedLabels: null}",
        "status: null",
    ] {
        let yaml = format!(
            "apiVersion: multicluster.x-k8s.io/v1beta1\nkind: ServiceExport\n\
             metadata: {{name: checkout, namespace: shop}}\n{spec}\n"
        );
        assert_eq!(
            round_trip::<v1beta1::ServiceExport>(&yaml),
            bare,
            "with {spec:?}"
        );
    }
}

#[test]
fn an_import_keeps_its_empty_ports() {
    let yaml = "metadata: {name: checkout}\nspec: {ports: [], type: ClusterSetIP}\n";
    let written = round_trip::<v1alpha1::ServiceImport>(yaml);
    assert_eq!(
        written["spec"],
        json!({"ports": [], "type": "ClusterSetIP"})
    );
    assert_eq!(written["apiVersion"], "multicluster.x-k8s.io/v1alpha1");
    assert!(written.get("status").is_none());
}

#[test]
fn an_import_without_spec_can_be_read() {
    let import: v1beta1::ServiceImport = read("metadata: {name: checkout}\n");
    assert_eq!(
        import,
        v1beta1::ServiceImport::new("checkout", ServiceImportSpec::default())
    );
    assert_eq!(import.spec.type_, ServiceImportType::ClusterSetIp);
}

#[test]
fn unknown_fields_are_ignored() {
    let import: v1beta1::ServiceImport = read(
        "metadata: {name: checkout}\n\
         spec: {type: Headless, ports: [{port: 80, nodePort: 30080}], future: {a: 1}}\n\
         status: {clusters: [{cluster: north, weight: 3}], endpointSliceObjects: Absent}\n\
         extra: []\n",
    );
    assert_eq!(import.spec.type_, ServiceImportType::Headless);
    assert_eq!(import.spec.ports[0].port, 80);
    let status = import.status.expect("there is a status");
    assert_eq!(status.clusters[0].cluster, "north");
    assert_eq!(
        status.endpoint_slice_objects,
        Some(EndpointSliceObjects::Absent)
    );
}

#[test]
fn what_the_schema_forbids_is_an_error() {
    for spec in [
        "{ports: []}",
        "{type: Headless}",
        "{type: NodePort, ports: []}",
        "{type: Headless, ports: [{name: http}]}",
        "{type: Headless, ports: [{port: eighty}]}",
    ] {
        let yaml = format!("metadata: {{name: checkout}}\nspec: {spec}\n");
        assert!(
            serde_saphyr::from_str::<v1beta1::ServiceImport>(&yaml).is_err(),
            "{spec}"
        );
    }
}

/// The CRDs of v0.1.0 required no more of a condition, and controllers of that time wrote such.
#[test]
fn conditions_of_the_first_release_can_be_read() {
    let export: v1alpha1::ServiceExport = read(
        "metadata: {name: checkout}\n\
         status: {conditions: [{type: Valid, status: 'True', lastTransitionTime: null}]}\n",
    );
    let status = export.status.expect("there is a status");
    let valid = mcs_api::condition::find(&status.conditions, ExportCondition::Valid.as_str());
    let valid = valid.expect("there is a condition Valid");
    assert_eq!((valid.status.as_str(), valid.reason.as_str()), ("True", ""));
    assert_eq!(valid.last_transition_time.0.as_second(), 0);
}

#[test]
fn kinds_say_where_they_are_served() {
    fn url<T: CustomResourceExt + Resource<DynamicType = ()>>() -> (String, &'static str) {
        (T::url_path(&(), Some("shop")), T::crd_name())
    }
    let base = "/apis/multicluster.x-k8s.io";
    assert_eq!(
        url::<v1beta1::ServiceExport>(),
        (
            format!("{base}/v1beta1/namespaces/shop/serviceexports"),
            "serviceexports.multicluster.x-k8s.io"
        )
    );
    assert_eq!(
        url::<v1alpha1::ServiceImport>(),
        (
            format!("{base}/v1alpha1/namespaces/shop/serviceimports"),
            "serviceimports.multicluster.x-k8s.io"
        )
    );
    assert_eq!(v1beta1::ServiceExport::shortnames(), ["svcex", "svcexport"]);
    let resource = v1alpha1::ServiceImport::api_resource();
    assert_eq!(
        (resource.kind.as_str(), resource.version.as_str()),
        ("ServiceImport", "v1alpha1")
    );
}
