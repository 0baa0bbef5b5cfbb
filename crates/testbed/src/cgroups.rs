//! Control groups of containers: under one name per testbed, removed with it.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context as _, Result};

use crate::clock;

const ROOT: &str = "/sys/fs/cgroup";
/// A group can be removed when the kernel has buried its last process, soon after its end.
const REMOVE_TRIES: u32 = 100;

/// The group of a testbed's containers.
pub(crate) fn name(id: &str) -> String {
    format!("tombolo-testbed-{id}")
}

/// Removes the groups of a testbed from all hierarchies.
pub(crate) fn remove(id: &str) -> Result<()> {
    let root = Path::new(ROOT);
    // Version 2 has one hierarchy at the root, version 1 one per controller below it.
    let hierarchies = fs::read_dir(root)
        .into_iter()
        .flatten()
        .filter_map(Result::ok);
    for hierarchy in hierarchies
        .map(|entry| entry.path())
        .chain([root.to_owned()])
    {
        let group = hierarchy.join(name(id));
        if group.is_dir() {
            remove_tree(&group)?;
        }
    }
    Ok(())
}

fn remove_tree(group: &Path) -> Result<()> {
    for entry in fs::read_dir(group)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    for _ in 0..REMOVE_TRIES {
        if fs::remove_dir(group).is_ok() || !group.exists() {
            return Ok(());
        }
        clock::sleep(Duration::from_millis(20));
    }
    fs::remove_dir(group).with_context(|| format!("cannot remove {}", group.display()))
}
