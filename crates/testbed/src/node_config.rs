//! The configuration files of a node.

use std::{fs, path::Path};

use anyhow::{Context as _, Result};

use crate::{cgroups, image, node::NodePlan, programs, spec::Family};

/// Writes all files of a node into its folder.
pub(crate) fn write(plan: &NodePlan<'_>) -> Result<()> {
    let folder = plan.folder();
    let mut files = vec![
        (folder.join("containerd.toml"), containerd(&folder)?),
        (folder.join("cni/10-testbed.conflist"), cni(plan)),
        (folder.join("kubelet.yaml"), kubelet(plan)),
        // Pods see the cluster's DNS and nothing of the machine's.
        (folder.join("resolv.conf"), String::new()),
    ];
    if plan.place.spec.dns && plan.index == 0 {
        files.push((plan.place.corefile(), corefile(plan)));
    }
    for (path, text) in files {
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// What the first process of a node does: it makes the places that programs expect under fixed
/// names the node's own, and then adopts and buries orphans, as any first process must.
pub(crate) fn init_script(folder: &Path) -> String {
    format!(
        "set -e
for place in /run /var/log /var/lib/cni; do
  mkdir -p $place
  mount -t tmpfs testbed $place
done
echo 1 > /proc/sys/net/ipv4/ip_forward
echo 1 > /proc/sys/net/ipv6/conf/all/forwarding
# Addresses are unique by plan: nothing waits for duplicates to answer.
echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad
touch {}/ready
while :; do sleep infinity & wait; done",
        folder.display()
    )
}

fn containerd(folder: &Path) -> Result<String> {
    let plugins = programs::cni_folder().context("CNI plugins are missing")?;
    let folder = folder.display();
    Ok(format!(
        r#"version = 2
root = "{folder}/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  # Without these, machines that are virtual or containers themselves refuse every sandbox.
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{folder}/cni"
"#,
        pause = image::PAUSE_IMAGE,
        plugins = plugins.display()
    ))
}

/// Pods hang on cables of their own and everything is routed: the answer of a pod to another one
/// of its node passes the address translation too, which a bridge would need a kernel module for.
fn cni(plan: &NodePlan<'_>) -> String {
    let (slot, families) = (plan.place.state.slot, &plan.place.spec.families);
    let ranges =
        families.join(|family| format!(r#"[{{"subnet":"{}"}}]"#, slot.pods(family, plan.number)));
    let routes = families.join(|family| match family {
        Family::V4 => r#"{"dst":"0.0.0.0/0"}"#,
        Family::V6 => r#"{"dst":"::/0"}"#,
    });
    format!(
        r#"{{"cniVersion":"0.4.0","name":"testbed","plugins":[{{"type":"ptp","ipMasq":false,
"ipam":{{"type":"host-local","dataDir":"/run/cni-addresses","ranges":[{ranges}],"routes":[{routes}]}}}}]}}
"#
    )
}

fn kubelet(plan: &NodePlan<'_>) -> String {
    let state = plan.place.state;
    let families = &plan.place.spec.families;
    let first_node = crate::addresses::NodeNumber::new(plan.place.number, 0);
    let dns = state.slot.node(families.primary(), first_node);
    let any = match families.primary() {
        Family::V4 => "0.0.0.0",
        Family::V6 => "::",
    };
    format!(
        r#"apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: "{any}"
authentication: {{anonymous: {{enabled: true}}, webhook: {{enabled: false}}}}
authorization: {{mode: AlwaysAllow}}
cgroupDriver: cgroupfs
cgroupRoot: /{cgroup}
cgroupsPerQOS: false
clusterDNS: ["{dns}"]
clusterDomain: cluster.local
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
enforceNodeAllocatable: []
# A machine's disk and memory are not the testbed's to judge.
evictionHard: {{memory.available: "1Mi", nodefs.available: "0%", imagefs.available: "0%", nodefs.inodesFree: "0%"}}
failCgroupV1: false
failSwapOn: false
imageGCHighThresholdPercent: 100
localStorageCapacityIsolation: false
podLogsDir: {folder}/pod-logs
resolvConf: {folder}/resolv.conf
volumePluginDir: {folder}/volume-plugins
"#,
        cgroup = cgroups::name(&state.id),
        folder = plan.folder().display(),
    )
}

/// Names of the cluster from its API server, at the address that pods ask. Changed files are
/// taken up within seconds, for tests that plug in more.
fn corefile(plan: &NodePlan<'_>) -> String {
    let state = plan.place.state;
    let addresses: Vec<_> = plan
        .place
        .spec
        .families
        .iter()
        .map(|family| state.slot.node(family, plan.number).to_string())
        .collect();
    format!(
        "cluster.local:53 in-addr.arpa:53 ip6.arpa:53 {{
    bind {addresses}
    errors
    reload 2s 1s
    kubernetes cluster.local in-addr.arpa ip6.arpa {{
        kubeconfig {kubeconfig}
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
        ttl 0
    }}
}}
",
        addresses = addresses.join(" "),
        kubeconfig = plan.place.kubeconfig_file().display(),
    )
}
