//! Builds Kubernetes, etcd and `CoreDNS` from their Go modules, and takes the CRDs of the
//! Multi-Cluster Services API from theirs. Nothing is downloaded but Go modules.

use std::{
    fmt::Write as _,
    fs,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};

use crate::{
    cache::Cache,
    command, programs,
    progress::Progress,
    version::{COREDNS_VERSION, ETCD_VERSION, KubernetesVersion},
};

/// What is built of every Kubernetes version.
const KUBERNETES_PROGRAMS: [&str; 5] = [
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kube-proxy",
    "kubectl",
];
/// And of those whose kubelet is used.
const KUBELET: &str = "kubelet";

/// Builds what is not in its cache yet, and tells where it is.
#[derive(Debug, Clone)]
pub struct Builder {
    cache: Cache,
    progress: Progress,
}

impl Builder {
    /// Builds into `cache`.
    pub fn new(cache: Cache, progress: Progress) -> Self {
        Self { cache, progress }
    }

    /// The folder with the Kubernetes programs (kubectl too) of this version.
    ///
    /// # Errors
    /// When Go is missing, or the build fails.
    pub fn kubernetes(&self, version: KubernetesVersion) -> Result<PathBuf> {
        self.build(&format!("kubernetes-{version}"), |work| {
            let module = self.download(&format!("k8s.io/kubernetes@v{version}"))?;
            let go_mod = fs::read_to_string(module.join("go.mod"))?;
            fs::write(work.join("go.mod"), kubernetes_go_mod(&go_mod, version)?)?;
            let package = "k8s.io/component-base/version";
            let ldflags = format!(
                "-s -w -X {package}.gitVersion=v{version} -X {package}.gitMajor={} \
                 -X {package}.gitMinor={}",
                version.major(),
                version.minor()
            );
            let kubelet = (version.kubelet() == version).then_some(KUBELET);
            let packages: Vec<_> = KUBERNETES_PROGRAMS
                .into_iter()
                .chain(kubelet)
                .map(|program| format!("k8s.io/kubernetes/cmd/{program}"))
                .collect();
            Ok((ldflags, packages))
        })
    }

    /// The etcd server.
    ///
    /// # Errors
    /// As [`Builder::kubernetes`].
    pub fn etcd(&self) -> Result<PathBuf> {
        let folder = self.build(&format!("etcd-{ETCD_VERSION}"), |work| {
            self.download(&format!("go.etcd.io/etcd/server/v3@v{ETCD_VERSION}"))?;
            fs::create_dir_all(work.join("etcd"))?;
            fs::write(work.join("etcd/main.go"), ETCD_MAIN)?;
            fs::write(
                work.join("go.mod"),
                format!(
                    "module testbed\ngo 1.26.0\nrequire go.etcd.io/etcd/server/v3 v{ETCD_VERSION}\n"
                ),
            )?;
            Ok(("-s -w".into(), vec!["./etcd".into()]))
        })?;
        Ok(folder.join("etcd"))
    }

    /// `CoreDNS`, with its standard plugins.
    ///
    /// # Errors
    /// As [`Builder::kubernetes`].
    pub fn coredns(&self) -> Result<PathBuf> {
        let module = format!("github.com/coredns/coredns@v{COREDNS_VERSION}");
        let folder = self.build(&format!("coredns-{COREDNS_VERSION}"), |work| {
            // Its own requirements, as a main module would have them.
            let own = fs::read_to_string(self.download(&module)?.join("go.mod"))?;
            fs::create_dir_all(work.join("coredns"))?;
            fs::write(work.join("coredns/main.go"), COREDNS_MAIN)?;
            let mut go_mod = own.replacen("module github.com/coredns/coredns", "module testbed", 1);
            writeln!(
                go_mod,
                "require github.com/coredns/coredns v{COREDNS_VERSION}"
            )?;
            fs::write(work.join("go.mod"), go_mod)?;
            Ok(("-s -w".into(), vec!["./coredns".into()]))
        })?;
        Ok(folder.join("coredns"))
    }

    /// The CRDs of `sigs.k8s.io/mcs-api` as one YAML text; `None` is the newest release known.
    ///
    /// # Errors
    /// When there is no such release, or it has no CRDs.
    pub fn mcs_crds(&self, version: Option<&str>) -> Result<String> {
        let version = version.unwrap_or(crate::version::MCS_API_VERSION);
        let folder = self
            .download(&format!("sigs.k8s.io/mcs-api@v{version}"))?
            .join("config/crd");
        let mut files: Vec<_> = fs::read_dir(&folder)
            .with_context(|| format!("mcs-api v{version} has no CRDs"))?
            .collect::<Result<Vec<_>, _>>()?
            .into_iter()
            .map(|entry| entry.path())
            .filter(|path| {
                path.extension()
                    .is_some_and(|extension| extension == "yaml")
            })
            .collect();
        files.sort();
        let mut text = String::new();
        for file in files {
            let yaml = fs::read_to_string(&file)?;
            if yaml.contains("kind: CustomResourceDefinition") {
                writeln!(text, "---\n{}", yaml.trim_start_matches("---\n").trim_end())?;
            }
        }
        if text.is_empty() {
            bail!("mcs-api v{version} has no CRDs in config/crd");
        }
        Ok(text)
    }

    /// Fills the cache folder `name`: `prepare` writes go.mod and gives ldflags and packages.
    fn build(
        &self,
        name: &str,
        prepare: impl FnOnce(&Path) -> Result<(String, Vec<String>)>,
    ) -> Result<PathBuf> {
        self.cache.folder(name, &self.progress, |partial| {
            self.progress.say(format!(
                "building {name} from Go modules (once; takes minutes)"
            ));
            let watch = crate::clock::Stopwatch::start();
            let work = self.cache.work_folder(name)?;
            let (ldflags, packages) = prepare(&work)?;
            let mut go = Command::new(programs::go()?);
            go.current_dir(&work)
                .env("GOFLAGS", "-mod=mod -buildvcs=false")
                .args(["build", "-p=2", "-trimpath", "-ldflags", &ldflags, "-o"])
                .arg(partial)
                .args(packages)
                .process_group(0);
            crate::process::run_cancellable(&mut go)
                .with_context(|| format!("cannot build {name}"))?;
            self.progress.say(format!(
                "built {name} in {:.0} s",
                watch.elapsed().as_secs_f32()
            ));
            Ok(())
        })
    }

    /// Downloads a module (or finds it in Go's own cache) and returns its folder.
    fn download(&self, module: &str) -> Result<PathBuf> {
        #[derive(serde::Deserialize)]
        struct Downloaded {
            #[serde(rename = "Dir", default)]
            dir: PathBuf,
            #[serde(rename = "Error", default)]
            error: String,
        }
        // In an empty folder: a go.mod above would have a say in what is downloaded.
        let folder = self.cache.work_folder("empty")?;
        let mut go = Command::new(programs::go()?);
        go.current_dir(folder)
            .env("GOFLAGS", "-mod=mod")
            .args(["mod", "download", "-json", module]);
        let output = go.output().context("cannot run go")?;
        let downloaded: Downloaded = serde_json::from_slice(&output.stdout).with_context(|| {
            let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            format!("{} failed: {message}", command::shown(&go))
        })?;
        if !downloaded.error.is_empty() {
            bail!("cannot get {module}: {}", downloaded.error);
        }
        Ok(downloaded.dir)
    }
}

const ETCD_MAIN: &str = "package main

import (
\t\"os\"

\t\"go.etcd.io/etcd/server/v3/etcdmain\"
)

func main() { etcdmain.Main(os.Args) }
";

const COREDNS_MAIN: &str = "package main

import (
\t_ \"github.com/coredns/coredns/core/plugin\"
\t\"github.com/coredns/coredns/coremain\"
)

func main() { coremain.Run() }
";

/// A go.mod for the programs of Kubernetes: its own requirements, and its staging modules at the
/// versions that are published beside it.
fn kubernetes_go_mod(own: &str, version: KubernetesVersion) -> Result<String> {
    let mut text = String::from("module testbed\n");
    let go = own
        .lines()
        .find(|line| line.starts_with("go "))
        .context("go.mod without go line")?;
    writeln!(text, "{go}\nrequire (\n\tk8s.io/kubernetes v{version}")?;
    for line in own.lines().filter(|line| is_published_requirement(line)) {
        writeln!(text, "{line}")?;
    }
    text.push_str(")\nreplace (\n");
    for line in own.lines() {
        if let Some((_, name)) = line.split_once("=> ./staging/src/k8s.io/") {
            let staging = version.staging();
            writeln!(text, "\tk8s.io/{name} => k8s.io/{name} v{staging}")?;
        }
    }
    text.push_str(")\n");
    Ok(text)
}

/// A line of a `require` block, but not of a staging module (those have no version).
fn is_published_requirement(line: &str) -> bool {
    let mut words = line.split_whitespace();
    let (Some(module), Some(version)) = (words.next(), words.next()) else {
        return false;
    };
    line.starts_with('\t')
        && module.contains('.')
        && version.starts_with('v')
        && version != "v0.0.0"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn staging_modules_become_published_ones() {
        let own = "module k8s.io/kubernetes\n\ngo 1.24.0\n\ngodebug default=go1.24\n\nrequire (\n\
                   \texample.org/a v1.2.3\n\tk8s.io/api v0.0.0\n\texample.org/b v0.1.0 // indirect\n)\n\n\
                   replace (\n\tk8s.io/api => ./staging/src/k8s.io/api\n)\n";
        let text = kubernetes_go_mod(own, "1.34.4".parse().unwrap()).unwrap();
        assert_eq!(
            text,
            "module testbed\ngo 1.24.0\nrequire (\n\tk8s.io/kubernetes v1.34.4\n\
             \texample.org/a v1.2.3\n\texample.org/b v0.1.0 // indirect\n)\nreplace (\n\
             \tk8s.io/api => k8s.io/api v0.34.4\n)\n"
        );
    }
}
