//! `cargo xtask soak dns`: many mixed and hostile queries against the DNS server of `tombolo up`,
//! in parts. Memory has to stay flat, nothing may panic, and a flood from one source must not keep
//! another one's answers away.

mod packets;
mod target;

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use self::packets::Packets;
use self::target::Target;

/// Sources of the mixed load, each an address of its own.
const SENDERS: u8 = 2;
/// Queries under way for each source: more would wait in the server's socket and be lost there.
const WINDOW: usize = 64;
/// A connection is tried every so many queries.
const TCP_EVERY: u64 = 5_000;
/// What allocators and buffers may still take after the first part.
const GROWTH_MAX_KIB: u64 = 16 * 1024;
/// Questions that are asked during the flood, and how often each may be tried: as resolvers do.
const POLITE_QUESTIONS: u32 = 100;
const POLITE_TRIES: u32 = 5;

/// Runs long, bounded loads
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    soak: Soak,
}

#[derive(clap::Subcommand)]
enum Soak {
    /// Mixed and hostile DNS queries
    Dns(DnsArgs),
}

#[derive(clap::Args)]
struct DnsArgs {
    /// The binary to load. Default: the release build.
    #[arg(long, default_value = "target/release/tombolo")]
    binary: PathBuf,

    /// Queries in all
    #[arg(long, default_value_t = 24_000_000)]
    queries: u64,

    /// Parts, after each of which memory is looked at
    #[arg(long, default_value_t = 12)]
    parts: u64,

    /// What the random packets start from
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub(crate) fn run(args: Args) -> Result<()> {
    match args.soak {
        Soak::Dns(args) => dns(&args),
    }
}

fn dns(args: &DnsArgs) -> Result<()> {
    let mut out = std::io::stdout();
    let target = Target::start(&args.binary)?;
    let mut first = None;
    for part in 0..args.parts {
        let answered = load(
            target.address,
            args.queries / args.parts,
            args.seed + part * 100,
        )?;
        let resident = target.resident_kib()?;
        let first = *first.get_or_insert(resident);
        writeln!(
            out,
            "part {}/{}: {} queries, {answered} answers, resident {resident} KiB",
            part + 1,
            args.parts,
            args.queries / args.parts
        )?;
        ensure!(
            resident <= first + GROWTH_MAX_KIB,
            "memory grows: {first} KiB after the first part, {resident} KiB now"
        );
        ensure!(answered > 0, "nothing was answered");
    }
    let (asked, tried) = flood(target.address)?;
    writeln!(
        out,
        "beside a flood: {asked} questions answered, {tried} tries"
    )?;
    target.finish()?;
    writeln!(out, "it ended well")?;
    Ok(())
}

/// Sends a number of queries from all sources; how many answers came.
fn load(server: SocketAddr, queries: u64, seed: u64) -> Result<u64> {
    thread::scope(|scope| {
        let senders: Vec<_> = (0..SENDERS)
            .map(|n| scope.spawn(move || send(server, n, queries / u64::from(SENDERS), seed)))
            .collect();
        let mut answers = 0;
        for sender in senders {
            let sent = sender.join().ok().context("a sender panicked")?;
            answers += sent?;
        }
        Ok(answers)
    })
}

fn send(server: SocketAddr, number: u8, queries: u64, seed: u64) -> Result<u64> {
    let socket = UdpSocket::bind(SocketAddr::from(([127, 0, 0, 2 + number], 0)))?;
    socket.connect(server)?;
    // Hostile packets may stay without an answer: the window is given up then.
    socket.set_read_timeout(Some(Duration::from_millis(5)))?;
    let mut packets = Packets::new(seed * 2 + u64::from(number) + 1);
    let mut buffer = vec![0; 65_535];
    let (mut sent, mut answers) = (0, 0);
    while sent < queries {
        let mut expected = 0;
        for _ in 0..WINDOW {
            let (packet, is_answered) = packets.next();
            // The kernel may refuse an empty or a refused datagram; the next one is another.
            if socket.send(packet).is_ok() && is_answered {
                expected += 1;
            }
            sent += 1;
            if sent.is_multiple_of(TCP_EVERY) {
                connection(server, packet);
            }
        }
        while expected > 0 && socket.recv(&mut buffer).is_ok() {
            answers += 1;
            expected -= 1;
        }
    }
    Ok(answers)
}

/// A connection that is dropped with something in it. That it fails is no matter.
fn connection(server: SocketAddr, packet: &[u8]) {
    if let Ok(mut stream) = TcpStream::connect_timeout(&server, Duration::from_secs(1)) {
        let length = u16::try_from(packet.len())
            .unwrap_or(u16::MAX)
            .to_be_bytes();
        let _hostile = stream.write_all(&[&length, packet].concat());
    }
}

/// One source sends as fast as it can and never reads, another one asks politely.
fn flood(server: SocketAddr) -> Result<(u32, u32)> {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let flooder = scope.spawn(|| -> Result<()> {
            let socket = UdpSocket::bind("127.0.0.9:0")?;
            socket.connect(server)?;
            let mut packets = Packets::new(7);
            while !done.load(Relaxed) {
                let (packet, _) = packets.next();
                // What does not fit is lost, as it should be.
                let _lost = socket.send(packet);
            }
            Ok(())
        });
        let asked = polite(server);
        done.store(true, Relaxed);
        flooder.join().ok().context("the flood panicked")??;
        asked
    })
}

fn polite(server: SocketAddr) -> Result<(u32, u32)> {
    let socket = UdpSocket::bind("127.0.0.8:0")?;
    socket.connect(server)?;
    socket.set_read_timeout(Some(Duration::from_millis(500)))?;
    let mut buffer = [0; 1_500];
    let mut tried = 0;
    for question in 0..POLITE_QUESTIONS {
        let id = u16::try_from(question)?.to_be_bytes();
        let mut packet = packets::question("web.shop.svc.clusterset.local", 1);
        packet[..2].copy_from_slice(&id);
        let mut is_answered = false;
        for _ in 0..POLITE_TRIES {
            tried += 1;
            socket.send(&packet)?;
            is_answered = socket.recv(&mut buffer).is_ok() && buffer[..2] == id;
            if is_answered {
                break;
            }
        }
        ensure!(
            is_answered,
            "question {question} was not answered beside a flood"
        );
    }
    Ok((POLITE_QUESTIONS, tried))
}
