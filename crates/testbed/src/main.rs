//! `testbed`: real etcd and Kubernetes clusters on this machine, for people.

mod cli;
mod report;

use clap::Parser as _;

fn main() -> anyhow::Result<()> {
    cli::Args::parse().run()
}
