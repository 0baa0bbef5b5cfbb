//! The shape of source files: each says first what it is, none is too long, and modules are
//! `name.rs`, not `name/mod.rs`.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// The most lines a file may have, tests included.
const LINES_MAX: usize = 600;

/// How many source files there are under the root, and what is wrong with them.
pub(crate) fn check(root: &Path) -> anyhow::Result<(usize, Vec<String>)> {
    let files = source_files(root)?;
    let mut problems = Vec::new();
    for file in &files {
        let text =
            fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let name = file.strip_prefix(root).unwrap_or(file);
        problems.extend(check_file(name, &text));
    }
    Ok((files.len(), problems))
}

/// Every Rust file under the folder, in order, without build output and hidden folders.
fn source_files(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder);
        for entry in entries.with_context(|| format!("cannot list {}", folder.display()))? {
            let entry = entry?;
            let name = entry.file_name();
            let is_source = Path::new(&name).extension() == Some(OsStr::new("rs"));
            let is_skipped = name == "target" || name.to_string_lossy().starts_with('.');
            if entry.file_type()?.is_dir() && !is_skipped {
                folders.push(entry.path());
            } else if entry.file_type()?.is_file() && is_source {
                files.push(entry.path());
            }
        }
    }
    files.sort();
    Ok(files)
}

fn check_file(name: &Path, text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let mut wrong = |what: String| problems.push(format!("{}: {what}", name.display()));
    if !text.starts_with("//!") {
        wrong("start it with a //! comment that says what it is for".to_owned());
    }
    if name.file_name() == Some(OsStr::new("mod.rs")) {
        wrong("name the file after the module, beside its folder".to_owned());
    }
    let lines = text.lines().count();
    if lines > LINES_MAX {
        wrong(format!("{lines} lines, {LINES_MAX} at most; divide it"));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_good_file_passes() {
        assert!(check_file(Path::new("a.rs"), &"//! A.\n".repeat(LINES_MAX)).is_empty());
    }

    #[test]
    fn each_fault_is_named_with_its_file() {
        let problem = |name: &str, text: &str| check_file(Path::new(name), text).join(";");
        assert!(problem("src/a.rs", "use b;\n").starts_with("src/a.rs: start it"));
        assert!(problem("src/a.rs", "").starts_with("src/a.rs: start it"));
        assert!(problem("src/a/mod.rs", "//! A.\n").starts_with("src/a/mod.rs: name the file"));
        let long = "//! A.\n".repeat(LINES_MAX + 1);
        assert_eq!(
            problem("a.rs", &long),
            "a.rs: 601 lines, 600 at most; divide it"
        );
    }

    #[test]
    fn build_output_is_not_source() {
        let root = tempfile::tempdir().unwrap();
        for file in ["a.rs", "b/c.rs", "b/d.txt", "target/e.rs", ".git/f.rs"] {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "//! A.\n").unwrap();
        }
        let names = source_files(root.path()).unwrap();
        assert_eq!(
            names,
            [root.path().join("a.rs"), root.path().join("b/c.rs")]
        );
        assert_eq!(check(root.path()).unwrap(), (2, Vec::new()));
    }
}
