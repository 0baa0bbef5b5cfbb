//! `testbed`: the command for people.

mod cli;
mod report;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    match cli::Args::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report::error(&error);
            ExitCode::FAILURE
        }
    }
}
