//! Lists of the single operations, over all clusters.
//!
//! A list is read in pages: each page is of one revision, later pages of the same or a later one.

use std::net::IpAddr;
use std::sync::Arc;

use tombolo_model::endpoint::{Entry, EntryProtocol};
use tombolo_model::names::ServiceKey;
use tombolo_model::record::{ExportRecord, Origin, Record, RecordKey};

use crate::error::Error;
use crate::event::Rejection;
use crate::key::{KeyError, KeyRange, Place, shown};
use crate::registry::{Registry, Selection};
use crate::value::decode_record;

/// Keys in a page: etcd counts the rest of the range for every page, so few large ones are fast
/// (measured in DESIGN §2.2).
const PAGE_LEN: usize = 50_000;

/// What a list found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing<T> {
    /// What was asked for, in the order of keys.
    pub items: Vec<T>,
    /// What stands among it and cannot be used.
    pub rejected: Vec<RejectedAt>,
}

/// Something that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectedAt {
    /// Its key, cut and made readable.
    pub key: Arc<str>,
    /// Why.
    pub rejection: Rejection,
}

/// The endpoints at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointAt {
    /// Whose.
    pub origin: Origin,
    /// The service.
    pub service: ServiceKey,
    /// The protocol of their ports.
    pub protocol: EntryProtocol,
    /// The address.
    pub address: IpAddr,
    /// They.
    pub entries: Arc<[Entry]>,
}

/// An export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportAt {
    /// Whose.
    pub origin: Origin,
    /// The service.
    pub service: ServiceKey,
    /// It.
    pub export: Arc<ExportRecord>,
}

/// A tool's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigAt {
    /// Whose.
    pub origin: Origin,
    /// The service.
    pub service: ServiceKey,
    /// The tool's word for what it is.
    pub kind: Arc<str>,
    /// It.
    pub bytes: Arc<[u8]>,
}

pub(crate) async fn endpoints<R: Registry + ?Sized>(
    registry: &R,
    service: &ServiceKey,
) -> Result<Listing<EndpointAt>, Error> {
    let mut listing = Listing::new();
    for origin in partitions(registry).await? {
        let prefix = registry.layout().endpoints_prefix(&origin, service);
        let range = KeyRange::of_prefix(&prefix.map_err(unstorable)?);
        listing.read(registry, range, is_endpoint, endpoint).await?;
    }
    Ok(listing)
}

pub(crate) async fn all_endpoints<R: Registry + ?Sized>(
    registry: &R,
    wanted: EntryProtocol,
) -> Result<Listing<EndpointAt>, Error> {
    let of_protocol = |key: &RecordKey| matches!(key, RecordKey::Endpoint { protocol, .. } if *protocol == wanted);
    let mut listing = Listing::new();
    listing
        .read(registry, whole(registry), of_protocol, endpoint)
        .await?;
    Ok(listing)
}

pub(crate) async fn exports<R: Registry + ?Sized>(
    registry: &R,
    selection: Selection<'_>,
) -> Result<Listing<ExportAt>, Error> {
    let mut listing = Listing::new();
    match selection {
        Selection::All => {
            listing
                .read(registry, whole(registry), is_export, export)
                .await?;
        }
        Selection::Service(service) => {
            let wanted = RecordKey::Export(service.clone());
            for origin in partitions(registry).await? {
                let key = registry.layout().record(&origin, &wanted);
                let range = KeyRange::of_key(&key.map_err(unstorable)?);
                listing.read(registry, range, is_export, export).await?;
            }
        }
    }
    Ok(listing)
}

pub(crate) async fn config<R: Registry + ?Sized>(
    registry: &R,
    selection: Selection<'_>,
) -> Result<Listing<ConfigAt>, Error> {
    let mut listing = Listing::new();
    match selection {
        Selection::All => {
            listing
                .read(registry, whole(registry), is_config, configuration)
                .await?;
        }
        Selection::Service(service) => {
            for origin in partitions(registry).await? {
                let prefix = registry.layout().config_prefix(&origin, service);
                let range = KeyRange::of_prefix(&prefix.map_err(unstorable)?);
                listing
                    .read(registry, range, is_config, configuration)
                    .await?;
            }
        }
    }
    Ok(listing)
}

/// Every cluster that has a partition, in the order of keys: found by asking for the first key
/// after each partition, so that it costs one key for each of them.
pub(crate) async fn partitions<R: Registry + ?Sized>(registry: &R) -> Result<Vec<Origin>, Error> {
    let layout = registry.layout();
    let mut range = whole(registry);
    let mut found = Vec::new();
    while !range.is_empty() {
        let page = registry.scan(range.clone(), 1).await?;
        let Some(first) = page.items.first() else {
            break;
        };
        range = match layout.parse(&first.key) {
            Ok(Place::Record { origin, .. }) => {
                let next = range.after_prefix(&layout.own_prefix(&origin));
                found.push(origin);
                next
            }
            // What is not a record is small: `members` holds one key for each cluster.
            Ok(Place::Member(_) | Place::Settings(_) | Place::Replicator(_)) | Err(_) => {
                range.after(&first.key)
            }
        };
    }
    Ok(found)
}

fn whole<R: Registry + ?Sized>(registry: &R) -> KeyRange {
    KeyRange::of_prefix(&registry.layout().root_prefix())
}

fn unstorable(source: KeyError) -> Error {
    Error::Key { source }
}

// === impl Listing ===

impl<T> Listing<T> {
    const fn new() -> Self {
        Self {
            items: Vec::new(),
            rejected: Vec::new(),
        }
    }

    /// Adds what stands in a range at keys that are wanted, and what is no key of the layout.
    async fn read<R: Registry + ?Sized>(
        &mut self,
        registry: &R,
        mut range: KeyRange,
        wanted: impl Fn(&RecordKey) -> bool,
        item: fn(Origin, RecordKey, Record) -> Option<T>,
    ) -> Result<(), Error> {
        loop {
            let page = registry.scan(range.clone(), PAGE_LEN).await?;
            for found in &page.items {
                match registry.layout().parse(&found.key) {
                    Ok(Place::Record { origin, key }) if wanted(&key) => {
                        match decode_record(&origin, &key, &found.value) {
                            Ok(record) => self.items.extend(item(origin, key, record)),
                            Err(error) => self.reject(&found.key, Rejection::from(&error)),
                        }
                    }
                    Ok(
                        Place::Record { .. }
                        | Place::Member(_)
                        | Place::Settings(_)
                        | Place::Replicator(_),
                    ) => {}
                    Err(error) => self.reject(&found.key, Rejection::from(&error)),
                }
            }
            let Some(last) = page.items.last().filter(|_| page.more) else {
                return Ok(());
            };
            range = range.after(&last.key);
        }
    }

    fn reject(&mut self, key: &[u8], rejection: Rejection) {
        let key = shown(key).into();
        self.rejected.push(RejectedAt { key, rejection });
    }
}

fn is_endpoint(key: &RecordKey) -> bool {
    matches!(key, RecordKey::Endpoint { .. })
}

fn endpoint(origin: Origin, key: RecordKey, record: Record) -> Option<EndpointAt> {
    let (
        RecordKey::Endpoint {
            service,
            protocol,
            address,
        },
        Record::Endpoint(entries),
    ) = (key, record)
    else {
        return None;
    };
    Some(EndpointAt {
        origin,
        service,
        protocol,
        address,
        entries,
    })
}

fn is_export(key: &RecordKey) -> bool {
    matches!(key, RecordKey::Export(_))
}

fn export(origin: Origin, key: RecordKey, record: Record) -> Option<ExportAt> {
    let (RecordKey::Export(service), Record::Export(export)) = (key, record) else {
        return None;
    };
    Some(ExportAt {
        origin,
        service,
        export,
    })
}

fn is_config(key: &RecordKey) -> bool {
    matches!(key, RecordKey::Config { .. })
}

fn configuration(origin: Origin, key: RecordKey, record: Record) -> Option<ConfigAt> {
    let (RecordKey::Config { service, kind }, Record::Config(bytes)) = (key, record) else {
        return None;
    };
    Some(ConfigAt {
        origin,
        service,
        kind,
        bytes,
    })
}
