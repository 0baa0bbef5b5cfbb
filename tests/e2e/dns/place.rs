//! What answers pods: a CoreDNS that runs as a pod at the address of their resolv.conf, and
//! `tombolo dns` from its manifests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tombolo_testbed::{Builder, Cache, Cluster, ImageSpec, Progress};

use crate::kit::{TIMEOUT, eventually, kubectl, rollout, text};
use crate::world::World;

/// Where the cluster's DNS lives.
pub(crate) const KUBE_SYSTEM: &str = "kube-system";
/// Where Tombolo lives.
pub(crate) const TOMBOLO_SYSTEM: &str = "tombolo-system";

const TOMBOLO_IMAGE: &str = "localhost/tombolo";
const COREDNS_IMAGE: &str = "localhost/coredns";
const TAG: &str = "e2e";

/// The rights of CoreDNS as kubeadm gives them.
const COREDNS_ACCOUNT: &str = "apiVersion: v1
kind: ServiceAccount
metadata: {name: coredns, namespace: kube-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: 'system:coredns'}
rules:
- {apiGroups: [''], resources: [endpoints, services, pods, namespaces], verbs: [list, watch]}
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: 'system:coredns'}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: 'system:coredns'}
subjects: [{kind: ServiceAccount, name: coredns, namespace: kube-system}]
---
";

/// Installs all of it in a cluster, once.
pub(crate) fn install(world: &World, cluster: &Cluster) -> Result<()> {
    if cluster
        .object(TOMBOLO_SYSTEM, "deployment", "tombolo-dns")?
        .is_some()
    {
        return rollout(cluster, TOMBOLO_SYSTEM, "tombolo-dns");
    }
    import_images(world, cluster)?;
    cluster.apply(COREDNS_ACCOUNT)?;
    start_coredns(cluster, "coredns", &corefile(cluster))?;
    apply_kustomization(world, cluster, "dns", "")?;
    rollout(cluster, TOMBOLO_SYSTEM, "tombolo-dns")
}

fn import_images(world: &World, cluster: &Cluster) -> Result<()> {
    let coredns = Builder::new(Cache::from_env()?, Progress::silent()).coredns()?;
    let programs = [
        (TOMBOLO_IMAGE, PathBuf::from(env!("CARGO_BIN_EXE_tombolo"))),
        (COREDNS_IMAGE, coredns),
    ];
    // Not among what is kept: each build makes another image.
    let cache = Cache::at(world.testbed.folder().join("images"));
    for (name, program) in programs {
        let file = program.file_name().context("a program has a name")?;
        let entrypoint = format!("/usr/bin/{}", file.display());
        let image = ImageSpec {
            name: format!("{name}:{TAG}"),
            programs: vec![program],
            scripts: Vec::new(),
            entrypoint: vec![entrypoint],
            command: Vec::new(),
        };
        let packed = image.pack(&cache, &Progress::silent())?;
        for node in cluster.nodes() {
            node.import(&packed)?;
        }
    }
    Ok(())
}

/// The Corefile of kubeadm, at the address that the kubelet writes into every resolv.conf. There
/// is no network around the cluster to forward other names to.
fn corefile(cluster: &Cluster) -> String {
    let bind = addresses(cluster);
    format!(
        ".:53 {{
    errors
    bind {bind}
    kubernetes cluster.local in-addr.arpa ip6.arpa {{
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
        ttl 30
    }}
    cache 30
    reload 2s 1s
    loadbalance
}}
"
    )
}

/// The addresses of the node that is the cluster's DNS server.
pub(crate) fn addresses(cluster: &Cluster) -> String {
    let node = &cluster.nodes()[0];
    let texts: Vec<_> = node.addresses().iter().map(ToString::to_string).collect();
    texts.join(" ")
}

/// The one of them that pods ask.
pub(crate) fn resolver(cluster: &Cluster) -> String {
    cluster.nodes()[0].addresses()[0].to_string()
}

/// A CoreDNS in the network of the node, its Corefile in a ConfigMap.
pub(crate) fn start_coredns(cluster: &Cluster, name: &str, corefile: &str) -> Result<()> {
    let lines = corefile.lines().map(|line| format!("    {line}\n"));
    let lines: String = lines.collect();
    let yaml = format!(
        "apiVersion: v1
kind: ConfigMap
metadata: {{name: {name}, namespace: kube-system}}
data:
  Corefile: |
{lines}---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}, namespace: kube-system}}
spec:
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
      serviceAccountName: coredns
      hostNetwork: true
      dnsPolicy: Default
      terminationGracePeriodSeconds: 0
      containers:
      - name: coredns
        image: '{COREDNS_IMAGE}:{TAG}'
        args: [-conf, /etc/coredns/Corefile]
        volumeMounts: [{{name: config, mountPath: /etc/coredns}}]
      volumes:
      - {{name: config, configMap: {{name: {name}}}}}
"
    );
    cluster.apply(&yaml)?;
    rollout(cluster, KUBE_SYSTEM, name)
}

/// Applies a folder of `deploy/` as a user does: with the name of the image, and with patches.
pub(crate) fn apply_kustomization(
    world: &World,
    cluster: &Cluster,
    folder: &str,
    patches: &str,
) -> Result<()> {
    let root = world.testbed.folder().join("deploy");
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy");
    // Kustomize takes no absolute paths.
    for name in ["dns", "dns-node"] {
        copy_files(&deploy.join(name), &root.join(name))?;
    }
    let overlay = root.join(format!("{folder}-of-{}", cluster.name()));
    fs::create_dir_all(&overlay)?;
    let text = format!(
        "resources: [../{folder}]\nimages: [{{name: tombolo, newName: {TOMBOLO_IMAGE}, newTag: \
         {TAG}}}]\n{patches}"
    );
    fs::write(overlay.join("kustomization.yaml"), text)?;
    let overlay = overlay.display().to_string();
    cluster.kubectl(&["apply", "-k", &overlay]).map(drop)
}

fn copy_files(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}

/// Runs `tombolo dns-stub` on the ConfigMap of a CoreDNS and has the kubelet look at it now, as
/// it does each minute or two.
pub(crate) fn stub(cluster: &Cluster, verb: &str, config_map: &str) -> Result<()> {
    let output = Command::new(env!("CARGO_BIN_EXE_tombolo"))
        .args(["dns-stub", verb, "--config-map"])
        .arg(format!("{KUBE_SYSTEM}/{config_map}"))
        .arg("--kubeconfig")
        .arg(cluster.kubeconfig_file())
        .output()?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "dns-stub {verb}: {told}");
    let version = cluster.object(KUBE_SYSTEM, "configmap", config_map)?;
    let version = text(&version.context("no ConfigMap")?["metadata"]["resourceVersion"]);
    let (label, mark) = (format!("app={config_map}"), format!("reads={version}"));
    let args = ["annotate", "pods", "-l", &label, &mark, "--overwrite"];
    kubectl(cluster, KUBE_SYSTEM, &args).map(drop)
}

/// What a ConfigMap holds.
pub(crate) fn data(cluster: &Cluster, config_map: &str) -> Result<Value> {
    let map = cluster.object(KUBE_SYSTEM, "configmap", config_map)?;
    Ok(map.context("no ConfigMap")?["data"].clone())
}

/// What `dig` printed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) rcode: String,
    pub(crate) flags: String,
    /// The data of the answer section, as they came.
    pub(crate) records: Vec<String>,
}

impl Answer {
    /// The records in an order of their own.
    pub(crate) fn sorted(&self) -> Vec<String> {
        let mut records = self.records.clone();
        records.sort();
        records
    }

    pub(crate) fn has(&self, flag: &str) -> bool {
        self.flags.split(' ').any(|word| word == flag)
    }
}

/// Reads the answers of `dig +noall +comments +answer`.
pub(crate) fn read_answers(output: &str) -> Vec<Answer> {
    let mut answers: Vec<Answer> = Vec::new();
    for line in output.lines() {
        if let Some((_, status)) = line.split_once("status: ") {
            let rcode = status.split(',').next().unwrap_or_default().to_owned();
            answers.push(Answer {
                rcode,
                ..Answer::default()
            });
        } else if let (Some(answer), Some(flags)) =
            (answers.last_mut(), line.strip_prefix(";; flags: "))
        {
            flags
                .split(';')
                .next()
                .unwrap_or_default()
                .clone_into(&mut answer.flags);
        } else if let Some(answer) = answers.last_mut()
            && !line.starts_with(';')
            && !line.is_empty()
        {
            let words: Vec<&str> = line.split_whitespace().skip(4).collect();
            answer.records.push(words.join(" "));
        }
    }
    answers
}

/// Looks a name up in a pod, through its resolv.conf and along its search path.
pub(crate) fn look_up(
    cluster: &Cluster,
    ns: &str,
    app: &str,
    name: &str,
    kind: &str,
) -> Result<Answer> {
    let pod = pod_of(cluster, ns, app)?;
    let dig = [
        "dig",
        "+search",
        "+noall",
        "+comments",
        "+answer",
        name,
        kind,
    ];
    let output = cluster.exec(ns, &pod, &dig)?;
    let answer = read_answers(&output).pop();
    answer.with_context(|| format!("{name} {kind}: {output}"))
}

/// A pod of an app.
pub(crate) fn pod_of(cluster: &Cluster, ns: &str, app: &str) -> Result<String> {
    let pods = cluster.list(ns, "pods", &format!("app={app}"))?;
    let pod = pods.first().with_context(|| format!("no pod of {app}"))?;
    Ok(text(&pod["metadata"]["name"]))
}

/// Waits for an answer.
pub(crate) fn wait_answer(
    (cluster, ns, app): (&Cluster, &str, &str),
    (name, kind): (&str, &str),
    rcode: &str,
    records: &[String],
) -> Result<()> {
    let mut last = Answer::default();
    let mut wanted = records.to_vec();
    wanted.sort();
    let result = eventually(name, || {
        last = look_up(cluster, ns, app, name, kind)?;
        Ok(last.rcode == rcode && last.sorted() == wanted)
    });
    result.with_context(|| {
        let within = TIMEOUT.as_secs();
        format!("{name} {kind} within {within} s: {last:?} instead of {rcode} {wanted:?}")
    })
}
