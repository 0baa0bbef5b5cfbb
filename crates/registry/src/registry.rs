//! The registry as one cluster has it: it writes its own partition and reads all of them.
//!
//! ```text
//! open ─► session ─► apply, single writes        subscribe ─► listing, changes
//!            │                                   changes   ─► "something changed"
//!            └─ lost: open again                 lists     ─► what stands there now
//! ```
//!
//! A backend provides what is required; the single operations are the same for all. Every call has
//! a deadline of the backend's, and may be dropped at any time: a dropped write may have been done.

use std::net::IpAddr;
use std::sync::Arc;

use futures::stream::BoxStream;
use tokio::sync::watch;
use tombolo_model::endpoint::{Entry, EntryProtocol};
use tombolo_model::io::RecordWrite;
use tombolo_model::names::ServiceKey;
use tombolo_model::record::{ExportRecord, Origin, Record, RecordKey};
use tombolo_model::service::Protocol;

use crate::error::Error;
use crate::event::Event;
use crate::key::{KeyRange, Layout};
use crate::listing::{self, ConfigAt, EndpointAt, ExportAt, Listing};
use crate::session::{NewSession, Opening, SessionEnd};

/// The region of a registry where none is given.
pub const REGION_DEFAULT: &str = "local";

/// The cluster of a registry where none is given.
pub const CLUSTER_DEFAULT: &str = "local";

/// All protocols that a key can hold.
const PROTOCOLS: [EntryProtocol; 4] = [
    EntryProtocol::Some(Protocol::Tcp),
    EntryProtocol::Some(Protocol::Udp),
    EntryProtocol::Some(Protocol::Sctp),
    EntryProtocol::None,
];

/// A key with its value, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyValue {
    /// The key.
    pub key: Arc<[u8]>,
    /// The value.
    pub value: Arc<[u8]>,
    /// The revision of its last change.
    pub revision: u64,
}

/// Some keys of a range, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The keys.
    pub items: Vec<KeyValue>,
    /// The revision of the registry that was read.
    pub revision: u64,
    /// Whether the range holds more after them.
    pub more: bool,
}

/// Of which services something is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection<'a> {
    /// Of all.
    All,
    /// Of one.
    Service(&'a ServiceKey),
}

/// The registry of one cluster.
///
/// Writes need a session ([`Registry::open`]) and return the revision at which they are done.
/// Deleting what is not there is no error. Lists go over all clusters of all regions below the
/// root; the origin is that of the key.
pub trait Registry: Send + Sync {
    /// The cluster whose partition this registry writes.
    fn origin(&self) -> &Origin;

    /// The layout of its keys.
    fn layout(&self) -> &Layout;

    /// Opens a session and returns its epoch. An earlier one of this object is replaced.
    fn open(&self, opening: Opening) -> impl Future<Output = Result<u64, Error>> + Send;

    /// Puts the session again with other words, under the same epoch.
    fn amend(&self, session: NewSession) -> impl Future<Output = Result<u64, Error>> + Send;

    /// Leaves the clusterset for good: puts `left`, deletes everything else of the partition and
    /// ends the session, all at once.
    fn leave(&self) -> impl Future<Output = Result<u64, Error>> + Send;

    /// The epoch of the session while it is there. `None` before it is opened, and from when it is
    /// known to be lost: expired, replaced, or not in a restored registry. Open again then, with
    /// [`Claim::Vacant`](crate::session::Claim::Vacant) unless this process is the leader.
    fn session(&self) -> watch::Receiver<Option<u64>>;

    /// Writes records of the own partition in their order, in transactions of at most
    /// [`TRANSACTION_OPS_MAX`](crate::batch::TRANSACTION_OPS_MAX) operations, each of them done as
    /// a whole or not. A record that cannot be stored refuses the batch before anything is
    /// written. Returns the revision of the last one.
    fn apply(&self, batch: Vec<RecordWrite>) -> impl Future<Output = Result<u64, Error>> + Send;

    /// Everything below the root, then every change. Ends when the registry is closed.
    ///
    /// A subscriber that is too slow gets a new listing: nothing is lost, and no queue grows. All
    /// readers of a process should share one subscription, since each one decodes for itself.
    fn subscribe(&self) -> BoxStream<'static, Event>;

    /// A signal that something below the root has changed: the latest revision known. Many changes
    /// make one signal.
    fn changes(&self) -> watch::Receiver<u64>;

    /// The first keys of a range, at most `limit`; for lists and for tools.
    fn scan(
        &self,
        range: KeyRange,
        limit: usize,
    ) -> impl Future<Output = Result<Page, Error>> + Send;

    /// The registry's own work, such as keeping its session alive. To be polled by one task for as
    /// long as the registry is in use; returns when it is closed.
    fn drive(&self) -> impl Future<Output = Result<(), Error>> + Send;

    /// Ends subscriptions and [`Registry::drive`], and refuses every later call.
    fn close(&self, session: SessionEnd) -> impl Future<Output = Result<(), Error>> + Send;

    /// What all keys of the own partition begin with.
    fn own_prefix(&self) -> String {
        self.layout().own_prefix(self.origin())
    }

    /// Registers the endpoints at an address, instead of those that are there under this protocol.
    fn register_endpoint(
        &self,
        service: &ServiceKey,
        protocol: EntryProtocol,
        address: IpAddr,
        entries: Arc<[Entry]>,
    ) -> impl Future<Output = Result<u64, Error>> + Send {
        let key = RecordKey::Endpoint {
            service: service.clone(),
            protocol,
            address,
        };
        self.apply(vec![put(key, Record::Endpoint(entries))])
    }

    /// Unregisters everything at an address of a service, over all protocols.
    fn unregister_endpoint(
        &self,
        service: &ServiceKey,
        address: IpAddr,
    ) -> impl Future<Output = Result<u64, Error>> + Send {
        self.apply(endpoint_keys(service, &[address]).map(delete).collect())
    }

    /// Unregisters everything at these addresses of a service, over all protocols.
    fn unregister_endpoints(
        &self,
        service: &ServiceKey,
        addresses: &[IpAddr],
    ) -> impl Future<Output = Result<u64, Error>> + Send {
        self.apply(endpoint_keys(service, addresses).map(delete).collect())
    }

    /// The endpoints of a service: one range for each cluster, and what the service holds.
    fn list_endpoints(
        &self,
        service: &ServiceKey,
    ) -> impl Future<Output = Result<Listing<EndpointAt>, Error>> + Send {
        listing::endpoints(self, service)
    }

    /// All endpoints under a protocol. Reads everything below the root.
    fn list_all_endpoints(
        &self,
        protocol: EntryProtocol,
    ) -> impl Future<Output = Result<Listing<EndpointAt>, Error>> + Send {
        listing::all_endpoints(self, protocol)
    }

    /// Exports a service, or changes how.
    fn set_export(
        &self,
        service: &ServiceKey,
        export: Arc<ExportRecord>,
    ) -> impl Future<Output = Result<u64, Error>> + Send {
        let key = RecordKey::Export(service.clone());
        self.apply(vec![put(key, Record::Export(export))])
    }

    /// Exports a service no longer. Its endpoints stay registered.
    fn unset_export(
        &self,
        service: &ServiceKey,
    ) -> impl Future<Output = Result<u64, Error>> + Send {
        self.apply(vec![delete(RecordKey::Export(service.clone()))])
    }

    /// Exports. All of them: reads everything below the root.
    fn list_exports(
        &self,
        selection: Selection<'_>,
    ) -> impl Future<Output = Result<Listing<ExportAt>, Error>> + Send {
        listing::exports(self, selection)
    }

    /// Stores a tool's configuration of a service under a kind. The bytes are never interpreted.
    fn set_config(
        &self,
        service: &ServiceKey,
        kind: &str,
        bytes: Arc<[u8]>,
    ) -> impl Future<Output = Result<u64, Error>> + Send {
        let key = config_key(service, kind);
        self.apply(vec![put(key, Record::Config(bytes))])
    }

    /// Stores it no longer.
    fn unset_config(
        &self,
        service: &ServiceKey,
        kind: &str,
    ) -> impl Future<Output = Result<u64, Error>> + Send {
        self.apply(vec![delete(config_key(service, kind))])
    }

    /// Configuration of all kinds. Of all services: reads everything below the root.
    fn list_config(
        &self,
        selection: Selection<'_>,
    ) -> impl Future<Output = Result<Listing<ConfigAt>, Error>> + Send {
        listing::config(self, selection)
    }
}

/// The keys of these addresses under every protocol.
fn endpoint_keys(service: &ServiceKey, addresses: &[IpAddr]) -> impl Iterator<Item = RecordKey> {
    addresses.iter().flat_map(|address| {
        PROTOCOLS.map(|protocol| RecordKey::Endpoint {
            service: service.clone(),
            protocol,
            address: *address,
        })
    })
}

fn config_key(service: &ServiceKey, kind: &str) -> RecordKey {
    RecordKey::Config {
        service: service.clone(),
        kind: kind.into(),
    }
}

fn put(key: RecordKey, record: Record) -> RecordWrite {
    let record = Some(record);
    RecordWrite { key, record }
}

fn delete(key: RecordKey) -> RecordWrite {
    RecordWrite { key, record: None }
}
