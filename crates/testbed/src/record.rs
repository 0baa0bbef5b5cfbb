//! The record of a started part (`parts/NAME.json` in the state folder): all that is needed to stop
//! it, or to start it again, from another process.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use crate::{
    command,
    process::{ProcessId, wait_gone},
};

/// A process that got SIGKILL is gone within this, also when the disk is slow.
pub(crate) const KILL_TIMEOUT: Duration = Duration::from_secs(10);

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
    /// Variables beside those of the process that starts it.
    pub(crate) env: Vec<(String, String)>,
    pub(crate) place: Place,
    /// Group id of the process: firewall rules know its packets by it.
    pub(crate) gid: Option<u32>,
    /// TCP ports that it listens on.
    pub(crate) ports: Vec<u16>,
    /// Firewall table that cuts it off.
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
    pub(crate) main: ProcessId,
    /// The process that it was started through, if there is one beside it.
    pub(crate) helper: Option<ProcessId>,
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
    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        self.main.signal(signal)?;
        match self.helper {
            Some(helper) if signal != Signal::TERM => helper.signal(signal),
            _ => Ok(()),
        }
    }

    pub(crate) fn read(state: &Path, name: &str) -> Result<Self> {
        Self::read_file(&state.join(format!("parts/{name}.json")))
    }

    fn read_file(path: &Path) -> Result<Self> {
        let text = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("in {}", path.display()))
    }

    pub(crate) fn write(&self, state: &Path) -> Result<()> {
        // Renamed into place: a reader never sees half a record.
        let path = state.join(format!("parts/{}.json", self.launch.name));
        let partial = path.with_extension("partial");
        fs::write(&partial, serde_json::to_vec_pretty(self)?)
            .and_then(|()| fs::rename(&partial, &path))
            .with_context(|| format!("cannot write {}", path.display()))
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
