//! `cargo xtask bench <name>`: measures and reports; asserts no time.

mod dns;
mod dns_size;
mod fleet;
mod model;
mod propagation;
mod registry;

use anyhow::Result;
use clap::Subcommand;

/// Measures how fast and how large the product is.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Subcommand)]
enum Bench {
    Dns(dns::Args),
    DnsSize(dns_size::Args),
    Model(model::Args),
    /// From one real cluster to another, on the testbed.
    Propagation(propagation::Args),
    /// A controller that faces a large fleet through etcd, on the testbed.
    Registry(registry::Args),
}

pub(crate) fn run(args: Args) -> Result<()> {
    match args.bench {
        Bench::Dns(args) => dns::run(&args),
        Bench::DnsSize(args) => dns_size::run(&args),
        Bench::Model(args) => model::run(&args),
        Bench::Propagation(args) => propagation::run(&args),
        Bench::Registry(args) => registry::run(&args),
    }
}
