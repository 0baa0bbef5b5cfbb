//! Tasks of the repository: `cargo xtask <task>`.
//!
//! Each task is a file with its arguments (`Args`) and a function `run`; a new one is such a
//! file, a variant of [`Task`] and an arm in [`main`].

mod arch;
mod bench;
mod faults;
mod generate;
mod repository;
mod soak;

use std::io::Write as _;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Tasks of the repository.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    Arch(arch::Args),
    Bench(bench::Args),
    Faults(faults::Args),
    Generate(generate::Args),
    Soak(soak::Args),
}

fn main() -> ExitCode {
    let done = match Cli::parse().task {
        Task::Arch(args) => arch::run(args),
        Task::Bench(args) => bench::run(args),
        Task::Faults(args) => faults::run(args),
        Task::Generate(args) => generate::run(args),
        Task::Soak(args) => soak::run(args),
    };
    let Err(error) = done else {
        return ExitCode::SUCCESS;
    };
    // With stderr gone the exit code still says it.
    writeln!(std::io::stderr(), "error: {error:#}").ok();
    ExitCode::FAILURE
}
