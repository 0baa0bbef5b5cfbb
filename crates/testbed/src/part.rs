//! A part of a testbed: one process that can be killed, paused, cut off and restarted.
//!
//! What was started is recorded in the state folder, so that another process can do so as well.

use std::{
    fs::{self, File},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use parking_lot::Mutex;
use rustix::process::Signal;

use crate::{
    clock::{self, wait_for},
    command,
    netcut::{self, Side},
    process::{ProcessId, last_lines},
    record::{KILL_TIMEOUT, Launch, Place, Record, enter},
};

/// Until a helper has made the process that it is to run in other name spaces.
const FORK_TIMEOUT: Duration = Duration::from_secs(5);

/// One process of a testbed.
#[derive(Debug)]
pub struct Part {
    state: PathBuf,
    launch: Launch,
    running: Mutex<Running>,
}

#[derive(Debug, Default)]
struct Running {
    record: Option<Record>,
    /// To be waited for, when this very process started it.
    child: Option<Child>,
}

impl Part {
    /// Starts a part and records it in the state folder.
    pub(crate) fn start(state: &Path, launch: Launch) -> Result<Self> {
        let part = Self {
            state: state.to_owned(),
            launch,
            running: Mutex::new(Running::default()),
        };
        part.start_process(&mut part.running.lock(), &[])?;
        Ok(part)
    }

    /// A part that is recorded in the state folder of a testbed, whoever started it. Dropping it
    /// leaves the part as it is.
    ///
    /// # Errors
    /// When there is no such part.
    pub fn attach(state: &Path, name: &str) -> Result<Self> {
        let record = Record::read(state, name)?;
        let launch = record.launch.clone();
        let running = Running {
            record: Some(record),
            child: None,
        };
        Ok(Self {
            state: state.to_owned(),
            launch,
            running: Mutex::new(running),
        })
    }

    /// Its name, as in the state folder: `c1-apiserver`, `etcd`, ….
    pub fn name(&self) -> &str {
        &self.launch.name
    }

    /// The process id, while it runs.
    pub fn pid(&self) -> Option<u32> {
        let mut running = self.running.lock();
        running.reap();
        let main = running.record.as_ref()?.main;
        main.is_alive().then(|| main.pid.unsigned_abs())
    }

    /// Whether the process runs (a paused one does).
    pub fn is_running(&self) -> bool {
        self.pid().is_some()
    }

    /// Kills it (SIGKILL) and waits until it is gone.
    ///
    /// # Errors
    /// When it does not go.
    pub fn kill(&self) -> Result<()> {
        self.end(Signal::KILL, KILL_TIMEOUT)
    }

    /// Asks it to end (SIGTERM) and waits; kills it when that takes longer than `timeout`.
    ///
    /// # Errors
    /// When it does not go.
    pub fn stop(&self, timeout: Duration) -> Result<()> {
        if self.end(Signal::TERM, timeout).is_err() {
            self.kill()?;
        }
        Ok(())
    }

    /// Stops it where it is (SIGSTOP): connections stay open and nothing answers.
    ///
    /// # Errors
    /// When it cannot be signalled.
    pub fn pause(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// Lets a paused part go on.
    ///
    /// # Errors
    /// When it cannot be signalled.
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    /// Kills it if it runs, and starts it again with the same arguments and data. Does not wait
    /// until it is ready.
    ///
    /// # Errors
    /// When it cannot be killed or started.
    pub fn restart(&self) -> Result<()> {
        self.restart_with(&[])
    }

    /// [`Part::restart`] with further arguments, this once.
    ///
    /// # Errors
    /// As [`Part::restart`].
    pub fn restart_with(&self, further: &[&str]) -> Result<()> {
        self.kill()?;
        self.start_process(&mut self.running.lock(), further)
    }

    /// Cuts it off the network: what it sends and what is sent to it is dropped, on open
    /// connections and new ones, until [`Part::mend`], also if it is restarted meanwhile. Needs
    /// root; a part on a node is cut off with its node.
    ///
    /// # Errors
    /// When it runs on a node, this is not root, or the firewall refuses.
    pub fn cut(&self) -> Result<()> {
        netcut::cut(&self.launch.table, self.side()?)
    }

    /// Ends [`Part::cut`]; nothing happens if it is not cut off.
    ///
    /// # Errors
    /// When the firewall refuses.
    pub fn mend(&self) -> Result<()> {
        netcut::mend(&self.launch.table)
    }

    /// Cuts it and another part off from each other, until [`Part::mend_from`]; both go on
    /// talking to everyone else.
    ///
    /// # Errors
    /// As [`Part::cut`], for either.
    pub fn cut_from(&self, other: &Self) -> Result<()> {
        netcut::cut_between(&self.table_with(other), self.side()?, other.side()?)
    }

    /// Ends [`Part::cut_from`] in the same direction.
    ///
    /// # Errors
    /// When the firewall refuses.
    pub fn mend_from(&self, other: &Self) -> Result<()> {
        netcut::mend(&self.table_with(other))
    }

    /// Where its output goes.
    pub fn log_file(&self) -> PathBuf {
        self.state.join(format!("logs/{}.log", self.launch.name))
    }

    /// The end of its log, for messages.
    pub fn log_tail(&self) -> String {
        let text = fs::read(self.log_file()).unwrap_or_default();
        last_lines(&String::from_utf8_lossy(&text), 8)
    }

    /// # Errors
    /// With the end of its log, when it does not run.
    pub fn check_running(&self) -> Result<()> {
        if !self.is_running() {
            bail!(
                "{} ended; the end of its log:\n{}",
                self.name(),
                self.log_tail()
            );
        }
        Ok(())
    }

    fn side(&self) -> Result<Side<'_>> {
        let (Some(gid), Place::Machine) = (self.launch.gid, &self.launch.place) else {
            bail!(
                "{} cannot be cut off: not root, or on a node (unplug that)",
                self.name()
            );
        };
        Ok(Side {
            gid,
            pid: self.pid(),
            ports: &self.launch.ports,
        })
    }

    fn table_with(&self, other: &Self) -> String {
        format!(
            "{}_from_{}",
            self.launch.table,
            other.launch.name.replace(['-', '.'], "_")
        )
    }

    fn end(&self, signal: Signal, timeout: Duration) -> Result<()> {
        self.signal(signal)?;
        if signal != Signal::KILL {
            // A paused process would get the signal only when it goes on.
            self.signal(Signal::CONT)?;
        }
        let watch = clock::Stopwatch::start();
        while self.is_running() {
            if watch.elapsed() > timeout {
                bail!("{} does not end", self.name());
            }
            clock::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let mut running = self.running.lock();
        running.reap();
        running
            .record
            .as_ref()
            .map_or(Ok(()), |record| record.signal(signal))
    }

    fn start_process(&self, running: &mut Running, further: &[&str]) -> Result<()> {
        running.reap();
        for folder in ["logs", "parts"] {
            fs::create_dir_all(self.state.join(folder))?;
        }
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log_file())?;
        let mut command = self.command()?;
        let child = command
            .args(further)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {}", command::shown(&command)))?;
        let outer = ProcessId::of(i32::try_from(child.id())?)?;
        running.child = Some(child);
        let (main, helper) = match self.launch.place {
            Place::Machine => (outer, None),
            Place::NewNode | Place::Node(_) => {
                // Recorded before its child is known: killing the helper kills the child too.
                Record {
                    launch: self.launch.clone(),
                    main: outer,
                    helper: None,
                }
                .write(&self.state)?;
                let inner = wait_for("the process in its name spaces", FORK_TIMEOUT, || {
                    if running
                        .child
                        .as_mut()
                        .is_some_and(|c| !matches!(c.try_wait(), Ok(None)))
                    {
                        bail!("{} ended at once:\n{}", self.name(), self.log_tail());
                    }
                    outer.child()
                })?;
                (inner, Some(outer))
            }
        };
        let record = Record {
            launch: self.launch.clone(),
            main,
            helper,
        };
        record.write(&self.state)?;
        running.record = Some(record);
        Ok(())
    }

    fn command(&self) -> Result<Command> {
        let mut command = match &self.launch.place {
            Place::Machine | Place::NewNode => Command::new(&self.launch.program),
            Place::Node(node) => {
                let node = Record::read(&self.state, node)?.main;
                let mut command = enter(node.pid);
                command.arg(&self.launch.program);
                command
            }
        };
        command
            .args(&self.launch.args)
            .envs(self.launch.env.iter().cloned());
        if let Some(gid) = self.launch.gid {
            command.gid(gid);
        }
        Ok(command)
    }
}

impl Running {
    /// Takes note of the end of a child, so that it is no zombie.
    fn reap(&mut self) {
        if self
            .child
            .as_mut()
            .is_some_and(|child| matches!(child.try_wait(), Ok(Some(_))))
        {
            self.child = None;
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.reap();
    }
}
