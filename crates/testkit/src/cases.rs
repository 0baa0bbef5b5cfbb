//! The cases: inputs from the field with their right results, and the check that compares a
//! result with them. How a case is written is told in `tests/cases/FORMAT.md`.
//!
//! ```text
//!  clusters/, steps/ ─► Inputs ─┐
//!  expect.yaml ─► Expect ───────┼─► check() ─► what is wrong, one line each
//!  DIR of `--out` ─► World ─────┘
//! ```
//!
//! Nothing here starts the product or shares code with it: who checks another source of objects
//! (an API server, say) makes another [`World`].
//!
//! A step says what it changes; what it does not mention must stay as it was before, so every
//! stage is checked in full.

mod check;
mod dns;
mod expect;
mod import;
mod inputs;
mod prose;
mod report;
mod slices;
mod stage;
mod world;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

pub use check::check;
pub use dns::{Asked, DnsQuery, Reply, check_dns};
pub use inputs::{Inputs, Object};
pub use prose::{Ask, Seen, check_prose, unmatched_prose};
pub use report::check_report;
pub use world::World;

use expect::{Expect, File};
use stage::Stage;

/// One case: a folder with inputs and `expect.yaml`.
#[derive(Debug)]
pub struct Case {
    dir: PathBuf,
    file: File,
    /// The base, then the state after each step; never empty.
    stages: Vec<Stage>,
}

impl Case {
    /// Every case below a directory, by name.
    pub fn all(root: &Path) -> Result<Vec<Self>> {
        let mut dirs = Vec::new();
        for entry in fs::read_dir(root).with_context(|| format!("list {}", root.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                dirs.push(path);
            }
        }
        dirs.sort();
        dirs.iter().map(|dir| Self::load(dir)).collect()
    }

    /// Reads one case. A field that is not known, or a step without its folder, is an error.
    pub fn load(dir: &Path) -> Result<Self> {
        let path = dir.join("expect.yaml");
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let file = File::parse(&text).with_context(|| path.display().to_string())?;
        let case = Self {
            dir: dir.to_owned(),
            stages: Vec::new(),
            file,
        };
        case.ensure_steps()?;
        let inputs: Vec<Inputs> = (0..=case.file.steps.len())
            .map(|stage| case.inputs(stage))
            .collect::<Result<_>>()?;
        let stages = stage::all(&case.file, &inputs).with_context(|| path.display().to_string())?;
        Ok(Self { stages, ..case })
    }

    fn ensure_steps(&self) -> Result<()> {
        for (index, step) in self.file.steps.iter().enumerate() {
            ensure!(
                step.number == index + 1,
                "steps are numbered from 1 on: {}",
                step.number
            );
            ensure!(
                self.step_dir(step.number).is_dir(),
                "no folder for step {}",
                step.number
            );
        }
        if self.step_dir(self.file.steps.len() + 1).exists() {
            bail!("a folder for a step that expect.yaml does not have");
        }
        Ok(())
    }

    /// The id, such as `M03`.
    pub fn id(&self) -> &str {
        &self.file.id
    }

    /// The folder's name.
    pub fn name(&self) -> String {
        self.dir
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default()
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The folder that holds a directory per cluster.
    pub fn clusters_dir(&self) -> PathBuf {
        self.dir.join("clusters")
    }

    /// The folder of a step; the first is 1.
    pub fn step_dir(&self, step: usize) -> PathBuf {
        self.dir.join("steps").join(step.to_string())
    }

    /// How many states there are to check: the base and one after each step.
    pub fn stages(&self) -> usize {
        self.stages.len()
    }

    /// The IP families that a cluster's network has to support, where the case says so.
    pub fn families(&self) -> &BTreeMap<String, Vec<String>> {
        &self.file.cluster_families
    }

    /// The clusters whose names have to be refused.
    pub fn refused(&self) -> Vec<&str> {
        self.file
            .expect
            .refused
            .iter()
            .map(|refused| refused.cluster.as_str())
            .collect()
    }

    /// The objects that the clusters hold before the product runs, at a stage.
    pub fn inputs(&self, stage: usize) -> Result<Inputs> {
        let mut inputs = Inputs::read(&self.clusters_dir())?;
        for step in 1..=stage {
            inputs.change(&self.step_dir(step))?;
        }
        Ok(inputs)
    }

    /// What to ask the DNS servers at a stage, and the right answers.
    pub fn dns(&self, stage: usize) -> Result<Vec<DnsQuery>> {
        dns::queries(&self.stages[stage])
    }

    /// What `expect.yaml` says at a stage, before anything is carried over.
    fn said(&self, stage: usize) -> &Expect {
        match stage {
            0 => &self.file.expect,
            n => &self.file.steps[n - 1].expect,
        }
    }
}
