//! An etcd of three members through which the clusters meet, with a user for each of them.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, ensure};
use tombolo_testbed::{Etcd, EtcdSpec, Testbed};

use crate::process::TOMBOLO;
use crate::world::CLUSTERS;

/// The etcd, and where the passwords are.
pub(crate) struct Registry {
    etcd: Etcd,
    folder: PathBuf,
}

impl Registry {
    /// Starts it, grants each cluster what it needs, and turns the rules on.
    pub(crate) fn start(testbed: &mut Testbed) -> Result<Self> {
        let etcd = testbed.start_etcd("meeting", &EtcdSpec::members(3))?;
        let folder = testbed.folder().join("passwords");
        fs::create_dir_all(&folder)?;
        let registry = Self { etcd, folder };
        for cluster in CLUSTERS {
            fs::write(registry.password(cluster), format!("password of {cluster}"))?;
            let mut grant = Command::new(TOMBOLO);
            grant.args(["registry", "grant", "--cluster", cluster]);
            grant.args(["--registry", &registry.urls(), "--password-file"]);
            let output = grant.arg(registry.password(cluster)).output()?;
            let text = String::from_utf8_lossy(&output.stderr);
            ensure!(output.status.success(), "grant: {text}");
        }
        for (path, body) in [
            ("user/add", r#"{"name":"root","password":"root"}"#),
            ("role/add", r#"{"name":"root"}"#),
            ("user/grant", r#"{"user":"root","role":"root"}"#),
            ("enable", "{}"),
        ] {
            let url = format!("{}/v3/auth/{path}", registry.etcd.first().endpoint());
            let output = Command::new("curl")
                .args(["-sf", &url, "-d", body])
                .output()?;
            ensure!(output.status.success(), "{url}: {:?}", output.status);
        }
        Ok(registry)
    }

    fn urls(&self) -> String {
        self.etcd.endpoints().join(",")
    }

    fn password(&self, cluster: &str) -> PathBuf {
        self.folder.join(cluster)
    }

    /// How a cluster's controller finds it.
    pub(crate) fn args(&self, cluster: &str) -> Vec<String> {
        let password = self.password(cluster).display().to_string();
        let user = format!("tombolo-cluster-{cluster}");
        [
            ["--registry", &self.urls()],
            ["--registry-user", &user],
            ["--registry-password-file", &password],
        ]
        .concat()
        .into_iter()
        .map(str::to_owned)
        .collect()
    }
}
