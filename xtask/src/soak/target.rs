//! The server under load: `tombolo up` on the example.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tombolo_testbed::wait_for;

use crate::repository;

const PATIENCE: Duration = Duration::from_mins(1);

/// A running server. Killed when dropped.
pub(super) struct Target {
    child: Child,
    pub(super) address: SocketAddr,
    logs: tempfile::TempDir,
}

impl Target {
    pub(super) fn start(binary: &Path) -> Result<Self> {
        let logs = tempfile::tempdir()?;
        let file = |name: &str| fs::File::create(logs.path().join(name));
        let child = Command::new(binary)
            .arg("up")
            .arg(repository::root().join("examples/shop"))
            .stdout(file("stdout")?)
            .stderr(file("stderr")?)
            .spawn()
            .with_context(|| binary.display().to_string())?;
        let mut target = Self {
            child,
            address: ([127, 0, 0, 1], 0).into(),
            logs,
        };
        target.address = wait_for("the DNS server", PATIENCE, || {
            let text = fs::read_to_string(target.logs.path().join("stdout"))?;
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix("berlin dns "));
            Ok(line.and_then(|address| address.parse().ok()))
        })?;
        Ok(target)
    }

    /// Its resident memory.
    pub(super) fn resident_kib(&self) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.split_whitespace().next());
        Ok(number.context("no VmRSS")?.parse()?)
    }

    /// Ends it as Ctrl-C does.
    pub(super) fn finish(mut self) -> Result<()> {
        let pid = i32::try_from(self.child.id())?;
        nix::sys::signal::kill(
            nix::unistd::Pid::from_raw(pid),
            nix::sys::signal::Signal::SIGINT,
        )?;
        let status = wait_for("its end", PATIENCE, || Ok(self.child.try_wait()?))?;
        let stderr = fs::read_to_string(self.logs.path().join("stderr"))?;
        ensure!(
            status.success() && !stderr.contains("panicked"),
            "{status}: {stderr}"
        );
        Ok(())
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}
