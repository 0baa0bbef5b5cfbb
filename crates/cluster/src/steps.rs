//! Changes to directory clusters that are made after everything has settled: `plan --then DIR`.
//!
//! ```text
//! DIR/apply/<cluster>/*.yaml     objects that appear, or replace those of their name
//! DIR/delete/<cluster>/*.yaml    objects that go: kind, namespace and name are enough
//! ```

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use tombolo_model::names::ClusterName;

use crate::convert::Strings;
use crate::manifest::{ClusterStep, Declared, Found, Problem, Stub, read_once};

/// Why a directory is no step. Files in it that are wrong are [`Problem`]s instead.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// It cannot be listed.
    #[error("cannot read the directory {}", path.display())]
    List {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It holds something else.
    #[error(
        "{} is out of place: a step holds apply/<cluster>/ and delete/<cluster>/ with manifests",
        path.display()
    )]
    OutOfPlace {
        /// What is out of place.
        path: PathBuf,
    },
    /// It holds neither `apply` nor `delete`.
    #[error("{} holds neither apply/ nor delete/, so it changes nothing", path.display())]
    Empty {
        /// The directory.
        path: PathBuf,
    },
    /// It names a cluster that does not take part.
    #[error("{}: no cluster of this run is named {name:?}, there are {known}", path.display())]
    UnknownCluster {
        /// The directory.
        path: PathBuf,
        /// The name.
        name: String,
        /// All that there are.
        known: String,
    },
}

impl StepError {
    /// A word for metrics.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::List { .. } => "List",
            Self::OutOfPlace { .. } => "OutOfPlace",
            Self::Empty { .. } => "Empty",
            Self::UnknownCluster { .. } => "UnknownCluster",
        }
    }

    /// Never: it is for the user to put right.
    pub const fn is_retryable(&self) -> bool {
        false
    }
}

/// Changes to several clusters at once.
#[derive(Clone, Debug, Default)]
pub struct Step {
    /// What changes in which cluster.
    pub clusters: BTreeMap<ClusterName, ClusterStep>,
    /// What is wrong in the step's files.
    pub problems: Vec<Problem>,
}

/// Reads a step for clusters of these names.
///
/// # Errors
/// Everything that is wrong with the directory itself.
pub fn read_step(
    root: &Path,
    known: &[ClusterName],
    strings: &mut Strings,
) -> Result<Step, Vec<StepError>> {
    let mut step = Step::default();
    let mut errors = Vec::new();
    let parts = list(root).map_err(|error| vec![error])?;
    if parts.is_empty() {
        return Err(vec![StepError::Empty {
            path: root.to_owned(),
        }]);
    }
    for path in parts {
        let name = path.file_name().and_then(|name| name.to_str());
        let is_apply = match (name, path.is_dir()) {
            (Some("apply"), true) => true,
            (Some("delete"), true) => false,
            (_, _) => {
                errors.push(StepError::OutOfPlace { path });
                continue;
            }
        };
        match clusters(&path, known) {
            Err(more) => errors.extend(more),
            Ok(clusters) => {
                for (cluster, directory) in clusters {
                    step.read(is_apply, cluster, &directory, strings);
                }
            }
        }
    }
    step.problems.sort_unstable();
    if errors.is_empty() {
        Ok(step)
    } else {
        Err(errors)
    }
}

impl Step {
    fn read(
        &mut self,
        is_apply: bool,
        cluster: ClusterName,
        directory: &Path,
        strings: &mut Strings,
    ) {
        let of_cluster = self.clusters.entry(cluster).or_default();
        if is_apply {
            let (found, problems) = read_once::<Declared>(directory, strings);
            of_cluster.apply = found;
            self.problems.extend(problems);
        } else {
            let (found, problems) = read_once::<Stub>(directory, strings);
            let stubs = found.into_iter().map(|(path, Found { place, what })| {
                let Stub(what) = what;
                (path, Found { place, what })
            });
            of_cluster.delete = stubs.collect();
            self.problems.extend(problems);
        }
    }
}

/// The clusters' directories in `apply` or `delete`.
fn clusters(
    part: &Path,
    known: &[ClusterName],
) -> Result<Vec<(ClusterName, PathBuf)>, Vec<StepError>> {
    let mut clusters = Vec::new();
    let mut errors = Vec::new();
    for path in list(part).map_err(|error| vec![error])? {
        if !path.is_dir() {
            errors.push(StepError::OutOfPlace { path });
            continue;
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        match known.iter().find(|cluster| *cluster.as_str() == *name) {
            Some(cluster) => clusters.push((cluster.clone(), path)),
            None => errors.push(StepError::UnknownCluster {
                name: name.into_owned(),
                known: names(known),
                path,
            }),
        }
    }
    if errors.is_empty() {
        Ok(clusters)
    } else {
        Err(errors)
    }
}

fn names(known: &[ClusterName]) -> String {
    let names: Vec<&str> = known.iter().map(ClusterName::as_str).collect();
    names.join(", ")
}

/// What is in a directory but hidden files, in order.
fn list(path: &Path) -> Result<Vec<PathBuf>, StepError> {
    let error = |source| StepError::List {
        path: path.to_owned(),
        source,
    };
    let mut paths = Vec::new();
    for entry in path.read_dir().map_err(error)? {
        let entry = entry.map_err(error)?;
        if !entry.file_name().as_encoded_bytes().starts_with(b".") {
            paths.push(entry.path());
        }
    }
    paths.sort_unstable();
    Ok(paths)
}

#[cfg(test)]
mod tests;
