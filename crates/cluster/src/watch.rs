//! Tells when directories have changed.
//!
//! One watcher of the operating system stands for all directories, as a process may have few of
//! them. It says where something happened, never what: whoever asks reads the directory again
//! ([`Tree::rescan`](crate::manifest::Tree::rescan)). So events need no queue, only a counter for
//! each directory, and a lost event costs nothing as long as another one comes.
//!
//! A directory that cannot be watched (no inotify, a limit reached, not there at the moment) is
//! polled: it counts as changed every [`POLL`], until it can be watched. As often it is looked
//! whether another directory stands under a watched one's path.

#[cfg(test)]
mod tests;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};
use tracing::warn;

/// How often a directory that is not watched is looked at: as fast as a person expects an effect,
/// slow enough to cost nothing.
pub const POLL: Duration = Duration::from_secs(1);

/// Changes are told once it has been quiet for so long: an editor or `kubectl` writes several
/// files at once.
const QUIET: Duration = Duration::from_millis(50);

/// Changes are told after so long even if it never gets quiet.
const QUIET_WAIT_MAX: Duration = Duration::from_millis(500);

/// How often something happened below each directory.
type Counts = Vec<u64>;

/// A watch of several directories.
#[derive(Debug)]
pub struct Watch {
    directories: Vec<Watched>,
    /// `None` where the operating system has no watcher left.
    watcher: Option<RecommendedWatcher>,
    counts: watch::Receiver<Counts>,
    /// The counts that have been told.
    told: Counts,
    /// When the directories themselves are looked at next, however often a caller stops waiting.
    poll_at: Instant,
}

/// One directory.
#[derive(Debug)]
struct Watched {
    path: PathBuf,
    /// Device and inode of the directory that is watched under this path; another one may take
    /// its place. `None`: it is not watched.
    identity: Option<(u64, u64)>,
}

impl Watch {
    /// Watches directories with all that is below them. Read them after this, not before, so that
    /// no change falls in between.
    pub fn new(directories: &[PathBuf]) -> Self {
        let zeros = vec![0; directories.len()];
        let (sender, counts) = watch::channel(zeros.clone());
        // Events name absolute paths, however a directory was named.
        let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
        let directories: Vec<PathBuf> = directories.iter().map(absolute).collect();
        let paths = directories.clone();
        let handler = move |event: notify::Result<notify::Event>| {
            let hit = hit(&event, &paths);
            if hit.iter().any(|hit| *hit) {
                sender.send_modify(|counts| {
                    for (count, hit) in counts.iter_mut().zip(&hit) {
                        *count += u64::from(*hit);
                    }
                });
            }
        };
        let watcher = match notify::recommended_watcher(handler) {
            Ok(watcher) => Some(watcher),
            Err(error) => {
                warn!(%error, "files cannot be watched, so they are polled");
                None
            }
        };
        let directory = |path: &PathBuf| Watched {
            path: path.clone(),
            identity: None,
        };
        let mut watch = Self {
            directories: directories.iter().map(directory).collect(),
            watcher,
            counts,
            told: zeros,
            poll_at: Instant::now() + POLL,
        };
        for index in 0..watch.directories.len() {
            watch.attach(index);
        }
        watch
    }

    /// Whether each directory is watched, so that none is polled.
    pub fn is_complete(&self) -> bool {
        self.directories.iter().all(|d| d.identity.is_some())
    }

    /// Waits until something may have changed below a directory, and tells below which, by index.
    /// With `look_again` all of them at the next [`POLL`]. Dropping the future loses nothing.
    pub async fn changed(&mut self, look_again: bool) -> Vec<usize> {
        let all: Vec<usize> = (0..self.directories.len()).collect();
        loop {
            let told = self.told.clone();
            let mut counts = self.counts.clone();
            let first = timeout_at(self.poll_at, counts.wait_for(|counts| *counts != told)).await;
            let first = first.map(|counted| counted.map(drop));
            let is_deaf = matches!(first, Ok(Err(_)));
            if let Ok(Ok(())) = first {
                return self.told(settled(&mut counts).await);
            }
            // Where nobody counts any more only time tells.
            sleep_until(self.poll_at).await;
            self.poll_at = Instant::now() + POLL;
            // Nothing is heard of a directory that is replaced from above, by a rename of its
            // parent or a link that leads elsewhere.
            for index in &all {
                self.check_identity(*index);
            }
            let missing = self.attach_missing();
            if look_again || is_deaf {
                return all;
            }
            if !missing.is_empty() {
                return missing;
            }
        }
    }

    /// Which directories have changed by these counts.
    fn told(&mut self, counts: Counts) -> Vec<usize> {
        let mut changed: Vec<usize> = (0..counts.len())
            .filter(|index| counts[*index] != self.told[*index])
            .collect();
        self.told = counts;
        for index in &changed {
            self.check_identity(*index);
        }
        changed.extend(self.attach_missing());
        changed.sort_unstable();
        changed.dedup();
        changed
    }

    /// Watches those directories that are not watched, as far as that works now, and tells which
    /// they are.
    fn attach_missing(&mut self) -> Vec<usize> {
        let missing: Vec<usize> = (0..self.directories.len())
            .filter(|index| self.directories[*index].identity.is_none())
            .collect();
        for index in &missing {
            self.attach(*index);
        }
        missing
    }

    /// Notes whether another directory has taken the place of the one that is watched.
    fn check_identity(&mut self, index: usize) {
        let directory = &mut self.directories[index];
        if identity(&directory.path) != directory.identity {
            directory.identity = None;
            if let Some(watcher) = &mut self.watcher {
                // It fails where the watch has gone with its directory.
                watcher.unwatch(&directory.path).ok();
            }
        }
    }

    fn attach(&mut self, index: usize) {
        let directory = &mut self.directories[index];
        let (Some(watcher), Some(identity)) = (&mut self.watcher, identity(&directory.path)) else {
            return;
        };
        match watcher.watch(&directory.path, RecursiveMode::Recursive) {
            Ok(()) => directory.identity = Some(identity),
            Err(error) => {
                // A part of it may be watched already.
                watcher.unwatch(&directory.path).ok();
                let path = directory.path.display();
                warn!(%path, %error, "a directory cannot be watched, so it is polled");
            }
        }
    }
}

/// The counts after it has been quiet for a while.
async fn settled(counts: &mut watch::Receiver<Counts>) -> Counts {
    let deadline = Instant::now() + QUIET_WAIT_MAX;
    loop {
        let now = counts.borrow_and_update().clone();
        let quiet_until = deadline.min(Instant::now() + QUIET);
        match timeout_at(quiet_until, counts.changed()).await {
            Ok(Ok(())) if Instant::now() < deadline => {}
            Ok(_) | Err(_) => return now,
        }
    }
}

/// Which directories an event is about; all, where it does not say.
fn hit(event: &notify::Result<notify::Event>, directories: &[PathBuf]) -> Vec<bool> {
    match event {
        Ok(event) if !is_change(event.kind) => vec![false; directories.len()],
        Ok(event) if !event.paths.is_empty() && !event.need_rescan() => {
            let is_below = |root: &PathBuf| event.paths.iter().any(|path| path.starts_with(root));
            directories.iter().map(is_below).collect()
        }
        Ok(_) | Err(_) => vec![true; directories.len()],
    }
}

/// Whether files may be others afterwards. Reading them, as a scan does, is not a change.
fn is_change(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(access) => access == AccessKind::Close(AccessMode::Write),
        EventKind::Any
        | EventKind::Create(_)
        | EventKind::Modify(_)
        | EventKind::Remove(_)
        | EventKind::Other => true,
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    let metadata = fs::metadata(path).ok()?;
    metadata.is_dir().then(|| (metadata.dev(), metadata.ino()))
}
