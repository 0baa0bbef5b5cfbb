//! The keys of the registry: where a record stands, and what stands at a key (DESIGN §2.2).
//!
//! ```text
//! <root>/<region>/clusters/<cluster>/owner|session|synced|left|report
//! <root>/<region>/clusters/<cluster>/ns/<namespace>/exports/<service>
//! <root>/<region>/clusters/<cluster>/ns/<namespace>/services/<service>/protocols/<p>/endpoints/<ip>
//! <root>/<region>/clusters/<cluster>/ns/<namespace>/config/<service>/<kind>
//! <root>/<region>/members/<cluster>      <root>/<region>/settings      <root>/<region>/replicator
//! ```
//!
//! Every place has exactly one key: the parser takes canonical forms only, so that no record can
//! stand twice. Keys come from other clusters and are hostile until parsed.

use std::net::IpAddr;
use std::sync::Arc;

use tombolo_model::endpoint::EntryProtocol;
use tombolo_model::names::{
    ClusterName, NameError, Namespace, ObjectName, Region, ServiceKey, check_config_kind,
    check_service_name,
};
use tombolo_model::record::{Origin, RecordKey};

/// The root where none is given.
pub const ROOT_DEFAULT: &str = "/tombolo/v1/regions";

/// The longest root: enough for any tenant's path, and keys stay short.
const ROOT_LEN_MAX: usize = 256;

/// The longest key that can be of the layout: the root, four names, an address and the fixed words
/// come to less than 700 characters.
pub const KEY_LEN_MAX: usize = 1024;

/// How much of a hostile key is shown.
const SHOWN_LEN_MAX: usize = 200;

/// What a key stands for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// A record in a cluster's partition.
    Record {
        /// Whose partition.
        origin: Origin,
        /// Where in it.
        key: RecordKey,
    },
    /// What the operator recorded for a cluster.
    Member(Origin),
    /// The settings of a region.
    Settings(Region),
    /// The lock of a region's replicator at a peer.
    Replicator(Region),
}

/// Why something is not a key of the layout. The text names the key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The root of the layout cannot be used.
    #[error(
        "registry root {root:?} cannot be used: it must start with '/', must not end with it, and \
         may hold letters, digits, '.', '_' and '-' between, at most {ROOT_LEN_MAX} characters"
    )]
    Root {
        /// The root that was given.
        root: String,
    },
    /// Longer than any key of the layout.
    #[error("key {key:?}… has {len} bytes, at most {KEY_LEN_MAX} are allowed")]
    TooLong {
        /// Its beginning.
        key: String,
        /// Its length.
        len: usize,
    },
    /// Not UTF-8.
    #[error("key {key:?} is not text")]
    NotText {
        /// The key, with replacement characters.
        key: String,
    },
    /// Of something else that shares the etcd.
    #[error("key {key:?} is not below the registry's root {root:?}")]
    Outside {
        /// The key.
        key: String,
        /// The root.
        root: Arc<str>,
    },
    /// Below the root, but nothing stands there in this layout.
    #[error("key {key:?} is none of the registry's layout")]
    Unknown {
        /// The key.
        key: String,
    },
    /// A name in it cannot be used.
    #[error("key {key:?} holds a name that cannot be used")]
    Name {
        /// The key.
        key: String,
        /// Which name, and why.
        source: NameError,
    },
    /// The protocol is not one of the layout.
    #[error("key {key:?} holds protocol {protocol:?}, which is none of TCP, UDP, SCTP and NONE")]
    Protocol {
        /// The key.
        key: String,
        /// What stands in its place.
        protocol: String,
    },
    /// The address is none, or is not in its one canonical form.
    #[error("key {key:?} holds {address:?}, which is not an IP address in the form of RFC 5952")]
    Address {
        /// The key.
        key: String,
        /// What stands in its place.
        address: String,
    },
}

impl KeyError {
    /// A word for metrics and reports.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Root { .. } => "root",
            Self::TooLong { .. } => "key-too-long",
            Self::NotText { .. } => "key-not-text",
            Self::Outside { .. } => "key-outside",
            Self::Unknown { .. } => "key-unknown",
            Self::Name { .. } => "key-name",
            Self::Protocol { .. } => "key-protocol",
            Self::Address { .. } => "key-address",
        }
    }

    /// A key does not become right by waiting.
    pub const fn is_retryable(&self) -> bool {
        false
    }
}

/// The keys from `start` up to but without `end`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// The first key.
    pub start: Vec<u8>,
    /// The first key after the range.
    pub end: Vec<u8>,
}

impl KeyRange {
    /// All keys that begin with `prefix`, which must end with `/`.
    pub fn of_prefix(prefix: &str) -> Self {
        Self {
            start: prefix.as_bytes().to_vec(),
            end: prefix_end(prefix),
        }
    }

    /// This key alone.
    pub fn of_key(key: &str) -> Self {
        Self {
            start: key.as_bytes().to_vec(),
            end: [key.as_bytes(), &[0]].concat(),
        }
    }

    /// What of this range comes after `key`.
    #[must_use]
    pub fn after(self, key: &[u8]) -> Self {
        Self {
            start: [key, &[0]].concat(),
            end: self.end,
        }
    }

    /// What of this range comes after all keys with `prefix`, which must end with `/`.
    #[must_use]
    pub fn after_prefix(self, prefix: &str) -> Self {
        Self {
            start: prefix_end(prefix),
            end: self.end,
        }
    }

    /// Whether no key can be in it.
    pub fn is_empty(&self) -> bool {
        self.start >= self.end
    }
}

/// The first key that comes after all that begin with `prefix`.
fn prefix_end(prefix: &str) -> Vec<u8> {
    debug_assert!(prefix.ends_with('/'), "prefixes end with a whole segment");
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        // '/' is followed by '0': there is no overflow.
        *last += 1;
    }
    end
}

/// The layout of keys below one root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Begins with `/` and does not end with it.
    root: Arc<str>,
}

// === impl Layout ===

impl Default for Layout {
    fn default() -> Self {
        Self {
            root: ROOT_DEFAULT.into(),
        }
    }
}

impl Layout {
    /// The layout below `root`.
    pub fn try_new(root: &str) -> Result<Self, KeyError> {
        let segment = |s: &str| {
            !s.is_empty()
                && s.bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
        };
        let good = root.len() <= ROOT_LEN_MAX
            && root
                .strip_prefix('/')
                .is_some_and(|rest| rest.split('/').all(segment));
        if good {
            Ok(Self { root: root.into() })
        } else {
            let root = root.chars().take(SHOWN_LEN_MAX).collect();
            Err(KeyError::Root { root })
        }
    }

    /// The root, without a `/` at its end.
    pub fn root(&self) -> &str {
        &self.root
    }

    /// What all keys begin with.
    pub fn root_prefix(&self) -> String {
        format!("{}/", self.root)
    }

    /// What all keys of a region begin with.
    pub fn region_prefix(&self, region: &Region) -> String {
        format!("{}/{region}/", self.root)
    }

    /// What the keys of all partitions of a region begin with.
    pub fn clusters_prefix(&self, region: &Region) -> String {
        format!("{}/{region}/clusters/", self.root)
    }

    /// What all keys of a cluster's partition begin with: its own prefix.
    pub fn own_prefix(&self, origin: &Origin) -> String {
        let Origin { region, cluster } = origin;
        format!("{}/{region}/clusters/{cluster}/", self.root)
    }

    /// What the keys of all endpoints of a cluster's service begin with.
    pub fn endpoints_prefix(
        &self,
        origin: &Origin,
        service: &ServiceKey,
    ) -> Result<String, KeyError> {
        let prefix = self.services_key(origin, service, "services")?;
        Ok(format!("{prefix}/"))
    }

    /// What the keys of all configuration of a cluster's service begin with.
    pub fn config_prefix(&self, origin: &Origin, service: &ServiceKey) -> Result<String, KeyError> {
        let prefix = self.services_key(origin, service, "config")?;
        Ok(format!("{prefix}/"))
    }

    /// The key of a place. Fails for a name that no key can hold, as a ServiceExport may have one.
    pub fn key(&self, place: &Place) -> Result<String, KeyError> {
        match place {
            Place::Record { origin, key } => self.record(origin, key),
            Place::Member(Origin { region, cluster }) => {
                Ok(format!("{}/{region}/members/{cluster}", self.root))
            }
            Place::Settings(region) => Ok(format!("{}/{region}/settings", self.root)),
            Place::Replicator(region) => Ok(format!("{}/{region}/replicator", self.root)),
        }
    }

    /// The key of a record of `origin`.
    pub fn record(&self, origin: &Origin, key: &RecordKey) -> Result<String, KeyError> {
        let word = |word: &str| Ok(format!("{}{word}", self.own_prefix(origin)));
        match key {
            RecordKey::Owner => word("owner"),
            RecordKey::Session => word("session"),
            RecordKey::Synced => word("synced"),
            RecordKey::Left => word("left"),
            RecordKey::Report => word("report"),
            RecordKey::Export(service) => self.services_key(origin, service, "exports"),
            RecordKey::Endpoint {
                service,
                protocol,
                address,
            } => {
                let prefix = self.services_key(origin, service, "services")?;
                let protocol = protocol.as_str();
                Ok(format!("{prefix}/protocols/{protocol}/endpoints/{address}"))
            }
            RecordKey::Config { service, kind } => {
                let key = format!("{}/{kind}", self.services_key(origin, service, "config")?);
                match check_config_kind(kind) {
                    Ok(()) => Ok(key),
                    Err(source) => Err(name_error(&key, source)),
                }
            }
        }
    }

    /// `<own prefix>ns/<namespace>/<what>/<service>`.
    fn services_key(
        &self,
        origin: &Origin,
        service: &ServiceKey,
        what: &str,
    ) -> Result<String, KeyError> {
        let ServiceKey { namespace, name } = service;
        let key = format!("{}ns/{namespace}/{what}/{name}", self.own_prefix(origin));
        match check_service_name(name.as_str()) {
            Ok(()) => Ok(key),
            Err(source) => Err(name_error(&key, source)),
        }
    }

    /// What stands at a key.
    pub fn parse(&self, key: &[u8]) -> Result<Place, KeyError> {
        if key.len() > KEY_LEN_MAX {
            let (key, len) = (shown(key), key.len());
            return Err(KeyError::TooLong { key, len });
        }
        let Ok(text) = std::str::from_utf8(key) else {
            return Err(KeyError::NotText { key: shown(key) });
        };
        let below = text
            .strip_prefix(&*self.root)
            .and_then(|rest| rest.strip_prefix('/'));
        let Some(below) = below else {
            let root = Arc::clone(&self.root);
            return Err(KeyError::Outside {
                key: shown(key),
                root,
            });
        };
        let segments: Vec<&str> = below.split('/').collect();
        place(text, &segments)
    }
}

fn place(key: &str, segments: &[&str]) -> Result<Place, KeyError> {
    let named = |source| name_error(key, source);
    let region = |name| Region::try_new(name).map_err(named);
    let cluster = |name| ClusterName::try_new(name).map_err(named);
    match segments {
        [r, "clusters", c, below @ ..] => {
            let (region, cluster) = (region(r)?, cluster(c)?);
            Ok(Place::Record {
                origin: Origin { region, cluster },
                key: record_key(key, below)?,
            })
        }
        [r, "members", c] => {
            let (region, cluster) = (region(r)?, cluster(c)?);
            Ok(Place::Member(Origin { region, cluster }))
        }
        [r, "settings"] => Ok(Place::Settings(region(r)?)),
        [r, "replicator"] => Ok(Place::Replicator(region(r)?)),
        _ => Err(unknown(key)),
    }
}

fn record_key(key: &str, segments: &[&str]) -> Result<RecordKey, KeyError> {
    match segments {
        ["owner"] => Ok(RecordKey::Owner),
        ["session"] => Ok(RecordKey::Session),
        ["synced"] => Ok(RecordKey::Synced),
        ["left"] => Ok(RecordKey::Left),
        ["report"] => Ok(RecordKey::Report),
        ["ns", ns, "exports", name] => Ok(RecordKey::Export(service(key, ns, name)?)),
        [
            "ns",
            ns,
            "services",
            name,
            "protocols",
            protocol,
            "endpoints",
            address,
        ] => Ok(RecordKey::Endpoint {
            service: service(key, ns, name)?,
            protocol: entry_protocol(key, protocol)?,
            address: canonical_address(key, address)?,
        }),
        ["ns", ns, "config", name, kind] => {
            check_config_kind(kind).map_err(|source| name_error(key, source))?;
            Ok(RecordKey::Config {
                service: service(key, ns, name)?,
                kind: (*kind).into(),
            })
        }
        _ => Err(unknown(key)),
    }
}

fn service(key: &str, namespace: &str, name: &str) -> Result<ServiceKey, KeyError> {
    let named = |source| name_error(key, source);
    let namespace = Namespace::try_new(namespace).map_err(named)?;
    check_service_name(name).map_err(named)?;
    Ok(ServiceKey::new(namespace, ObjectName::new(name)))
}

fn entry_protocol(key: &str, text: &str) -> Result<EntryProtocol, KeyError> {
    EntryProtocol::parse(text).ok_or_else(|| KeyError::Protocol {
        key: shown(key.as_bytes()),
        protocol: shown(text.as_bytes()),
    })
}

fn canonical_address(key: &str, text: &str) -> Result<IpAddr, KeyError> {
    text.parse::<IpAddr>()
        .ok()
        .filter(|address| address.to_string() == text)
        .ok_or_else(|| KeyError::Address {
            key: shown(key.as_bytes()),
            address: shown(text.as_bytes()),
        })
}

fn name_error(key: &str, source: NameError) -> KeyError {
    let key = shown(key.as_bytes());
    KeyError::Name { key, source }
}

fn unknown(key: &str) -> KeyError {
    KeyError::Unknown {
        key: shown(key.as_bytes()),
    }
}

/// A key as a person can read it, however hostile.
pub(crate) fn shown(key: &[u8]) -> String {
    let head = &key[..key.len().min(4 * SHOWN_LEN_MAX)];
    String::from_utf8_lossy(head)
        .chars()
        .take(SHOWN_LEN_MAX)
        .collect()
}

#[cfg(test)]
mod tests;
