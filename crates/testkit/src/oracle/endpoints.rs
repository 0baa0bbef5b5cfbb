//! From statements about addresses to registry entries, and from those to endpoints
//! (BEHAVIOUR §1, DESIGN §2.2).

use std::net::IpAddr;
use std::sync::Arc;

use tombolo_model::endpoint::{
    Conditions, Endpoint, EndpointPort, Entries, Entry, EntryPort, EntryProtocol,
};

/// What one slice says of one address and protocol.
#[derive(Clone, Debug)]
pub struct Statement {
    /// The address.
    pub address: IpAddr,
    /// The protocol of all its ports.
    pub protocol: EntryProtocol,
    /// Names and numbers of the ports, sorted.
    pub ports: Vec<(Arc<str>, u16)>,
    /// The host name.
    pub hostname: Option<Arc<str>>,
    /// The zone.
    pub zone: Option<Arc<str>>,
    /// The conditions.
    pub conditions: Conditions,
}

/// Equal statements are one: ready and serving if any is, terminating if all are.
pub(super) fn both(a: Conditions, b: Conditions) -> Conditions {
    Conditions {
        ready: a.ready | b.ready,
        serving: a.serving | b.serving,
        terminating: a.terminating & b.terminating,
    }
}

/// The smaller of two zones, where both are known.
pub(super) fn smaller(a: Option<Arc<str>>, b: Option<Arc<str>>) -> Option<Arc<str>> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if a < b { a } else { b }),
        (Some(one), None) | (None, Some(one)) => Some(one),
        (None, None) => None,
    }
}

/// The entries that these statements make; the order within an entry's key is sorted.
pub fn to_entries(statements: Vec<Statement>) -> Entries {
    let mut entries: std::collections::BTreeMap<_, Vec<Entry>> = std::collections::BTreeMap::new();
    for statement in statements {
        let ports: Vec<EntryPort> = statement
            .ports
            .into_iter()
            .map(|(name, port)| EntryPort { name, port })
            .collect();
        let list = entries
            .entry((statement.address, statement.protocol))
            .or_default();
        let known = list
            .iter_mut()
            .find(|e| *e.ports == *ports && e.hostname == statement.hostname);
        if let Some(entry) = known {
            entry.conditions = both(entry.conditions, statement.conditions);
            entry.zone = smaller(entry.zone.take(), statement.zone);
        } else {
            list.push(Entry {
                ports: ports.into(),
                hostname: statement.hostname,
                zone: statement.zone,
                conditions: statement.conditions,
            });
        }
    }
    entries
        .into_iter()
        .map(|(at, mut list)| {
            list.sort();
            (at, list.into())
        })
        .collect()
}

/// The endpoints that entries make. Of one address, entries of different protocols that agree in
/// host name, conditions and zone are one endpoint, where each protocol has just one such entry;
/// else each is an endpoint of its own.
pub fn joined(entries: &Entries) -> Vec<Endpoint> {
    let mut all = Vec::new();
    let addresses: std::collections::BTreeSet<IpAddr> = entries.keys().map(|(a, _)| *a).collect();
    for address in addresses {
        let mut rest: Vec<(EntryProtocol, Entry)> = entries
            .iter()
            .filter(|((a, _), _)| *a == address)
            .flat_map(|((_, protocol), list)| list.iter().map(|e| (*protocol, e.clone())))
            .collect();
        while let Some((_, first)) = rest.first().cloned() {
            let (alike, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(|(_, e)| {
                e.hostname == first.hostname
                    && e.conditions == first.conditions
                    && e.zone == first.zone
            });
            rest = others;
            let protocols: std::collections::BTreeSet<_> = alike.iter().map(|(p, _)| *p).collect();
            if protocols.len() == alike.len() {
                all.push(endpoint(address, &alike));
            } else {
                all.extend(
                    alike
                        .iter()
                        .map(|one| endpoint(address, std::slice::from_ref(one))),
                );
            }
        }
    }
    all
}

fn endpoint(address: IpAddr, entries: &[(EntryProtocol, Entry)]) -> Endpoint {
    let mut ports = Vec::new();
    for (protocol, entry) in entries {
        if let EntryProtocol::Some(protocol) = *protocol {
            for port in entry.ports.iter() {
                ports.push(EndpointPort {
                    name: Arc::clone(&port.name),
                    protocol,
                    port: port.port,
                });
            }
        }
    }
    ports.sort();
    Endpoint {
        address,
        ports: ports.into(),
        hostname: entries[0].1.hostname.clone(),
        zone: entries[0].1.zone.clone(),
        conditions: entries[0].1.conditions,
    }
}
