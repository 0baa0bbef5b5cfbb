//! Listeners over loopback, asked by a client that decodes with hickory-proto.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use hickory_proto::op::{Edns, Message, Query, ResponseCode};
use hickory_proto::rr::{Name, RecordType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::{Limits, Server};
use crate::tests::world::World;
use crate::{Forwarder, Live, Metrics, WireName, Zones};

/// Long enough for anything on loopback on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// A server that runs.
struct Running {
    address: SocketAddr,
    metrics: Arc<Metrics>,
    shutdown: CancellationToken,
    task: JoinHandle<()>,
}

/// Runs a server on a task of the test's own runtime.
#[expect(clippy::disallowed_methods, reason = "the test is the supervisor")]
fn spawn(server: Server, shutdown: CancellationToken) -> JoinHandle<()> {
    tokio::spawn(server.run(shutdown))
}

impl Running {
    fn start(world: &World, limits: Limits) -> Self {
        Self::start_with(world, limits, "127.0.0.1:0", None)
    }

    fn start_with(
        world: &World,
        limits: Limits,
        address: &str,
        forwarder: Option<Forwarder>,
    ) -> Self {
        let snapshot = world.snapshot();
        let metrics = Arc::new(Metrics::new(snapshot.zones(), Instant::now()));
        let live = Arc::new(Live::new(snapshot));
        let addresses = [address.parse().unwrap()];
        let mut server = Server::bind(&addresses, limits, live, Arc::clone(&metrics)).unwrap();
        if let Some(forwarder) = forwarder {
            server = server.with_forwarder(forwarder);
        }
        let address = server.local_addresses()[0];
        let shutdown = CancellationToken::new();
        let task = spawn(server, shutdown.clone());
        Self {
            address,
            metrics,
            shutdown,
            task,
        }
    }

    async fn stop(self) {
        self.shutdown.cancel();
        timeout(PATIENCE, self.task).await.unwrap().unwrap();
    }

    async fn udp(&self, query: &Message) -> Message {
        let client = client(self.address).await;
        client.send(&query.to_vec().unwrap()).await.unwrap();
        receive(&client).await
    }

    async fn tcp(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }
}

async fn client(server: SocketAddr) -> tokio::net::UdpSocket {
    let any = if server.is_ipv4() {
        "127.0.0.1:0"
    } else {
        "[::1]:0"
    };
    let client = tokio::net::UdpSocket::bind(any).await.unwrap();
    client.connect(server).await.unwrap();
    client
}

async fn receive(client: &tokio::net::UdpSocket) -> Message {
    let mut buffer = [0; 4096];
    let len = timeout(PATIENCE, client.recv(&mut buffer))
        .await
        .unwrap()
        .unwrap();
    let message = Message::from_vec(&buffer[..len]).unwrap();
    assert!(message.edns.is_some() || len <= 512, "{len}");
    assert!(len <= 1232, "{len}");
    message
}

fn query(id: u16, name: &str, record_type: RecordType) -> Message {
    let mut message = Message::query();
    message.metadata.id = id;
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), record_type));
    message
}

fn with_edns(mut message: Message, udp_len: u16) -> Message {
    let mut edns = Edns::new();
    edns.set_max_payload(udp_len);
    message.set_edns(edns);
    message
}

fn framed(message: &Message) -> Vec<u8> {
    let bytes = message.to_vec().unwrap();
    let len = u16::try_from(bytes.len()).unwrap();
    [&len.to_be_bytes()[..], &bytes].concat()
}

async fn read_message(stream: &mut TcpStream) -> Message {
    let read = async {
        let len = stream.read_u16().await.unwrap();
        let mut buffer = vec![0; usize::from(len)];
        stream.read_exact(&mut buffer).await.unwrap();
        buffer
    };
    Message::from_vec(&timeout(PATIENCE, read).await.unwrap()).unwrap()
}

/// 230 endpoints, as in the field case D09.
fn shards() -> World {
    let endpoints: Vec<String> = (0..230).map(|n| format!("10.1.1.{n} shard-{n}")).collect();
    let endpoints: Vec<&str> = endpoints.iter().map(String::as_str).collect();
    World::default()
        .headless("shop/shards", &["db TCP/27017"])
        .slice("shop/shards", "east", &["db TCP/27017"], &endpoints)
        .cluster_set_ip("shop/vip", &["10.96.0.1"], &["http TCP/80"])
}

const SHARDS: &str = "shards.shop.svc.clusterset.local.";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d09_big_answers_are_cut_over_udp_and_whole_over_tcp() {
    let server = Running::start(&shards(), Limits::default());
    let mut stream = server.tcp().await;
    for (record_type, most_plain, most_edns) in [(RecordType::A, 28, 73), (RecordType::SRV, 7, 18)]
    {
        let plain = server.udp(&query(1, SHARDS, record_type)).await;
        assert!(plain.metadata.truncation);
        assert_eq!(plain.metadata.response_code, ResponseCode::NoError);
        assert!((1..=most_plain).contains(&plain.answers.len()));
        for offered in [1232, 4096] {
            let edns = with_edns(query(2, SHARDS, record_type), offered);
            let edns = server.udp(&edns).await;
            assert!(edns.metadata.truncation);
            assert!((most_plain..=most_edns).contains(&edns.answers.len()));
            assert_eq!(edns.max_payload(), 1232);
        }
        stream
            .write_all(&framed(&query(3, SHARDS, record_type)))
            .await
            .unwrap();
        let whole = read_message(&mut stream).await;
        assert!(!whole.metadata.truncation);
        assert_eq!(whole.answers.len(), 230);
    }
    let mut firsts = std::collections::BTreeSet::new();
    for id in 0..1_000 {
        let answer = server.udp(&query(id, SHARDS, RecordType::A)).await;
        assert_eq!(answer.metadata.response_code, ResponseCode::NoError);
        assert_eq!(answer.metadata.id, id);
        firsts.insert(answer.answers[0].data.to_string());
    }
    assert!(firsts.len() > 150, "{}", firsts.len());
    drop(stream);
    server.stop().await;
}

#[tokio::test]
async fn a_pipeline_is_answered_in_full() {
    let server = Running::start(&shards(), Limits::default());
    let mut stream = server.tcp().await;
    let mut bytes = Vec::new();
    for id in 0..300 {
        let name = if id % 2 == 0 {
            SHARDS
        } else {
            "nosuch.clusterset.local."
        };
        bytes.extend(framed(&query(id, name, RecordType::A)));
    }
    // In pieces that fit no message.
    let (mut read, mut write) = stream.split();
    let writing = async {
        for piece in bytes.chunks(1_001) {
            write.write_all(piece).await.unwrap();
            tokio::task::yield_now().await;
        }
    };
    let reading = async {
        for id in 0..300 {
            let len = read.read_u16().await.unwrap();
            let mut buffer = vec![0; usize::from(len)];
            read.read_exact(&mut buffer).await.unwrap();
            let answer = Message::from_vec(&buffer).unwrap();
            assert_eq!(answer.metadata.id, id);
            assert_eq!(answer.answers.len(), if id % 2 == 0 { 230 } else { 0 });
        }
    };
    timeout(PATIENCE, async { tokio::join!(writing, reading) })
        .await
        .unwrap();
    server.stop().await;
}

#[tokio::test]
async fn both_families_are_served() {
    let server = Running::start_with(&shards(), Limits::default(), "[::1]:0", None);
    let vip = query(9, "VIP.shop.svc.clusterset.local.", RecordType::A);
    let answer = server.udp(&vip).await;
    assert_eq!(answer.answers[0].data.to_string(), "10.96.0.1");
    let name = answer.queries[0].name().to_ascii();
    assert_eq!(name, "VIP.shop.svc.clusterset.local.");
    let mut stream = server.tcp().await;
    stream.write_all(&framed(&vip)).await.unwrap();
    assert_eq!(read_message(&mut stream).await.answers.len(), 1);
    drop(stream);
    server.stop().await;
}

#[tokio::test]
async fn an_idle_connection_is_closed_and_too_many_are_refused() {
    let limits = Limits {
        tcp_idle: Duration::from_millis(200),
        tcp_source_connections_max: 2,
        ..Limits::default()
    };
    let server = Running::start(&shards(), limits);
    let (mut first, _second) = (server.tcp().await, server.tcp().await);
    let vip = framed(&query(1, "vip.shop.svc.clusterset.local.", RecordType::A));
    first.write_all(&vip).await.unwrap();
    read_message(&mut first).await;
    let mut third = server.tcp().await;
    let closed = timeout(PATIENCE, third.read(&mut [0; 1])).await.unwrap();
    assert!(matches!(closed, Ok(0) | Err(_)));
    assert_eq!(server.metrics.snapshot(Instant::now()).tcp_refused, 1);
    let idle = timeout(PATIENCE, first.read(&mut [0; 1])).await.unwrap();
    assert!(matches!(idle, Ok(0) | Err(_)));
    server.stop().await;
}

#[tokio::test]
async fn what_is_in_hand_at_shutdown_is_answered() {
    let server = Running::start(&shards(), Limits::default());
    let client = client(server.address).await;
    for id in 0..50 {
        let query = query(id, "vip.shop.svc.clusterset.local.", RecordType::A);
        client.send(&query.to_vec().unwrap()).await.unwrap();
    }
    server.stop().await;
    for _ in 0..50 {
        assert_eq!(receive(&client).await.answers.len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_from_one_source_does_not_stop_anothers_answers() {
    let limits = Limits {
        udp_queue_len_max: 256,
        udp_source_len_max: 64,
        ..Limits::default()
    };
    let server = Running::start(&shards(), limits);
    let address = server.address;
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    let flood = std::thread::spawn(move || {
        let socket = UdpSocket::bind((Ipv4Addr::new(127, 0, 0, 2), 0)).unwrap();
        let packet = query(7, SHARDS, RecordType::A).to_vec().unwrap();
        let mut sent = 0_u64;
        while !stopped.is_cancelled() && sent < 300_000 {
            sent += u64::from(socket.send_to(&packet, address).is_ok());
        }
    });
    let client = client(server.address).await;
    let mut answered = 0;
    for id in 0..100 {
        let query = query(id, "vip.shop.svc.clusterset.local.", RecordType::A);
        client.send(&query.to_vec().unwrap()).await.unwrap();
        let mut buffer = [0; 512];
        let wait = Duration::from_millis(500);
        answered += u32::from(timeout(wait, client.recv(&mut buffer)).await.is_ok());
    }
    stop.cancel();
    flood.join().unwrap();
    assert!(answered >= 95, "{answered} of 100");
    server.stop().await;
}

#[tokio::test]
async fn answers_are_counted() {
    let server = Running::start(&shards(), Limits::default());
    server.udp(&query(1, SHARDS, RecordType::A)).await;
    server.udp(&query(1, "example.org.", RecordType::MX)).await;
    let client = client(server.address).await;
    client.send(b"no").await.unwrap();
    server
        .udp(&query(1, "nosuch.clusterset.local.", RecordType::SRV))
        .await;
    let metrics = Arc::clone(&server.metrics);
    server.stop().await;
    let snapshot = metrics.snapshot(Instant::now());
    let mut counts: Vec<String> = snapshot
        .queries
        .iter()
        .map(|c| format!("{:?} {} {} {}", c.zone, c.record_type, c.rcode, c.count))
        .collect();
    counts.sort();
    assert_eq!(
        counts,
        [
            "None other REFUSED 1",
            "Some(0) A NOERROR 1",
            "Some(0) SRV NXDOMAIN 1"
        ]
    );
    assert_eq!((snapshot.truncated, snapshot.silent), (1, 1));
    assert_eq!(snapshot.latency.iter().sum::<u64>(), 3);
}

/// A resolver: the same server, with another zone.
fn resolver() -> Running {
    let world =
        World::default()
            .zone("example.org")
            .cluster_set_ip("web/www", &["192.0.2.80"], &[]);
    Running::start(&world, Limits::default())
}

#[tokio::test]
async fn names_outside_the_zones_are_forwarded() {
    let upstream = resolver();
    let dead: SocketAddr = "127.0.0.1:1".parse().unwrap();
    let forwarder = Forwarder::new(vec![dead, upstream.address], Duration::from_millis(300), 8);
    let server = Running::start_with(&shards(), Limits::default(), "127.0.0.1:0", forwarder);
    let www = query(77, "www.web.svc.example.org.", RecordType::A);
    let mut stream = server.tcp().await;
    for _ in 0..2 {
        let answer = server.udp(&www).await;
        assert_eq!(answer.answers[0].data.to_string(), "192.0.2.80");
        assert_eq!(answer.metadata.id, 77);
        stream.write_all(&framed(&www)).await.unwrap();
        let answer = read_message(&mut stream).await;
        assert_eq!(answer.answers[0].data.to_string(), "192.0.2.80");
        assert_eq!(answer.metadata.id, 77);
    }
    let own = server
        .udp(&query(1, "vip.shop.svc.clusterset.local.", RecordType::A))
        .await;
    assert!(own.metadata.authoritative && own.metadata.recursion_available);
    drop(stream);
    server.stop().await;
    upstream.stop().await;
}

#[tokio::test]
async fn without_an_answer_from_a_resolver_the_answer_is_servfail() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let forwarder = Forwarder::new(
        vec![silent.local_addr().unwrap()],
        Duration::from_millis(200),
        1,
    );
    let server = Running::start_with(&shards(), Limits::default(), "127.0.0.1:0", forwarder);
    let www = query(5, "www.example.org.", RecordType::A);
    let (first, second) = tokio::join!(server.udp(&www), server.udp(&www));
    assert_eq!(first.metadata.response_code, ResponseCode::ServFail);
    assert_eq!(second.metadata.response_code, ResponseCode::ServFail);
    assert_eq!(server.metrics.snapshot(Instant::now()).forward_failed, 2);
    server.stop().await;
}

#[tokio::test]
async fn a_new_snapshot_is_answered_from_at_once() {
    let live = Arc::new(Live::new(World::default().snapshot()));
    let zones = Zones::new([WireName::parse("clusterset.local").unwrap()], 5);
    let metrics = Arc::new(Metrics::new(&zones, Instant::now()));
    let address = ["127.0.0.1:0".parse().unwrap()];
    let limits = Limits::default();
    let server = Server::bind(&address, limits, Arc::clone(&live), Arc::clone(&metrics)).unwrap();
    let shutdown = CancellationToken::new();
    let running = Running {
        address: server.local_addresses()[0],
        metrics,
        task: spawn(server, shutdown.clone()),
        shutdown,
    };
    let vip = query(1, "vip.shop.svc.clusterset.local.", RecordType::A);
    let before = running.udp(&vip).await;
    assert_eq!(before.metadata.response_code, ResponseCode::NXDomain);
    live.store(shards().snapshot());
    assert_eq!(running.udp(&vip).await.answers.len(), 1);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs dig (bind9-dnsutils)"]
async fn dig_reads_every_answer_without_a_warning() {
    let server = Running::start(&shards(), Limits::default());
    let port = server.address.port().to_string();
    let shards = format!("{SHARDS} SRV");
    for (question, flags, wanted) in [
        ("vip.shop.svc.clusterset.local. A", "+noedns", "10.96.0.1"),
        (
            "_http._tcp.vip.shop.svc.clusterset.local. SRV",
            "+bufsize=1232",
            "0 100 80 vip.",
        ),
        (
            "vip.shop.svc.clusterset.local. ANY",
            "+notcp",
            "\"RFC8482\" \"\"",
        ),
        (
            "nosuch.clusterset.local. A",
            "+edns=0",
            "ns.dns.clusterset.local. hostmaster.",
        ),
        (
            "clusterset.local. NS",
            "+dnssec",
            "ns.dns.clusterset.local.",
        ),
        (
            &shards,
            "+tcp",
            "shard-229.east.shards.shop.svc.clusterset.local.",
        ),
        (&shards, "+bufsize=512", "ANSWER: 230"),
    ] {
        let dig = tokio::task::spawn_blocking({
            let port = port.clone();
            let flags = flags.to_owned();
            let question: Vec<String> = question.split(' ').map(str::to_owned).collect();
            move || {
                std::process::Command::new("dig")
                    .args(["@127.0.0.1", "-p", &port, "+time=5", &flags])
                    .args(question)
                    .output()
                    .unwrap()
            }
        });
        let output = String::from_utf8(dig.await.unwrap().stdout).unwrap();
        assert!(output.contains(wanted), "{question} {flags}: {output}");
        for bad in ["WARNING: Message", "malformed", "extra bytes", "timed out"] {
            assert!(!output.contains(bad), "{question} {flags}: {output}");
        }
    }
    server.stop().await;
}
