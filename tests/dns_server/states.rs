//! What it answers while its API server is missing something, refuses, or is away.

use anyhow::ensure;
use serde_json::json;
use tombolo_testkit::dns::Transport;
use tombolo_testkit::scripted_api::ScriptedApi;

use crate::process::{Dns, headless, import, slice};

const WEB: &str = "web.shop.svc.clusterset.local.";

/// An API server with one import.
fn with_web() -> ScriptedApi {
    let api = ScriptedApi::start().unwrap();
    api.install_crds();
    api.put("serviceimports", import("web", "10.96.7.1"));
    api
}

#[test]
fn without_the_crds_it_says_so_and_starts_by_itself() {
    let api = ScriptedApi::start().unwrap();
    let mut dns = Dns::start(Some(&api), &[]).unwrap();
    dns.wait_page(
        "/readyz",
        "ServiceImport was not listed yet: its CRD is missing",
    )
    .unwrap();
    let reply = dns.ask(WEB, "A", Transport::Udp).unwrap();
    assert_eq!(reply.rcode, "SERVFAIL");
    assert_eq!(
        dns.ask("a.example.", "A", Transport::Tcp).unwrap().rcode,
        "REFUSED"
    );
    api.put("serviceimports", import("web", "10.96.7.1"));
    api.install_crds();
    dns.wait(WEB, "A", "NOERROR", &["10.96.7.1"]).unwrap();
    dns.wait_page("/readyz", "ok").unwrap();
    dns.finish().unwrap();
}

#[test]
fn a_missing_right_is_named() {
    let api = with_web();
    api.forbid(&["/apis/discovery.k8s.io"]);
    let mut dns = Dns::start(Some(&api), &[]).unwrap();
    dns.wait_page("/readyz", "EndpointSlice was not listed yet: ")
        .unwrap();
    dns.wait_page("/readyz", "Forbidden").unwrap();
    assert_eq!(dns.ask(WEB, "A", Transport::Udp).unwrap().rcode, "SERVFAIL");
    api.forbid(&[]);
    dns.wait(WEB, "A", "NOERROR", &["10.96.7.1"]).unwrap();
    dns.finish().unwrap();
}

#[test]
fn the_last_state_is_answered_while_the_server_is_away() {
    let api = with_web();
    api.put("serviceimports", headless("db"));
    api.put("endpointslices", slice("db", "east", &["10.1.0.1".into()]));
    let mut dns = Dns::start(Some(&api), &[]).unwrap();
    let host = "h-0.east.db.shop.svc.clusterset.local.";
    dns.wait(host, "A", "NOERROR", &["10.1.0.1"]).unwrap();
    api.put("endpointslices", slice("db", "east", &["10.1.0.2".into()]));
    dns.wait(host, "A", "NOERROR", &["10.1.0.2"]).unwrap();
    drop(api);
    // Connection refused from now on: what was known stays.
    dns.running
        .eventually(|running| {
            ensure!(running.stderr()?.contains("Away"), "it has not noticed");
            Ok(())
        })
        .unwrap();
    for transport in [Transport::Udp, Transport::Tcp] {
        assert_eq!(dns.ask(host, "A", transport).unwrap().answers, ["10.1.0.2"]);
        assert_eq!(dns.ask(WEB, "A", transport).unwrap().answers, ["10.96.7.1"]);
    }
    assert_eq!(dns.get("/readyz").unwrap(), "ok\n");
    dns.finish().unwrap();
}

#[test]
fn objects_that_cannot_be_used_are_counted_and_the_rest_goes_on() {
    let api = with_web();
    let mut broken = import("bad", "10.96.7.9");
    broken["spec"] = json!("text");
    api.put("serviceimports", broken);
    let mut nobody = slice("db", "east", &["not an address".into()]);
    nobody["addressType"] = json!("FQDN");
    api.put("endpointslices", nobody);
    let mut dns = Dns::start(Some(&api), &[]).unwrap();
    dns.wait(WEB, "A", "NOERROR", &["10.96.7.1"]).unwrap();
    dns.wait("bad.shop.svc.clusterset.local.", "A", "NXDOMAIN", &[])
        .unwrap();
    assert!(dns.metric("tombolo_dns_objects_rejected_total").unwrap() >= 1);
    dns.finish().unwrap();
}

#[test]
fn of_zones_within_zones_the_innermost_answers() {
    let api = with_web();
    // A namespace "shop" in "svc.clusterset.local" would be this zone's apex.
    let zones = "clusterset.local,shop.svc.clusterset.local";
    let mut dns = Dns::start(Some(&api), &["--zone", zones]).unwrap();
    let inner = "web.shop.svc.shop.svc.clusterset.local.";
    dns.wait(inner, "A", "NOERROR", &["10.96.7.1"]).unwrap();
    // Below the inner zone nothing of the outer one is seen, as a delegation has it.
    dns.wait(WEB, "A", "NXDOMAIN", &[]).unwrap();
    dns.finish().unwrap();
}

#[test]
fn names_at_the_limits_are_answered() {
    let api = ScriptedApi::start().unwrap();
    api.install_crds();
    let long = "a".repeat(63);
    let mut service = import(&long, "10.96.7.1");
    service["metadata"]["namespace"] = json!("b".repeat(63));
    api.put("serviceimports", service);
    let mut dns = Dns::start(Some(&api), &[]).unwrap();
    let name = format!("{long}.{}.svc.clusterset.local.", "b".repeat(63));
    dns.wait(&name, "A", "NOERROR", &["10.96.7.1"]).unwrap();
    dns.wait(
        &format!("_http._tcp.{name}"),
        "SRV",
        "NOERROR",
        &[&format!("80 {name}")],
    )
    .unwrap();
    // 253 characters, the most that a name can have.
    let longest = format!("{}.{}.{name}", "c".repeat(51), "d".repeat(52));
    assert_eq!(longest.len(), 253 + ".".len());
    dns.wait(&longest, "A", "NXDOMAIN", &[]).unwrap();
    dns.finish().unwrap();
}
