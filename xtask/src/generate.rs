//! `cargo xtask generate`: the files in the repository that are made from the code.

mod crds;

use std::fs;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, bail};

use crate::repository;

/// Writes the files that are made from the code
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Writes nothing; fails if a file is not as it would be written
    #[arg(long)]
    check: bool,
}

/// A file that is made from the code.
struct File {
    /// Relative to the root of the repository.
    path: String,
    contents: String,
}

/// Writes every generated file, or checks that there is nothing to write.
pub(crate) fn run(Args { check }: Args) -> anyhow::Result<()> {
    let files = crds::files()?;
    let changed = changed(repository::root(), &files);
    if check && !changed.is_empty() {
        let paths: Vec<_> = changed.iter().map(|file| file.path.as_str()).collect();
        bail!(
            "out of date, run `cargo xtask generate`: {}",
            paths.join(", ")
        );
    }
    for file in &changed {
        write(repository::root(), file)?;
        writeln!(std::io::stdout(), "wrote {}", file.path)?;
    }
    writeln!(
        std::io::stdout(),
        "generate: {} files are up to date",
        files.len()
    )?;
    Ok(())
}

/// The files that are not there as they should be.
fn changed<'a>(root: &Path, files: &'a [File]) -> Vec<&'a File> {
    let is_same = |file: &File| {
        fs::read_to_string(root.join(&file.path)).is_ok_and(|present| present == file.contents)
    };
    files.iter().filter(|file| !is_same(file)).collect()
}

fn write(root: &Path, file: &File) -> anyhow::Result<()> {
    let path = root.join(&file.path);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    fs::write(&path, &file.contents).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_written() {
        let root = tempfile::tempdir().unwrap();
        let file = |path: &str| File {
            path: path.to_owned(),
            contents: "new\n".to_owned(),
        };
        let files = [file("same"), file("folder/missing"), file("edited")];
        fs::write(root.path().join("same"), "new\n").unwrap();
        fs::write(root.path().join("edited"), "old\n").unwrap();

        let paths: Vec<_> = changed(root.path(), &files)
            .iter()
            .map(|file| &*file.path)
            .collect();
        assert_eq!(paths, ["folder/missing", "edited"]);

        for file in &files {
            write(root.path(), file).unwrap();
        }
        assert!(changed(root.path(), &files).is_empty());
    }
}
