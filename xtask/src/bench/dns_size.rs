//! `bench dns-size`: `tombolo dns` with as many endpoints as a large fleet has, from an API server
//! that is scripted, as a real one would take minutes to fill: memory, time to the first answer,
//! and from a change to the changed answer.
#![expect(clippy::disallowed_types, reason = "a benchmark measures real time")]

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use tombolo_testkit::scripted_api::ScriptedApi;

use super::dns::{Times, connect, question};

const IMPORTS: &str = "serviceimports";
const SLICES: &str = "endpointslices";
/// After this an answer is not coming.
const PATIENCE: Duration = Duration::from_mins(2);

/// Measures DNS with the endpoints of a large fleet
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The binary to measure. Default: the release build.
    #[arg(long, default_value = "target/release/tombolo")]
    binary: PathBuf,

    /// Headless services
    #[arg(long, default_value_t = 10_000)]
    services: u32,

    /// Clusters that export each of them
    #[arg(long, default_value_t = 5)]
    clusters: u32,

    /// Ready endpoints in each cluster
    #[arg(long, default_value_t = 20)]
    endpoints: u32,

    /// Endpoint changes that are timed
    #[arg(long, default_value_t = 200)]
    changes: u32,
}

#[expect(clippy::print_stdout, reason = "its result is what it prints")]
pub(crate) fn run(args: &Args) -> Result<()> {
    ensure!(args.binary.is_file(), "no binary {}", args.binary.display());
    let api = ScriptedApi::start()?;
    api.install_crds();
    api.fill(IMPORTS, (0..args.services).map(import));
    for cluster in 0..args.clusters {
        let slices = (0..args.services).map(|service| slice(args, service, cluster, 0));
        api.fill(SLICES, slices);
    }
    println!(
        "{} services in {} clusters of {} endpoints each: {} endpoints",
        args.services,
        args.clusters,
        args.endpoints,
        args.services * args.clusters * args.endpoints
    );
    let began = Instant::now();
    let server = Server::start(&args.binary, &api)?;
    let last = host(args.services - 1, args.clusters - 1);
    let address = server.wait_answer(
        &last,
        address(args, args.services - 1, args.clusters - 1, 0),
    )?;
    println!("first answer after {:.2} s", began.elapsed().as_secs_f64());
    println!(
        "resident {} MiB, at most {} MiB",
        server.mib("VmRSS:")?,
        server.mib("VmHWM:")?
    );
    let times = change(args, &api, address)?;
    println!(
        "{} endpoint changes, from the write to the changed answer: {times}",
        args.changes
    );
    println!(
        "resident {} MiB, at most {} MiB",
        server.mib("VmRSS:")?,
        server.mib("VmHWM:")?
    );
    Ok(())
}

/// Changes endpoints of services here and there; how long each took to be answered.
fn change(args: &Args, api: &ScriptedApi, server: SocketAddr) -> Result<Times> {
    let mut times = Vec::new();
    for number in 0..args.changes {
        let service = number * 7_919 % args.services;
        let began = Instant::now();
        api.put(SLICES, slice(args, service, 0, number + 1));
        wait(
            server,
            &host(service, 0),
            address(args, service, 0, number + 1),
        )?;
        times.push(began.elapsed());
    }
    Ok(Times::new(times, 0))
}

fn name(service: u32) -> String {
    format!("service-{service}")
}

/// The name of the first endpoint of a service in a cluster.
fn host(service: u32, cluster: u32) -> String {
    format!(
        "pod-0.cluster-{cluster}.{}.{}.svc.clusterset.local",
        name(service),
        namespace(service)
    )
}

fn namespace(service: u32) -> String {
    format!("team-{}", service % 100)
}

/// The address of a service's first endpoint in a cluster, after so many changes.
fn address(args: &Args, service: u32, cluster: u32, changes: u32) -> [u8; 4] {
    let place = (service * args.clusters + cluster) * args.endpoints;
    ((10 << 24) + place + (changes << 20)).to_be_bytes()
}

fn import(service: u32) -> Value {
    json!({
        "apiVersion": "multicluster.x-k8s.io/v1beta1", "kind": "ServiceImport",
        "metadata": {"namespace": namespace(service), "name": name(service),
                     "uid": format!("import-{service}")},
        "spec": {"type": "Headless",
                 "ports": [{"name": "http", "protocol": "TCP", "port": 80}]},
    })
}

/// A slice as the controller writes it, less its owner.
fn slice(args: &Args, service: u32, cluster: u32, changes: u32) -> Value {
    let first = u32::from_be_bytes(address(args, service, cluster, changes));
    let endpoint = |n: u32| {
        let [a, b, c, d] = (first + n).to_be_bytes();
        json!({"addresses": [format!("{a}.{b}.{c}.{d}")], "hostname": format!("pod-{n}"),
               "conditions": {"ready": true, "serving": true, "terminating": false},
               "zone": format!("zone-{}", n % 3)})
    };
    let endpoints: Vec<Value> = (0..args.endpoints).map(endpoint).collect();
    let name = name(service);
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "namespace": namespace(service), "name": format!("{name}-cluster-{cluster}"),
            "uid": format!("slice-{service}-{cluster}"),
            "labels": {"multicluster.kubernetes.io/service-name": name,
                       "multicluster.kubernetes.io/source-cluster": format!("cluster-{cluster}"),
                       "endpointslice.kubernetes.io/managed-by": "controller.tombolo.dev"}},
        "addressType": "IPv4",
        "ports": [{"name": "http", "protocol": "TCP", "port": 8080}],
        "endpoints": endpoints,
    })
}

/// Asks until the answer has the address.
fn wait(server: SocketAddr, name: &str, address: [u8; 4]) -> Result<()> {
    const PAUSE: Duration = Duration::from_micros(200);
    let began = Instant::now();
    let socket = connect(server)?;
    let packet = question(name);
    let mut buffer = [0; 1_500];
    while began.elapsed() < PATIENCE {
        socket.send(&packet)?;
        let length = socket.recv(&mut buffer)?;
        if buffer[..length].windows(4).any(|octets| octets == address) {
            return Ok(());
        }
        std::thread::park_timeout(PAUSE);
    }
    bail!("{name} is not answered with {address:?}")
}

/// A `tombolo dns`. Killed when dropped.
struct Server {
    child: Child,
    files: tempfile::TempDir,
}

impl Server {
    fn start(binary: &Path, api: &ScriptedApi) -> Result<Self> {
        let files = tempfile::tempdir()?;
        let kubeconfig = files.path().join("kubeconfig");
        fs::write(&kubeconfig, api.kubeconfig())?;
        let child = Command::new(binary)
            .args([
                "dns",
                "--listen",
                "127.0.0.1:0",
                "--admin",
                "off",
                "--kubeconfig",
            ])
            .arg(&kubeconfig)
            .stderr(File::create(files.path().join("log"))?)
            .spawn()?;
        Ok(Self { child, files })
    }

    /// Waits for an answer; where it listens.
    fn wait_answer(&self, name: &str, wanted: [u8; 4]) -> Result<SocketAddr> {
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            let log = fs::read_to_string(self.files.path().join("log"))?;
            let address = log
                .split_once("answering DNS address=")
                .map(|(_, rest)| rest);
            if let Some((address, _)) = address.and_then(|rest| rest.split_once('\n')) {
                let address = address.parse()?;
                wait(address, name, wanted)?;
                return Ok(address);
            }
            std::thread::park_timeout(Duration::from_millis(1));
        }
        bail!("it does not listen")
    }

    /// A line of its memory.
    fn mib(&self, label: &str) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix(label));
        let number = line.and_then(|line| line.split_whitespace().next());
        Ok(number
            .with_context(|| format!("no {label}"))?
            .parse::<u64>()?
            / 1024)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}
