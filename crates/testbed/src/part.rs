//! A part of a testbed: one process that can be killed, paused, cut off and restarted.
//!
//! What was started is recorded in the state folder (`parts/NAME.json`), with all that is needed
//! to stop it or start it again from another process.

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
use serde::{Deserialize, Serialize};

use crate::{
    clock::{self, wait_for},
    command, netcut,
    process::{ProcessId, last_lines, wait_gone},
};

/// A process that got SIGKILL is gone within this, also when the disk is slow.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);
/// Until a helper has made the process that it is to run in other name spaces.
const FORK_TIMEOUT: Duration = Duration::from_secs(5);

/// Where the process runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Place {
    /// On the machine itself.
    Machine,
    /// It makes name spaces of its own (by `unshare`, whose child it is): a node.
    NewNode,
    /// In the name spaces of the node that is recorded under this name.
    Node(String),
}

/// How to start a part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Launch {
    pub(crate) name: String,
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<String>,
    pub(crate) place: Place,
    /// Group id of the process: firewall rules know its packets by it.
    pub(crate) gid: Option<u32>,
    /// TCP ports that it listens on.
    pub(crate) ports: Vec<u16>,
    /// Firewall table of [`Part::cut`].
    pub(crate) table: String,
}

impl Launch {
    /// With further arguments.
    pub(crate) fn with(mut self, args: impl IntoIterator<Item = String>) -> Self {
        self.args.extend(args);
        self
    }
}

/// What is known of a started part.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) launch: Launch,
    /// The process itself.
    main: ProcessId,
    /// The process that it was started through, if there is one beside it.
    helper: Option<ProcessId>,
}

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
        part.start_process(&mut part.running.lock())?;
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
        self.kill()?;
        self.start_process(&mut self.running.lock())
    }

    /// Cuts it off the network: what it sends and what is sent to it is dropped, on open
    /// connections and new ones, until [`Part::mend`]. Needs root; a part on a node is cut with
    /// its node.
    ///
    /// # Errors
    /// When it does not run, runs on a node, or the firewall refuses.
    pub fn cut(&self) -> Result<()> {
        let (Some(gid), Place::Machine) = (self.launch.gid, &self.launch.place) else {
            bail!(
                "{} cannot be cut off: not root, or on a node (cut the node)",
                self.name()
            );
        };
        let pid = self
            .pid()
            .with_context(|| format!("{} does not run", self.name()))?;
        netcut::cut(&self.launch.table, gid, pid, &self.launch.ports)
    }

    /// Ends [`Part::cut`]; nothing happens if it is not cut off.
    ///
    /// # Errors
    /// When the firewall refuses.
    pub fn mend(&self) -> Result<()> {
        netcut::mend(&self.launch.table)
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

    fn start_process(&self, running: &mut Running) -> Result<()> {
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
        command.args(&self.launch.args);
        if let Some(gid) = self.launch.gid {
            command.gid(gid);
        }
        Ok(command)
    }
}

/// A command that runs its further arguments in the name spaces of process `pid`.
pub(crate) fn enter(pid: i32) -> Command {
    let nsenter = command::find("nsenter").unwrap_or_else(|| "nsenter".into());
    let mut command = Command::new(nsenter);
    command.args([
        "--net",
        "--mount",
        "--pid",
        "--wd=/",
        "--target",
        &pid.to_string(),
        "--",
    ]);
    command
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

impl Record {
    /// All parts recorded in a state folder.
    pub(crate) fn read_all(state: &Path) -> Result<Vec<Self>> {
        let Ok(entries) = fs::read_dir(state.join("parts")) else {
            return Ok(Vec::new());
        };
        let mut records = Vec::new();
        for entry in entries {
            let path = entry?.path();
            if path
                .extension()
                .is_some_and(|extension| extension == "json")
            {
                records.push(Self::read_file(&path)?);
            }
        }
        records.sort_by(|a, b| a.launch.name.cmp(&b.launch.name));
        Ok(records)
    }

    /// The id of the process itself, while it runs.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.main.is_alive().then(|| self.main.pid.unsigned_abs())
    }

    /// Kills all these processes at once and waits until they are gone.
    pub(crate) fn kill_all(records: &[Self]) -> Result<()> {
        for record in records {
            record.signal(Signal::KILL)?;
        }
        let processes: Vec<_> = records
            .iter()
            .flat_map(|record| [Some(record.main), record.helper])
            .flatten()
            .collect();
        wait_gone(&processes, KILL_TIMEOUT)
    }

    /// A helper that waits for a stopped child stops itself, so it gets STOP and CONT as well;
    /// it ends by itself when the child does.
    fn signal(&self, signal: Signal) -> Result<()> {
        self.main.signal(signal)?;
        match self.helper {
            Some(helper) if signal != Signal::TERM => helper.signal(signal),
            _ => Ok(()),
        }
    }

    fn read(state: &Path, name: &str) -> Result<Self> {
        Self::read_file(&state.join(format!("parts/{name}.json")))
    }

    fn read_file(path: &Path) -> Result<Self> {
        let text = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("in {}", path.display()))
    }

    fn write(&self, state: &Path) -> Result<()> {
        // Renamed into place: a reader never sees half a record.
        let path = state.join(format!("parts/{}.json", self.launch.name));
        let partial = path.with_extension("partial");
        fs::write(&partial, serde_json::to_vec_pretty(self)?)
            .and_then(|()| fs::rename(&partial, &path))
            .with_context(|| format!("cannot write {}", path.display()))
    }
}
