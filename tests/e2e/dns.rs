//! Names, as pods look them up: in the cluster's own resolv.conf, at a real CoreDNS, answered by
//! `tombolo dns` as `deploy/` installs it.

#[path = "dns/place.rs"]
mod place;

use std::fmt::Write as _;

use anyhow::{Context as _, Result, ensure};
use tombolo_testbed::Cluster;

use self::place::{
    KUBE_SYSTEM, TOMBOLO_SYSTEM, apply_kustomization, data, install, look_up, pod_of, read_answers,
    resolver, start_coredns, stub, wait_answer,
};
use crate::Test;
use crate::kit::{
    apply, deploy, deployment, eventually, export, kubectl, pods, rollout, service, text, unexport,
    wait_import,
};
use crate::world::World;

pub(crate) const TESTS: &[Test] = &[
    ("e2e_dns_pods_find_names_of_the_clusterset", names),
    ("e2e_dns_d09_big_answers_over_udp", big_answers),
    ("e2e_dns_s05_its_account_may_only_read", rights),
    ("e2e_dns_behind_a_cache_on_the_node", node_cache),
    ("e2e_dns_alone_on_an_address_of_the_node", node_address),
];

/// A StatefulSet whose pods say who and where they are, and its headless Service.
fn stateful(cluster: &Cluster, ns: &str, replicas: u8) -> Result<()> {
    let name = cluster.name();
    let set = deployment("db", replicas)
        .replace("kind: Deployment", "kind: StatefulSet")
        .replace("  replicas:", "  serviceName: db\n  replicas:")
        .replace(
            "command: [answer, '8080']",
            &format!("command: [sh, -c, 'ANSWER={name}-$HOSTNAME exec answer 8080']"),
        );
    apply(cluster, ns, &service("db", "  clusterIP: None\n"))?;
    apply(cluster, ns, &set)
}

/// A client that asks the DNS server of its resolv.conf, or the one that is given.
fn client(cluster: &Cluster, ns: &str, nameserver: Option<&str>) -> Result<()> {
    let config = nameserver.map_or_else(String::new, |address| {
        format!(
            "      dnsPolicy: None
      dnsConfig:
        nameservers: ['{address}']
        searches: [{ns}.svc.cluster.local, svc.cluster.local, cluster.local]
        options: [{{name: ndots, value: '5'}}]
"
        )
    });
    let yaml = deployment("client", 1) + &config;
    apply(cluster, ns, &yaml)?;
    rollout(cluster, ns, "client")
}

/// Who answers at a name, asked by the client; each once.
fn who(cluster: &Cluster, ns: &str, name: &str, port: &str) -> Result<Vec<String>> {
    let pod = pod_of(cluster, ns, "client")?;
    let output = cluster.exec(ns, &pod, &["ask", "tcp", name, port, "20"])?;
    let first = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
    let mut answers: Vec<String> = output.lines().map(first).collect();
    answers.sort();
    answers.dedup();
    Ok(answers)
}

fn owned<const N: usize>(texts: [&str; N]) -> Vec<String> {
    texts.map(str::to_owned).to_vec()
}

/// The addresses of ready pods of an app, of one family.
fn pod_ips(cluster: &Cluster, ns: &str, app: &str, is_v6: bool) -> Result<Vec<String>> {
    let mut ips = Vec::new();
    for pod in cluster.list(ns, "pods", &format!("app={app}"))? {
        if pod["metadata"]["deletionTimestamp"].is_null() {
            let all = pod["status"]["podIPs"].as_array().cloned();
            ips.extend(all.unwrap_or_default().iter().map(|ip| text(&ip["ip"])));
        }
    }
    ips.retain(|ip| ip.contains(':') == is_v6);
    Ok(ips)
}

/// Services, ports and host names over clusters; `cluster.local` stays what it was.
fn names(world: &World, ns: &str) -> Result<()> {
    let (east, west) = (world.east(), world.west());
    install(world, west)?;
    deploy(east, ns, "web", 2)?;
    // Of the same name, not exported: what `cluster.local` says.
    deploy(west, ns, "web", 1)?;
    stateful(east, ns, 2)?;
    stateful(west, ns, 1)?;
    client(west, ns, None)?;
    export(east, ns, "web")?;
    export(east, ns, "db")?;
    export(west, ns, "db")?;
    let ips = wait_import(west, ns, "web")?;
    wait_import(west, ns, "db")?;
    for cluster in [east, west] {
        rollout(cluster, ns, "web")?;
        let args = ["rollout", "status", "statefulset/db", "--timeout=60s"];
        kubectl(cluster, ns, &args)?;
    }

    let at = (west, ns, "client");
    let untouched = Untouched::new(west, ns)?;
    let web = format!("web.{ns}.svc.clusterset.local");
    ensure!(look_up(west, ns, "client", &web, "A")?.rcode != "NOERROR");

    stub(west, "add", "coredns")?;
    for (kind, is_v6) in [("A", false), ("AAAA", true)] {
        let of_family = ips.iter().filter(|ip| ip.contains(':') == is_v6);
        let wanted: Vec<String> = of_family.cloned().collect();
        wait_answer(at, (&web, kind), "NOERROR", &wanted)?;
    }
    let srv = owned([&format!("0 100 80 {web}.")]);
    wait_answer(at, (&format!("_tcp._tcp.{web}"), "SRV"), "NOERROR", &srv)?;
    let nosuch = format!("nosuch.{ns}.svc.clusterset.local");
    wait_answer(at, (&nosuch, "A"), "NXDOMAIN", &[])?;
    ensure!(who(west, ns, &web, "80")? == pods(east, ns, "web")?);
    host_names(east, west, ns)?;
    untouched.check(west, ns)?;

    stub(west, "remove", "coredns")?;
    eventually("the end of the stub zone", || {
        Ok(look_up(west, ns, "client", &web, "A")?.rcode != "NOERROR")
    })?;
    untouched.check(west, ns)?;
    ensure!(data(west, "coredns")? == untouched.corefile);
    unexport(east, ns, "web")?;
    unexport(east, ns, "db")?;
    unexport(west, ns, "db")
}

/// Each pod of a StatefulSet by name, in whatever cluster; and after a change, the change.
fn host_names(east: &Cluster, west: &Cluster, ns: &str) -> Result<()> {
    let at = (west, ns, "client");
    let db = format!("db.{ns}.svc.clusterset.local");
    let all = |hosts: &[&str]| -> Vec<String> {
        let target = |host: &&str| format!("0 100 8080 {host}.{db}.");
        hosts.iter().map(target).collect()
    };
    let both_pods = |is_v6| -> Result<Vec<String>> {
        let mut ips = pod_ips(east, ns, "db", is_v6)?;
        ips.extend(pod_ips(west, ns, "db", is_v6)?);
        Ok(ips)
    };
    wait_answer(at, (&db, "A"), "NOERROR", &both_pods(false)?)?;
    wait_answer(at, (&db, "AAAA"), "NOERROR", &both_pods(true)?)?;
    let srv = format!("_tcp._tcp.{db}");
    let hosts = ["db-0.east", "db-1.east", "db-0.west"];
    wait_answer(at, (&srv, "SRV"), "NOERROR", &all(&hosts))?;
    for host in hosts {
        let (pod, cluster) = host.split_once('.').context("two labels")?;
        let answers = who(west, ns, &format!("{host}.{db}"), "8080")?;
        ensure!(
            answers == [format!("{cluster}-{pod}")],
            "{host}: {answers:?}"
        );
    }

    let gone = format!("db-1.east.{db}");
    kubectl(east, ns, &["scale", "statefulset/db", "--replicas=1"])?;
    wait_answer(at, (&gone, "A"), "NXDOMAIN", &[])?;
    let hosts = ["db-0.east", "db-0.west"];
    wait_answer(at, (&srv, "SRV"), "NOERROR", &all(&hosts))?;
    kubectl(east, ns, &["scale", "statefulset/db", "--replicas=3"])?;
    let args = ["rollout", "status", "statefulset/db", "--timeout=60s"];
    kubectl(east, ns, &args)?;
    let hosts = ["db-0.east", "db-1.east", "db-2.east", "db-0.west"];
    wait_answer(at, (&srv, "SRV"), "NOERROR", &all(&hosts))?;
    wait_answer(at, (&db, "A"), "NOERROR", &both_pods(false)?)
}

/// What no stub zone may change: the cluster's own names, short and in full.
struct Untouched {
    answers: Vec<(String, &'static str, Vec<String>)>,
    corefile: serde_json::Value,
}

impl Untouched {
    fn new(cluster: &Cluster, ns: &str) -> Result<Self> {
        let names = [
            ("web".to_owned(), "A"),
            (format!("web.{ns}"), "AAAA"),
            (format!("web.{ns}.svc"), "A"),
            (format!("web.{ns}.svc.cluster.local"), "A"),
            (format!("_tcp._tcp.web.{ns}"), "SRV"),
            (format!("db-0.db.{ns}"), "A"),
            ("kubernetes.default".to_owned(), "A"),
        ];
        let mut answers = Vec::new();
        for (name, kind) in names {
            let answer = look_up(cluster, ns, "client", &name, kind)?;
            ensure!(
                answer.rcode == "NOERROR" && !answer.records.is_empty(),
                "{name}"
            );
            answers.push((name, kind, answer.sorted()));
        }
        let corefile = data(cluster, "coredns")?;
        Ok(Self { answers, corefile })
    }

    fn check(&self, cluster: &Cluster, ns: &str) -> Result<()> {
        for (name, kind, records) in &self.answers {
            let answer = look_up(cluster, ns, "client", name, kind)?;
            ensure!(answer.sorted() == *records, "{name}: {answer:?}");
        }
        Ok(())
    }
}

/// Case D09: more endpoints than a datagram holds, for clients of every kind.
fn big_answers(world: &World, ns: &str) -> Result<()> {
    /// As many as the case has.
    const ENDPOINTS: usize = 230;
    /// Questions of each kind; six kinds make the case's thousand.
    const ROUNDS: usize = 170;
    let (east, west) = (world.east(), world.west());
    install(world, west)?;
    client(west, ns, None)?;
    apply(east, ns, &shards(ENDPOINTS))?;
    export(east, ns, "shards")?;
    stub(west, "add", "coredns")?;
    let name = format!("shards.{ns}.svc.clusterset.local");
    let records = |kind| Ok::<_, anyhow::Error>(look_up(west, ns, "client", &name, kind)?.records);
    eventually("all of them over TCP", || {
        Ok(records("A")?.len() == ENDPOINTS)
    })?;

    let service = west.object(TOMBOLO_SYSTEM, "service", "tombolo-dns")?;
    let server = text(&service.context("no Service")?["spec"]["clusterIP"]);
    for at in [&server, &resolver(west)] {
        for (kind, is_tcp, options) in [
            ("A", false, "+noedns +notcp +ignore"),
            ("A", false, "+bufsize=1232 +notcp +ignore"),
            ("A", true, "+tcp"),
            ("SRV", false, "+noedns +notcp +ignore"),
            ("SRV", false, "+bufsize=1232 +notcp +ignore"),
            ("SRV", true, "+tcp"),
        ] {
            let pod = pod_of(west, ns, "client")?;
            let script = format!(
                "for i in $(seq {ROUNDS}); do echo {name} {kind}; done >/tmp/questions; exec dig \
                 @{at} {options} +noall +comments +answer -f /tmp/questions"
            );
            let answers = read_answers(&west.exec(ns, &pod, &["sh", "-c", &script])?);
            let what = format!("{kind} {options} at {at}");
            ensure!(answers.len() == ROUNDS, "{what}: {} answers", answers.len());
            let is_right = |answer: &place::Answer| {
                let is_whole = answer.records.len() == ENDPOINTS;
                answer.rcode == "NOERROR" && answer.has("tc") != is_tcp && is_whole == is_tcp
            };
            let wrong = answers.iter().find(|answer| !is_right(answer));
            ensure!(wrong.is_none(), "{what}: {wrong:?}");
            // A CoreDNS in between turns the order of addresses only, while it has them cached.
            if kind == "A" || *at == server {
                let is_same = |two: &[place::Answer]| two[0].records == two[1].records;
                ensure!(
                    !answers.windows(2).all(is_same),
                    "{what}: never another order"
                );
            }
            let mut first = answers[0].sorted();
            first.dedup();
            ensure!(
                first.len() == answers[0].records.len(),
                "{what}: twice the same"
            );
        }
    }
    stub(west, "remove", "coredns")?;
    unexport(east, ns, "shards")
}

/// A headless Service and its slices, as the controller of EndpointSlices makes them.
fn shards(count: usize) -> String {
    let mut yaml = "apiVersion: v1
kind: Service
metadata: {name: shards}
spec: {clusterIP: None, ports: [{name: tcp, port: 80}]}
"
    .to_owned();
    let numbers: Vec<usize> = (0..count).collect();
    for (slice, numbers) in numbers.chunks(100).enumerate() {
        let endpoint = |n: &usize| {
            let (high, low) = (n / 200, n % 200 + 1);
            format!(
                "- {{addresses: [10.231.{high}.{low}], hostname: shard-{n}, conditions: {{ready: true}}}}\n"
            )
        };
        let endpoints: String = numbers.iter().map(endpoint).collect();
        let _infallible = write!(
            yaml,
            "---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: shards-{slice}, labels: {{kubernetes.io/service-name: shards}}}}
addressType: IPv4
ports: [{{name: tcp, port: 80}}]
endpoints:
{endpoints}"
        );
    }
    yaml
}

/// Case S05, the DNS server's part: what its account may do, and what it says without a right.
fn rights(world: &World, ns: &str) -> Result<()> {
    let west = world.west();
    install(world, west)?;
    client(west, ns, None)?;
    let account = format!("--as=system:serviceaccount:{TOMBOLO_SYSTEM}:tombolo-dns");
    let allowed = kubectl(
        west,
        ns,
        &["auth", "can-i", "--list", "--no-headers", &account],
    )?;
    let mut resources: Vec<String> = Vec::new();
    for line in allowed.lines() {
        // What every account may: ask about itself, and for the versions of the API.
        let is_everybodys = line.starts_with("self") || line.starts_with(' ');
        if !is_everybodys {
            let words: Vec<&str> = line.split_whitespace().collect();
            resources.push(words.join(" "));
        }
    }
    resources.sort();
    let wanted = [
        "endpointslices.discovery.k8s.io [] [] [get list watch]",
        "serviceimports.multicluster.x-k8s.io [] [] [get list watch]",
    ];
    ensure!(resources == wanted, "{allowed}");

    let readyz = || -> Result<String> {
        let client = pod_of(west, ns, "client")?;
        let selector = "app.kubernetes.io/name=tombolo-dns";
        let mut told = String::new();
        for pod in west.list(TOMBOLO_SYSTEM, "pods", selector)? {
            let ip = text(&pod["status"]["podIP"]);
            let url = format!("http://{ip}:9464/readyz");
            told += &west.exec(ns, &client, &["curl", "-s", "-m", "5", &url])?;
        }
        Ok(told)
    };
    let no_slices = r#"[{"op": "remove", "path": "/rules/1"}]"#;
    let args = [
        "patch",
        "clusterrole",
        "tombolo-dns",
        "--type=json",
        "-p",
        no_slices,
    ];
    west.kubectl(&args)?;
    let restart = [
        "delete",
        "pods",
        "-l",
        "app.kubernetes.io/name=tombolo-dns",
        "--wait=false",
    ];
    kubectl(west, TOMBOLO_SYSTEM, &restart)?;
    eventually("the missing right is named", || {
        let told = readyz().unwrap_or_default();
        Ok(told.contains("EndpointSlice was not listed yet") && told.contains("endpointslices"))
    })?;
    apply_kustomization(world, west, "dns", "")?;
    rollout(west, TOMBOLO_SYSTEM, "tombolo-dns")?;
    eventually("it goes on by itself", || {
        Ok(readyz()?.replace("ok\n", "").is_empty())
    })
}

/// What the tests of a cache and of a server on the node look up.
fn check_from_the_node(east: &Cluster, west: &Cluster, ns: &str) -> Result<()> {
    let at = (west, ns, "client");
    let ips = wait_import(west, ns, "web")?;
    let v4: Vec<String> = ips.iter().filter(|ip| !ip.contains(':')).cloned().collect();
    let web = format!("web.{ns}.svc.clusterset.local");
    wait_answer(at, (&web, "A"), "NOERROR", &v4)?;
    let nosuch = format!("nosuch.{ns}.svc.clusterset.local");
    wait_answer(at, (&nosuch, "A"), "NXDOMAIN", &[])?;
    ensure!(who(west, ns, &web, "80")? == pods(east, ns, "web")?);
    // The cluster's own names, by the search path and in reverse.
    let local = west.object(ns, "service", "web")?.context("no Service")?;
    let ip = text(&local["spec"]["clusterIP"]);
    wait_answer(at, ("web", "A"), "NOERROR", std::slice::from_ref(&ip))?;
    let octets: Vec<&str> = ip.rsplit('.').collect();
    let reverse = format!("{}.in-addr.arpa.", octets.join("."));
    let name = format!("web.{ns}.svc.cluster.local.");
    wait_answer(at, (&reverse, "PTR"), "NOERROR", &[name])
}

/// A web in both clusters, exported from the east; the west's client asks an address of its node.
fn web_and_client(world: &World, ns: &str, nameserver: &str) -> Result<()> {
    let (east, west) = (world.east(), world.west());
    install(world, west)?;
    west.nodes()[0].run(&[
        "ip",
        "address",
        "replace",
        &format!("{nameserver}/32"),
        "dev",
        "lo",
    ])?;
    for cluster in [east, west] {
        deploy(cluster, ns, "web", 1)?;
        rollout(cluster, ns, "web")?;
    }
    export(east, ns, "web")?;
    client(west, ns, Some(nameserver))
}

/// The Corefile of NodeLocal DNSCache with the stub in it, in a CoreDNS on the node: its own
/// program adds the address and rules of iptables, and is this CoreDNS otherwise.
fn node_cache(world: &World, ns: &str) -> Result<()> {
    const ADDRESS: &str = "169.254.20.10";
    web_and_client(world, ns, ADDRESS)?;
    let (east, west) = (world.east(), world.west());
    let cluster_dns = resolver(west);
    let block = |zone: &str, cache: &str| {
        format!(
            "{zone}:53 {{
    errors
    cache {cache}
    reload 2s 1s
    loop
    bind {ADDRESS}
    forward . {cluster_dns} {{
        force_tcp
    }}
    prometheus :9253
}}
"
        )
    };
    let local = "{\n        success 9984 30\n        denial 9984 5\n    }";
    let blocks = [
        ("cluster.local", local),
        ("in-addr.arpa", "30"),
        ("ip6.arpa", "30"),
        (".", "30"),
    ];
    let corefile: String = blocks
        .iter()
        .map(|(zone, cache)| block(zone, cache))
        .collect();
    start_coredns(west, "node-local-dns", &corefile)?;
    let before = data(west, "node-local-dns")?;
    stub(west, "add", "node-local-dns")?;
    let text = data(west, "node-local-dns")?["Corefile"].to_string();
    ensure!(text.contains(&format!("bind {ADDRESS}")), "{text}");
    check_from_the_node(east, west, ns)?;
    stub(west, "remove", "node-local-dns")?;
    ensure!(data(west, "node-local-dns")? == before);
    kubectl(
        west,
        KUBE_SYSTEM,
        &["delete", "deployment,configmap", "node-local-dns"],
    )?;
    unexport(east, ns, "web")
}

/// `tombolo dns` as a pod's only resolver: other names are forwarded to the cluster's DNS.
fn node_address(world: &World, ns: &str) -> Result<()> {
    const ADDRESS: &str = "169.254.20.11";
    web_and_client(world, ns, ADDRESS)?;
    let (east, west) = (world.east(), world.west());
    let cluster_dns = resolver(west);
    let patch = format!(
        "patches:
- patch: |
    apiVersion: apps/v1
    kind: DaemonSet
    metadata: {{name: tombolo-dns-node, namespace: tombolo-system}}
    spec:
      template:
        spec:
          containers:
          - name: dns
            env: [{{name: TOMBOLO_DNS_FORWARD, value: '{cluster_dns}'}}]
"
    );
    apply_kustomization(world, west, "dns-node", &patch)?;
    let args = [
        "rollout",
        "status",
        "daemonset/tombolo-dns-node",
        "--timeout=60s",
    ];
    kubectl(west, TOMBOLO_SYSTEM, &args)?;
    check_from_the_node(east, west, ns)?;
    kubectl(
        west,
        TOMBOLO_SYSTEM,
        &["delete", "daemonset", "tombolo-dns-node"],
    )?;
    unexport(east, ns, "web")
}
