//! Clusters with nodes: pods that reach one another, and parts that fail.
#![expect(clippy::unwrap_used, reason = "test crate")]

use std::{fs, path::Path, time::Duration};

use tombolo_testbed::{Cache, Cluster, ClusterSpec, Progress, Spec, TEST_IMAGE, Testbed, wait_for};

const TIMEOUT: Duration = Duration::from_mins(1);

/// Two pods that answer on port 8080, and a Service for them on port 80.
fn echo() -> String {
    format!(
        "apiVersion: apps/v1
kind: Deployment
metadata: {{name: echo}}
spec:
  replicas: 2
  selector: {{matchLabels: {{app: echo}}}}
  template:
    metadata: {{labels: {{app: echo}}}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{{name: answer, image: '{TEST_IMAGE}', command: [answer, '8080']}}]
---
apiVersion: v1
kind: Service
metadata: {{name: echo}}
spec:
  ipFamilyPolicy: PreferDualStack
  selector: {{app: echo}}
  ports:
  - {{name: tcp, port: 80, targetPort: 8080}}
  - {{name: udp, protocol: UDP, port: 80, targetPort: 8080}}
"
    )
}

fn start(clusters: Vec<ClusterSpec>) -> Testbed {
    let spec = Spec {
        clusters,
        ..Spec::default()
    };
    Testbed::start_with(&spec, Cache::from_env().unwrap(), Progress::stderr()).unwrap()
}

fn deploy_echo(cluster: &Cluster) {
    cluster.apply(&echo()).unwrap();
    cluster
        .kubectl(&["rollout", "status", "deployment/echo", "--timeout=60s"])
        .unwrap();
}

/// Words of a jsonpath.
fn words(cluster: &Cluster, kind: &str, path: &str) -> Vec<String> {
    let query = format!("jsonpath={path}");
    let text = cluster
        .kubectl(&["get", kind, "-l", "app=echo", "-o", &query])
        .unwrap();
    text.split_whitespace().map(str::to_owned).collect()
}

fn pods(cluster: &Cluster) -> Vec<String> {
    words(cluster, "pods", "{.items[*].metadata.name}")
}

/// Who answers, asked `count` times from a pod of `cluster`.
fn ask(cluster: &Cluster, protocol: &str, address: &str, port: &str, count: u8) -> Vec<String> {
    let from = &pods(cluster)[0];
    let args = ["ask", protocol, address, port, &count.to_string()];
    let text = cluster.exec("default", from, &args).unwrap();
    text.lines()
        .map(|line| line.split(' ').next().unwrap_or("").to_owned())
        .collect()
}

#[test]
#[ignore = "needs root and several minutes; make e2e"]
fn e2e_pods_answer_across_clusters() {
    let testbed = start(
        ["c1", "c2"]
            .map(|name| ClusterSpec::new(name).nodes(1).dns())
            .into(),
    );
    testbed.clusters().iter().for_each(deploy_echo);
    let (c1, c2) = (
        testbed.cluster("c1").unwrap(),
        testbed.cluster("c2").unwrap(),
    );

    let (names, addresses) = (
        pods(c2),
        words(c2, "pods", "{.items[0].status.podIPs[*].ip}"),
    );
    assert_eq!(addresses.len(), 2, "dual stack: {addresses:?}");
    let services = c1
        .kubectl(&[
            "get",
            "service",
            "echo",
            "-o",
            "jsonpath={.spec.clusterIPs[*]}",
        ])
        .unwrap();
    for protocol in ["tcp", "udp"] {
        for address in &addresses {
            let answers = ask(c1, protocol, address, "8080", 3);
            assert!(
                answers.iter().all(|answer| *answer == names[0]),
                "{address}: {answers:?}"
            );
        }
        for address in services.split_whitespace() {
            let mut answers = ask(c1, protocol, address, "80", 30);
            answers.sort();
            answers.dedup();
            let mut names = pods(c1);
            names.sort();
            assert_eq!(answers, names, "{protocol} {address}");
        }
    }

    // By name: search path, both families, and through the pod's own resolver.
    let digs = c1
        .exec(
            "default",
            &pods(c1)[0],
            &["dig", "+short", "+search", "echo"],
        )
        .unwrap();
    assert!(services.contains(digs.trim()), "{digs} in {services}");
    assert_eq!(ask(c1, "tcp", "echo.default", "80", 5).len(), 5);

    // A program in a pod reaches its API server as any in-cluster client does.
    let in_cluster = "cd /var/run/secrets/kubernetes.io/serviceaccount; curl -sS --cacert ca.crt \
                      -H \"Authorization: Bearer $(cat token)\" \
                      https://kubernetes.default.svc/api/v1/namespaces/default/pods";
    let answer = c1
        .exec("default", &pods(c1)[0], &["sh", "-c", in_cluster])
        .unwrap();
    assert!(
        answer.contains("system:serviceaccount:default:default"),
        "{answer}"
    );

    let node = &c2.nodes()[0];
    node.unplug().unwrap();
    assert_eq!(ask(c1, "tcp", &addresses[0], "8080", 1), ["-"]);
    node.plug().unwrap();
    assert_eq!(ask(c1, "tcp", &addresses[0], "8080", 1), [names[0].clone()]);
}

#[test]
#[ignore = "needs root and several minutes; make e2e"]
fn e2e_parts_of_a_node_restart_and_nothing_is_left() {
    let testbed = start(vec![ClusterSpec::new("c1").nodes(2)]);
    let (folder, id) = (testbed.folder().to_owned(), testbed.id().to_owned());
    let c1 = testbed.cluster("c1").unwrap();
    deploy_echo(c1);
    let addresses = words(c1, "pods", "{.items[*].status.podIP}");
    for node in c1.nodes() {
        for part in [node.containerd(), node.kubelet(), node.kube_proxy()] {
            part.restart().unwrap();
        }
    }
    c1.wait_ready().unwrap();
    // A kubelet that was just started does not know its pods yet.
    wait_for("exec", TIMEOUT, || {
        Ok(c1.exec("default", &pods(c1)[0], &["true"]).ok())
    })
    .unwrap();
    // Containers outlive their containerd.
    for address in &addresses {
        assert_ne!(ask(c1, "tcp", address, "8080", 1), ["-"], "{address}");
    }
    c1.kubectl(&["scale", "deployment/echo", "--replicas=4"])
        .unwrap();
    let ready = [
        "get",
        "deployment",
        "echo",
        "-o",
        "jsonpath={.status.readyReplicas}",
    ];
    c1.wait_until(&ready, TIMEOUT, |text| text == "4").unwrap();

    drop(testbed);
    assert!(!folder.exists());
    for place in ["/sys/class/net", "/sys/fs/cgroup/memory", "/sys/fs/cgroup"] {
        let Ok(entries) = fs::read_dir(place) else {
            continue;
        };
        for entry in entries {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(!name.contains(&id), "{place}/{name} is left");
        }
    }
    assert!(!mentions(Path::new("/proc/mounts"), &id));
}

fn mentions(file: &Path, text: &str) -> bool {
    fs::read_to_string(file).unwrap().contains(text)
}

#[test]
#[ignore = "needs root and several minutes; make e2e"]
fn e2e_single_stack_and_both_orders() {
    let clusters = [("v4", "IPv4"), ("v6", "IPv6"), ("v64", "IPv6,IPv4")];
    let testbed = start(
        clusters
            .map(|(name, families)| {
                ClusterSpec::new(name)
                    .nodes(1)
                    .families(families.parse().unwrap())
            })
            .into(),
    );
    testbed.clusters().iter().for_each(deploy_echo);
    let [v4, v6, v64] = testbed.clusters() else {
        unreachable!("three clusters")
    };
    let addresses = words(v64, "pods", "{.items[0].status.podIPs[*].ip}");
    let name = pods(v64)[0].clone();
    assert!(
        addresses[0].contains(':') && addresses[1].contains('.'),
        "{addresses:?}"
    );
    assert_eq!(
        ask(v6, "tcp", &addresses[0], "8080", 1),
        std::slice::from_ref(&name)
    );
    assert_eq!(ask(v4, "udp", &addresses[1], "8080", 1), [name]);
}

#[test]
#[ignore = "needs root and several minutes; make e2e"]
fn e2e_newer_kubernetes_with_an_older_kubelet() {
    let version = "1.37.2".parse().unwrap();
    let testbed = start(vec![ClusterSpec::new("new").nodes(1).kubernetes(version)]);
    let cluster = testbed.cluster("new").unwrap();
    deploy_echo(cluster);
    assert!(
        cluster
            .kubectl(&["version"])
            .unwrap()
            .contains("Server Version: v1.37.2")
    );
    let service = cluster
        .kubectl(&["get", "service", "echo", "-o", "jsonpath={.spec.clusterIP}"])
        .unwrap();
    for protocol in ["tcp", "udp"] {
        let answers = ask(cluster, protocol, &service, "80", 10);
        assert!(
            answers.iter().all(|answer| pods(cluster).contains(answer)),
            "{answers:?}"
        );
    }
}
