//! What Tombolo would write, as files: `DIR/<cluster>/<namespace>.<service>.yaml`.
//!
//! A file holds a service's ServiceExport with status, ServiceImport, derived Service and
//! EndpointSlices, as an API server would show them. A marker file lists what was written, so that
//! the next run knows the directory as its own, replaces those files and removes what is no longer
//! wanted. Whatever else is in there is left alone, and no symbolic link is followed out of it.

mod render;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use tombolo_model::names::{ClusterName, ServiceKey};
use tombolo_model::object::Object;

use self::render::{by_service, render};
use crate::manifest::OUTPUT_MARKER;
use crate::store::Store;

/// The first lines of the marker file.
const MARKER_HEAD: &str =
    "# Written by tombolo, which replaces and removes the files named here.\n";

/// Longer file names are cut: most file systems take 255 bytes, and the name of a file that is
/// being written is longer.
const NAME_LEN_MAX: usize = 200;

/// Why objects cannot be written to a directory.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// The directory has something in it that Tombolo did not write.
    #[error(
        "{} is neither new nor empty nor from an earlier run (it has no {OUTPUT_MARKER}): give \
         another directory, or empty it",
        path.display()
    )]
    NotOurs {
        /// The directory.
        path: PathBuf,
    },
    /// A directory to write in is something else, such as a symbolic link that leads elsewhere.
    #[error("{} is not a directory: remove it, or give another directory", path.display())]
    NotADirectory {
        /// The path.
        path: PathBuf,
    },
    /// A file or directory cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file or directory cannot be written or removed.
    #[error("cannot write {}", path.display())]
    Write {
        /// The path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl OutputError {
    /// A word for metrics.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::NotOurs { .. } => "NotOurs",
            Self::NotADirectory { .. } => "NotADirectory",
            Self::Read { .. } => "Read",
            Self::Write { .. } => "Write",
        }
    }

    /// Whether it may go away by itself, as a full disk does.
    pub const fn is_retryable(&self) -> bool {
        match self {
            Self::NotOurs { .. } | Self::NotADirectory { .. } => false,
            Self::Read { .. } | Self::Write { .. } => true,
        }
    }
}

/// What a call of [`Output::write`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// How many files are new or changed.
    pub written: usize,
    /// How many files are gone.
    pub removed: usize,
}

/// A directory that results are written to.
#[derive(Debug)]
pub struct Output {
    root: PathBuf,
    /// The files that the marker names, as paths from the root.
    owned: BTreeSet<PathBuf>,
    /// What each file was made from, as far as this process wrote it.
    made_from: HashMap<PathBuf, u64>,
}

impl Output {
    /// Takes a directory, which is made if it is not there.
    pub fn open(root: &Path) -> Result<Self, OutputError> {
        fs::create_dir_all(root).map_err(write_error(root))?;
        let marker = root.join(OUTPUT_MARKER);
        let owned = match fs::read_to_string(&marker) {
            Ok(text) => text.lines().filter_map(owned_path).collect(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let mut entries = root.read_dir().map_err(read_error(root))?;
                if entries.next().is_some() {
                    return Err(OutputError::NotOurs {
                        path: root.to_owned(),
                    });
                }
                BTreeSet::new()
            }
            Err(source) => {
                return Err(OutputError::Read {
                    path: marker,
                    source,
                });
            }
        };
        let output = Self {
            root: root.to_owned(),
            owned,
            made_from: HashMap::new(),
        };
        output.write_marker(&output.owned)?;
        Ok(output)
    }

    /// Writes what these clusters hold, and removes every other file of an earlier run. Files that
    /// would not change are not touched. A directory that was taken away is made anew.
    pub fn write(&mut self, clusters: &[&Store]) -> Result<Written, OutputError> {
        if !self.root.join(OUTPUT_MARKER).exists() {
            *self = Self::open(&self.root)?;
        }
        let mut wanted = BTreeMap::new();
        for store in clusters {
            for (service, objects) in by_service(store) {
                let file = Path::new(store.cluster().as_str()).join(file_name(&service));
                wanted.insert(file, (*store, objects));
            }
        }
        let all: BTreeSet<PathBuf> = wanted.keys().cloned().collect();
        // Before anything is written, the marker names all that may be there afterwards.
        let union: BTreeSet<PathBuf> = self.owned.union(&all).cloned().collect();
        if union != self.owned {
            self.write_marker(&union)?;
            self.owned = union;
        }
        let mut result = Written::default();
        for (file, (store, objects)) in &wanted {
            let made_from = fingerprint(objects);
            if self.made_from.get(file) == Some(&made_from) {
                continue;
            }
            self.make_directory(store.cluster())?;
            result.written += usize::from(self.replace(file, &render(store, objects))?);
            self.made_from.insert(file.clone(), made_from);
        }
        let unwanted: Vec<PathBuf> = self.owned.difference(&all).cloned().collect();
        for file in &unwanted {
            result.removed += usize::from(self.remove(file)?);
        }
        if !unwanted.is_empty() {
            self.write_marker(&all)?;
            self.owned = all;
        }
        Ok(result)
    }

    /// The directory of a cluster, which must be one of its own.
    fn make_directory(&self, cluster: &ClusterName) -> Result<(), OutputError> {
        let path = self.root.join(cluster.as_str());
        match path.symlink_metadata() {
            Ok(metadata) if metadata.is_dir() => Ok(()),
            Ok(_) => Err(OutputError::NotADirectory { path }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::create_dir(&path).map_err(write_error(&path))
            }
            Err(source) => Err(OutputError::Read { path, source }),
        }
    }

    /// Puts a file in place at once, unless it is so already.
    fn replace(&self, file: &Path, text: &str) -> Result<bool, OutputError> {
        let path = self.root.join(file);
        let is_file = path
            .symlink_metadata()
            .is_ok_and(|metadata| metadata.is_file());
        if is_file && fs::read(&path).is_ok_and(|present| present == text.as_bytes()) {
            return Ok(false);
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let temporary = path.with_file_name(format!(".{name}.new"));
        // Whatever is in the way is not written through, it goes.
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(write_error(&temporary)(error));
            }
            Ok(()) | Err(_) => {}
        }
        fs::write(&temporary, text).map_err(write_error(&temporary))?;
        fs::rename(&temporary, &path).map_err(write_error(&path))?;
        Ok(true)
    }

    /// Removes a file, and its directory where that was the last one.
    fn remove(&mut self, file: &Path) -> Result<bool, OutputError> {
        self.made_from.remove(file);
        let path = self.root.join(file);
        let directory = path.parent().unwrap_or(&self.root);
        if !directory
            .symlink_metadata()
            .is_ok_and(|metadata| metadata.is_dir())
        {
            return Ok(false);
        }
        let removed = match fs::remove_file(&path) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(write_error(&path)(error)),
        };
        // It fails where the directory is not empty, which is as it should be.
        fs::remove_dir(directory).ok();
        Ok(removed)
    }

    fn write_marker(&self, files: &BTreeSet<PathBuf>) -> Result<(), OutputError> {
        let lines = files.iter().map(|file| format!("{}\n", file.display()));
        let text: String = std::iter::once(MARKER_HEAD.to_owned())
            .chain(lines)
            .collect();
        self.replace(Path::new(OUTPUT_MARKER), &text).map(|_| ())
    }
}

/// A line of the marker as the path of a file that Tombolo may have written: `<cluster>/<file>`.
fn owned_path(line: &str) -> Option<PathBuf> {
    let (cluster, file) = line.split_once('/')?;
    let is_plain = ClusterName::try_new(cluster).is_ok()
        && !file.contains('/')
        && !file.starts_with('.')
        && Path::new(file).extension().is_some_and(|e| e == "yaml");
    is_plain.then(|| Path::new(cluster).join(file))
}

/// A namespace has no dot in its name, so no two services have the same file.
fn file_name(service: &ServiceKey) -> String {
    let name = format!("{}.{}", service.namespace, service.name);
    if name.len() <= NAME_LEN_MAX {
        return format!("{name}.yaml");
    }
    let hash = Sha256::digest(&name);
    let hash = hash[..8].iter().map(|byte| format!("{byte:02x}"));
    // Names of objects are ASCII; where one is not, it is cut at a character.
    let head: String = name.chars().take(NAME_LEN_MAX - 17).collect();
    format!("{head}-{}.yaml", hash.collect::<String>())
}

/// Changes whenever one of the objects does.
fn fingerprint(objects: &[&Object]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for object in objects {
        (object.reference(), object.resource_version()).hash(&mut hasher);
    }
    hasher.finish()
}

fn read_error(path: &Path) -> impl Fn(io::Error) -> OutputError {
    move |source| OutputError::Read {
        path: path.to_owned(),
        source,
    }
}

fn write_error(path: &Path) -> impl Fn(io::Error) -> OutputError {
    move |source| OutputError::Write {
        path: path.to_owned(),
        source,
    }
}
