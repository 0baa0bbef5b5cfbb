//! Subcommands of the tombolo binary: arguments, wiring and output.
//!
//! ```text
//! arguments ─args─► checked input ─input─► clusterset ─► view ─print─► table, JSON, YAML
//! ```
//!
//! Each command is a module of its own; what a clusterset is made of is wired in `clusterset`.

mod admin;
mod args;
mod clock;
mod clusterset;
mod controller;
mod crds;
mod dns;
mod dns_stub;
mod exit;
mod input;
mod lane;
mod live;
mod logging;
mod membership;
mod metrics;
mod names;
mod options;
mod plan;
mod print;
mod question;
mod reader;
mod registry;
mod replicator;
mod rules;
mod screen;
mod shared;
mod supervisor;
mod table;
mod up;
mod view;
mod zones;

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _};

use crate::args::{Cli, Command};
use crate::input::{Refusal, context_of};

pub use crate::exit::Exit;

/// Runs the program with the arguments of this process.
pub fn run() -> ExitCode {
    let parsed = Cli::command().try_get_matches();
    let parsed = parsed.and_then(|m| Cli::from_arg_matches(&m).map(|cli| (cli, m)));
    let (mut cli, matches) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => {
            let is_asked = !error.use_stderr();
            // Help that nobody can read any more is no failure.
            let _nobody = error.print();
            return if is_asked {
                Exit::Well.into()
            } else {
                Exit::Usage.into()
            };
        }
    };
    if let Err(refusal) = options::check(&cli.command, &matches) {
        return refused(refusal);
    }
    options::ignore_registry_of_environment(&mut cli.command, &matches);
    let threads = match &cli.command {
        Command::Dns(args) => args.threads(),
        // One reads while another decides; more would only idle.
        Command::Plan(_)
        | Command::Up(_)
        | Command::Controller(_)
        | Command::DnsStub(_)
        | Command::Crds(_)
        | Command::Registry(_)
        | Command::Replicator(_)
        | Command::Drain(_)
        | Command::Undrain(_)
        | Command::Leave(_) => 2,
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            print::complain(&format!("cannot start: {error}"));
            return Exit::Failed.into();
        }
    };
    let result = runtime.block_on(async {
        match cli.command {
            Command::Plan(args) => plan::run(*args).await,
            Command::Up(args) if args.sources.sources.iter().any(|s| context_of(s).is_some()) => {
                Box::pin(controller::run_up(*args)).await
            }
            Command::Up(args) => up::run(*args).await,
            Command::Controller(args) => controller::run(*args).await,
            Command::Dns(args) => dns::run(*args).await,
            Command::DnsStub(args) => dns_stub::run(*args).await,
            Command::Crds(args) => crds::run(args).await,
            Command::Registry(args) => Box::pin(registry::run(*args)).await,
            Command::Replicator(args) => replicator::run(*args).await,
            Command::Drain(args) => Box::pin(membership::drain(*args)).await,
            Command::Undrain(args) => membership::undrain(*args).await,
            Command::Leave(args) => Box::pin(membership::leave(*args)).await,
        }
    });
    match result {
        Ok(exit) => exit.into(),
        Err(refusal) => refused(refusal),
    }
}

/// Says why, and ends.
fn refused(Refusal { exit, messages }: Refusal) -> ExitCode {
    for message in messages {
        print::complain(&message);
    }
    exit.into()
}
