//! `bench model`: the model at the size of a large fleet. Time and peak memory of `plan`, and
//! what one endpoint change costs an engine at 1 %, 10 % and 100 % of that size.

#![expect(clippy::disallowed_types, reason = "a benchmark measures real time")]
#![expect(clippy::print_stdout, reason = "its result is what it prints")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use tombolo_cluster::store::{KINDS, Store, VipRanges};
use tombolo_model::config::Config;
use tombolo_model::engine::Engine;
use tombolo_model::fleet::Fleet;
use tombolo_model::io::{Action, Effect, Input, Outcome};
use tombolo_model::names::ClusterName;
use tombolo_model::object::{GlobalMark, NamespaceObject, Object};
use tombolo_model::service::IpFamily;

use super::fleet::{Size, namespaces};

/// The size that the figures are quoted for.
const FULL: Size = Size {
    clusters: 200,
    services: 2_000,
    exporters: 3,
    endpoints: 20,
};

/// How many endpoint changes are timed.
const CHANGES: usize = 2_000;

/// Measures the model.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The binary to measure `plan` with. Default: the release build.
    #[arg(long, default_value = "target/release/tombolo")]
    binary: PathBuf,

    /// Only the engine, not `plan`.
    #[arg(long)]
    engine_only: bool,

    /// The clusters of the fleet.
    #[arg(long, default_value_t = FULL.clusters)]
    clusters: usize,

    /// The services of the fleet.
    #[arg(long, default_value_t = FULL.services)]
    services: usize,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let fleet = Size {
        clusters: args.clusters,
        services: args.services,
        ..FULL
    };
    if !args.engine_only {
        plan(&args.binary, fleet)?;
    }
    println!("one endpoint change in an engine ({CHANGES} changes each)");
    println!(
        "{:>8} {:>9} {:>10} {:>10} {:>16}",
        "services", "endpoints", "median", "p99", "services planned"
    );
    for percent in [1, 10, 100] {
        engine(Size {
            services: fleet.services * percent / 100,
            ..fleet
        })?;
    }
    Ok(())
}

/// Runs `plan` over the whole fleet as directories.
fn plan(binary: &Path, fleet: Size) -> Result<()> {
    let directory = tempfile::tempdir()?;
    fleet.write(directory.path())?;
    let started = Instant::now();
    let status = Command::new(binary)
        .args(["plan", "-o", "json"])
        .arg(directory.path())
        .stdout(Stdio::null())
        .status()
        .with_context(|| {
            format!(
                "cannot run {}; build it with cargo build --release",
                binary.display()
            )
        })?;
    let took = started.elapsed();
    ensure!(status.success(), "plan ended with {status}");
    let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_CHILDREN)?;
    println!(
        "plan of {} clusters, {} services × {} exporters × {} endpoints: {:.1} s, {} MiB at most",
        fleet.clusters,
        fleet.services,
        fleet.exporters,
        fleet.endpoints,
        took.as_secs_f64(),
        usage.max_rss() / 1024
    );
    Ok(())
}

/// Settles one importing cluster, then times changes.
fn engine(size: Size) -> Result<()> {
    let now: Timestamp = "2026-06-01T00:00:00Z".parse()?;
    let mut bench = Bench::settled(size, now)?;
    let mut times = Vec::with_capacity(CHANGES);
    let planned = bench.engine.planned_total();
    for change in 0..CHANGES {
        let (service, exporter) = (change * 13 % size.services, change % size.exporters);
        let ready = change / size.services % 2 == 1;
        let record = size.endpoint(service, exporter, change % size.endpoints, ready)?;
        let started = Instant::now();
        bench.fleet.observe(record);
        let writes = bench.settle(now);
        times.push(started.elapsed());
        ensure!(writes <= 1, "one endpoint change wrote {writes} objects");
    }
    times.sort_unstable();
    let at = |permille: usize| {
        times
            .get(times.len() * permille / 1000)
            .copied()
            .unwrap_or_default()
    };
    let micros = |time: Duration| format!("{:.1} µs", time.as_secs_f64() * 1e6);
    let planned = bench.engine.planned_total() - planned;
    let endpoints = size.services * size.exporters * size.endpoints;
    println!(
        "{:>8} {:>9} {:>10} {:>10} {:>16}",
        size.services,
        endpoints,
        micros(at(500)),
        micros(at(990)),
        planned
    );
    Ok(())
}

/// An importing cluster of a fleet.
struct Bench {
    fleet: Fleet,
    engine: Engine,
    store: Store,
}

impl Bench {
    fn settled(size: Size, now: Timestamp) -> Result<Self> {
        let cluster = ClusterName::try_new("importer")?;
        let families = vec![IpFamily::V4];
        let store = Store::new(cluster.clone(), families.clone(), &VipRanges::default());
        let engine = Engine::new(Config::new(cluster));
        let mut bench = Self {
            fleet: Fleet::default(),
            engine,
            store,
        };
        for kind in KINDS {
            for input in bench.store.list(kind) {
                bench.engine.observe(now, input);
            }
        }
        bench.engine.observe(now, Input::Families(families));
        for name in namespaces()? {
            let declared =
                tombolo_cluster::manifest::Declared::Namespace(Arc::new(NamespaceObject {
                    name,
                    labels: Arc::default(),
                    global: GlobalMark::Absent,
                    terminating: false,
                    resource_version: "".into(),
                }));
            if let Some(input) = bench.store.apply(&declared, now)? {
                bench.engine.observe(now, input);
            }
        }
        for record in size.records()? {
            bench.fleet.observe(record);
        }
        bench.settle(now);
        let slices = bench
            .store
            .objects()
            .filter(|o| matches!(o, Object::EndpointSlice(_)))
            .count();
        ensure!(
            slices == size.services * size.exporters,
            "{slices} slices are there"
        );
        Ok(bench)
    }

    /// Runs the engine until it is quiet; says how many objects it wrote.
    fn settle(&mut self, now: Timestamp) -> usize {
        let mut writes = 0;
        let mut inputs = self.fleet.drain();
        while !inputs.is_empty() {
            for input in std::mem::take(&mut inputs) {
                self.engine.observe(now, input);
            }
            for Action { id, effect } in self.engine.act(now) {
                if matches!(effect, Effect::Event(_)) {
                    continue;
                }
                let outcome = match self.store.execute(&effect, now) {
                    Some(reply) => {
                        inputs.extend(reply.changes);
                        reply.outcome
                    }
                    None => Outcome::Published(1),
                };
                writes += 1;
                inputs.push(Input::Outcome { id, outcome });
            }
        }
        writes
    }
}
