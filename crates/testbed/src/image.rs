//! Container images, packed from programs of this machine: nothing is pulled from anywhere.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};
use data_encoding::HEXLOWER;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::{cache::Cache, command, progress::Progress};

/// The image for pods of tests: `answer` and `ask`, and tools to look around.
pub const TEST_IMAGE: &str = "localhost/testbed:1";
/// The image of the container that holds a pod together.
pub(crate) const PAUSE_IMAGE: &str = "localhost/pause:1";

/// Copied into the test image with the libraries that they load.
const TEST_PROGRAMS: [&str; 6] = ["dash", "bash", "socat", "ncat", "dig", "curl"];
/// Of the C library, loaded by name at run time.
const NAME_SERVICE_LIBRARIES: [&str; 3] =
    ["libnss_dns.so.2", "libnss_files.so.2", "libresolv.so.2"];

/// A packed image: a docker archive.
#[derive(Debug, Clone)]
pub struct ImageFile(PathBuf);

/// What an image is to hold.
#[derive(Debug, Clone)]
pub struct ImageSpec {
    /// Its name, with tag.
    pub name: String,
    /// Programs of this machine.
    pub programs: Vec<PathBuf>,
    /// Scripts: name and text, put into /usr/bin.
    pub scripts: Vec<(String, String)>,
    /// What a pod's arguments are given to; empty where `command` runs by itself.
    pub entrypoint: Vec<String>,
    /// What runs unless the pod says otherwise.
    pub command: Vec<String>,
}

impl ImageSpec {
    /// [`TEST_IMAGE`].
    ///
    /// # Errors
    /// When a program is missing.
    pub fn test() -> Result<Self> {
        Ok(Self {
            name: TEST_IMAGE.into(),
            programs: TEST_PROGRAMS
                .iter()
                .map(|name| command::find(name).with_context(|| format!("{name} is missing")))
                .collect::<Result<_>>()?,
            scripts: vec![
                ("answer".into(), include_str!("image/answer.sh").into()),
                ("reply".into(), include_str!("image/reply.sh").into()),
                ("ask".into(), include_str!("image/ask.sh").into()),
            ],
            entrypoint: Vec::new(),
            command: vec!["answer".into(), "8080".into()],
        })
    }

    pub(crate) fn pause() -> Self {
        Self {
            name: PAUSE_IMAGE.into(),
            programs: Vec::new(),
            scripts: Vec::new(),
            entrypoint: Vec::new(),
            command: vec!["/bin/busybox".into(), "sleep".into(), "infinity".into()],
        }
    }

    /// Packs it, or finds it in the cache: the same programs and scripts make the same image.
    ///
    /// # Errors
    /// When a program cannot be read or `tar` fails.
    pub fn pack(&self, cache: &Cache, progress: &Progress) -> Result<ImageFile> {
        let mut hash = Sha256::new();
        hash.update(format!("{self:?}"));
        let busybox = command::find("busybox").context("busybox is missing")?;
        for program in self.programs.iter().chain([&busybox]) {
            let data = fs::metadata(program)
                .with_context(|| format!("no program {}", program.display()))?;
            hash.update(format!("{} {:?}", data.len(), data.modified().ok()));
        }
        let digest = HEXLOWER.encode(&hash.finalize()[..8]);
        let folder = cache.folder(&format!("image-{digest}"), progress, |partial| {
            progress.say(format!("packing image {}", self.name));
            let root = partial.join("root");
            self.fill(&root, &busybox)?;
            self.archive(&root, partial)?;
            fs::remove_dir_all(root)?;
            Ok(())
        })?;
        Ok(ImageFile(folder.join("image.tar")))
    }

    fn fill(&self, root: &Path, busybox: &Path) -> Result<()> {
        for folder in ["bin", "etc", "tmp", "dev", "proc", "sys", "usr/bin"] {
            fs::create_dir_all(root.join(folder))?;
        }
        fs::write(root.join("etc/passwd"), "root:x:0:0::/:/bin/sh\n")?;
        fs::write(root.join("etc/nsswitch.conf"), "hosts: files dns\n")?;
        fs::copy(busybox, root.join("bin/busybox"))?;
        for applet in command::output(Command::new(busybox).arg("--list"))?.lines() {
            if applet != "busybox" {
                symlink("busybox", root.join("bin").join(applet))?;
            }
        }
        for program in &self.programs {
            let name = program.file_name().context("program without name")?;
            // The applet of this name gives way to the program.
            drop(fs::remove_file(root.join("bin").join(name)));
            fs::copy(program, root.join("usr/bin").join(name))?;
            copy_libraries(program, root)?;
        }
        if self
            .programs
            .iter()
            .any(|program| program.ends_with("dash"))
        {
            // The shell of busybox would run its own applets before programs of the same name.
            fs::remove_file(root.join("bin/sh"))?;
            symlink("/usr/bin/dash", root.join("bin/sh"))?;
        }
        for (name, text) in &self.scripts {
            let path = root.join("usr/bin").join(name);
            fs::write(&path, text)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        }
        Ok(())
    }

    fn archive(&self, root: &Path, folder: &Path) -> Result<()> {
        let layer = folder.join("layer.tar");
        command::output(
            Command::new("tar")
                .args([
                    "--sort=name",
                    "--mtime=@0",
                    "--numeric-owner",
                    "--owner=0",
                    "--group=0",
                ])
                .arg("-cf")
                .arg(&layer)
                .arg("-C")
                .arg(root)
                .arg("."),
        )?;
        let digest = HEXLOWER.encode(&Sha256::digest(fs::read(&layer)?));
        let config = json!({
            "architecture": architecture(),
            "os": "linux",
            "config": {
                "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
                "Entrypoint": self.entrypoint,
                "Cmd": self.command,
            },
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{digest}")]},
        })
        .to_string();
        let config_name = format!("{}.json", HEXLOWER.encode(&Sha256::digest(&config)));
        let manifest =
            json!([{"Config": config_name, "RepoTags": [self.name], "Layers": ["layer.tar"]}]);
        fs::write(folder.join(&config_name), config)?;
        fs::write(folder.join("manifest.json"), manifest.to_string())?;
        let members = ["manifest.json", &config_name, "layer.tar"];
        let mut tar = Command::new("tar");
        tar.arg("-cf")
            .arg(folder.join("image.tar"))
            .arg("-C")
            .arg(folder)
            .args(members);
        command::output(&mut tar)?;
        members
            .iter()
            .try_for_each(|member| fs::remove_file(folder.join(member)))?;
        Ok(())
    }
}

impl ImageFile {
    /// An archive that someone else made.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// The archive.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

/// Copies the shared libraries that a program loads (none for a static one).
fn copy_libraries(program: &Path, root: &Path) -> Result<()> {
    let Ok(list) = command::output(Command::new("ldd").arg(program)) else {
        return Ok(());
    };
    let mut libraries: Vec<PathBuf> = list
        .split_whitespace()
        .filter(|word| word.starts_with('/'))
        .map(PathBuf::from)
        .collect();
    let libc = libraries
        .iter()
        .find(|path| path.file_name().is_some_and(|n| n == "libc.so.6"));
    if let Some(folder) = libc.and_then(|path| path.parent()).map(Path::to_owned) {
        libraries.extend(NAME_SERVICE_LIBRARIES.iter().map(|name| folder.join(name)));
    }
    for library in libraries {
        let target = root.join(library.strip_prefix("/")?);
        if library.exists() && !target.exists() {
            fs::create_dir_all(target.parent().context("library without folder")?)?;
            fs::copy(&library, &target)?;
        }
    }
    Ok(())
}

/// As container images name it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
