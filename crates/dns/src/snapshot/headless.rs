//! A headless service: the addresses of its ready endpoints, and a name for each host.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tombolo_model::service::Protocol;

use super::PortId;
use super::part::SlicePart;

/// The ready endpoints of a headless service, sorted for lookup and packed: a host takes 16 octets
/// and its label.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Headless {
    /// All addresses, each once.
    v4: Box<[Ipv4Addr]>,
    v6: Box<[Ipv6Addr]>,
    /// The labels of the cluster ids, sorted; each has a host.
    clusters: Box<[Box<[u8]>]>,
    /// Sorted by cluster, then label; one more at the end closes the last one's ranges.
    hosts: Box<[HostEntry]>,
    /// The host labels with their lengths.
    labels: Box<[u8]>,
    /// The addresses by host.
    host_v4: Box<[Ipv4Addr]>,
    host_v6: Box<[Ipv6Addr]>,
    /// The ports that any host has, sorted.
    ports: Box<[PortId]>,
    /// The sets of ports that hosts have.
    sets: Box<[PortSet]>,
}

/// A host: where its parts start in the arrays of [`Headless`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct HostEntry {
    label: u32,
    v4: u32,
    v6: u32,
    cluster: u16,
    set: u16,
}

/// What a host listens on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct PortSet {
    /// Index into `ports`, and the number; sorted.
    named: Box<[(u16, u16)]>,
    /// The numbers, each once.
    numbers: Box<[u16]>,
}

/// A host of a headless service.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Host<'a> {
    /// Its label with the length.
    pub(crate) label: &'a [u8],
    /// The labels of its cluster's id.
    pub(crate) cluster: &'a [u8],
    pub(crate) v4: &'a [Ipv4Addr],
    pub(crate) v6: &'a [Ipv6Addr],
    set: &'a PortSet,
}

/// What stands at a name below a headless service.
#[derive(Debug)]
pub(crate) enum Below<'a> {
    /// A host.
    Host(Host<'a>),
    /// Nothing, but there are names below it.
    Empty,
    /// Nothing.
    Nothing,
}

impl Headless {
    /// All addresses of the first family.
    pub(crate) const fn v4(&self) -> &[Ipv4Addr] {
        &self.v4
    }

    /// All addresses of the second family.
    pub(crate) const fn v6(&self) -> &[Ipv6Addr] {
        &self.v6
    }

    /// How many hosts there are.
    pub(crate) const fn host_count(&self) -> usize {
        self.hosts.len() - 1
    }

    /// The host at `index`.
    pub(crate) fn host(&self, index: usize) -> Host<'_> {
        let (entry, next) = (self.hosts[index], self.hosts[index + 1]);
        Host {
            label: self.label(entry),
            cluster: &self.clusters[usize::from(entry.cluster)],
            v4: &self.host_v4[entry.v4 as usize..next.v4 as usize],
            v6: &self.host_v6[entry.v6 as usize..next.v6 as usize],
            set: &self.sets[usize::from(entry.set)],
        }
    }

    fn label(&self, entry: HostEntry) -> &[u8] {
        let at = entry.label as usize;
        &self.labels[at..=at + usize::from(self.labels[at])]
    }

    /// Whether any host has ports.
    pub(crate) const fn has_ports(&self) -> bool {
        !self.ports.is_empty()
    }

    /// The index of a port that any host has.
    pub(crate) fn port(&self, name: &[u8], protocol: Protocol) -> Option<u16> {
        let index = self.ports.iter().position(|id| id.is(name, protocol))?;
        u16::try_from(index).ok()
    }

    /// Whether any host has a named port of the protocol.
    pub(crate) fn has_protocol(&self, protocol: Protocol) -> bool {
        self.ports.iter().any(|id| id.is_below(protocol))
    }

    /// What stands at `labels` (one or more) below the service's own name.
    pub(crate) fn below(&self, labels: &[u8]) -> Below<'_> {
        let (label, cluster) = labels.split_at(usize::from(labels[0]) + 1);
        if let Some(host) = self.find_host(label, cluster) {
            return Below::Host(host);
        }
        // A cluster id, or the end of one that has a dot: there are hosts below it.
        let is_end = |id: &[u8]| {
            let mut rest = id;
            while !rest.is_empty() {
                if rest == labels {
                    return true;
                }
                rest = &rest[usize::from(rest[0]) + 1..];
            }
            false
        };
        if self.clusters.iter().any(|id| is_end(id)) {
            Below::Empty
        } else {
            Below::Nothing
        }
    }

    fn find_host(&self, label: &[u8], cluster: &[u8]) -> Option<Host<'_>> {
        let cluster = self
            .clusters
            .binary_search_by(|id| id.as_ref().cmp(cluster))
            .ok()?;
        let index = self.hosts[..self.host_count()]
            .binary_search_by(|&entry| {
                (usize::from(entry.cluster), self.label(entry)).cmp(&(cluster, label))
            })
            .ok()?;
        Some(self.host(index))
    }
}

impl<'a> Host<'a> {
    /// The numbers at which it has the port with this index.
    pub(crate) fn numbers_of(self, port: u16) -> &'a [(u16, u16)] {
        let from = self.set.named.partition_point(|&(index, _)| index < port);
        let to = self.set.named.partition_point(|&(index, _)| index <= port);
        &self.set.named[from..to]
    }

    /// The numbers of all its ports, each once.
    pub(crate) const fn numbers(self) -> &'a [u16] {
        &self.set.numbers
    }
}

/// A host while it is put together.
#[derive(Default)]
struct Gathered {
    v4: BTreeSet<Ipv4Addr>,
    v6: BTreeSet<Ipv6Addr>,
    /// The slices that it is in.
    parts: BTreeSet<usize>,
}

impl Headless {
    /// Puts a service together from its slices. With `accepted` ports (those of the import, if it
    /// has any) others are left out. `None` when nothing is ready, as there is no name then.
    pub(super) fn new(accepted: &[PortId], parts: &[&SlicePart]) -> Option<Self> {
        if parts.iter().all(|part| part.len() == 0) {
            return None;
        }
        let mut hosts: BTreeMap<(&[u8], &[u8]), Gathered> = BTreeMap::new();
        for (index, part) in parts.iter().enumerate() {
            for (address, label) in part.endpoints() {
                let host = hosts.entry((&part.cluster, label)).or_default();
                match address {
                    IpAddr::V4(ip) => host.v4.insert(ip),
                    IpAddr::V6(ip) => host.v6.insert(ip),
                };
                host.parts.insert(index);
            }
        }
        let mut ports = Ports::new(accepted, parts);
        let mut packed = Packed::default();
        for ((cluster, label), host) in &hosts {
            packed.add(cluster, label, host, ports.set_of(&host.parts));
        }
        Some(packed.finish(ports))
    }
}

/// The ports of a service while it is put together.
struct Ports<'a> {
    ids: Vec<PortId>,
    parts: &'a [&'a SlicePart],
    /// The sets by the slices that they come from: few, as most hosts are in one slice.
    by_parts: HashMap<BTreeSet<usize>, u16>,
    by_value: HashMap<PortSet, u16>,
    sets: Vec<PortSet>,
}

impl<'a> Ports<'a> {
    fn new(accepted: &[PortId], parts: &'a [&'a SlicePart]) -> Self {
        let ids: BTreeSet<&PortId> = parts
            .iter()
            .filter(|part| part.len() > 0)
            .flat_map(|part| part.ports.iter().map(|(id, _)| id))
            .filter(|id| accepted.is_empty() || accepted.contains(id))
            .collect();
        Self {
            ids: ids.into_iter().cloned().collect(),
            parts,
            by_parts: HashMap::new(),
            by_value: HashMap::new(),
            sets: Vec::new(),
        }
    }

    /// The set of a host that is in these slices.
    fn set_of(&mut self, parts: &BTreeSet<usize>) -> u16 {
        if let Some(&set) = self.by_parts.get(parts) {
            return set;
        }
        let named: BTreeSet<(u16, u16)> = parts
            .iter()
            .flat_map(|&index| self.parts[index].ports.iter())
            .filter_map(|(id, number)| {
                let index = self.ids.binary_search(id).ok()?;
                Some((u16::try_from(index).ok()?, *number))
            })
            .collect();
        let numbers: BTreeSet<u16> = named.iter().map(|&(_, number)| number).collect();
        let value = PortSet {
            named: named.into_iter().collect(),
            numbers: numbers.into_iter().collect(),
        };
        let next = self.sets.len();
        let set = *self.by_value.entry(value).or_insert_with_key(|value| {
            self.sets.push(value.clone());
            // Past 65,535 different sets in one service, which no real one has, the rest share
            // the last: their SRV records are then incomplete.
            u16::try_from(next).unwrap_or(u16::MAX)
        });
        self.by_parts.insert(parts.clone(), set);
        set
    }
}

/// The arrays of a service while they grow.
#[derive(Default)]
struct Packed {
    clusters: Vec<Box<[u8]>>,
    hosts: Vec<HostEntry>,
    labels: Vec<u8>,
    v4: Vec<Ipv4Addr>,
    v6: Vec<Ipv6Addr>,
}

impl Packed {
    /// Adds the next host in order.
    fn add(&mut self, cluster: &[u8], label: &[u8], host: &Gathered, set: u16) {
        if self.clusters.last().is_none_or(|last| **last != *cluster) {
            self.clusters.push(cluster.into());
        }
        let entry = self.position(set);
        self.hosts.push(entry);
        self.labels.extend_from_slice(label);
        self.v4.extend(&host.v4);
        self.v6.extend(&host.v6);
    }

    /// Where the next host starts.
    fn position(&self, set: u16) -> HostEntry {
        let at = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        HostEntry {
            label: at(self.labels.len()),
            v4: at(self.v4.len()),
            v6: at(self.v6.len()),
            cluster: u16::try_from(self.clusters.len().saturating_sub(1)).unwrap_or(u16::MAX),
            set,
        }
    }

    fn finish(mut self, ports: Ports<'_>) -> Headless {
        let end = self.position(0);
        self.hosts.push(end);
        let mut v4 = self.v4.clone();
        v4.sort_unstable();
        v4.dedup();
        let mut v6 = self.v6.clone();
        v6.sort_unstable();
        v6.dedup();
        Headless {
            v4: v4.into(),
            v6: v6.into(),
            clusters: self.clusters.into(),
            hosts: self.hosts.into(),
            labels: self.labels.into(),
            host_v4: self.v4.into(),
            host_v6: self.v6.into(),
            ports: ports.ids.into(),
            sets: ports.sets.into(),
        }
    }
}
