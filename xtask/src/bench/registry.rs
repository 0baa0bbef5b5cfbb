//! `bench registry`: a controller that faces a large fleet through a real etcd: how long until it
//! has everything, its memory, and what one changed endpoint costs, at 1 %, 10 % and 100 % of the
//! fleet. It imports every service into a real API server, unless it is told to only look on.

#![expect(clippy::disallowed_types, reason = "a benchmark measures real time")]

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tokio::sync::mpsc;
use tombolo_cluster::api::{Access, Report, Server, apply_crds, ensure_namespace, watch};
use tombolo_model::io::Input;
use tombolo_model::object::{Kind, Object};
use tombolo_testbed::{Cache, Etcd, EtcdSpec, Part, Progress, Spec, Testbed, wait_for};

mod fill;

use self::fill::Filler;
use super::fleet::{Size, namespaces};
use super::propagation::{Counters, built, free_address, report};

/// The size that the figures are quoted for (DESIGN §3).
const FULL: Size = Size {
    clusters: 511,
    services: 10_000,
    exporters: 5,
    endpoints: 20,
};
/// The first start writes 110,000 objects.
const PATIENCE: Duration = Duration::from_mins(30);
/// Nothing that follows from one change takes as long.
const LOST_AFTER: Duration = Duration::from_secs(30);
/// How often it is looked, which is how exact times of starts are.
const LOOK: Duration = Duration::from_millis(50);
/// It has settled once it has had nothing to do for so many looks.
const QUIET_LOOKS: u32 = 20;

/// Options.
#[derive(clap::Args)]
pub(super) struct Args {
    /// The program to be measured; it is built if it is not given.
    #[arg(long)]
    tombolo: Option<PathBuf>,

    /// The services of the fleet.
    #[arg(long, default_value_t = FULL.services)]
    services: usize,

    /// The parts of the fleet that are measured, in percent of the services.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 10, 100])]
    percent: Vec<usize>,

    /// How many endpoint changes are measured.
    #[arg(long, default_value_t = 500)]
    changes: u32,

    /// Import nothing: the cluster has none of the namespaces.
    #[arg(long)]
    no_imports: bool,
}

pub(super) fn run(args: &Args) -> Result<()> {
    let tombolo = match &args.tombolo {
        Some(path) => path.clone(),
        None => built()?,
    };
    let runtime = tokio::runtime::Runtime::new()?;
    for percent in &args.percent {
        let size = Size {
            services: args.services * percent / 100,
            ..FULL
        };
        let bench = Bench::start(&runtime, &tombolo, size, args)?;
        bench.run().with_context(|| format!("{percent} %"))?;
    }
    Ok(())
}

/// One fleet, and the cluster whose controller is measured.
struct Bench<'a> {
    runtime: &'a tokio::runtime::Runtime,
    tombolo: &'a PathBuf,
    args: &'a Args,
    size: Size,
    testbed: Testbed,
    etcd: Etcd,
    filler: Filler,
}

/// A controller that runs.
struct Running {
    part: Part,
    counters: Counters,
}

impl<'a> Bench<'a> {
    fn start(
        runtime: &'a tokio::runtime::Runtime,
        tombolo: &'a PathBuf,
        size: Size,
        args: &'a Args,
    ) -> Result<Self> {
        let spec = Spec::clusters(1, |cluster| cluster);
        let mut testbed = Testbed::start_with(&spec, Cache::from_env()?, Progress::stderr())?;
        let etcd = testbed.start_etcd("registry", &EtcdSpec::default())?;
        let filler = Filler::new(etcd.endpoints());
        let began = Instant::now();
        let keys = runtime.block_on(filler.fill(size))?;
        report(&format!(
            "{} clusters, {} services × {} exporters × {} endpoints: {keys} keys, filled in {:.1} s",
            size.clusters,
            size.services,
            size.exporters,
            size.endpoints,
            began.elapsed().as_secs_f64()
        ));
        Ok(Self {
            runtime,
            tombolo,
            args,
            size,
            testbed,
            etcd,
            filler,
        })
    }

    fn run(&self) -> Result<()> {
        let server = self.runtime.block_on(self.prepare())?;
        let (first, began) = self.controller("first")?;
        first.settle("first start", began, self.size, self.imports())?;
        self.change(&first, &server)?;
        first.memory("after the changes")?;
        first.part.stop(LOST_AFTER)?;
        let (second, began) = self.controller("second")?;
        second.settle("restart", began, self.size, self.imports())?;
        second.part.stop(LOST_AFTER)
    }

    /// How many imports there will be.
    fn imports(&self) -> usize {
        if self.args.no_imports {
            0
        } else {
            self.size.services
        }
    }

    async fn prepare(&self) -> Result<Server> {
        let access = Access::Kubeconfig {
            file: Some(self.testbed.kubeconfig_file()),
            context: Some("c1".to_owned()),
        };
        let server = access.server().await?;
        apply_crds(&server).await?;
        ensure_namespace(&server, "tombolo-system").await?;
        if !self.args.no_imports {
            for namespace in namespaces()? {
                ensure_namespace(&server, namespace.as_str()).await?;
            }
        }
        Ok(server)
    }

    fn controller(&self, name: &str) -> Result<(Running, Instant)> {
        let admin = free_address()?;
        let mut command = Command::new(self.tombolo);
        command.args(["controller", "--cluster", "viewer", "--context", "c1"]);
        command.args(["--log", "warn", "--admin", &admin.to_string()]);
        command.args(["--registry", &self.etcd.endpoints().join(",")]);
        command
            .arg("--kubeconfig")
            .arg(self.testbed.kubeconfig_file());
        let began = Instant::now();
        let part = self.testbed.start_program(name, &command, None)?;
        let counters = Counters(admin);
        Ok((Running { part, counters }, began))
    }

    /// Changes one endpoint after the other.
    fn change(&self, controller: &Running, server: &Server) -> Result<()> {
        let work = async {
            let (tx, mut rx) = mpsc::channel(4096);
            let seen = async {
                let times = self.changes(&mut rx, controller).await?;
                Ok::<_, anyhow::Error>(times)
            };
            tokio::select! {
                () = watch(server.clone(), Kind::EndpointSlice, tx) => {
                    anyhow::bail!("the watch has ended")
                }
                seen = seen => seen,
            }
        };
        let (mut times, cpu) = self.runtime.block_on(work)?;
        times.sort_unstable();
        let at = |percent: usize| {
            let index = (times.len() * percent / 100).min(times.len().saturating_sub(1));
            times.get(index).map_or(0.0, |t| t.as_secs_f64() * 1_000.0)
        };
        let each = cpu.as_secs_f64() * 1_000.0 / f64::from(self.args.changes);
        let latency = if times.is_empty() {
            String::new()
        } else {
            format!(
                ", from etcd to the changed slice p50 {:.1} ms, p99 {:.1} ms",
                at(50),
                at(99)
            )
        };
        report(&format!(
            "  {} changes of one endpoint: {each:.2} ms of CPU each{latency}",
            self.args.changes
        ));
        Ok(())
    }

    /// How long each change took to the event of its slice, and what all of them cost the
    /// controller.
    async fn changes(
        &self,
        events: &mut mpsc::Receiver<Report>,
        controller: &Running,
    ) -> Result<(Vec<Duration>, Duration)> {
        let mut times = Vec::new();
        if !self.args.no_imports {
            // What there is already.
            while !matches!(
                events.recv().await,
                None | Some(Report::Watch {
                    state: tombolo_cluster::api::WatchState::Live,
                    ..
                })
            ) {}
        }
        let before = controller.cpu()?;
        for number in 0..self.args.changes {
            let change = fill::Change::of(self.size, number as usize)?;
            let began = Instant::now();
            self.filler.change(&change).await?;
            if self.args.no_imports {
                tokio::time::sleep(Duration::from_millis(5)).await;
                continue;
            }
            let seen = async {
                loop {
                    let report = events.recv().await.context("no watch")?;
                    if let Report::Inputs(inputs) = report
                        && inputs.iter().any(|input| shows(input, &change))
                    {
                        return Ok::<_, anyhow::Error>(());
                    }
                }
            };
            tokio::time::timeout(LOST_AFTER, seen)
                .await
                .with_context(|| format!("change {number} never came"))??;
            times.push(began.elapsed());
        }
        // What it still does of them.
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok((times, controller.cpu()?.saturating_sub(before)))
    }
}

/// Whether a slice has the changed endpoint as it is now.
fn shows(input: &Input, change: &fill::Change) -> bool {
    let Input::Applied(Object::EndpointSlice(slice)) = input else {
        return false;
    };
    let mut endpoints = slice.endpoints.iter();
    tombolo_model::own::import_of(slice).as_ref() == Some(&change.service)
        && endpoints.any(|e| e.address == change.address && e.conditions.ready == change.ready)
}

impl Running {
    /// Waits until it has everything and nothing to do, and says what that took.
    fn settle(&self, what: &str, began: Instant, size: Size, imports: usize) -> Result<()> {
        let mut quiet = 0;
        let mut since = began.elapsed();
        wait_for("a settled controller", PATIENCE, || {
            self.part.check_running()?;
            let is_quiet = self.is_quiet(size, imports).unwrap_or(false);
            if is_quiet {
                quiet += 1;
            } else {
                quiet = 0;
                since = began.elapsed();
            }
            pause(LOOK);
            Ok((quiet >= QUIET_LOOKS).then_some(()))
        })
        .with_context(|| self.part.log_tail())?;
        report(&format!(
            "  {what}: settled after {:.1} s with {:.1} s of CPU and {} writes to the API server",
            (since + LOOK).as_secs_f64(),
            self.cpu()?.as_secs_f64(),
            self.counters.total()?
        ));
        self.memory(what)
    }

    /// Whether it has everything, all imports are ready and it has nothing to do. A server that is
    /// busy makes it wait with nothing in hand, so no part of this is enough.
    fn is_quiet(&self, size: Size, imports: usize) -> Result<bool> {
        let state: Value = serde_json::from_str(&self.counters.get("/debug/state")?)?;
        let number = |field: &str| state[0][field].as_u64().unwrap_or(0);
        let has_all = number("servicesPlanned") >= size.services as u64;
        if !has_all || number("session") == 0 || number("queued") + number("inFlight") > 0 {
            return Ok(false);
        }
        let metrics = self.counters.get("/metrics")?;
        let is_ready = |line: &&str| {
            line.starts_with("tombolo_serviceimport_status_condition")
                && line.contains("condition=\"Ready\",status=\"True\"")
        };
        Ok(metrics.lines().filter(is_ready).count() >= imports)
    }

    fn memory(&self, what: &str) -> Result<()> {
        report(&format!(
            "  {what}: resident {} MiB, at most {} MiB",
            self.mib("VmRSS:")?,
            self.mib("VmHWM:")?
        ));
        Ok(())
    }

    fn proc(&self, file: &str) -> Result<String> {
        let pid = self.part.pid().context("it has ended")?;
        Ok(fs::read_to_string(format!("/proc/{pid}/{file}"))?)
    }

    /// A line of its memory.
    fn mib(&self, label: &str) -> Result<u64> {
        let status = self.proc("status")?;
        let line = status.lines().find_map(|line| line.strip_prefix(label));
        let number = line.and_then(|line| line.split_whitespace().next());
        Ok(number
            .with_context(|| format!("no {label}"))?
            .parse::<u64>()?
            / 1024)
    }

    /// Its time on a processor so far, of user and system.
    fn cpu(&self) -> Result<Duration> {
        let stat = self.proc("stat")?;
        // After the name, which may hold anything; a tick is 10 ms.
        let (_, fields) = stat.rsplit_once(')').context("no name")?;
        let ticks = fields.split_whitespace().skip(11).take(2);
        let ticks: u64 = ticks.map(|t| t.parse::<u64>().unwrap_or(0)).sum();
        ensure!(ticks > 0, "no time");
        Ok(Duration::from_millis(ticks * 10))
    }
}

#[expect(clippy::disallowed_methods, reason = "no runtime is blocked")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}
