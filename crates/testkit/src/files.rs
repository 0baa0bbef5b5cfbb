//! Directories as tests look at them: what is in them, and whether anything was written.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result};
use tempfile::TempDir;

/// A directory for one test, removed with it.
#[derive(Debug)]
pub struct Tree(TempDir);

impl Tree {
    /// An empty one.
    pub fn new() -> Result<Self> {
        Ok(Self(tempfile::tempdir().context("make a directory")?))
    }

    /// One with these files.
    pub fn with<T: AsRef<str>>(files: &[(&str, T)]) -> Result<Self> {
        let tree = Self::new()?;
        for (path, text) in files {
            tree.put(path, text.as_ref())?;
        }
        Ok(tree)
    }

    /// Writes a file, and the directories that it needs.
    pub fn put(&self, path: &str, text: &str) -> Result<()> {
        write(&self.path(path), text)
    }

    /// Removes a file or a directory with what is in it.
    pub fn remove(&self, path: &str) -> Result<()> {
        let path = self.path(path);
        let removed = if path.is_dir() {
            fs::remove_dir_all(&path)
        } else {
            fs::remove_file(&path)
        };
        removed.with_context(|| path.display().to_string())
    }

    /// Where something in it is.
    pub fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    /// The same as an argument of a command.
    pub fn arg(&self, path: &str) -> String {
        self.path(path).display().to_string()
    }
}

/// A file's bytes, and when it was last written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// When it was last written.
    pub modified: SystemTime,
}

/// Every file below a directory, by its path from there; links are followed.
pub fn snapshot(dir: &Path) -> Result<BTreeMap<PathBuf, Written>> {
    let mut files = BTreeMap::new();
    collect(dir, Path::new(""), &mut files)?;
    Ok(files)
}

/// The same without times.
pub fn contents(dir: &Path) -> Result<BTreeMap<PathBuf, Vec<u8>>> {
    let files = snapshot(dir)?.into_iter();
    Ok(files.map(|(path, written)| (path, written.bytes)).collect())
}

/// Writes a file, and the directories that it needs.
pub fn write(path: &Path, text: &str) -> Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).with_context(|| parent.display().to_string())?;
    }
    fs::write(path, text).with_context(|| path.display().to_string())
}

fn collect(root: &Path, below: &Path, files: &mut BTreeMap<PathBuf, Written>) -> Result<()> {
    let dir = root.join(below);
    for entry in fs::read_dir(&dir).with_context(|| dir.display().to_string())? {
        let entry = entry?;
        let path = below.join(entry.file_name());
        let metadata = fs::metadata(entry.path())?;
        if metadata.is_dir() {
            collect(root, &path, files)?;
        } else {
            let bytes = fs::read(entry.path()).with_context(|| path.display().to_string())?;
            files.insert(
                path,
                Written {
                    bytes,
                    modified: metadata.modified()?,
                },
            );
        }
    }
    Ok(())
}
