//! Exports and imports of another API, for fleets that are moving over from its implementation.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::Breaking;
use crate::fragile::Fragile;
use crate::kit::{
    apply, at_last, by_hand, export_of, rest, texts, wait_condition, wait_gone, wait_import,
};

pub(crate) const TESTS: &[Breaking] = &[("e2e_another_apis_exports_and_imports", both)];

/// With as much schema as theirs has: no families, no policies.
const CRDS: &str = "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: serviceexports.net.gke.io}
spec:
  group: net.gke.io
  scope: Namespaced
  names: {kind: ServiceExport, plural: serviceexports, singular: serviceexport}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, properties: {status: {type: object,
      x-kubernetes-preserve-unknown-fields: true}}}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: serviceimports.net.gke.io}
spec:
  group: net.gke.io
  scope: Namespaced
  names: {kind: ServiceImport, plural: serviceimports, singular: serviceimport}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              type: {type: string}
              ips: {type: array, items: {type: string}}
              ports: {type: array, items: {type: object, properties: {name: {type: string},
                protocol: {type: string}, port: {type: integer}}}}
          status: {type: object, properties: {clusters: {type: array, items: {type: object,
            properties: {cluster: {type: string}}}}}}
";

const RIGHTS: &str = "apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: other-api}
rules:
- {apiGroups: [net.gke.io], resources: [serviceexports], verbs: [get, list, watch]}
- {apiGroups: [net.gke.io], resources: [serviceexports/status], verbs: [patch]}
- {apiGroups: [net.gke.io], resources: [serviceimports], verbs: [get, list, create, update, delete]}
- {apiGroups: [net.gke.io], resources: [serviceimports/status], verbs: [update]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: other-api}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: other-api}
subjects: [{kind: ServiceAccount, name: tombolo-controller, namespace: tombolo-system}]
";

const EXPORTS: &str = "serviceexports.net.gke.io";
const IMPORTS: &str = "serviceimports.net.gke.io";
const FLAGS: [&str; 4] = [
    "--export-gvr",
    "net.gke.io/v1/serviceexports",
    "--import-gvr",
    "net.gke.io/v1/serviceimports",
];

fn both(fragile: &Fragile) -> Result<()> {
    let ns = "gvr";
    fragile.namespace(ns)?;
    let (left, right) = (fragile.left(), fragile.right());
    for cluster in [left, right] {
        cluster.apply_crds(CRDS)?;
        cluster.apply(RIGHTS)?;
    }
    let tombolo = fragile.up(&FLAGS)?;
    tombolo.wait_ready()?;
    let theirs = export_of("web").replace("multicluster.x-k8s.io/v1beta1", "net.gke.io/v1");
    apply(left, ns, &(by_hand("web", &["IPv4"], "") + &theirs))?;
    let wanted = ["Ready", "True", "Exported"];
    wait_condition(left, ns, [EXPORTS, "web"], wanted)?;
    wait_import(right, ns, "web")?;
    let copy = || right.object(ns, IMPORTS, "web")?.context("no copy");
    let is_like_the_import = || {
        let (copy, ips) = (copy()?, wait_import(right, ns, "web")?);
        ensure!(texts(&copy["spec"]["ips"]) == ips, "{copy}");
        ensure!(copy["spec"]["ports"][0]["port"] == 80, "{copy}");
        ensure!(copy["status"]["clusters"][0]["cluster"] == "left", "{copy}");
        Ok(())
    };
    at_last("the import's copy", is_like_the_import)?;

    // A new process leaves it as it is, and puts right what was changed meanwhile.
    tombolo.stop()?;
    let before = copy()?;
    let tombolo = fragile.up(&FLAGS)?;
    tombolo.wait_ready()?;
    let said = || Ok::<Value, anyhow::Error>(copy()?["metadata"]["resourceVersion"].clone());
    rest(std::time::Duration::from_secs(3));
    ensure!(
        said()? == before["metadata"]["resourceVersion"],
        "it was written again"
    );
    tombolo.stop()?;
    let patch = r#"{"spec":{"ips":["192.0.2.1"]}}"#;
    let args = [
        "-n",
        ns,
        "patch",
        IMPORTS,
        "web",
        "--type=merge",
        "-p",
        patch,
    ];
    right.kubectl(&args)?;
    let tombolo = fragile.up(&FLAGS)?;
    at_last("the copy is put right", is_like_the_import)?;

    // The standard export of a name counts, and its end hands over to the other one.
    apply(left, ns, &export_of("web"))?;
    wait_condition(
        left,
        ns,
        ["serviceexports.multicluster.x-k8s.io", "web"],
        wanted,
    )?;
    unexport_standard(fragile, ns)?;
    wait_condition(left, ns, [EXPORTS, "web"], wanted)?;
    wait_import(right, ns, "web")?;
    left.kubectl(&["-n", ns, "delete", EXPORTS, "web"])?;
    wait_gone(right, ns, "web")?;
    at_last("the copy goes", || {
        ensure!(right.object(ns, IMPORTS, "web")?.is_none());
        Ok(())
    })?;
    tombolo.stop()?;
    for cluster in [left, right] {
        cluster.kubectl(&["delete", "crd", EXPORTS, IMPORTS])?;
    }
    Ok(())
}

fn unexport_standard(fragile: &Fragile, ns: &str) -> Result<()> {
    let name = "serviceexports.multicluster.x-k8s.io";
    fragile
        .left()
        .kubectl(&["-n", ns, "delete", name, "web"])
        .map(drop)
}
