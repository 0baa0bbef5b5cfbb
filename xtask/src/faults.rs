//! `cargo xtask faults`: puts known mistakes into a copy of the model, one at a time, and asserts
//! that its tests notice each. A test suite that lets one through is worth less than it looks.
//!
//! ```text
//! tree ─copy─► <target>/faults/tree ─► tests pass ─► for each fault: replace, tests fail, put back
//! ```

mod list;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context as _, bail, ensure};

use crate::repository;

/// The tests that must notice, the quick ones first.
const TESTS: [&[&str]; 2] = [
    &["-p", "tombolo-model", "--lib"],
    &["-p", "tombolo-testkit"],
];

/// Puts mistakes into the model and asserts that its tests notice.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only those whose names contain one of these words.
    words: Vec<String>,
    /// Only every n-th: a sample for a build that has little time.
    #[arg(long, default_value_t = 1, value_name = "N")]
    every: usize,
    /// Say what there is, and that it still applies.
    #[arg(long)]
    list: bool,
}

/// A mistake: in a file, one text in place of another that is there exactly once.
struct Fault {
    /// What is wrong, in a few words.
    name: &'static str,
    /// The file, from the root of the repository.
    file: &'static str,
    /// What is right.
    from: &'static str,
    /// What is wrong.
    to: &'static str,
}

impl Fault {
    /// The file with the mistake in it.
    fn apply(&self, root: &Path) -> anyhow::Result<String> {
        let path = root.join(self.file);
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let count = text.matches(self.from).count();
        ensure!(
            count == 1,
            "fault {:?}: its text is in {} {count} times, must be there once; write it anew",
            self.name,
            self.file
        );
        Ok(text.replacen(self.from, self.to, 1))
    }
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let Args { words, every, list } = args;
    let is_asked =
        |fault: &&Fault| words.is_empty() || words.iter().any(|w| fault.name.contains(w));
    let faults: Vec<&Fault> = list::FAULTS
        .iter()
        .filter(is_asked)
        .step_by(every.max(1))
        .collect();
    ensure!(
        !faults.is_empty(),
        "no fault has a name with {words:?} in it"
    );
    for fault in &faults {
        fault.apply(repository::root())?;
    }
    if list {
        for fault in &faults {
            say(&format!("{} ({})", fault.name, fault.file));
        }
        return Ok(());
    }
    let tree = copy()?;
    for tests in TESTS {
        if let Some(failed) = failure(&tree, tests)? {
            bail!("without any fault, {failed} fails");
        }
    }
    let missed = faults
        .iter()
        .filter_map(|fault| match notice(&tree, fault) {
            Ok(by) => {
                say(&format!("caught   {} by {by}", fault.name));
                None
            }
            Err(error) => {
                say(&format!("MISSED   {}: {error:#}", fault.name));
                Some(fault.name)
            }
        });
    let missed: Vec<&str> = missed.collect();
    ensure!(missed.is_empty(), "no test notices: {}", missed.join("; "));
    say(&format!("all {} faults are caught", faults.len()));
    Ok(())
}

/// Which test notices the fault.
fn notice(tree: &Path, fault: &Fault) -> anyhow::Result<String> {
    let path = tree.join(fault.file);
    let right = fs::read_to_string(&path)?;
    fs::write(&path, fault.apply(tree)?)?;
    let mut results = TESTS.iter().map(|tests| failure(tree, tests));
    let failed = results.find_map(Result::transpose);
    fs::write(&path, right)?;
    failed.unwrap_or_else(|| bail!("every test passes"))
}

/// The test that fails, if one does.
fn failure(tree: &Path, tests: &[&str]) -> anyhow::Result<Option<String>> {
    let tested = test(tree, tests)?;
    if tested.status.success() {
        return Ok(None);
    }
    let text = String::from_utf8_lossy(&tested.stdout);
    let failed = text
        .lines()
        .find_map(|line| line.strip_suffix(" ... FAILED"));
    match failed {
        Some(failed) => Ok(Some(failed.trim_start_matches("test ").to_owned())),
        None => bail!("it does not compile: {}", tail(&tested)),
    }
}

/// Copies what git knows, as it is in the work tree.
fn copy() -> anyhow::Result<PathBuf> {
    let root = repository::root();
    let tree = place(root).join("tree");
    if tree.exists() {
        fs::remove_dir_all(&tree)?;
    }
    let mut git = Command::new("git");
    git.args([
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]);
    let listed = git.current_dir(root).output().context("run git")?;
    ensure!(listed.status.success(), "git ls-files: {}", tail(&listed));
    for name in String::from_utf8(listed.stdout)?.split_terminator('\0') {
        let (from, to) = (root.join(name), tree.join(name));
        // A file that was deleted and not committed yet is still in git's list.
        if from.is_file() {
            fs::create_dir_all(to.parent().context("a file has a folder")?)?;
            fs::copy(&from, &to).with_context(|| format!("copy {name}"))?;
        }
    }
    Ok(tree)
}

/// Where the copy and its build are. The build is its own: cargo tells packages of a workspace
/// apart by their place in it, so a shared one would mix the mistakes into the real thing.
fn place(root: &Path) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR");
    target
        .map_or_else(|| root.join("target"), PathBuf::from)
        .join("faults")
}

fn test(tree: &Path, tests: &[&str]) -> anyhow::Result<Output> {
    let mut cargo = Command::new("cargo");
    cargo.arg("test").args(tests).current_dir(tree);
    cargo.env("CARGO_TARGET_DIR", place(repository::root()).join("build"));
    // That a test fails is enough: what it fails on needs not be made small.
    cargo.env("PROPTEST_MAX_SHRINK_ITERS", "0");
    cargo.output().context("run cargo test")
}

/// The end of what a command said.
fn tail(output: &Output) -> String {
    let text = [&*output.stdout, &*output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(30)..].join("\n")
}

fn say(line: &str) {
    // With stdout gone the exit code still says it.
    writeln!(std::io::stdout(), "{line}").ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_still_applies() {
        for fault in &list::FAULTS {
            let wrong = fault.apply(repository::root()).unwrap();
            assert!(wrong.contains(fault.to), "{}", fault.name);
        }
    }
}
