//! What an answer costs: in nanoseconds without sockets, in CPU time of the server's thread with
//! them, and what a fleet of a million endpoints takes in memory and time.
//!
//! `cargo bench -p tombolo-dns`; figures are for reading, nothing is asserted.
#![expect(clippy::unwrap_used, reason = "a benchmark, run by hand")]
#![expect(clippy::print_stdout, reason = "its output is what it is for")]

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use mcs_api::well_known::{LABEL_SERVICE_NAME, LABEL_SOURCE_CLUSTER};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tombolo_dns::{
    Change, Limits, Listing, Live, Metrics, PacketContext, Server, Snapshot, SnapshotBuilder,
    Transport, WireName, Zones, handle_packet,
};
use tombolo_model::endpoint::Conditions;
use tombolo_model::names::{Namespace, ObjectName, ServiceKey};
use tombolo_model::object::{
    AddressType, ImportObject, ImportSpec, ImportStatus, Meta, SliceEndpoint, SliceObject,
    SlicePort,
};
use tombolo_model::service::{
    Affinity, ImportType, InternalTrafficPolicy, IpFamily, Port, Protocol,
};

/// The fleet of DESIGN §3, all headless: the kind that takes most.
const SERVICES: u32 = 10_000;
const CLUSTERS: u32 = 5;
const ENDPOINTS: u32 = 20;

/// Slices changed one by one.
const CHANGES: u32 = 10_000;

const NOW_SECS: u32 = 1_700_000_000;

fn key(name: &str) -> ServiceKey {
    ServiceKey::new(Namespace::try_new("shop").unwrap(), ObjectName::new(name))
}

fn import(name: &str, kind: ImportType) -> ImportObject {
    let ips = match kind {
        ImportType::ClusterSetIp => vec!["10.96.0.1".parse().unwrap()],
        ImportType::Headless => Vec::new(),
    };
    ImportObject {
        meta: Meta::to_create(key(name)),
        spec: Some(ImportSpec {
            kind,
            ports: vec![Port {
                name: "web".into(),
                protocol: Protocol::Tcp,
                port: 80,
                app_protocol: None,
            }],
            ips,
            families: vec![IpFamily::V4],
            affinity: Affinity::None,
            internal_traffic_policy: InternalTrafficPolicy::Cluster,
            traffic_distribution: None,
        }),
        status: ImportStatus::default(),
    }
}

fn slice(service: &str, cluster: u32, first: u32, endpoints: u32) -> SliceObject {
    let mut meta = Meta::to_create(key(&format!("{service}-{cluster}")));
    meta.labels = Arc::new(
        [
            (LABEL_SERVICE_NAME.into(), service.into()),
            (
                LABEL_SOURCE_CLUSTER.into(),
                format!("cluster-{cluster}").into(),
            ),
        ]
        .into_iter()
        .collect(),
    );
    let endpoints = (0..endpoints).map(|index| SliceEndpoint {
        address: Ipv4Addr::from_bits(0x0a00_0000 + first + index).into(),
        conditions: Conditions::READY,
        hostname: Some(format!("{service}-{index}").into()),
        zone: None,
        node: None,
        target: None,
        hints: None,
    });
    SliceObject {
        meta,
        address_type: AddressType::Ip(IpFamily::V4),
        ports: Arc::new([SlicePort {
            name: "web".into(),
            protocol: Protocol::Tcp,
            port: 8080,
            app_protocol: None,
        }]),
        endpoints: endpoints.collect(),
    }
}

/// A service of each kind, and the fleet.
fn fill(builder: &mut SnapshotBuilder) {
    for listing in [Listing::Imports, Listing::Slices] {
        builder.apply(Change::ListBegins(listing));
    }
    builder.apply(Change::Import(&import("vip", ImportType::ClusterSetIp)));
    builder.apply(Change::Import(&import("pods", ImportType::Headless)));
    builder.apply(Change::Slice(&slice("pods", 0, 0, 4)));
    for number in 0..SERVICES {
        let name = format!("service-{number}");
        builder.apply(Change::Import(&import(&name, ImportType::Headless)));
        for cluster in 0..CLUSTERS {
            let first = (number * CLUSTERS + cluster) * ENDPOINTS;
            builder.apply(Change::Slice(&slice(&name, cluster, first, ENDPOINTS)));
        }
    }
    for listing in [Listing::Imports, Listing::Slices] {
        builder.apply(Change::ListEnds(listing));
    }
}

fn packet(name: &str, record_type: u16) -> Vec<u8> {
    let mut packet = vec![1, 2, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1];
    packet.extend_from_slice(WireName::parse(name).unwrap().as_bytes());
    packet.extend_from_slice(&record_type.to_be_bytes());
    packet.extend_from_slice(&[0, 1]);
    packet.extend_from_slice(&[0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]);
    packet
}

fn kinds() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("ClusterSetIP A", packet("vip.shop.svc.clusterset.local", 1)),
        (
            "headless A (4)",
            packet("pods.shop.svc.clusterset.local", 1),
        ),
        (
            "headless A (100, cut)",
            packet("service-77.shop.svc.clusterset.local", 1),
        ),
        (
            "headless SRV (4)",
            packet("_web._tcp.pods.shop.svc.clusterset.local", 33),
        ),
        (
            "host A",
            packet("pods-2.cluster-0.pods.shop.svc.clusterset.local", 1),
        ),
        ("NXDOMAIN", packet("nosuch.shop.svc.clusterset.local", 1)),
    ]
}

fn without_sockets(snapshot: &Snapshot) {
    const ROUNDS: u32 = 1_000_000;
    println!("without sockets, per answer:");
    for (kind, packet) in kinds() {
        let mut out = Vec::with_capacity(1_232);
        let start = Instant::now();
        for seed in 0..ROUNDS {
            let context = PacketContext {
                transport: Transport::Udp,
                udp_len_max: 1_232,
                forwards: false,
                seed: u64::from(seed) << 20,
            };
            let packet = std::hint::black_box(&packet);
            std::hint::black_box(handle_packet(snapshot, packet, context, &mut out));
        }
        println!(
            "  {kind:<24} {:>6} ns",
            start.elapsed().as_nanos() / u128::from(ROUNDS)
        );
    }
}

/// CPU time of a thread, user and system, in clock ticks of 10 ms.
fn cpu_ticks(stat_path: &str) -> u64 {
    let stat = std::fs::read_to_string(stat_path).unwrap();
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// Asks with `window` queries under way; how many answers came.
fn load(address: SocketAddr, packet: &[u8], window: usize, time: Duration) -> u64 {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(address).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    let mut buffer = [0; 2_048];
    let mut answers = 0;
    for _ in 0..window {
        socket.send(packet).unwrap();
    }
    let start = Instant::now();
    while start.elapsed() < time {
        answers += u64::from(socket.recv(&mut buffer).is_ok());
        socket.send(packet).unwrap();
    }
    answers
}

fn with_sockets(snapshot: &Arc<Snapshot>) {
    let metrics = Arc::new(Metrics::new(snapshot.zones(), Instant::now()));
    let live = Arc::new(Live::new(Arc::clone(snapshot)));
    let shutdown = CancellationToken::new();
    let (sender, receiver) = std::sync::mpsc::channel();
    let stop = shutdown.clone();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let address = ["127.0.0.1:0".parse().unwrap()];
            let server = Server::bind(&address, Limits::default(), live, metrics).unwrap();
            let stat = std::fs::read_link("/proc/thread-self").unwrap();
            let stat = format!("/proc/{}/stat", stat.display());
            sender.send((server.local_addresses()[0], stat)).unwrap();
            server.run(stop).await;
        });
    });
    let (address, stat) = receiver.recv().unwrap();
    println!("with sockets, one server thread on loopback, per answer:");
    for window in [1, 64] {
        for (kind, packet) in kinds() {
            let before = cpu_ticks(&stat);
            let time = Duration::from_secs(3);
            let answers = load(address, &packet, window, time);
            let ticks = cpu_ticks(&stat) - before;
            println!(
                "  {window:>2} at once, {kind:<24} {:>7} answers/s  {:>5} ns of CPU",
                answers / time.as_secs(),
                ticks * 10_000_000 / answers.max(1)
            );
        }
    }
    shutdown.cancel();
    thread.join().unwrap();
}

/// Resident memory in MiB.
fn resident_mib() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * 4 / 1_024
}

fn main() {
    let zones = Zones::new([WireName::parse("clusterset.local").unwrap()], 5);
    let mut builder = SnapshotBuilder::new(zones, NOW_SECS);
    let start = Instant::now();
    fill(&mut builder);
    let filled = start.elapsed();
    let snapshot = builder.publish(NOW_SECS);
    println!(
        "{} endpoints in {} slices: observed in {filled:?} (making the objects included), \
         published after {:?}, {} MiB resident",
        SERVICES * CLUSTERS * ENDPOINTS,
        SERVICES * CLUSTERS,
        start.elapsed(),
        resident_mib()
    );
    let start = Instant::now();
    for number in 0..CHANGES {
        let name = format!("service-{number}");
        let changed = slice(&name, 0, number * 100, ENDPOINTS - 1 - number % 2);
        builder.apply(Change::Slice(&changed));
        builder.publish(NOW_SECS);
    }
    println!(
        "one slice changed and published: {:?}",
        start.elapsed() / CHANGES
    );
    println!("after {CHANGES} changes: {} MiB resident", resident_mib());
    without_sockets(&snapshot);
    with_sockets(&snapshot);
}
