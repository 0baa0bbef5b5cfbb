//! `--forward`: names outside the zones, and what becomes of them when resolvers fail.

use std::net::UdpSocket;
use std::thread;

use tombolo_testkit::dns::resolver::{RESOLVED, REVERSED, ScriptedResolver};
use tombolo_testkit::dns::{self, Transport};

use crate::process::Dns;

const ZONE_NAME: &str = "web.shop.svc.clusterset.local.";

/// An address of loopback where nobody answers: the socket keeps it from others.
fn dead() -> (UdpSocket, String) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap().to_string();
    (socket, address)
}

#[test]
fn other_names_are_forwarded_as_they_are() {
    let resolver = ScriptedResolver::start().unwrap();
    let dns = Dns::start(None, &["--forward", &resolver.address.to_string()]).unwrap();
    let ip = RESOLVED.to_string();
    for transport in [Transport::Udp, Transport::Tcp] {
        let message = dns::ask(dns.address, "Host.Example.", "A", transport).unwrap();
        assert_eq!(dns::reply(&message).answers, [ip.as_str()]);
        let meta = &message.metadata;
        assert!(meta.recursion_available && !meta.authoritative && !meta.truncation);
        let reply = dns.ask("missing.example.", "A", transport).unwrap();
        assert_eq!((reply.rcode.as_str(), reply.answers.len()), ("NXDOMAIN", 0));
        let reply = dns
            .ask("1.2.0.192.in-addr.arpa.", "PTR", transport)
            .unwrap();
        assert_eq!(reply.answers, [REVERSED]);
    }
    let name = |name: &str, transport| (name.to_owned(), transport);
    let mut wanted = Vec::new();
    for transport in [Transport::Udp, Transport::Tcp] {
        wanted.push(name("Host.Example.", transport));
        wanted.push(name("missing.example.", transport));
        wanted.push(name("1.2.0.192.in-addr.arpa.", transport));
    }
    assert_eq!(resolver.asked(), wanted);
    assert_eq!(dns.metric("tombolo_dns_forwarded_total").unwrap(), 6);
    dns.finish().unwrap();
}

#[test]
fn what_is_cut_off_comes_over_tcp() {
    let resolver = ScriptedResolver::start().unwrap();
    let dns = Dns::start(None, &["--forward", &resolver.address.to_string()]).unwrap();
    let cut = dns::ask(dns.address, "big.example.", "A", Transport::Udp).unwrap();
    assert!(cut.metadata.truncation && cut.answers.is_empty());
    let whole = dns.ask("big.example.", "A", Transport::Tcp).unwrap();
    assert_eq!(whole.answers, [RESOLVED.to_string()]);
}

#[test]
fn names_of_the_zones_are_never_forwarded() {
    let resolver = ScriptedResolver::start().unwrap();
    let dns = Dns::start(None, &["--forward", &resolver.address.to_string()]).unwrap();
    for transport in [Transport::Udp, Transport::Tcp] {
        let message = dns::ask(dns.address, ZONE_NAME, "A", transport).unwrap();
        // Nothing was listed yet; recursion is there for other names.
        assert_eq!(dns::reply(&message).rcode, "SERVFAIL");
        assert!(message.metadata.recursion_available);
    }
    assert_eq!(resolver.asked(), []);
}

#[test]
fn without_resolvers_there_is_no_recursion() {
    let dns = Dns::start(None, &[]).unwrap();
    for transport in [Transport::Udp, Transport::Tcp] {
        for (name, kind) in [("host.example.", "A"), ("1.2.0.192.in-addr.arpa.", "PTR")] {
            let message = dns::ask(dns.address, name, kind, transport).unwrap();
            assert_eq!(dns::reply(&message).rcode, "REFUSED");
            assert!(!message.metadata.recursion_available);
        }
    }
}

#[test]
fn a_dead_resolver_is_passed_over() {
    let (_kept, dead) = dead();
    let resolver = ScriptedResolver::start().unwrap();
    let dns = Dns::start(
        None,
        &["--forward", &format!("{dead},{}", resolver.address)],
    )
    .unwrap();
    // They take turns, so that the dead one is the first of one of two.
    for transport in [
        Transport::Udp,
        Transport::Udp,
        Transport::Tcp,
        Transport::Tcp,
    ] {
        let reply = dns.ask("host.example.", "A", transport).unwrap();
        assert_eq!(reply.answers, [RESOLVED.to_string()], "{transport:?}");
    }
}

#[test]
fn without_a_resolver_alive_the_answer_is_servfail() {
    let (_kept, dead) = dead();
    let dns = Dns::start(None, &["--forward", &dead]).unwrap();
    for transport in [Transport::Udp, Transport::Tcp] {
        let message = dns::ask(dns.address, "host.example.", "A", transport).unwrap();
        assert_eq!(dns::reply(&message).rcode, "SERVFAIL");
        assert!(message.metadata.recursion_available && !message.metadata.authoritative);
    }
    assert_eq!(dns.metric("tombolo_dns_forward_failed_total").unwrap(), 2);
}

#[test]
fn a_slow_resolver_holds_up_nobody_else() {
    /// Each takes two seconds: one after another they would outlast every patience.
    const SLOW: u8 = 100;
    let resolver = ScriptedResolver::start().unwrap();
    let forward = resolver.address.to_string();
    let dns = Dns::start(None, &["--forward", &forward, "--udp-sockets", "1"]).unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(dns.address).unwrap();
    for id in 0..SLOW {
        let head = [0, id, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        let question = b"\x04slow\x07example\0\0\x01\0\x01";
        socket.send(&[&head[..], question].concat()).unwrap();
    }
    while resolver.asked().is_empty() {
        thread::yield_now();
    }
    for transport in [Transport::Udp, Transport::Tcp] {
        let reply = dns.ask("host.example.", "A", transport).unwrap();
        assert_eq!(reply.answers, [RESOLVED.to_string()]);
        assert_eq!(
            dns.ask(ZONE_NAME, "A", transport).unwrap().rcode,
            "SERVFAIL"
        );
    }
    // Each of them has its answer in the end.
    let mut buffer = [0; 512];
    for _ in 0..SLOW {
        let length = socket.recv(&mut buffer).unwrap();
        assert!(
            length > 12 && buffer[3] & 0x0f == 2,
            "{:?}",
            &buffer[..length]
        );
    }
}
