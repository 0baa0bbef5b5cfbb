//! DNS as a user meets it without a cluster: questions to `plan`, the servers of `up`, and what
//! `dns-stub` does to a file. Right answers are the subject of `tests/cases`; every rule, of the
//! tests of the crate `tombolo-dns`.
#![expect(clippy::unwrap_used, reason = "test crate")]

use std::fs;
use std::net::{SocketAddr, TcpListener, UdpSocket};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tombolo_testkit::cases::Reply;
use tombolo_testkit::command::{Binary, Finished, Running};
use tombolo_testkit::dns::{self, Transport};
use tombolo_testkit::files::Tree;
use tombolo_testkit::manifest;

fn tombolo() -> Binary {
    Binary::new(env!("CARGO_BIN_EXE_tombolo"))
}

/// East exports shop/web; west has the namespace.
fn two_clusters() -> Tree {
    Tree::with(&[
        (
            "clusters/east/web.yaml",
            manifest::exported("shop", "web", 5, "10.1.0.1"),
        ),
        ("clusters/west/shop.yaml", manifest::namespace("shop")),
    ])
    .unwrap()
}

fn plan(tree: &Tree, args: &[&str]) -> Finished {
    let clusters = tree.arg("clusters");
    tombolo()
        .run([&["plan", clusters.as_str()], args].concat())
        .unwrap()
}

const WEB: &str = "web.shop.svc.clusterset.local";

#[test]
fn every_cluster_answers_each_question() {
    let tree = two_clusters();
    let srv = format!("_http._tcp.{WEB}. srv");
    let questions = [format!("{WEB} A"), srv, "nosuch.example A".to_owned()];
    let args = [
        "-o",
        "json",
        "--query",
        &questions[0],
        "--query",
        &questions[1],
    ];
    let run = plan(&tree, &[&args[..], &["--query", &questions[2]]].concat());
    assert_eq!(run.code, Some(0), "{run:?}");
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    let ip = report["clusters"][1]["imports"][0]["ips"][0].clone();
    let queries = report["queries"].as_array().unwrap();
    assert_eq!(queries.len(), 6);
    let answer = |name: &str, kind: &str, rcode: &str, answers: Value| json!({"cluster": "west", "name": name, "type": kind, "rcode": rcode, "answers": answers});
    let west: Vec<&Value> = queries.iter().filter(|q| q["cluster"] == "west").collect();
    let wanted = [
        answer(WEB, "A", "NOERROR", json!([ip])),
        answer(
            &format!("_http._tcp.{WEB}."),
            "SRV",
            "NOERROR",
            json!([format!("80 {WEB}.")]),
        ),
        answer("nosuch.example", "A", "REFUSED", json!([])),
    ];
    assert_eq!(west, wanted.iter().collect::<Vec<_>>());
}

#[test]
fn the_table_shows_answers_too() {
    let tree = two_clusters();
    let run = plan(
        &tree,
        &[
            "--query",
            &format!("{WEB} TXT"),
            "--query",
            &format!("{WEB} A"),
        ],
    );
    let lines: Vec<&str> = run.stdout.lines().collect();
    let head = lines
        .iter()
        .position(|line| line.starts_with("QUERY"))
        .unwrap();
    let words = |line: &str| {
        line.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(words(lines[head + 1]), [WEB, "TXT", "east", "NOERROR", "-"]);
    assert!(words(lines[head + 3])[4].starts_with("240."), "{run:?}");
    assert!(!plan(&tree, &[]).stdout.contains("QUERY"));
}

#[test]
fn a_question_that_is_none_is_an_error_of_the_command_line() {
    let tree = two_clusters();
    for question in [
        "",
        WEB,
        "a b c",
        "a..b A",
        "a X",
        &format!("{} A", "a".repeat(64)),
    ] {
        let run = plan(&tree, &["--query", question]);
        assert_eq!((run.code, run.stdout.as_str()), (Some(64), ""), "{run:?}");
        assert!(
            run.stderr.contains(&format!("--query {question:?}")),
            "{run:?}"
        );
    }
    for args in [["--zone", "a..b"], ["--zone", "."], ["--ttl", "86400"]] {
        let run = plan(&tree, &args);
        assert_eq!(run.code, Some(64), "{run:?}");
    }
}

#[test]
fn other_zones_are_answered_for_when_asked_to() {
    let tree = two_clusters();
    let args = ["--zone", "mesh.example,clusterset.local", "--query"];
    let run = plan(
        &tree,
        &[&args[..], &["web.shop.svc.mesh.example A"]].concat(),
    );
    assert!(run.stdout.contains("NOERROR"), "{run:?}");
}

/// Starts `up` with more arguments.
fn up(tree: &Tree, args: &[&str]) -> Running {
    let logs = tree.path("logs");
    fs::create_dir(&logs).unwrap();
    let clusters = tree.arg("clusters");
    let args = [&["up", clusters.as_str()], args].concat();
    tombolo().start(args, &logs).unwrap()
}

/// Where the DNS server of a cluster listens, as `up` says.
fn server(up: &Running, cluster: &str) -> Result<SocketAddr> {
    let line = format!("{cluster} dns ");
    let stdout = up.stdout()?;
    let address = stdout.lines().find_map(|text| text.strip_prefix(&line));
    Ok(address.context("no line about DNS")?.parse()?)
}

fn ask(server: SocketAddr, transport: Transport) -> Result<Reply> {
    Ok(dns::reply(&dns::ask(server, WEB, "A", transport)?))
}

#[test]
fn up_answers_and_follows_the_files() {
    let tree = two_clusters();
    let mut up = up(&tree, &[]);
    let west = up.eventually(|up| server(up, "west")).unwrap();
    let reply = up.eventually(|_| ask(west, Transport::Udp)).unwrap();
    assert_eq!((reply.rcode.as_str(), reply.answers.len()), ("NOERROR", 1));
    assert_eq!(ask(west, Transport::Tcp).unwrap(), reply);
    // Another cluster has another address for the same name.
    let east = server(&up, "east").unwrap();
    assert_ne!(east, west);

    fs::remove_file(tree.path("clusters/east/web.yaml")).unwrap();
    up.eventually(|_| {
        let reply = ask(west, Transport::Udp)?;
        ensure!(reply.rcode == "NXDOMAIN", "still {reply:?}");
        Ok(())
    })
    .unwrap();
    up.interrupt().unwrap();
    assert_eq!(up.finish().unwrap().code, Some(0));
}

#[test]
fn the_ports_follow_the_one_that_is_given() {
    let tree = two_clusters();
    let port = two_free_ports().unwrap();
    let mut up = up(&tree, &["--dns", &format!("127.0.0.1:{port}")]);
    let west = up.eventually(|up| server(up, "west")).unwrap();
    let east = server(&up, "east").unwrap();
    assert_eq!((east.port(), west.port()), (port, port + 1));
}

/// A port that is free together with the next.
fn two_free_ports() -> Result<u16> {
    let is_free = |port: u16| {
        UdpSocket::bind(("127.0.0.1", port)).is_ok()
            && TcpListener::bind(("127.0.0.1", port)).is_ok()
    };
    let mut ports = (21_000..32_000).step_by(7);
    ports
        .find(|port| is_free(*port) && is_free(port + 1))
        .context("no two ports are free")
}

#[test]
fn up_without_dns_opens_no_socket() {
    let tree = two_clusters();
    let mut up = up(&tree, &["--no-dns"]);
    let stdout = up
        .eventually(|up| {
            let stdout = up.stdout()?;
            ensure!(stdout.contains("west import shop/web"), "{stdout}");
            Ok(stdout)
        })
        .unwrap();
    assert!(!stdout.contains(" dns "), "{stdout}");
}

#[test]
fn an_address_that_is_taken_is_an_error() {
    let tree = two_clusters();
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let run = tombolo()
        .run(["up", &tree.arg("clusters"), "--dns", &address])
        .unwrap();
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.stderr.contains(&address), "{run:?}");
    let run = tombolo()
        .run(["up", &tree.arg("clusters"), "--dns", "localhost"])
        .unwrap();
    assert_eq!(run.code, Some(64), "{run:?}");
}

#[test]
fn a_corefile_gets_its_stub_and_loses_it() {
    let corefile = ".:53 {\n    errors\n    forward . /etc/resolv.conf\n}\n";
    let tree = Tree::with(&[("Corefile", corefile.to_owned())]).unwrap();
    let file = tree.arg("Corefile");
    let read = || fs::read_to_string(tree.path("Corefile")).unwrap();
    let stub = |args: &[&str]| {
        let run = tombolo().run([&["dns-stub"], args].concat()).unwrap();
        assert_eq!(run.code, Some(0), "{run:?}");
        run.stdout
    };
    let server = ["--server", "10.96.0.53"];
    let dry = stub(&[&["add", "--file", &file, "--dry-run"][..], &server].concat());
    assert_eq!(read(), corefile);
    stub(&[&["add", "--file", &file][..], &server].concat());
    assert_eq!(read(), dry);
    assert_eq!(dry, stub(&[&["print"][..], &server].concat()) + corefile);
    stub(&["remove", "--file", &file]);
    assert_eq!(read(), corefile);
}

#[test]
fn a_corefile_that_is_not_understood_is_left_alone() {
    let corefile = ".:53\nerrors\n";
    let tree = Tree::with(&[("Corefile", corefile.to_owned())]).unwrap();
    let file = tree.arg("Corefile");
    let add = |server: &str| {
        let args = ["dns-stub", "add", "--file", &file, "--server", server];
        tombolo().run(args).unwrap()
    };
    let run = add("10.96.0.53");
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.stderr.contains("line 1"), "{run:?}");
    assert_eq!(add("dns.example").code, Some(64));
    let text = fs::read_to_string(tree.path("Corefile")).unwrap();
    assert_eq!(text, corefile);
}
