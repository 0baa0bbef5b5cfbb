//! `cargo xtask arch`: whether the crates depend on each other as the design says, and the source
//! files have the shape that the style asks for.

mod graph;
mod rules;
mod sources;

use std::io::Write as _;

use anyhow::bail;

use self::graph::Graph;
use crate::repository;

/// Checks the direction of dependencies and the shape of source files
#[derive(clap::Args)]
pub(crate) struct Args {}

/// Reports everything that is wrong, or that nothing is.
pub(crate) fn run(Args {}: Args) -> anyhow::Result<()> {
    let root = repository::root();
    let graph = Graph::of_workspace(root)?;
    let mut problems = rules::check(&graph);
    let (files, wrong_files) = sources::check(root)?;
    problems.extend(wrong_files);
    if !problems.is_empty() {
        bail!("{} problems\n  {}", problems.len(), problems.join("\n  "));
    }
    let crates = graph.members().count();
    writeln!(
        std::io::stdout(),
        "arch: {crates} crates and {files} source files are in order"
    )?;
    Ok(())
}
