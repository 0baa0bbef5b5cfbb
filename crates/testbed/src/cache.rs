//! The build cache: folders outside the checkout, one per thing and version, made once.
//!
//! Any number of processes may ask for the same folder at the same time: a file lock lets one
//! build it while the others wait, and a folder appears under its name only when it is complete.

use std::{
    fs::{self, File, TryLockError},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

use crate::progress::Progress;

/// Environment variable that names the cache folder.
pub const CACHE_ENV: &str = "TOMBOLO_TESTBED_CACHE";

/// The folder that binaries and images are kept in.
#[derive(Debug, Clone)]
pub struct Cache {
    root: PathBuf,
}

impl Cache {
    /// The cache in `$TOMBOLO_TESTBED_CACHE`, else in `~/.cache/tombolo/testbed`.
    ///
    /// # Errors
    /// When neither that variable nor `HOME` is set.
    pub fn from_env() -> Result<Self> {
        if let Some(root) = std::env::var_os(CACHE_ENV) {
            return Ok(Self::at(root));
        }
        let home = std::env::var_os("HOME")
            .with_context(|| format!("neither {CACHE_ENV} nor HOME is set: where to build?"))?;
        Ok(Self::at(Path::new(&home).join(".cache/tombolo/testbed")))
    }

    /// The cache in a folder of the caller's choice.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// A folder for `go build` to work in; kept between builds.
    pub(crate) fn work_folder(&self, name: &str) -> Result<PathBuf> {
        let folder = self.root.join("src").join(name);
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(folder)
    }

    /// The folder `name`, filled by `build` if it is not there yet.
    pub(crate) fn folder(
        &self,
        name: &str,
        progress: &Progress,
        build: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<PathBuf> {
        let folder = self.root.join(name);
        if folder.is_dir() {
            return Ok(folder);
        }
        let _lock = self.lock(name, progress)?;
        if folder.is_dir() {
            return Ok(folder);
        }
        let partial = self.root.join(format!(".{name}.partial"));
        if partial.exists() {
            fs::remove_dir_all(&partial)?;
        }
        fs::create_dir_all(&partial)?;
        build(&partial)?;
        fs::rename(&partial, &folder)
            .with_context(|| format!("cannot put {} in place", folder.display()))?;
        Ok(folder)
    }

    /// Waits for the lock `name`; it is released when the file is dropped, or its process ends.
    pub(crate) fn lock(&self, name: &str, progress: &Progress) -> Result<File> {
        fs::create_dir_all(&self.root)
            .with_context(|| format!("cannot make {}", self.root.display()))?;
        let path = self.root.join(format!(".{name}.lock"));
        let file =
            File::create(&path).with_context(|| format!("cannot open {}", path.display()))?;
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => {
                progress.say(format!("waiting for another process that prepares {name}"));
            }
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
        file.lock()
            .with_context(|| format!("cannot lock {}", path.display()))?;
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn many_ask_one_builds() {
        let root = tempfile::tempdir().unwrap();
        let cache = Cache::at(root.path());
        let builds = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let folder = cache.folder("thing-1", &Progress::silent(), |partial| {
                        builds.fetch_add(1, Ordering::SeqCst);
                        fs::write(partial.join("binary"), "x")?;
                        Ok(())
                    });
                    assert!(folder.unwrap().join("binary").is_file());
                });
            }
        });
        assert_eq!(builds.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn failed_build_leaves_nothing_under_the_name() {
        let root = tempfile::tempdir().unwrap();
        let cache = Cache::at(root.path());
        let failing = cache.folder("thing-1", &Progress::silent(), |_| anyhow::bail!("broken"));
        assert_eq!(failing.unwrap_err().to_string(), "broken");
        assert!(
            cache
                .folder("thing-1", &Progress::silent(), |_| Ok(()))
                .is_ok()
        );
    }
}
