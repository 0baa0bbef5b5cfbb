//! Which clusters a command's directory arguments mean.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use tombolo_model::names::{ClusterName, NameError};

use super::OUTPUT_MARKER;

/// Why an argument names no cluster.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// It cannot be listed.
    #[error("cannot read the directory {}", path.display())]
    List {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is a file.
    #[error("{} is not a directory: a cluster is a directory of manifests", path.display())]
    NotADirectory {
        /// The path.
        path: PathBuf,
    },
    /// A directory's name, which is the cluster's, cannot be a cluster id.
    #[error("{}: rename the directory, as its name is that of the cluster", path.display())]
    BadName {
        /// The directory.
        path: PathBuf,
        /// What is wrong with its name.
        source: NameError,
    },
    /// Two directories have one name.
    #[error("{} and {} are both named {name}: a cluster name is used once", first.display(), second.display())]
    Twice {
        /// The name.
        name: ClusterName,
        /// The first directory.
        first: PathBuf,
        /// The other one.
        second: PathBuf,
    },
    /// There is nothing to read.
    #[error(
        "no cluster: give a directory for each cluster, or one that holds a directory for each"
    )]
    None,
}

impl SourceError {
    /// A word for metrics.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::List { .. } => "List",
            Self::NotADirectory { .. } => "NotADirectory",
            Self::BadName { .. } => "BadName",
            Self::Twice { .. } => "Twice",
            Self::None => "None",
        }
    }

    /// Never: it is for the user to put right.
    pub const fn is_retryable(&self) -> bool {
        false
    }
}

/// The clusters that these arguments mean, by name. Each argument is a cluster; a single one that
/// holds directories and no manifest itself holds a directory for each cluster.
///
/// # Errors
/// Everything that is wrong with any of them.
pub fn find_clusters(
    arguments: &[PathBuf],
) -> Result<BTreeMap<ClusterName, PathBuf>, Vec<SourceError>> {
    let directories = match arguments {
        [one] => below(one).map_err(|error| vec![error])?,
        many => many.to_vec(),
    };
    if directories.is_empty() {
        return Err(vec![SourceError::None]);
    }
    let mut clusters: BTreeMap<ClusterName, PathBuf> = BTreeMap::new();
    let mut errors = Vec::new();
    for path in directories {
        match name(&path) {
            Err(error) => errors.push(error),
            Ok(name) => match clusters.get(&name) {
                None => {
                    clusters.insert(name, path);
                }
                Some(first) => errors.push(SourceError::Twice {
                    name,
                    first: first.clone(),
                    second: path,
                }),
            },
        }
    }
    if errors.is_empty() {
        Ok(clusters)
    } else {
        Err(errors)
    }
}

/// The directories of the clusters in this one, or this one itself.
fn below(path: &Path) -> Result<Vec<PathBuf>, SourceError> {
    let error = |source| SourceError::List {
        path: path.to_owned(),
        source,
    };
    if !path.metadata().map_err(error)?.is_dir() {
        return Err(SourceError::NotADirectory {
            path: path.to_owned(),
        });
    }
    let mut directories = Vec::new();
    for entry in path.read_dir().map_err(error)? {
        let path = entry.map_err(error)?.path();
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        let is_hidden = name.starts_with(b".");
        let extension = path.extension().unwrap_or_default();
        let is_output = path.join(OUTPUT_MARKER).exists();
        if path.is_dir() && !is_hidden && !is_output {
            directories.push(path);
        } else if !is_hidden && ["yaml", "yml", "json"].iter().any(|e| extension == *e) {
            directories.clear();
            break;
        }
    }
    directories.sort_unstable();
    if directories.is_empty() {
        directories.push(path.to_owned());
    }
    Ok(directories)
}

/// A cluster is called as its directory is, whatever way leads there.
fn name(path: &Path) -> Result<ClusterName, SourceError> {
    let error = |source| SourceError::List {
        path: path.to_owned(),
        source,
    };
    if !path.metadata().map_err(error)?.is_dir() {
        return Err(SourceError::NotADirectory {
            path: path.to_owned(),
        });
    }
    let last = |path: &Path| Some(path.file_name()?.to_string_lossy().into_owned());
    let text = match last(path) {
        Some(text) => text,
        // `.` and `..` are called as what they stand for.
        None => last(&path.canonicalize().map_err(error)?).unwrap_or_default(),
    };
    ClusterName::try_new(&text).map_err(|source| SourceError::BadName {
        path: path.to_owned(),
        source,
    })
}
