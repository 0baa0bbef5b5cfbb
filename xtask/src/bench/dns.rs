//! `bench dns`: `tombolo dns` beside a real CoreDNS with its `multicluster` option, over the same
//! API server, on the same core, one after the other in one run.
//!
//! What is compared is the work that a query is, in CPU time of the server process, as a fast
//! server is never busy with what one core of dnsperf sends. dnsperf runs on another core.

mod change;
mod load;
mod servers;

use std::path::PathBuf;

use anyhow::{Result, ensure};

use self::load::{LOADS, Load, measure};
pub(super) use self::load::{Times, connect, question};
use self::servers::{Bed, Server};

/// Measures DNS beside CoreDNS
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The binary to measure. Default: the release build.
    #[arg(long, default_value = "target/release/tombolo")]
    binary: PathBuf,

    /// How long each load runs, in seconds
    #[arg(long, default_value_t = 5)]
    seconds: u32,

    /// Services with clusterset IPs, and half as many headless ones
    #[arg(long, default_value_t = 400)]
    services: u32,

    /// Ready endpoints of a headless service
    #[arg(long, default_value_t = 6)]
    endpoints: u32,

    /// Queries a second at which latency is measured
    #[arg(long, default_value_t = 2_000)]
    rate: u32,

    /// Endpoint changes that are timed
    #[arg(long, default_value_t = 100)]
    changes: u32,

    /// The core of the servers; dnsperf has the next one
    #[arg(long, default_value_t = 0)]
    core: usize,
}

#[expect(clippy::print_stdout, reason = "its result is what it prints")]
pub(crate) fn run(args: &Args) -> Result<()> {
    ensure!(args.binary.is_file(), "no binary {}", args.binary.display());
    let bed = Bed::start(args)?;
    let servers = [bed.tombolo(args)?, bed.coredns(args)?];
    for server in &servers {
        Bed::wait_ready(server, args)?;
    }
    println!(
        "{} ClusterSetIP services, {} headless of {} endpoints; {} s for each load; resident: {}",
        args.services,
        args.services / 2,
        args.endpoints,
        args.seconds,
        memory(&servers)?
    );
    println!(
        "{:<22} {:>24} {:>24} {:>7}",
        "", servers[0].name, servers[1].name, "ratio"
    );
    for load in LOADS {
        throughput(args, &bed, &servers, load)?;
    }
    println!("at {} queries a second, UDP, ClusterSetIP A:", args.rate);
    for server in &servers {
        let latency = load::latency(server, &bed.file(&LOADS[0]), args)?;
        println!("  {:<20} {latency}", server.name);
    }
    println!("resident after the loads: {}", memory(&servers)?);
    println!(
        "{} endpoint changes, from the write to the changed answer:",
        args.changes
    );
    for (name, times) in change::measure(&bed, &servers, args.changes)? {
        println!("  {name:<20} {times}");
    }
    Ok(())
}

/// One load on both servers.
#[expect(clippy::print_stdout, reason = "its result is what it prints")]
fn throughput(args: &Args, bed: &Bed, servers: &[Server; 2], load: &Load) -> Result<()> {
    let mut micros = Vec::new();
    let mut cells = Vec::new();
    for server in servers {
        let measured = measure(server, load, &bed.file(load), args)?;
        micros.push(measured.cpu_micros);
        cells.push(format!(
            "{:.2} µs CPU, {:.0} q/s",
            measured.cpu_micros, measured.per_second
        ));
    }
    let ratio = micros[1] / micros[0];
    println!(
        "{:<22} {:>24} {:>24} {ratio:>6.1}×",
        load.name, cells[0], cells[1]
    );
    Ok(())
}

fn memory(servers: &[Server; 2]) -> Result<String> {
    let each = servers.iter().map(|server| {
        let mib = server.resident_kib()? / 1024;
        Ok(format!("{} {mib} MiB", server.name))
    });
    Ok(each.collect::<Result<Vec<_>>>()?.join(", "))
}
