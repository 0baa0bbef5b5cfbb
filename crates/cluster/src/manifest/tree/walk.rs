//! Which manifest files there are below a directory, and how they look from outside.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::manifest::{OUTPUT_MARKER, Problem};

/// How a file looks from outside: another one means that it has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fingerprint {
    pub(super) len: u64,
    inode: (u64, u64),
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Fingerprint {
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        path.metadata().map(|metadata| Self::new(&metadata))
    }

    fn new(metadata: &Metadata) -> Self {
        Self {
            len: metadata.len(),
            inode: (metadata.dev(), metadata.ino()),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            // A file moved here keeps its time of modification.
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Whether the file changed about `now`, by clocks that may differ as much.
    pub(super) fn is_within(&self, span: SignedDuration, now: Timestamp) -> bool {
        let (seconds, nanos) = self.changed;
        let nanos = i32::try_from(nanos).unwrap_or(0);
        let changed = Timestamp::new(seconds, nanos).unwrap_or(Timestamp::UNIX_EPOCH);
        now.duration_since(changed).abs() <= span
    }
}

/// What there is below a directory.
pub(super) struct Walk {
    /// The manifest files.
    pub(super) files: BTreeMap<Arc<Path>, io::Result<Fingerprint>>,
    /// Directories that could not be listed: what is below them is unknown, not gone.
    pub(super) unlisted: Vec<PathBuf>,
    pub(super) problems: Vec<Problem>,
    /// Whether a symbolic link was followed.
    pub(super) links: bool,
}

impl Walk {
    /// Walks through all directories, by symbolic links too, into each once.
    pub(super) fn of(root: &Path) -> Self {
        let mut walk = Self {
            files: BTreeMap::new(),
            unlisted: Vec::new(),
            problems: Vec::new(),
            links: false,
        };
        let mut seen = BTreeSet::new();
        let mut waiting = vec![root.to_owned()];
        while let Some(directory) = waiting.pop() {
            match walk.list(&directory, &mut seen) {
                // The first in order is walked first, as the last to come is popped first.
                Ok(below) => waiting.extend(below.into_iter().rev()),
                Err(error) => walk.cannot_list(directory, &error),
            }
        }
        walk
    }

    fn cannot_list(&mut self, directory: PathBuf, error: &io::Error) {
        self.problems.push(Problem {
            file: directory.as_path().into(),
            place: None,
            reason: format!(
                "the directory cannot be listed: {error}; what it held before stays in use"
            ),
        });
        self.unlisted.push(directory);
    }

    /// Takes the manifests of one directory and gives back the directories in it.
    fn list(
        &mut self,
        directory: &Path,
        seen: &mut BTreeSet<(u64, u64)>,
    ) -> io::Result<Vec<PathBuf>> {
        let metadata = directory.metadata()?;
        if !seen.insert((metadata.dev(), metadata.ino())) {
            return Ok(Vec::new());
        }
        if directory.join(OUTPUT_MARKER).symlink_metadata().is_ok() {
            return Ok(Vec::new());
        }
        let mut paths = Vec::new();
        for entry in directory.read_dir()? {
            let entry = entry?;
            if !entry.file_name().as_encoded_bytes().starts_with(b".") {
                paths.push((entry.path(), entry.file_type()?.is_symlink()));
            }
        }
        paths.sort_unstable();
        let mut below = Vec::new();
        for (path, is_link) in paths {
            self.links |= is_link;
            let is_manifest = path
                .extension()
                .is_some_and(|e| e == "yaml" || e == "yml" || e == "json");
            match path.metadata() {
                Ok(metadata) if metadata.is_dir() => below.push(path),
                Ok(metadata) if is_manifest => {
                    let found = if metadata.is_file() {
                        Ok(Fingerprint::new(&metadata))
                    } else {
                        Err(io::Error::other("it is not a regular file"))
                    };
                    self.files.insert(path.into(), found);
                }
                // Gone since the directory was listed.
                Err(error) if error.kind() == io::ErrorKind::NotFound && !is_link => {}
                Err(error) if is_manifest => {
                    self.files.insert(path.into(), Err(error));
                }
                Ok(_) | Err(_) => {}
            }
        }
        Ok(below)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_young_across_the_end_of_a_second() {
        let fingerprint = Fingerprint {
            len: 0,
            inode: (0, 0),
            modified: (10, 0),
            changed: (10, 900_000_000),
        };
        let second = SignedDuration::from_secs(1);
        let at = |nanos| Timestamp::new(11, nanos).unwrap();
        assert!(fingerprint.is_within(second, at(500_000_000)));
        assert!(!fingerprint.is_within(second, at(950_000_000)));
    }
}
