//! Processes by id and start time: so that a recorded process is never mistaken for another one
//! that got its id later, also by a later run of the testbed that cleans up.

use std::{
    fs,
    os::unix::process::ExitStatusExt as _,
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde::{Deserialize, Serialize};

use crate::{cancel::Cancel, clock, command};

/// A process of this machine: its id, and when it started in clock ticks since boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessId {
    pub(crate) pid: i32,
    started: u64,
}

/// What /proc says of a process.
struct Stat {
    parent: i32,
    started: u64,
    /// Whether it only waits to be waited for: all its threads have ended, and with them its open
    /// files and ports. The first thread of several may well end before the others.
    is_zombie: bool,
}

impl ProcessId {
    /// The process that has this id now.
    pub(crate) fn of(pid: i32) -> Result<Self> {
        let stat = stat(pid).with_context(|| format!("process {pid} ended at once"))?;
        Ok(Self {
            pid,
            started: stat.started,
        })
    }

    /// This process.
    pub(crate) fn own() -> Result<Self> {
        Self::of(rustix::process::getpid().as_raw_nonzero().get())
    }

    /// Whether it runs (a zombie does not).
    pub(crate) fn is_alive(self) -> bool {
        stat(self.pid).is_some_and(|stat| stat.started == self.started && !stat.is_zombie)
    }

    /// Sends a signal; nothing happens if the process is gone.
    pub(crate) fn signal(self, signal: Signal) -> Result<()> {
        if !self.is_alive() {
            return Ok(());
        }
        let pid = Pid::from_raw(self.pid).context("process id 0")?;
        match kill_process(pid, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(error).with_context(|| format!("cannot signal process {pid:?}")),
        }
    }

    /// The only child of this process, or none yet.
    pub(crate) fn child(self) -> Result<Option<Self>> {
        for entry in fs::read_dir("/proc")? {
            let Some(pid) = entry?
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok())
            else {
                continue;
            };
            if let Some(stat) = stat(pid).filter(|stat| stat.parent == self.pid) {
                return Ok(Some(Self {
                    pid,
                    started: stat.started,
                }));
            }
        }
        Ok(None)
    }
}

fn stat(pid: i32) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Reads a line of proc(5) `stat`: the name in parentheses may hold spaces and parentheses.
fn parse_stat(line: &str) -> Option<Stat> {
    let (_, rest) = line.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let threads: u32 = fields.get(17)?.parse().ok()?;
    Some(Stat {
        is_zombie: matches!(*fields.first()?, "Z" | "X") && threads <= 1,
        parent: fields.get(1)?.parse().ok()?,
        started: fields.get(19)?.parse().ok()?,
    })
}

/// Waits until none of the processes is alive.
pub(crate) fn wait_gone(processes: &[ProcessId], timeout: Duration) -> Result<()> {
    // Not `wait_for`: cleaning up goes on after Ctrl-C.
    let watch = clock::Stopwatch::start();
    while let Some(process) = processes.iter().find(|process| process.is_alive()) {
        if watch.elapsed() > timeout {
            bail!("process {} does not end", process.pid);
        }
        clock::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Runs a long command to completion in its own process group (the caller sets that), which is
/// killed when the testbed is cancelled.
pub(crate) fn run_cancellable(command: &mut Command) -> Result<()> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {}", command::shown(command)))?;
    let mut stderr = child.stderr.take().context("no standard error")?;
    let reader = std::thread::spawn(move || std::io::read_to_string(&mut stderr));
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if Cancel::is_set() {
            let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
            kill_process_group(group.context("process id 0")?, Signal::KILL)?;
            child.wait()?;
            Cancel::check()?;
        }
        clock::sleep(Duration::from_millis(50));
    };
    if !status.success() {
        let text = reader.join().ok().and_then(Result::ok).unwrap_or_default();
        let how = status
            .signal()
            .map_or_else(|| status.to_string(), |s| format!("signal {s}"));
        bail!(
            "{} failed ({how}): {}",
            command::shown(command),
            last_lines(&text, 20)
        );
    }
    Ok(())
}

/// The end of a text, for error messages.
pub(crate) fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_process_is_alive_and_a_later_one_of_its_id_is_another() {
        let own = ProcessId::own().unwrap();
        assert!(own.is_alive());
        assert!(
            !ProcessId {
                started: own.started + 1,
                ..own
            }
            .is_alive()
        );
    }

    #[test]
    fn stat_with_a_strange_name() {
        let line = "7 (a b) c) Z 3 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 4711 0";
        let stat = parse_stat(line).unwrap();
        assert!(stat.is_zombie);
        assert_eq!((stat.parent, stat.started), (3, 4711));
        // Its first thread has ended, another one still has the ports.
        let line = "7 (a) Z 3 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 2 0 4711 0";
        assert!(!parse_stat(line).unwrap().is_zombie);
    }

    #[test]
    fn last_lines_of_a_text() {
        assert_eq!(last_lines("a\nb\nc\n", 2), "b\nc");
        assert_eq!(last_lines("a", 2), "a");
    }
}
