//! The state folder of a testbed, its slot on the machine, and cleaning up.
//!
//! The state root (`$TOMBOLO_TESTBED_STATE`, else /tmp/tombolo-testbed) has a file per taken slot
//! that names the state folder. Whoever takes a slot first clears away the testbeds whose owner
//! died without stopping them.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::Read as _,
    net::TcpListener,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::{
    addresses::{PORTS_PER_SLOT, SLOTS, Slot},
    cgroups,
    etcd::EtcdSpec,
    netcut, network,
    process::ProcessId,
    programs,
    record::{Launch, Place, Record},
    spec::{Spec, is_name},
};

/// Environment variable that names the state root.
pub const STATE_ENV: &str = "TOMBOLO_TESTBED_STATE";

/// A group of etcd servers for a registry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Registry {
    pub(crate) name: String,
    pub(crate) spec: EtcdSpec,
    /// Offset of the first member's first port in the slot.
    pub(crate) port_offset: u16,
}

/// What is known of a testbed: kept as state.json in its folder.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) folder: PathBuf,
    pub(crate) id: String,
    pub(crate) slot: Slot,
    pub(crate) spec: Spec,
    pub(crate) registries: Vec<Registry>,
    /// The process that stops it when it ends; a detached testbed has none.
    owner: Option<ProcessId>,
    /// The slot's file.
    slot_file: PathBuf,
}

impl State {
    /// Takes a slot and makes the state folder.
    pub(crate) fn create(spec: &Spec) -> Result<Self> {
        let root = root();
        fs::create_dir_all(root.join("slots"))
            .with_context(|| format!("cannot make {}", root.display()))?;
        let _lock = lock(&root)?;
        sweep(&root);
        let id = spec.id.clone().map_or_else(random_id, Ok)?;
        let folder = spec.state.clone().unwrap_or_else(|| root.join(&id));
        let folder = std::path::absolute(folder)?;
        ensure!(
            !["/run", "/var/log"]
                .iter()
                .any(|hidden| folder.starts_with(hidden)),
            "{}: nodes have a /run and /var/log of their own; choose another state folder",
            folder.display()
        );
        let is_new = fs::read_dir(&folder).map_or(true, |mut entries| entries.next().is_none());
        ensure!(
            is_new,
            "{} is not empty: testbed down --state removes it",
            folder.display()
        );
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let (slot, slot_file) = free_slot(&root)?;
        let state = Self {
            id,
            slot,
            spec: spec.clone(),
            registries: Vec::new(),
            owner: Some(ProcessId::own()?),
            slot_file,
            folder,
        };
        state.write()?;
        fs::write(
            &state.slot_file,
            state.folder.as_os_str().as_encoded_bytes(),
        )?;
        Ok(state)
    }

    /// What is in a state folder.
    pub(crate) fn read(folder: &Path) -> Result<Self> {
        let path = folder.join("state.json");
        let text = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("in {}", path.display()))
    }

    /// All testbeds that have a slot.
    pub(crate) fn all() -> Vec<Self> {
        taken_slots(&root())
            .into_iter()
            .filter_map(|(_, state)| state)
            .collect()
    }

    /// Lets it run on after its owner's end.
    pub(crate) fn detach(&mut self) -> Result<()> {
        self.owner = None;
        self.write()
    }

    /// Whether its owner ended without stopping it.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.owner.is_some_and(|owner| !owner.is_alive())
    }

    /// Whether nobody owns it, so that it runs until it is taken down.
    pub(crate) fn is_detached(&self) -> bool {
        self.owner.is_none()
    }

    /// Adds a group of etcd servers and gives it ports.
    pub(crate) fn add_registry(&mut self, name: &str, spec: &EtcdSpec) -> Result<Registry> {
        let members = spec.members;
        ensure!(
            is_name(name),
            "etcd name {name:?}: small letters, digits, . and - only"
        );
        ensure!(matches!(members, 1 | 3 | 5), "etcd has 1, 3 or 5 members");
        ensure!(
            name != "etcd" && self.registries.iter().all(|registry| registry.name != name),
            "there is an etcd {name} already"
        );
        let used: u8 = self
            .registries
            .iter()
            .map(|registry| registry.spec.members)
            .sum();
        let port_offset = REGISTRY_PORTS + u16::from(used) * PORTS_PER_MEMBER;
        ensure!(
            port_offset + u16::from(members) * PORTS_PER_MEMBER <= PORTS_PER_SLOT,
            "no ports left in this testbed for {members} more etcd members"
        );
        let registry = Registry {
            name: name.into(),
            spec: spec.clone(),
            port_offset,
        };
        self.registries.push(registry.clone());
        self.write()?;
        Ok(registry)
    }

    /// A part on the machine itself that listens on `ports` (offsets in the slot).
    pub(crate) fn launch(&self, name: &str, program: PathBuf, ports: &[u16]) -> Launch {
        let first = ports.first().copied();
        Launch {
            name: name.into(),
            program,
            args: Vec::new(),
            env: Vec::new(),
            place: Place::Machine,
            gid: first
                .filter(|_| programs::is_root())
                .map(|offset| self.slot.gid(offset)),
            ports: ports.iter().map(|offset| self.slot.port(*offset)).collect(),
            table: netcut::table_name(&self.id, name),
        }
    }

    /// A program of the caller's, on the machine or on the node of this name.
    pub(crate) fn launch_of(
        &self,
        name: &str,
        command: &Command,
        node: Option<&str>,
    ) -> Result<Launch> {
        ensure!(
            is_name(name),
            "part name {name:?}: small letters, digits, . and - only"
        );
        let records = Record::read_all(&self.folder)?;
        let taken = records.iter().find(|record| record.launch.name == name);
        ensure!(
            taken.is_none_or(|record| record.pid().is_none()),
            "{name} runs already"
        );
        let text = |text: &OsStr| text.to_string_lossy().into_owned();
        let index = u32::try_from(records.len())?;
        Ok(Launch {
            args: command.get_args().map(text).collect(),
            env: command
                .get_envs()
                .filter_map(|(name, value)| Some((text(name), text(value?))))
                .collect(),
            place: node.map_or(Place::Machine, |node| Place::Node(node.to_owned())),
            gid: (node.is_none() && programs::is_root()).then(|| self.slot.program_gid(index)),
            ..self.launch(name, command.get_program().into(), &[])
        })
    }

    fn write(&self) -> Result<()> {
        // Renamed into place: another process may read it at any time, to see who is alive.
        let path = self.folder.join("state.json");
        let partial = self.folder.join("state.partial");
        fs::write(&partial, serde_json::to_vec_pretty(self)?)
            .and_then(|()| fs::rename(&partial, &path))
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// Stops all that was started and removes all that was made. Done again, it does nothing.
    pub(crate) fn remove(&self) -> Result<()> {
        Record::kill_all(&Record::read_all(&self.folder)?)?;
        if programs::is_root() {
            netcut::mend_all(&self.id)?;
            network::remove(&self.id)?;
            cgroups::remove(&self.id)?;
        }
        if self.folder.exists() {
            fs::remove_dir_all(&self.folder)
                .with_context(|| format!("cannot remove {}", self.folder.display()))?;
        }
        if fs::read(&self.slot_file)
            .is_ok_and(|text| text == self.folder.as_os_str().as_encoded_bytes())
        {
            fs::remove_file(&self.slot_file)?;
        }
        Ok(())
    }
}

/// Ports below are those of the clusters and their etcd.
const REGISTRY_PORTS: u16 = 48;
/// Client, peer and metrics.
pub(crate) const PORTS_PER_MEMBER: u16 = 3;

/// Where state folders and slots are unless the caller says otherwise.
pub(crate) fn root() -> PathBuf {
    std::env::var_os(STATE_ENV).map_or_else(|| "/tmp/tombolo-testbed".into(), PathBuf::from)
}

/// Clears away the testbeds whose owner died. What cannot be removed now keeps its slot and is
/// tried again next time.
fn sweep(root: &Path) {
    for (slot_file, state) in taken_slots(root) {
        match state {
            Some(state) if state.is_abandoned() => drop(state.remove()),
            Some(_) => {}
            None => drop(fs::remove_file(slot_file)),
        }
    }
}

/// The slot files, and the testbed of each; none if its folder is gone.
fn taken_slots(root: &Path) -> Vec<(PathBuf, Option<State>)> {
    let entries = fs::read_dir(root.join("slots")).into_iter().flatten();
    entries
        .filter_map(|entry| {
            let slot_file = entry.ok()?.path();
            let folder = fs::read_to_string(&slot_file).ok()?;
            Some((slot_file, State::read(Path::new(&folder)).ok()))
        })
        .collect()
}

fn free_slot(root: &Path) -> Result<(Slot, PathBuf)> {
    for slot in (0..SLOTS).map(Slot) {
        let slot_file = root.join(format!("slots/{:03}", slot.0));
        if slot_file.exists() || !ports_are_free(slot) || network::is_taken(slot) {
            continue;
        }
        File::create_new(&slot_file)
            .with_context(|| format!("cannot make {}", slot_file.display()))?;
        return Ok((slot, slot_file));
    }
    bail!("all {SLOTS} places for testbeds on this machine are taken: testbed down");
}

/// Another program, or a testbed with another state root, may use one of them.
fn ports_are_free(slot: Slot) -> bool {
    (0..PORTS_PER_SLOT).all(|offset| TcpListener::bind(("127.0.0.1", slot.port(offset))).is_ok())
}

fn lock(root: &Path) -> Result<File> {
    let file = File::create(root.join(".lock"))?;
    file.lock()?;
    Ok(file)
}

fn random_id() -> Result<String> {
    let mut bytes = [0; 3];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(data_encoding::HEXLOWER.encode(&bytes))
}
