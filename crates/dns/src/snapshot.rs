//! What the server knows at one moment: immutable, shared, looked up without a lock.
//!
//! ```text
//! ServiceImports ─┐
//!                 ├─► SnapshotBuilder ─publish─► Live ─load─► answer
//! EndpointSlices ─┘        (what changed)       (swapped atomically)
//! ```
//!
//! A new snapshot shares with the one before it all services that did not change: the map is
//! persistent, and each service an `Arc` of its own.

mod builder;
mod headless;
mod part;

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use tombolo_model::service::Protocol;

pub use builder::{Change, Listing, SnapshotBuilder};
pub(crate) use headless::{Below, Headless, Host};

use crate::zone::Zones;

/// A persistent map keyed by octets of names: a lookup costs one hash of a few bytes.
type NameMap<V> = imbl::GenericHashMap<
    Arc<[u8]>,
    V,
    foldhash::fast::RandomState,
    imbl::shared_ptr::DefaultSharedPtr,
>;

/// All that is answered from.
#[derive(Clone, Debug)]
pub struct Snapshot {
    zones: Arc<Zones>,
    /// By the labels of service and namespace.
    services: NameMap<Arc<Service>>,
    /// How many services with names there are, by the namespace's label.
    namespaces: NameMap<usize>,
    serial: u32,
    synced: bool,
}

impl Snapshot {
    /// The snapshot before anything was listed: SERVFAIL for its zones.
    pub fn unsynced(zones: Arc<Zones>, serial: u32) -> Self {
        Self {
            zones,
            services: NameMap::default(),
            namespaces: NameMap::default(),
            serial,
            synced: false,
        }
    }

    /// The zones.
    pub fn zones(&self) -> &Zones {
        &self.zones
    }

    /// The serial of the zones' SOA.
    pub const fn serial(&self) -> u32 {
        self.serial
    }

    /// Whether imports and slices were listed in full at least once.
    pub const fn is_synced(&self) -> bool {
        self.synced
    }

    /// How many services have names.
    pub fn service_count(&self) -> usize {
        self.services.len()
    }

    /// The service with these two labels.
    pub(crate) fn service(&self, labels: &[u8]) -> Option<&Service> {
        self.services.get(labels).map(AsRef::as_ref)
    }

    /// Whether a namespace has a service with names.
    pub(crate) fn has_namespace(&self, label: &[u8]) -> bool {
        self.namespaces.contains_key(label)
    }

    /// Whether any namespace has a service with names.
    pub(crate) fn has_services(&self) -> bool {
        !self.services.is_empty()
    }
}

/// The snapshot in use, swapped while queries are answered.
#[derive(Debug)]
pub struct Live(ArcSwap<Snapshot>);

impl Live {
    /// Starts with a snapshot.
    pub fn new(snapshot: Arc<Snapshot>) -> Self {
        Self(ArcSwap::new(snapshot))
    }

    /// The snapshot in use, for a short while.
    pub fn load(&self) -> Guard<Arc<Snapshot>> {
        self.0.load()
    }

    /// Puts another one in use.
    pub fn store(&self, snapshot: Arc<Snapshot>) {
        self.0.store(snapshot);
    }
}

/// A service with names. One without any (headless with nothing ready) is not in the snapshot.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Service {
    /// Reached at its clusterset IPs.
    ClusterSetIp(ClusterSetIp),
    /// Reached at its endpoints.
    Headless(Headless),
}

/// A service with clusterset IPs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ClusterSetIp {
    pub(crate) v4: Box<[Ipv4Addr]>,
    pub(crate) v6: Box<[Ipv6Addr]>,
    pub(crate) ports: Box<[NamedPort]>,
    /// The numbers of all ports, each once.
    pub(crate) numbers: Box<[u16]>,
}

/// A port of a service with clusterset IPs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NamedPort {
    pub(crate) id: PortId,
    pub(crate) number: u16,
}

/// What SRV names tell ports apart by.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PortId {
    /// Lower case; empty for an unnamed port, which has no SRV name.
    pub(crate) name: Arc<str>,
    pub(crate) protocol: Protocol,
}

impl PortId {
    /// Folds the name to lower case, as names are compared without case.
    pub(crate) fn new(name: &Arc<str>, protocol: Protocol) -> Self {
        let lower = name.bytes().all(|b| !b.is_ascii_uppercase());
        Self {
            name: if lower {
                Arc::clone(name)
            } else {
                name.to_ascii_lowercase().into()
            },
            protocol,
        }
    }

    /// Whether the labels `_name` (without the underscore) and the protocol are this port's.
    pub(crate) fn is(&self, name: &[u8], protocol: Protocol) -> bool {
        self.protocol == protocol && !name.is_empty() && self.name.as_bytes() == name
    }

    /// Whether `_<protocol>` has a name below it because of this port. `_` and the name make one
    /// label, so the longest port names have no SRV name.
    pub(crate) fn is_below(&self, protocol: Protocol) -> bool {
        self.protocol == protocol
            && !self.name.is_empty()
            && self.name.len() < crate::name::LABEL_LEN_MAX
    }
}
