//! Endpoints: what one cluster says of the addresses behind a service.
//!
//! In the registry an address has one list of [`Entry`] per protocol; a reader joins them to
//! [`Endpoint`]s ([`join`]). A cluster's own endpoints go through the same two forms, so that it
//! and its peers see the same.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use crate::service::Protocol;

/// Whether an endpoint takes traffic (EndpointConditions of discovery.k8s.io/v1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Conditions {
    /// Takes new connections.
    pub ready: bool,
    /// Would take them if it were not terminating.
    pub serving: bool,
    /// Is going away.
    pub terminating: bool,
}

impl Conditions {
    /// Ready, serving, not terminating.
    pub const READY: Self = Self {
        ready: true,
        serving: true,
        terminating: false,
    };

    /// What several statements about one endpoint come to: ready and serving if any is,
    /// terminating if all are (BEHAVIOUR §1).
    #[must_use]
    pub const fn join(self, other: Self) -> Self {
        Self {
            ready: self.ready || other.ready,
            serving: self.serving || other.serving,
            terminating: self.terminating && other.terminating,
        }
    }
}

/// A port of an [`Entry`]; the protocol is that of the entry's key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EntryPort {
    /// The Service port's name.
    pub name: Arc<str>,
    /// The number at which the endpoint listens.
    pub port: u16,
}

/// One statement about an address and protocol. An address has one per distinct
/// (ports, hostname).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Entry {
    /// The ports, sorted by name; empty only under [`EntryProtocol::None`].
    pub ports: Arc<[EntryPort]>,
    /// The host name, where the pod has one.
    pub hostname: Option<Arc<str>>,
    /// The zone, where it is known.
    pub zone: Option<Arc<str>>,
    /// Whether it takes traffic.
    pub conditions: Conditions,
}

/// The protocol part of an entry's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EntryProtocol {
    /// Ports of this protocol.
    Some(Protocol),
    /// The service has no ports.
    None,
}

impl EntryProtocol {
    /// As it stands in the registry's keys: `TCP`, `UDP`, `SCTP` or `NONE`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Some(protocol) => protocol.as_str(),
            Self::None => "NONE",
        }
    }

    /// Reads what stands in the registry's keys.
    pub fn parse(text: &str) -> Option<Self> {
        if text == "NONE" {
            Some(Self::None)
        } else {
            Protocol::parse(text).map(Self::Some)
        }
    }
}

/// All entries of one service of one cluster, by address and protocol.
pub type Entries = BTreeMap<(IpAddr, EntryProtocol), Arc<[Entry]>>;

/// A port of an [`Endpoint`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EndpointPort {
    /// The Service port's name.
    pub name: Arc<str>,
    /// The protocol.
    pub protocol: Protocol,
    /// The number at which the endpoint listens.
    pub port: u16,
}

/// An endpoint of a service: an address with everything that is reached there together.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Endpoint {
    /// The address.
    pub address: IpAddr,
    /// The ports, sorted; empty where the service has none.
    pub ports: Arc<[EndpointPort]>,
    /// The host name, where the pod has one.
    pub hostname: Option<Arc<str>>,
    /// The zone, where it is known.
    pub zone: Option<Arc<str>>,
    /// Whether it takes traffic.
    pub conditions: Conditions,
}

/// Adds a statement to those about one address and protocol: equal (ports, hostname) become one.
pub fn add_entry(entries: &mut Vec<Entry>, new: Entry) {
    let same = |e: &&mut Entry| e.ports == new.ports && e.hostname == new.hostname;
    match entries.iter_mut().find(same) {
        Some(old) => {
            old.conditions = old.conditions.join(new.conditions);
            old.zone = join_zones(old.zone.take(), new.zone);
        }
        None => entries.push(new),
    }
}

/// The zone of an endpoint of which two are stated: the first in order, so that the order in
/// which they are read does not count.
pub(crate) fn join_zones(a: Option<Arc<str>>, b: Option<Arc<str>>) -> Option<Arc<str>> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// Joins the entries of a service to endpoints: those of one address become one endpoint where
/// host name, conditions and zone agree and each protocol has just one such entry; else each entry
/// is an endpoint of its own (DESIGN §2.2). Sorted by address.
pub fn join(entries: &Entries) -> Vec<Endpoint> {
    let mut endpoints = Vec::with_capacity(entries.len());
    let mut rest = entries.iter().peekable();
    while let Some(&(&(address, _), _)) = rest.peek() {
        let mut group: Vec<(EntryProtocol, &Entry)> = Vec::new();
        while let Some((&(_, protocol), list)) = rest.next_if(|((a, _), _)| *a == address) {
            group.extend(list.iter().map(|entry| (protocol, entry)));
        }
        // Stable: entries that agree stay in the order of their protocols.
        group.sort_by(|(_, a), (_, b)| agreement(a).cmp(&agreement(b)));
        for alike in group.chunk_by(|(_, a), (_, b)| agreement(a) == agreement(b)) {
            if alike.windows(2).all(|pair| pair[0].0 != pair[1].0) {
                endpoints.extend(endpoint(address, alike));
            } else {
                endpoints.extend(alike.chunks(1).filter_map(|one| endpoint(address, one)));
            }
        }
    }
    endpoints
}

/// What entries of several protocols must have in common to be one endpoint.
fn agreement(entry: &Entry) -> (Option<&str>, Option<&str>, Conditions) {
    let Entry {
        ports: _,
        hostname,
        zone,
        conditions,
    } = entry;
    (hostname.as_deref(), zone.as_deref(), *conditions)
}

/// The endpoint that these entries, alike but for their ports, make together.
fn endpoint(address: IpAddr, group: &[(EntryProtocol, &Entry)]) -> Option<Endpoint> {
    let (_, first) = group.first()?;
    let mut ports: Vec<EndpointPort> = Vec::new();
    for (protocol, entry) in group {
        if let EntryProtocol::Some(protocol) = *protocol {
            ports.extend(entry.ports.iter().map(|p| EndpointPort {
                name: Arc::clone(&p.name),
                protocol,
                port: p.port,
            }));
        }
    }
    ports.sort();
    Some(Endpoint {
        address,
        ports: ports.into(),
        hostname: first.hostname.clone(),
        zone: first.zone.clone(),
        conditions: first.conditions,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(port: &str, hostname: Option<&str>) -> Entry {
        Entry {
            ports: Arc::new([EntryPort {
                name: port.into(),
                port: 8080,
            }]),
            hostname: hostname.map(Into::into),
            zone: None,
            conditions: Conditions::READY,
        }
    }

    /// The names of the ports of each endpoint that these entries of one address make.
    fn joined(tcp: &[Entry], udp: &[Entry]) -> Vec<Vec<String>> {
        let address = IpAddr::from([10, 0, 0, 1]);
        let at = |protocol| (address, EntryProtocol::Some(protocol));
        let entries: Entries = [
            (at(Protocol::Tcp), tcp.into()),
            (at(Protocol::Udp), udp.into()),
        ]
        .into();
        let names =
            |endpoint: Endpoint| endpoint.ports.iter().map(|p| p.name.to_string()).collect();
        join(&entries).into_iter().map(names).collect()
    }

    #[test]
    fn entries_that_agree_are_one_endpoint() {
        let got = joined(&[entry("web", None)], &[entry("dns", None)]);
        assert_eq!(got, [["dns", "web"]]);
    }

    #[test]
    fn entries_that_differ_are_endpoints_of_their_own() {
        let mut other = entry("dns", None);
        other.conditions.ready = false;
        assert_eq!(joined(&[entry("web", None)], &[other]).len(), 2);
        let mut other = entry("dns", None);
        other.zone = Some("a".into());
        assert_eq!(joined(&[entry("web", None)], &[other]).len(), 2);
    }

    #[test]
    fn two_of_one_protocol_that_agree_are_not_told_apart() {
        let tcp = [entry("web", None), entry("api", None)];
        assert_eq!(joined(&tcp, &[entry("dns", None)]).len(), 3);
    }

    #[test]
    fn a_second_pod_at_an_address_leaves_the_first_together() {
        let tcp = [entry("web", Some("a")), entry("web", Some("b"))];
        let got = joined(&tcp, &[entry("dns", Some("a"))]);
        assert_eq!(got, [vec!["dns", "web"], vec!["web"]]);
    }
}
