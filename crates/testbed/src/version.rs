//! The versions that the testbed builds, and how a Kubernetes version is written.

use std::{fmt, str::FromStr};

use anyhow::{Context as _, Error, Result, ensure};
use serde::{Deserialize, Serialize};

/// The etcd server behind the API servers and of registries.
pub const ETCD_VERSION: &str = "3.6.16";
/// `CoreDNS`: its kubernetes plugin has the `multicluster` option.
pub const COREDNS_VERSION: &str = "1.15.0";
/// The release whose CRDs are used unless another one is asked for.
pub const MCS_API_VERSION: &str = "0.5.2";

/// A Kubernetes release such as 1.34.4.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct KubernetesVersion {
    major: u16,
    minor: u16,
    patch: u16,
}

impl KubernetesVersion {
    /// The default, and the newest kubelet that runs on machines with cgroup v1. Kubernetes lets
    /// a kubelet be three minor versions older than its API server.
    pub const DEFAULT: Self = Self {
        major: 1,
        minor: 34,
        patch: 4,
    };

    /// The 1 of 1.34.4.
    pub fn major(self) -> u16 {
        self.major
    }

    /// The 34 of 1.34.4.
    pub fn minor(self) -> u16 {
        self.minor
    }

    /// The kubelet for an API server of this version.
    #[must_use]
    pub fn kubelet(self) -> Self {
        self.min(Self::DEFAULT)
    }

    /// The version of k8s.io/api and other modules that are published beside this one.
    pub(crate) fn staging(self) -> String {
        format!("0.{}.{}", self.minor, self.patch)
    }
}

impl FromStr for KubernetesVersion {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || format!("{text} is not a Kubernetes version such as 1.34.4");
        let numbers = text
            .strip_prefix('v')
            .unwrap_or(text)
            .split('.')
            .map(str::parse)
            .collect::<Result<Vec<u16>, _>>()
            .with_context(wrong)?;
        ensure!(numbers.len() == 3, wrong());
        Ok(Self {
            major: numbers[0],
            minor: numbers[1],
            patch: numbers[2],
        })
    }
}

impl fmt::Display for KubernetesVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

impl TryFrom<String> for KubernetesVersion {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<KubernetesVersion> for String {
    fn from(version: KubernetesVersion) -> Self {
        version.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_and_written() {
        let version: KubernetesVersion = "v1.36.3".parse().unwrap();
        assert_eq!(version.to_string(), "1.36.3");
        assert_eq!(version.staging(), "0.36.3");
        assert_eq!(version.kubelet(), KubernetesVersion::DEFAULT);
        assert!("1.34".parse::<KubernetesVersion>().is_err());
        assert!("one.two.three".parse::<KubernetesVersion>().is_err());
    }
}
