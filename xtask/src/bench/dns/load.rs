//! Loads: what dnsperf sends, what the server spends on it, and how long answers take at a fixed
//! rate.
#![expect(clippy::disallowed_types, reason = "a benchmark measures real time")]

use std::fmt;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::Args;
use super::servers::Server;

/// One kind of question.
pub(super) struct Load {
    pub(super) name: &'static str,
    transport: &'static str,
    /// A line of dnsperf's input, by a number below the number of services.
    pub(super) line: fn(u32, u32) -> String,
}

pub(super) const LOADS: &[Load] = &[
    Load {
        name: "ClusterSetIP A",
        transport: "udp",
        line: |n, _| format!("vip-{n}.shop.svc.clusterset.local A\n"),
    },
    Load {
        name: "headless A",
        transport: "udp",
        line: |n, all| format!("set-{}.shop.svc.clusterset.local A\n", n % (all / 2)),
    },
    Load {
        name: "ClusterSetIP SRV",
        transport: "udp",
        line: |n, _| format!("_http._tcp.vip-{n}.shop.svc.clusterset.local SRV\n"),
    },
    Load {
        name: "headless SRV",
        transport: "udp",
        line: |n, all| {
            format!(
                "_http._tcp.set-{}.shop.svc.clusterset.local SRV\n",
                n % (all / 2)
            )
        },
    },
    Load {
        name: "NXDOMAIN",
        transport: "udp",
        line: |n, _| format!("nosuch-{n}.shop.svc.clusterset.local A\n"),
    },
    Load {
        name: "ClusterSetIP A, TCP",
        transport: "tcp",
        line: |n, _| format!("vip-{n}.shop.svc.clusterset.local A\n"),
    },
];

/// What a load took.
pub(super) struct Measured {
    /// CPU time of the server for each answer.
    pub(super) cpu_micros: f64,
    pub(super) per_second: f64,
}

/// Runs dnsperf as fast as it goes.
pub(super) fn measure(server: &Server, load: &Load, file: &Path, args: &Args) -> Result<Measured> {
    let before = server.cpu()?;
    let output = Command::new("taskset")
        .args(["-c", &(args.core + 1).to_string(), "dnsperf", "-s"])
        .arg(server.address.ip().to_string())
        .args([
            "-p",
            &server.address.port().to_string(),
            "-m",
            load.transport,
            "-d",
        ])
        .arg(file)
        .args(["-l", &args.seconds.to_string(), "-q", "100", "-c", "10"])
        .output()
        .context("dnsperf (apt-get install dnsperf) and taskset are needed")?;
    let spent = server.cpu()?.saturating_sub(before);
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "dnsperf: {text}");
    let number = |label: &str| -> Result<f64> {
        let line = text
            .lines()
            .find_map(|line| line.trim().strip_prefix(label));
        let number = line.and_then(|line| line.split_whitespace().next());
        Ok(number
            .with_context(|| format!("no {label} in {text}"))?
            .parse()?)
    };
    let completed = number("Queries completed:")?;
    ensure!(
        completed > 0.0,
        "{}: nothing was answered: {text}",
        server.name
    );
    Ok(Measured {
        cpu_micros: spent.as_secs_f64() * 1e6 / completed,
        per_second: number("Queries per second:")?,
    })
}

/// Percentiles of times.
pub(crate) struct Times {
    sorted: Vec<Duration>,
    lost: u32,
}

impl Times {
    pub(crate) fn new(mut times: Vec<Duration>, lost: u32) -> Self {
        times.sort_unstable();
        Self {
            sorted: times,
            lost,
        }
    }

    fn at(&self, per_mille: usize) -> f64 {
        let last = self.sorted.len().saturating_sub(1);
        let index = (self.sorted.len() * per_mille / 1_000).min(last);
        self.sorted
            .get(index)
            .map_or(0.0, |time| time.as_secs_f64() * 1e3)
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "p50 {:.3} ms, p99 {:.3} ms ({} times, {} lost)",
            self.at(500),
            self.at(990),
            self.sorted.len(),
            self.lost
        )
    }
}

/// How long answers take at a fixed rate, one question at a time.
pub(super) fn latency(server: &Server, file: &Path, args: &Args) -> Result<Times> {
    let text = std::fs::read_to_string(file)?;
    let names = text.lines().filter_map(|line| line.split_once(' '));
    let packets: Vec<Vec<u8>> = names.map(|(name, _)| question(name)).collect();
    let socket = connect(server.address)?;
    let interval = Duration::from_secs(1) / args.rate;
    let count = args.rate * args.seconds;
    let (mut times, mut lost) = (Vec::new(), 0);
    let mut buffer = [0; 1_500];
    let start = Instant::now();
    for (number, packet) in (0..count).zip(packets.iter().cycle()) {
        while start.elapsed() < interval * number {
            std::hint::spin_loop();
        }
        let sent = Instant::now();
        socket.send(packet)?;
        match socket.recv(&mut buffer) {
            Ok(_) => times.push(sent.elapsed()),
            Err(_late) => lost += 1,
        }
    }
    Ok(Times::new(times, lost))
}

/// A socket to a server.
pub(crate) fn connect(server: SocketAddr) -> Result<UdpSocket> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.connect(server)?;
    socket.set_read_timeout(Some(Duration::from_secs(1)))?;
    Ok(socket)
}

/// How many addresses an answer has.
pub(super) fn ask(server: SocketAddr, name: &str) -> Result<u16> {
    let socket = connect(server)?;
    socket.send(&question(name))?;
    let mut buffer = [0; 1_500];
    let length = socket.recv(&mut buffer)?;
    ensure!(length > 8, "a short answer");
    Ok(u16::from_be_bytes([buffer[6], buffer[7]]))
}

/// A question for the A records of a name.
pub(crate) fn question(name: &str) -> Vec<u8> {
    let mut packet = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        packet.push(u8::try_from(label.len()).unwrap_or(u8::MAX));
        packet.extend(label.as_bytes());
    }
    packet.extend([0, 0, 1, 0, 1]);
    packet
}
