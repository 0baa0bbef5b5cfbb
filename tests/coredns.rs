//! `tombolo dns` beside a real CoreDNS over the same real API server. Ignored by default, as it
//! needs etcd, Kubernetes and CoreDNS (`make e2e` builds them from their Go modules).

#[path = "coredns/differences.rs"]
mod differences;
#[path = "coredns/questions.rs"]
mod questions;
#[path = "coredns/world.rs"]
mod world;

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tombolo_testbed::wait_for;
use tombolo_testkit::cases::Reply;
use tombolo_testkit::dns::{self, Transport};

use crate::differences::{DIFFERENCES, Seen};
use crate::world::{Clusterset, PATIENCE, World};

/// The Corefile of kubeadm, with the cluster's own zone only.
fn corefile(world: &World, port: u16) -> String {
    let kubeconfig = world.kubeconfig().display().to_string();
    format!(
        ".:{port} {{
    errors
    bind 127.0.0.1
    kubernetes cluster.local in-addr.arpa ip6.arpa {{
        kubeconfig {kubeconfig}
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
        ttl 30
    }}
    reload 2s 1s
    loadbalance
}}
"
    )
}

/// What came of all questions.
#[derive(Default)]
struct Compared {
    asked: usize,
    /// The differences, by the title of what explains them.
    explained: BTreeMap<&'static str, Vec<String>>,
    unexplained: Vec<String>,
}

/// Every question that is answered differently, by why.
fn differing(world: &World, ours: &world::Dns, theirs: &world::CoreDns) -> Result<Compared> {
    let questions = questions::all(world.clusterset());
    let mut compared = Compared {
        asked: questions.len(),
        ..Compared::default()
    };
    for question in &questions {
        let (name, kind) = question;
        let ask = |server| -> Result<Reply> {
            let mut reply = dns::reply(&dns::ask(server, name, kind, Transport::Tcp)?);
            reply.answers.sort();
            Ok(reply)
        };
        let seen = Seen {
            clusterset: world.clusterset(),
            name: &name.to_ascii_lowercase(),
            kind,
            ours: ask(ours.address)?,
            theirs: ask(theirs.address)?,
        };
        if seen.is_same() {
            continue;
        }
        let text = format!(
            "{name} {kind}: {} {:?}, CoreDNS {} {:?}",
            seen.ours.rcode, seen.ours.answers, seen.theirs.rcode, seen.theirs.answers
        );
        match DIFFERENCES.iter().find(|row| (row.explains)(&seen)) {
            Some(row) => compared.explained.entry(row.title).or_default().push(text),
            None => compared.unexplained.push(text),
        }
    }
    Ok(compared)
}

/// Every difference is in `docs/reference/dns-differences.md`, with what the specification says.
#[test]
#[ignore = "needs etcd, Kubernetes and CoreDNS (make e2e)"]
fn e2e_answers_differ_from_coredns_only_as_documented() {
    let world = World::start(Clusterset::generate()).unwrap();
    let ours = world.start_dns(&[]).unwrap();
    let theirs = world
        .start_coredns(&format!(
            "    kubernetes cluster.local clusterset.local {{\n        kubeconfig {}\n        \
             multicluster clusterset.local\n    }}\n",
            world.kubeconfig().display()
        ))
        .unwrap();
    world.wait_answers(ours.address).unwrap();
    world.wait_answers(theirs.address).unwrap();
    let Compared {
        asked,
        explained,
        unexplained,
    } = differing(&world, &ours, &theirs).unwrap();
    for (title, texts) in &explained {
        println!("{} {title}; for example {}", texts.len(), texts[0]);
    }
    println!("{asked} questions");
    assert!(asked > 3_000, "{asked} questions");
    let first: Vec<_> = unexplained.iter().take(40).collect();
    assert!(
        unexplained.is_empty(),
        "{} more: {first:#?}",
        unexplained.len()
    );
    // A row that explains nothing is out of date, and so is one that nobody can read about.
    let page = include_str!("../docs/reference/dns-differences.md");
    for row in DIFFERENCES {
        assert!(
            explained.contains_key(row.title),
            "nothing shows: {}",
            row.title
        );
        assert!(page.contains(row.title), "not documented: {}", row.title);
    }
}

/// `dns-stub` on a file that CoreDNS reads: the zone is there, then it is not; nothing else
/// changes.
#[test]
#[ignore = "needs etcd, Kubernetes and CoreDNS (make e2e)"]
fn e2e_a_stub_zone_comes_and_goes() {
    let world = World::start(Clusterset::generate()).unwrap();
    let ours = world.start_dns(&[]).unwrap();
    let port = world::free_port().unwrap();
    let theirs = world
        .start_coredns_with(port, &corefile(&world, port))
        .unwrap();
    let local = "kubernetes.default.svc.cluster.local.";
    let ask = |name| dns::ask(theirs.address, name, "A", Transport::Udp).map(|m| dns::reply(&m));
    let before = wait_for("cluster.local", PATIENCE, || {
        Ok(ask(local).ok().filter(|reply| reply.rcode == "NOERROR"))
    })
    .unwrap();
    let name = world.clusterset().first_vip_name();
    assert_ne!(ask(&name).unwrap().rcode, "NOERROR");

    let file = theirs.corefile.display().to_string();
    let server = ours.address.to_string();
    let original = fs::read(&theirs.corefile).unwrap();
    world::tombolo(&["dns-stub", "add", "--file", &file, "--server", &server]).unwrap();
    let direct = dns::reply(&dns::ask(ours.address, &name, "A", Transport::Udp).unwrap());
    let through = wait_for("the stub zone", PATIENCE, || {
        Ok(Some(ask(&name)?).filter(|reply| reply.rcode == "NOERROR"))
    })
    .unwrap();
    assert_eq!(through, direct);
    let tcp = dns::ask(theirs.address, &name, "A", Transport::Tcp).unwrap();
    assert_eq!(dns::reply(&tcp), direct);
    assert_eq!(ask(local).unwrap(), before);
    assert_eq!(
        ask("nosuch.shop-0.svc.clusterset.local.").unwrap().rcode,
        "NXDOMAIN"
    );

    world::tombolo(&["dns-stub", "remove", "--file", &file]).unwrap();
    assert_eq!(fs::read(&theirs.corefile).unwrap(), original);
    wait_for("the end of the stub zone", PATIENCE, || {
        Ok(Some(ask(&name)?).filter(|reply| reply.rcode != "NOERROR"))
    })
    .unwrap();
    assert_eq!(ask(local).unwrap(), before);
}

/// `dns-stub` on the ConfigMap of a real cluster, with the address of the Service.
#[test]
#[ignore = "needs etcd, Kubernetes and CoreDNS (make e2e)"]
fn e2e_a_config_map_is_changed_and_restored() {
    let world = World::start(Clusterset::default()).unwrap();
    let cluster = world.cluster();
    let yaml = "apiVersion: v1
kind: ConfigMap
metadata: {name: coredns, namespace: kube-system, labels: {of: somebody}}
data:
  other: text
  Corefile: |
    # hand-made
    .:53 {
        errors
        kubernetes cluster.local
    }
---
apiVersion: v1
kind: Namespace
metadata: {name: tombolo-system}
---
apiVersion: v1
kind: Service
metadata: {name: tombolo-dns, namespace: tombolo-system}
spec: {ports: [{port: 53, protocol: UDP}]}
";
    cluster.apply(yaml).unwrap();
    let map = || {
        let args = [
            "-n",
            "kube-system",
            "get",
            "configmap",
            "coredns",
            "-o",
            "json",
        ];
        let json: serde_json::Value = serde_json::from_str(&cluster.kubectl(&args)?)?;
        Ok::<_, anyhow::Error>((json["data"].clone(), json["metadata"]["labels"].clone()))
    };
    let before = map().unwrap();
    let kubeconfig = world.kubeconfig().display().to_string();
    let stub = |verb| world::tombolo(&["dns-stub", verb, "--kubeconfig", &kubeconfig]);
    assert!(stub("add").unwrap().contains(": changed"));
    assert!(stub("add").unwrap().contains(": unchanged"));
    let args = ["-n", "tombolo-system", "get", "service", "tombolo-dns"];
    let ip = cluster
        .kubectl(&[&args[..], &["-o", "jsonpath={.spec.clusterIP}"]].concat())
        .unwrap();
    let (data, _) = map().unwrap();
    let text = data["Corefile"].as_str().unwrap();
    assert!(text.contains(&format!("forward . {ip}:53\n")), "{text}");
    assert!(stub("remove").unwrap().contains(": changed"));
    assert_eq!(map().unwrap(), before);
}

/// It starts before the CRDs are there, and goes on while the API server is away.
#[test]
#[ignore = "needs etcd, Kubernetes and CoreDNS (make e2e)"]
fn e2e_dns_outlives_its_api_server() {
    let world = World::start_without_crds().unwrap();
    let ours = world.start_dns(&["--lame-duck", "1"]).unwrap();
    let name = "web.shop.svc.clusterset.local.";
    let ask = || dns::ask(ours.address, name, "A", Transport::Udp).map(|m| dns::reply(&m));
    assert_eq!(ask().unwrap().rcode, "SERVFAIL");
    let missing = ours.get("/readyz").unwrap();
    assert!(
        missing.contains("ServiceImport was not listed yet"),
        "{missing}"
    );

    world.install_crds().unwrap();
    world.import("shop", "web", "10.96.7.1").unwrap();
    let answers =
        |ip: &'static str| move |reply: &Reply| reply.rcode == "NOERROR" && reply.answers == [ip];
    wait_for("the first list", PATIENCE, || {
        Ok(Some(ask()?).filter(answers("10.96.7.1")))
    })
    .unwrap();
    assert_eq!(ours.get("/readyz").unwrap(), "ok\n");

    let apiserver = world.cluster().apiserver();
    apiserver.kill().unwrap();
    let stale = |at_least: f64| {
        let text = ours.get("/metrics")?;
        let line = text
            .lines()
            .find(|l| l.starts_with("tombolo_dns_staleness_seconds "));
        let age: f64 = line
            .context("no staleness")?
            .rsplit(' ')
            .next()
            .unwrap()
            .parse()?;
        Ok::<_, anyhow::Error>((age >= at_least).then_some(age))
    };
    wait_for("staleness", PATIENCE, || stale(3.0)).unwrap();
    assert!(answers("10.96.7.1")(&ask().unwrap()));
    assert_eq!(ours.get("/readyz").unwrap(), "ok\n");

    apiserver.restart().unwrap();
    world.cluster().wait_apiserver().unwrap();
    world.import("shop", "web", "10.96.7.2").unwrap();
    wait_for("the new answer", PATIENCE, || {
        Ok(Some(ask()?).filter(answers("10.96.7.2")))
    })
    .unwrap();
    wait_for("no staleness", PATIENCE, || {
        Ok(stale(2.0)?.is_none().then_some(()))
    })
    .unwrap();

    // Told to end, it answers on while it says that it is not ready.
    let ended = std::thread::scope(|scope| {
        let stopped = scope.spawn(|| ours.part.stop(PATIENCE));
        let drained = wait_for("not ready", Duration::from_secs(5), || {
            let told = ours.get("/readyz")?;
            Ok(told.contains("about to end").then_some(()))
        });
        let answered = ask();
        stopped.join().unwrap().and(drained).and(answered)
    });
    assert!(answers("10.96.7.2")(&ended.unwrap()));
    let log = fs::read_to_string(ours.part.log_file()).unwrap();
    assert!(
        log.contains("stopping") && !log.contains("panicked"),
        "{log}"
    );
    ensure_ended(&ours).unwrap();
}

fn ensure_ended(dns: &world::Dns) -> Result<()> {
    ensure!(!dns.part.is_running(), "it still runs");
    ensure!(
        dns::ask(dns.address, "a.", "A", Transport::Tcp).is_err(),
        "it still answers"
    );
    Ok(())
}
