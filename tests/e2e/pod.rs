//! The controller as a pod: in-cluster credentials, and the cluster's name by its ClusterProperty.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use tombolo_testbed::{Cache, ImageSpec, Progress};

use crate::Alone;
use crate::kit::{apply, by_hand, endpoints, eventually, export, kubectl, rollout, wait_import};
use crate::process::{ACCOUNT, TOMBOLO};
use crate::world::World;

pub(crate) const TESTS: &[Alone] = &[("e2e_a_controller_in_a_pod_knows_its_cluster", in_pod)];

/// As KEP-2149 has it, with as much schema as is needed.
const PROPERTIES: &str = "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: clusterproperties.about.k8s.io
  annotations: {api-approved.kubernetes.io: 'https://github.com/kubernetes/enhancements/pull/2149'}
spec:
  group: about.k8s.io
  scope: Cluster
  names: {kind: ClusterProperty, plural: clusterproperties, singular: clusterproperty}
  versions:
  - name: v1beta1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties: {spec: {type: object, properties: {value: {type: string}}}}
";

const PROPERTY: &str = "apiVersion: about.k8s.io/v1beta1
kind: ClusterProperty
metadata: {name: cluster.clusterset.k8s.io}
spec: {value: harbour}
";

const POD: &str = "apiVersion: apps/v1
kind: Deployment
metadata: {name: tombolo}
spec:
  replicas: 1
  selector: {matchLabels: {app: tombolo}}
  template:
    metadata: {labels: {app: tombolo}}
    spec:
      serviceAccountName: tombolo-controller
      containers:
      - name: controller
        image: localhost/tombolo:1
        command: [tombolo, controller, --admin, '[::]:9464']
        readinessProbe: {periodSeconds: 1, httpGet: {path: /readyz, port: 9464}}
";

fn in_pod(world: &mut World, ns: &str) -> Result<()> {
    world.stop_tombolo()?;
    let result = run(world, ns);
    let east = world.east();
    let [namespace, _] = ACCOUNT;
    let args = [
        "delete",
        "deployment",
        "tombolo",
        "--ignore-not-found",
        "--timeout=60s",
    ];
    kubectl(east, namespace, &args)?;
    eventually("the pod ends", || {
        let args = ["get", "pods", "-l", "app=tombolo", "-o", "name"];
        Ok(kubectl(east, namespace, &args)?.is_empty())
    })?;
    let crd = "clusterproperties.about.k8s.io";
    east.kubectl(&["delete", "crd", crd, "--ignore-not-found"])?;
    world.restart_tombolo()?;
    result
}

fn run(world: &World, ns: &str) -> Result<()> {
    let east = world.east();
    // Without symbols it is a tenth of its size, and is packed and unpacked as much faster.
    let folder = world.testbed.folder().join("image");
    std::fs::create_dir_all(&folder)?;
    let program = folder.join("tombolo");
    let status = Command::new("strip")
        .arg("-o")
        .arg(&program)
        .arg(TOMBOLO)
        .status()?;
    ensure!(status.success(), "strip: {status}");
    let image = ImageSpec {
        entrypoint: Vec::new(),
        name: "localhost/tombolo:1".into(),
        programs: vec![program],
        scripts: Vec::new(),
        command: vec!["tombolo".into()],
    };
    // Not in the cache of all testbeds: the program is another one each time.
    let file = image.pack(&Cache::at(folder), &Progress::silent())?;
    east.nodes().first().context("no node")?.import(&file)?;
    east.apply_crds(PROPERTIES)?;
    east.apply(PROPERTY)?;
    let [namespace, _] = ACCOUNT;
    apply(east, namespace, POD)?;
    let ready = rollout(east, namespace, "tombolo");
    ready.with_context(|| {
        let log = ["logs", "deployment/tombolo", "--tail=20"];
        kubectl(east, namespace, &log).unwrap_or_default()
    })?;
    apply(east, ns, &by_hand("web", &["IPv4"], ""))?;
    export(east, ns, "web")?;
    wait_import(east, ns, "web")?;
    eventually("endpoints of the cluster by its name", || {
        Ok(endpoints(east, ns, "web", "harbour")?.len() == 1)
    })
}
