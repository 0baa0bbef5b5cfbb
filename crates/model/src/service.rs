//! What a Service is made of, as far as it travels between clusters: type, ports, families,
//! affinity, traffic policies.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// The timeout of ClientIP affinity where none is given, in seconds (the API server's default).
pub const AFFINITY_TIMEOUT_DEFAULT_SECS: u32 = 10_800;

/// The longest timeout of ClientIP affinity, in seconds: a day.
pub const AFFINITY_TIMEOUT_MAX_SECS: u32 = 86_400;

/// A transport protocol of Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    /// TCP, the default.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl Protocol {
    /// As Kubernetes writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        }
    }

    /// Reads what Kubernetes writes.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Tcp, Self::Udp, Self::Sctp]
            .into_iter()
            .find(|p| p.as_str() == text)
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An IP family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IpFamily {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl IpFamily {
    /// As Kubernetes writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }

    /// Reads what Kubernetes writes.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::V4, Self::V6]
            .into_iter()
            .find(|f| f.as_str() == text)
    }

    /// The family of an address.
    pub const fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }
}

impl fmt::Display for IpFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The type of an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ImportType {
    /// Reached through one virtual IP per family.
    ClusterSetIp,
    /// Reached through the addresses of its endpoints.
    Headless,
}

impl ImportType {
    /// As the Multi-Cluster Services API writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ClusterSetIp => "ClusterSetIP",
            Self::Headless => "Headless",
        }
    }
}

impl fmt::Display for ImportType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Session affinity with its timeout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Affinity {
    /// Each connection goes where it may.
    #[default]
    None,
    /// A client keeps its endpoint.
    ClientIp {
        /// For how long after its last connection, in seconds.
        timeout_secs: u32,
    },
}

impl Affinity {
    /// As Kubernetes writes it, without the timeout.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::ClientIp { .. } => "ClientIP",
        }
    }
}

/// Which endpoints a node's own clients reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum InternalTrafficPolicy {
    /// All of them, the default.
    #[default]
    Cluster,
    /// Those on the same node.
    Local,
}

impl InternalTrafficPolicy {
    /// As Kubernetes writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cluster => "Cluster",
            Self::Local => "Local",
        }
    }
}

/// A port of a Service or an import.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Port {
    /// Its name; empty where a Service has one unnamed port.
    pub name: Arc<str>,
    /// Its protocol.
    pub protocol: Protocol,
    /// Its number.
    pub port: u16,
    /// The application protocol; `None` and empty mean the same and are kept as `None`.
    pub app_protocol: Option<Arc<str>>,
}

impl Port {
    /// Whether protocol and number are those of `other`.
    pub fn same_number(&self, other: &Self) -> bool {
        self.protocol == other.protocol && self.port == other.port
    }

    /// The name as a message shows it.
    pub fn name_or_unnamed(&self) -> &str {
        if self.name.is_empty() {
            "the unnamed port"
        } else {
            &self.name
        }
    }
}

impl fmt::Display for Port {
    /// `http TCP/80`, or `TCP/80` for the unnamed port.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.name.is_empty() {
            write!(f, "{} ", self.name)?;
        }
        write!(f, "{}/{}", self.protocol, self.port)
    }
}
