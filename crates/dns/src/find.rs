//! What a question is about: a pure lookup in a snapshot, shared by the packet writer and
//! [`crate::answer`].
//!
//! Names are matched from the zone down: `svc`, then namespace and service as one key, then what
//! stands below the service.

use std::net::{Ipv4Addr, Ipv6Addr};

use tombolo_model::service::Protocol;

use crate::name::{LABEL_LEN_MAX, QueryName};
use crate::record::RecordType;
use crate::snapshot::{Below, ClusterSetIp, Headless, Host, Service, Snapshot};

/// The longest label of a port: the underscore takes one octet of it.
const PORT_NAME_LEN_MAX: usize = LABEL_LEN_MAX - 1;

/// What was found, and where in the question.
#[derive(Debug)]
pub(crate) struct Located<'a> {
    /// The zone by its index, and the label at which it starts; `None` outside the zones.
    pub(crate) zone: Option<(usize, usize)>,
    /// The label at which the service's name starts, where the question is about one.
    pub(crate) service: usize,
    pub(crate) found: Found<'a>,
}

/// What was found.
#[derive(Debug)]
pub(crate) enum Found<'a> {
    /// Nothing that is answered here.
    Outside,
    /// A zone transfer.
    Transfer,
    /// A zone that nothing is known of yet.
    Unsynced,
    /// No such name.
    NoName,
    /// The name is there, the type is not.
    NoData,
    /// Any type at a name that is there.
    Any,
    /// The zone itself.
    Soa,
    /// The zone's name server.
    Ns,
    /// The version of the DNS schema.
    Version,
    /// Addresses; never empty.
    V4(&'a [Ipv4Addr]),
    /// Addresses; never empty.
    V6(&'a [Ipv6Addr]),
    /// Ports of a service with clusterset IPs; never empty.
    Ports(&'a ClusterSetIp, Wanted),
    /// Ports of the hosts of a headless service.
    HostPorts(&'a Headless, Wanted),
}

/// Which ports an SRV question is about: one by its index, or all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// All.
    All,
    /// The one with this index in the service.
    Port(u16),
}

/// A port's label and its protocol's: `_http` and `_tcp`.
enum Underscored<'q> {
    Protocol(Protocol),
    Port(&'q [u8], Protocol),
    Neither,
}

/// Finds what a question is about.
pub(crate) fn find<'a>(
    snapshot: &'a Snapshot,
    name: &QueryName,
    record_type: RecordType,
) -> Located<'a> {
    let zone = snapshot.zones().find(name);
    let mut service = 0;
    let found = match zone {
        None => Found::Outside,
        Some(_) if matches!(record_type, RecordType::AXFR | RecordType::IXFR) => Found::Transfer,
        Some(_) if !snapshot.is_synced() => Found::Unsynced,
        Some((_, apex)) => {
            service = apex.saturating_sub(3);
            in_zone(snapshot, name, apex, record_type)
        }
    };
    Located {
        zone,
        service,
        found,
    }
}

/// Finds what is at a name whose zone starts at label `apex`.
fn in_zone<'a>(
    snapshot: &'a Snapshot,
    name: &QueryName,
    apex: usize,
    record_type: RecordType,
) -> Found<'a> {
    if apex == 0 {
        return match record_type {
            RecordType::SOA => Found::Soa,
            RecordType::NS => Found::Ns,
            _ => empty(record_type),
        };
    }
    match name.label(apex - 1) {
        b"svc" => {}
        b"dns-version" if apex == 1 && record_type == RecordType::TXT => return Found::Version,
        b"dns-version" | b"dns" if apex == 1 => return empty(record_type),
        b"dns" if apex == 2 && name.label(0) == b"ns" => {
            let zones = snapshot.zones();
            return addresses(zones.server_v4(), zones.server_v6(), record_type);
        }
        _ => return Found::NoName,
    }
    match apex {
        1 if snapshot.has_services() => empty(record_type),
        2 if snapshot.has_namespace(name.span(0, 1)) => empty(record_type),
        1 | 2 => Found::NoName,
        _ => match snapshot.service(name.span(apex - 3, apex - 1)) {
            None => Found::NoName,
            Some(Service::ClusterSetIp(service)) => {
                in_cluster_set_ip(service, name, apex - 3, record_type)
            }
            Some(Service::Headless(service)) => in_headless(service, name, apex - 3, record_type),
        },
    }
}

/// The answer at a name that is there but has nothing of the type.
fn empty(record_type: RecordType) -> Found<'static> {
    if record_type == RecordType::ANY {
        Found::Any
    } else {
        Found::NoData
    }
}

/// The answer at a name that has just addresses.
fn addresses<'a>(v4: &'a [Ipv4Addr], v6: &'a [Ipv6Addr], record_type: RecordType) -> Found<'a> {
    match record_type {
        RecordType::A if !v4.is_empty() => Found::V4(v4),
        RecordType::AAAA if !v6.is_empty() => Found::V6(v6),
        _ => empty(record_type),
    }
}

/// Finds in a service with clusterset IPs; `below` is how many labels stand before its name.
fn in_cluster_set_ip<'a>(
    service: &'a ClusterSetIp,
    name: &QueryName,
    below: usize,
    record_type: RecordType,
) -> Found<'a> {
    if below == 0 {
        return match record_type {
            RecordType::SRV if !service.numbers.is_empty() => Found::Ports(service, Wanted::All),
            _ => addresses(&service.v4, &service.v6, record_type),
        };
    }
    let mut ports = service.ports.iter();
    match underscored(name, below) {
        Underscored::Protocol(protocol) if ports.any(|port| port.id.is_below(protocol)) => {
            empty(record_type)
        }
        Underscored::Port(label, protocol) => {
            let index = ports.position(|port| port.id.is(label, protocol));
            match index.and_then(|index| u16::try_from(index).ok()) {
                Some(port) if record_type == RecordType::SRV => {
                    Found::Ports(service, Wanted::Port(port))
                }
                Some(_) => empty(record_type),
                None => Found::NoName,
            }
        }
        // There is no name for a cluster or host: the specification wants none.
        Underscored::Protocol(_) | Underscored::Neither => Found::NoName,
    }
}

/// Finds in a headless service; `below` is how many labels stand before its name.
fn in_headless<'a>(
    service: &'a Headless,
    name: &QueryName,
    below: usize,
    record_type: RecordType,
) -> Found<'a> {
    if below == 0 {
        return match record_type {
            RecordType::SRV if service.has_ports() => Found::HostPorts(service, Wanted::All),
            _ => addresses(service.v4(), service.v6(), record_type),
        };
    }
    match underscored(name, below) {
        Underscored::Protocol(protocol) if service.has_protocol(protocol) => empty(record_type),
        Underscored::Port(label, protocol) => match service.port(label, protocol) {
            Some(port) if record_type == RecordType::SRV => {
                Found::HostPorts(service, Wanted::Port(port))
            }
            Some(_) => empty(record_type),
            None => Found::NoName,
        },
        Underscored::Protocol(_) => Found::NoName,
        Underscored::Neither => match service.below(name.span(0, below)) {
            Below::Host(Host { v4, v6, .. }) => addresses(v4, v6, record_type),
            Below::Empty => empty(record_type),
            Below::Nothing => Found::NoName,
        },
    }
}

/// Reads the labels below a service as those of a port.
fn underscored(name: &QueryName, below: usize) -> Underscored<'_> {
    let protocol = match name.label(below - 1) {
        b"_tcp" => Protocol::Tcp,
        b"_udp" => Protocol::Udp,
        b"_sctp" => Protocol::Sctp,
        _ => return Underscored::Neither,
    };
    match below {
        1 => Underscored::Protocol(protocol),
        2 => match name.label(0).split_first() {
            Some((b'_', port)) if port.len() <= PORT_NAME_LEN_MAX => {
                Underscored::Port(port, protocol)
            }
            _ => Underscored::Neither,
        },
        _ => Underscored::Neither,
    }
}

/// An order in which each of `len` things comes once, another for each seed: it starts anywhere
/// and takes steps that have no factor in common with the length. No list is shuffled, so it costs
/// the same for two addresses as for four thousand.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    next: usize,
    step: usize,
    left: usize,
    len: usize,
}

impl Order {
    pub(crate) fn new(seed: u64, len: usize) -> Self {
        let pick = |bits: u64| usize::try_from(bits % (len.max(1) as u64)).unwrap_or_default();
        let next = pick(seed & u64::from(u32::MAX));
        let mut step = pick(seed >> 32).max(1);
        // One is such a step, and comes after at most `len` others; in fact after a few.
        while greatest_common_divisor(step, len) > 1 {
            step = (step + 1) % len;
        }
        Self {
            next,
            step,
            left: len,
            len,
        }
    }
}

impl Iterator for Order {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        self.left = self.left.checked_sub(1)?;
        let index = self.next;
        self.next += self.step;
        if self.next >= self.len {
            self.next -= self.len;
        }
        Some(index)
    }
}

fn greatest_common_divisor(mut a: usize, mut b: usize) -> usize {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_has_each_index_once() {
        for len in 0..60_usize {
            for seed in [0, 1, 7 << 32, u64::MAX, 0x1234_5678_9abc_def0] {
                let mut seen: Vec<usize> = Order::new(seed, len).collect();
                seen.sort_unstable();
                assert_eq!(seen, (0..len).collect::<Vec<_>>(), "{seed:#x}");
            }
        }
    }
}
