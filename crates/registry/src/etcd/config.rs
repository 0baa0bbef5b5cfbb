//! How an etcd is reached: endpoints, credentials and certificates.

use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use etcd_client::{Certificate, ConnectOptions, Identity, TlsOptions};

use super::failure::Failure;
use crate::key::Layout;

/// How long a connection may take to come about.
pub const DIAL_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);

/// Between pings of an idle connection: etcd refuses more than one in 5 s, and a dead peer is
/// found well before a session's lease is over.
const PING_INTERVAL: Duration = Duration::from_secs(10);

/// Until a ping that is not answered ends the connection.
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// An etcd, and who is asking.
#[derive(Clone, Debug)]
pub struct EtcdConfig {
    /// Client URLs of its members, `https://` or `http://`.
    pub endpoints: Vec<String>,
    /// The layout of keys.
    pub layout: Layout,
    /// The user, unless a certificate says who it is, or anyone may do everything.
    pub user: Option<User>,
    /// Certificates, for `https://` endpoints.
    pub tls: TlsFiles,
    /// How long a connection may take to come about.
    pub dial_timeout: Duration,
}

/// A user of etcd.
#[derive(Clone, Debug)]
pub struct User {
    /// Its name.
    pub name: String,
    /// Its password.
    pub password: Password,
}

/// Where a password comes from.
#[derive(Clone)]
pub enum Password {
    /// It is this.
    Text(String),
    /// It is the first line of this file, read for every connection.
    File(PathBuf),
}

/// PEM files. They are read for every connection, and again when they change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// Who signed the servers' certificates. Without one, the system's authorities are asked.
    pub authority: Option<PathBuf>,
    /// The own certificate and its key, for mutual TLS.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The name that the servers' certificates are for, if not that of their URLs.
    pub server_name: Option<String>,
}

/// Why a configuration cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// There is no endpoint.
    #[error("no etcd endpoint is given")]
    NoEndpoint,
    /// An endpoint is not a URL that etcd has.
    #[error("{endpoint:?} is no etcd endpoint: it must be https://HOST:PORT or http://HOST:PORT")]
    Endpoint {
        /// The endpoint.
        endpoint: String,
    },
    /// Certificates go with `https://` only.
    #[error("certificates are given, but {endpoint:?} is not https://")]
    Plain {
        /// The endpoint.
        endpoint: String,
    },
}

/// What a connection is made with, read from the files now.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Secrets {
    password: Option<String>,
    authority: Option<Vec<u8>>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
}

// === impl EtcdConfig ===

impl EtcdConfig {
    /// These endpoints, with the default layout, no user and no certificates.
    pub fn new(endpoints: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            layout: Layout::default(),
            user: None,
            tls: TlsFiles::default(),
            dial_timeout: DIAL_TIMEOUT_DEFAULT,
        }
    }

    /// Whether the endpoints are such, and go with the certificates.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.endpoints.is_empty() {
            return Err(ConfigError::NoEndpoint);
        }
        for endpoint in &self.endpoints {
            let endpoint = endpoint.clone();
            let host = |scheme| endpoint.strip_prefix(scheme).filter(|h| is_host(h));
            if host("https://").is_some() {
                continue;
            }
            if host("http://").is_none() {
                return Err(ConfigError::Endpoint { endpoint });
            }
            if self.tls != TlsFiles::default() {
                return Err(ConfigError::Plain { endpoint });
            }
        }
        Ok(())
    }

    pub(super) fn secrets(&self) -> Result<Secrets, Failure> {
        let read = |path: &PathBuf| {
            fs::read(path).map_err(|error| {
                Failure::not_sent(format!("{} cannot be read: {error}", path.display()))
            })
        };
        let password = match self.user.as_ref().map(|user| &user.password) {
            None => None,
            Some(Password::Text(text)) => Some(text.clone()),
            Some(Password::File(path)) => Some(first_line(&read(path)?)),
        };
        let TlsFiles {
            authority,
            identity,
            server_name: _,
        } = &self.tls;
        Ok(Secrets {
            password,
            authority: authority.as_ref().map(read).transpose()?,
            identity: match identity {
                Some((certificate, key)) => Some((read(certificate)?, read(key)?)),
                None => None,
            },
        })
    }

    pub(super) fn options(&self, endpoint: &str, secrets: &Secrets) -> ConnectOptions {
        let mut options = ConnectOptions::new()
            .with_connect_timeout(self.dial_timeout)
            .with_keep_alive(PING_INTERVAL, PING_TIMEOUT)
            .with_keep_alive_while_idle(true)
            .with_require_leader(true);
        if let (Some(user), Some(password)) = (&self.user, &secrets.password) {
            options = options.with_user(&user.name, password);
        }
        if endpoint.starts_with("https://") {
            options = options.with_tls(self.tls_options(secrets));
        }
        options
    }

    fn tls_options(&self, secrets: &Secrets) -> TlsOptions {
        let mut tls = TlsOptions::new();
        tls = match &secrets.authority {
            Some(authority) => tls.ca_certificate(Certificate::from_pem(authority)),
            None => tls.with_enabled_roots(),
        };
        if let Some((certificate, key)) = &secrets.identity {
            tls = tls.identity(Identity::from_pem(certificate, key));
        }
        if let Some(name) = &self.tls.server_name {
            tls = tls.domain_name(name);
        }
        tls
    }
}

fn is_host(text: &str) -> bool {
    let text = text.strip_suffix('/').unwrap_or(text);
    !text.is_empty() && !text.contains(['/', '?', '#', '@', ' '])
}

fn first_line(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.lines().next().unwrap_or_default().to_owned()
}

// === impl Password ===

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(_) => f.write_str("…"),
            Self::File(path) => path.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(endpoint: &str) -> Result<(), ConfigError> {
        EtcdConfig::new([endpoint]).check()
    }

    #[test]
    fn endpoints_are_urls_of_hosts() {
        for good in [
            "https://etcd.example.com:2379",
            "http://127.0.0.1:2379/",
            "https://[fd00::1]:2379",
        ] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "etcd:2379",
            "ftp://etcd",
            "https://",
            "https://etcd/path",
            "http://u@h",
        ] {
            assert!(
                matches!(check(bad), Err(ConfigError::Endpoint { .. })),
                "{bad}"
            );
        }
        let none = EtcdConfig::new(Vec::<String>::new());
        assert_eq!(none.check(), Err(ConfigError::NoEndpoint));
        let mut mixed = EtcdConfig::new(["https://a", "http://b"]);
        assert_eq!(mixed.check(), Ok(()));
        mixed.tls.authority = Some("ca.crt".into());
        assert!(matches!(mixed.check(), Err(ConfigError::Plain { .. })));
    }

    #[test]
    fn a_password_is_not_shown() {
        let user = User {
            name: "east".to_owned(),
            password: Password::Text("secret".to_owned()),
        };
        assert!(!format!("{user:?}").contains("secret"));
        assert_eq!(first_line(b"secret\nnot\n"), "secret");
        assert_eq!(first_line(b""), "");
    }
}
