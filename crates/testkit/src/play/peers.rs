//! What other clusters put into the registry.

use std::collections::BTreeMap;
use std::sync::Arc;

use tombolo_model::endpoint::EntryProtocol;
use tombolo_model::names::{Namespace, ServiceKey};
use tombolo_model::object::SlicePort;
use tombolo_model::presence::PeerSession as Session;
use tombolo_model::record::{Origin, Record, RecordKey};

use super::{Play, cluster, service};
use crate::ops::{Grant, Key, PeerSession};
use crate::oracle::{Statement, stated_by, to_entries};
use crate::registry::{Change, origin};
use crate::shapes::{ExportShape, ServiceShape, SliceShape, created};

/// Networks in which some endpoints of the pool are.
const GRANTED_CIDRS: [&str; 2] = ["10.9.0.0/30", "fd00:9::/126"];

impl Play {
    fn peer_origin(at: usize) -> Origin {
        origin(&cluster(at))
    }

    /// The operator records anew what a cluster may do, the site's own included.
    pub(super) fn grant(&mut self, at: usize, grant: Grant) {
        let namespaces: Vec<Namespace> = grant
            .shop_only
            .then(|| service((0, 0)).namespace)
            .into_iter()
            .collect();
        let cidrs = GRANTED_CIDRS.iter().filter(|_| grant.is_confined);
        let cidrs = cidrs.map(|cidr| cidr.parse().expect("the pool holds networks"));
        let cidrs = cidrs.collect();
        self.registry.edit_member(&Self::peer_origin(at), |member| {
            member.joined = created(grant.joined);
            member.namespaces = namespaces;
            member.cidrs = cidrs;
        });
    }

    /// A session that has published everything.
    pub(super) fn heal(&mut self, at: usize) {
        let origin = Self::peer_origin(at);
        let partition = self.registry.partition(&origin);
        let epoch = match partition.get(&RecordKey::Session) {
            // The last is of a region that is copied: it notices nothing.
            Some(Record::Session(session)) if at == 3 || !self.is_restored => session.epoch,
            _ => return self.peer_session(at, PeerSession::Synced),
        };
        let synced = Some(Record::Synced(epoch));
        if partition.get(&RecordKey::Synced) != synced.as_ref() {
            self.registry.put(&origin, RecordKey::Synced, synced);
        }
    }

    pub(super) fn peer_session(&mut self, at: usize, state: PeerSession) {
        let origin = Self::peer_origin(at);
        let epoch = self.registry.next_epoch();
        match state {
            PeerSession::Gone => {
                self.registry.put(&origin, RecordKey::Session, None);
            }
            PeerSession::Back => {
                let of_it =
                    |change: &&Change| change.origin == origin && change.key == RecordKey::Session;
                let mut changes = self.registry.log.iter().rev().filter(of_it);
                let last = changes.find_map(|change| change.record.clone());
                self.registry.put(&origin, RecordKey::Session, last);
            }
            PeerSession::Unsynced => self.registry.open_session(&origin, epoch),
            PeerSession::Synced | PeerSession::Blind => {
                let state = match state {
                    PeerSession::Blind => Session::Blind(self.site.now),
                    _ => Session::Live,
                };
                self.registry.open(&origin, epoch, state);
                let synced = Some(Record::Synced(epoch));
                self.registry.put(&origin, RecordKey::Synced, synced);
            }
        }
    }

    /// The record that a cluster with this Service and ServiceExport publishes, if it does.
    pub(super) fn peer(&mut self, at: usize, key: Key, body: &ServiceShape, export: &ExportShape) {
        let key = service(key);
        let mut object = export.object(key.clone());
        object.meta.uid = format!("uid-{}", self.registry.revision()).into();
        if let Some(stated) = stated_by(cluster(at), body.object(key.clone()), object) {
            let record = Record::Export(stated.export);
            self.registry
                .put(&Self::peer_origin(at), RecordKey::Export(key), Some(record));
        }
    }

    pub(super) fn no_peer(&mut self, at: usize, key: Key) {
        let origin = Self::peer_origin(at);
        let key = service(key);
        self.registry
            .put(&origin, RecordKey::Export(key.clone()), None);
        self.withdraw_endpoints(&origin, &key);
    }

    pub(super) fn withdraw_endpoints(&mut self, origin: &Origin, key: &ServiceKey) {
        for old in self.registry.partition(origin).keys() {
            if matches!(old, RecordKey::Endpoint { service, .. } if service == key) {
                self.registry.put(origin, old.clone(), None);
            }
        }
    }

    /// Replaces a peer's endpoints of a service by those of a slice of this shape.
    pub(super) fn peer_endpoints(&mut self, at: usize, key: Key, shape: &SliceShape) {
        let origin = Self::peer_origin(at);
        let key = service(key);
        let partition = self.registry.partition(&origin);
        let ports = match partition.get(&RecordKey::Export(key.clone())) {
            Some(Record::Export(record)) => record.ports.clone(),
            _ => return,
        };
        self.withdraw_endpoints(&origin, &key);
        let number = u8::try_from(at).expect("few clusters");
        let slice = shape.object(key.clone(), key.name.as_str(), &ports, number);
        let mut statements = Vec::new();
        for endpoint in slice.endpoints.iter().filter(|e| !e.address.is_loopback()) {
            for (protocol, ports) in by_protocol(&slice.ports, ports.is_empty()) {
                statements.push(Statement {
                    address: endpoint.address,
                    protocol,
                    ports,
                    hostname: endpoint.hostname.clone(),
                    zone: endpoint.zone.clone(),
                    conditions: endpoint.conditions,
                });
            }
        }
        for ((address, protocol), list) in to_entries(statements) {
            let place = RecordKey::Endpoint {
                service: key.clone(),
                protocol,
                address,
            };
            self.registry
                .put(&origin, place, Some(Record::Endpoint(list)));
        }
    }
}

type NamedPorts = Vec<(Arc<str>, u16)>;

/// A slice's ports by protocol; a peer may publish ports that its record does not have.
fn by_protocol(ports: &[SlicePort], is_portless: bool) -> Vec<(EntryProtocol, NamedPorts)> {
    if is_portless {
        return vec![(EntryProtocol::None, Vec::new())];
    }
    let mut all: BTreeMap<EntryProtocol, NamedPorts> = BTreeMap::new();
    for port in ports {
        let list = all.entry(EntryProtocol::Some(port.protocol)).or_default();
        list.push((Arc::clone(&port.name), port.port));
        list.sort();
    }
    all.into_iter().collect()
}
