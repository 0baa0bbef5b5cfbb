//! Programs of the machine: what the testbed needs, which package has it, and getting it.

use std::{path::PathBuf, process::Command};

use anyhow::{Context as _, Result, bail};

use crate::{cache::Cache, command, progress::Progress};

/// A program, and the Debian package that has it.
type Needed = (&'static str, &'static str);

/// To build from Go modules. Go itself is named in the error: distributions ship old ones.
const GO_HINT: &str = "the Go toolchain (1.26 or newer) is needed to build etcd and Kubernetes: \
                       install it from your distribution or go.dev and put it in PATH";

/// For any cluster.
pub(crate) const FOR_CLUSTERS: &[Needed] = &[("openssl", "openssl")];

/// For nodes, and for what is in the image of their pods.
pub(crate) const FOR_NODES: &[Needed] = &[
    ("containerd", "containerd"),
    ("ctr", "containerd"),
    ("runc", "runc"),
    ("ip", "iproute2"),
    ("nft", "nftables"),
    ("iptables", "iptables"),
    ("conntrack", "conntrack"),
    ("unshare", "util-linux"),
    ("nsenter", "util-linux"),
    ("mount", "mount"),
    ("busybox", "busybox-static"),
    ("dash", "dash"),
    ("bash", "bash"),
    ("socat", "socat"),
    ("ncat", "ncat"),
    ("dig", "bind9-dnsutils"),
    ("curl", "curl"),
    ("tar", "tar"),
];

/// Where Debian's containernetworking-plugins and others put the CNI plugins.
const CNI_FOLDERS: [&str; 3] = ["/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"];
const CNI_PLUGINS: [&str; 3] = ["host-local", "loopback", "ptp"];

/// The folder of the CNI plugins.
pub(crate) fn cni_folder() -> Option<PathBuf> {
    CNI_FOLDERS.iter().map(PathBuf::from).find(|folder| {
        CNI_PLUGINS
            .iter()
            .all(|plugin| folder.join(plugin).is_file())
    })
}

/// The Go command.
pub(crate) fn go() -> Result<PathBuf> {
    command::find("go").context(GO_HINT)
}

/// Makes sure that the programs are there: with apt-get as root, else by saying what to install.
pub(crate) fn ensure(needed: &[Needed], cache: &Cache, progress: &Progress) -> Result<()> {
    if missing(needed).is_empty() {
        return Ok(());
    }
    let _lock = cache.lock("apt", progress)?;
    let packages = missing(needed);
    if packages.is_empty() {
        return Ok(());
    }
    let list = packages.join(" ");
    let Some(apt) = command::find("apt-get").filter(|_| is_root()) else {
        bail!("programs are missing; install them: apt-get install {list}");
    };
    progress.say(format!("installing {list}"));
    let install = || {
        command::output(
            Command::new(&apt)
                .env("DEBIAN_FRONTEND", "noninteractive")
                .args(["install", "-y", "-qq", "--no-install-recommends"])
                .args(&packages),
        )
    };
    if install().is_err() {
        // The package lists may be missing or old.
        command::output(Command::new(&apt).args(["update", "-qq"]))?;
        install().with_context(|| format!("cannot install {list}"))?;
    }
    let still = missing(needed);
    if !still.is_empty() {
        bail!(
            "installed, but programs of these packages are still missing: {}",
            still.join(" ")
        );
    }
    Ok(())
}

fn missing(needed: &[Needed]) -> Vec<&'static str> {
    let mut packages: Vec<_> = needed
        .iter()
        .filter(|(program, _)| command::find(program).is_none())
        .map(|(_, package)| *package)
        .collect();
    if needed.iter().any(|(program, _)| *program == "containerd") && cni_folder().is_none() {
        packages.push("containernetworking-plugins");
    }
    packages.sort_unstable();
    packages.dedup();
    packages
}

/// Whether this process may make network namespaces, mounts and firewall rules.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_packages_are_named_once() {
        let needed = [
            ("no-such-1", "package-a"),
            ("no-such-2", "package-a"),
            ("sh", "dash"),
        ];
        assert_eq!(missing(&needed), ["package-a"]);
    }
}
