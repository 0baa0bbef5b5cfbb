//! Clients that mean no good: it stays within its bounds and goes on answering others.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use anyhow::{Context as _, Result};
use socket2::{Domain, Socket, Type};
use tombolo_testkit::dns::Transport;
use tombolo_testkit::scripted_api::ScriptedApi;

use crate::process::{Dns, import};

const WEB: &str = "web.shop.svc.clusterset.local.";

fn dns_of_web(args: &[&str]) -> (ScriptedApi, Dns) {
    let api = ScriptedApi::start().unwrap();
    api.install_crds();
    api.put("serviceimports", import("web", "10.96.7.1"));
    let mut dns = Dns::start(Some(&api), args).unwrap();
    dns.wait(WEB, "A", "NOERROR", &["10.96.7.1"]).unwrap();
    (api, dns)
}

/// A connection from an address of loopback.
fn connect(server: SocketAddr, from: [u8; 4]) -> Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((from, 0)).into())?;
    socket.connect_timeout(&server.into(), Duration::from_secs(20))?;
    Ok(socket.into())
}

/// Whether the server has closed it.
fn is_closed(stream: &mut TcpStream) -> bool {
    match stream.read(&mut [0; 1]) {
        Ok(length) => length == 0,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

fn resident_kib(dns: &Dns) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", dns.running.id()?))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    Ok(number.context("no VmRSS")?.parse()?)
}

/// Ten thousand connections that say nothing: each source keeps its share, the rest are closed,
/// and another source is answered over TCP all the while.
#[test]
fn idle_connections_of_few_keep_nobody_out() {
    const CONNECTIONS: usize = 10_000;
    const SOURCES: u8 = 3;
    const KEPT: usize = 256 * SOURCES as usize;
    let (_api, dns) = dns_of_web(&["--tcp-idle", "600"]);
    let before = resident_kib(&dns).unwrap();
    let mut kept = Vec::new();
    let mut opened = 0;
    for from in (2..2 + SOURCES).cycle().take(CONNECTIONS) {
        let mut stream = connect(dns.address, [127, 0, 0, from]).unwrap();
        opened += 1;
        // Beyond a source's share the end comes at once; within it nothing comes.
        stream
            .set_read_timeout(Some(Duration::from_millis(1)))
            .unwrap();
        if kept.len() < KEPT || !is_closed(&mut stream) {
            kept.push(stream);
        }
    }
    assert_eq!(opened, CONNECTIONS);
    assert_eq!(
        dns.ask(WEB, "A", Transport::Tcp).unwrap().answers,
        ["10.96.7.1"]
    );
    assert_eq!(
        dns.ask(WEB, "A", Transport::Udp).unwrap().answers,
        ["10.96.7.1"]
    );
    let refused = dns.metric("tombolo_dns_tcp_refused_total").unwrap();
    assert_eq!(refused, (CONNECTIONS - KEPT) as u64);
    let grown = resident_kib(&dns).unwrap().saturating_sub(before);
    assert!(
        grown < 32 * 1024,
        "{grown} KiB for connections that say nothing"
    );
    drop(kept);
    dns.finish().unwrap();
}

/// Messages that never come to their end, and lengths that nothing follows.
#[test]
fn half_messages_are_given_up() {
    let (_api, dns) = dns_of_web(&["--tcp-idle", "1"]);
    let begins: [&[u8]; 5] = [
        &[0],
        &[0, 0],
        &[0xff, 0xff],
        &[0, 40, 1, 2, 3],
        &[0, 12, 0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0],
    ];
    let mut streams = Vec::new();
    for begin in begins {
        let mut stream = TcpStream::connect(dns.address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        stream.write_all(begin).unwrap();
        streams.push(stream);
    }
    assert_eq!(
        dns.ask(WEB, "A", Transport::Tcp).unwrap().answers,
        ["10.96.7.1"]
    );
    for mut stream in streams {
        assert!(is_closed(&mut stream), "still open, or answered");
    }
    dns.finish().unwrap();
}

/// A client that asks and never reads: its answers wait in bounded buffers, then it is closed.
#[test]
fn answers_that_nobody_reads_take_no_memory() {
    let (_api, dns) = dns_of_web(&["--tcp-idle", "1"]);
    let before = resident_kib(&dns).unwrap();
    let query = [
        &[0, 47, 0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0][..],
        b"\x03web\x04shop\x03svc\x0aclusterset\x05local\0",
        &[0, 1, 0, 1],
    ]
    .concat();
    let message_len = query.len() - 2;
    let query = [
        &u16::try_from(message_len).unwrap().to_be_bytes()[..],
        &query[2..],
    ]
    .concat();
    let pipeline = query.repeat(1_000);
    let mut streams = Vec::new();
    for _ in 0..64 {
        let mut stream = TcpStream::connect(dns.address).unwrap();
        stream
            .set_write_timeout(Some(Duration::from_millis(100)))
            .unwrap();
        // Until the server takes no more, or has closed it.
        for _ in 0..50 {
            if stream.write_all(&pipeline).is_err() {
                break;
            }
        }
        streams.push(stream);
    }
    let grown = resident_kib(&dns).unwrap().saturating_sub(before);
    assert!(
        grown < 64 * 1024,
        "{grown} KiB for answers that nobody reads"
    );
    assert_eq!(
        dns.ask(WEB, "A", Transport::Tcp).unwrap().answers,
        ["10.96.7.1"]
    );
    drop(streams);
    dns.finish().unwrap();
}

/// Every octet of a query changed to every value, and every length of it.
#[test]
fn no_packet_ends_it() {
    let (_api, dns) = dns_of_web(&[]);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(dns.address).unwrap();
    let mut query = [
        &[0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1][..],
        b"\x03web\x04shop\x03svc\x0aclusterset\x05local\0",
        &[0, 1, 0, 1],
        &[0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 8, 0, 10, 0, 4, 1, 2, 3, 4],
    ]
    .concat();
    for length in 0..query.len() {
        // The kernel may refuse one: the next is another.
        socket.send(&query[..length]).ok();
    }
    for at in 0..query.len() {
        let right = query[at];
        for octet in 0..=u8::MAX {
            query[at] = octet;
            socket.send(&query).ok();
        }
        query[at] = right;
    }
    assert_eq!(
        dns.ask(WEB, "A", Transport::Udp).unwrap().answers,
        ["10.96.7.1"]
    );
    dns.finish().unwrap();
}

/// With fewer file descriptors than connections it goes on with those that it has.
#[test]
fn few_file_descriptors_are_no_end() {
    let (_api, dns) = dns_of_web(&["--tcp-idle", "600"]);
    let pid = dns.running.id().unwrap().to_string();
    let limited = std::process::Command::new("prlimit")
        .args(["--pid", &pid, "--nofile=64:64"])
        .status()
        .unwrap();
    assert!(limited.success());
    let streams: Vec<TcpStream> = (0..100)
        .map(|_| TcpStream::connect(dns.address).unwrap())
        .collect();
    assert_eq!(
        dns.ask(WEB, "A", Transport::Udp).unwrap().answers,
        ["10.96.7.1"]
    );
    drop(streams);
    assert_eq!(
        dns.ask(WEB, "A", Transport::Tcp).unwrap().answers,
        ["10.96.7.1"]
    );
    dns.finish().unwrap();
}
