//! The zones that the server answers for.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::name::{QueryName, WireName};

/// How long answers may be kept by default. Short, as endpoints come and go.
pub const TTL_DEFAULT_SECS: u32 = 5;

/// The zones, all with the same services below them. Immutable once the server runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zones {
    /// Longest first, so that of nested zones the inner one is found.
    list: Vec<Zone>,
    ttl_secs: u32,
    ns_v4: Vec<Ipv4Addr>,
    ns_v6: Vec<Ipv6Addr>,
}

/// One zone with the number of its labels.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Zone {
    apex: WireName,
    label_count: usize,
}

impl Zones {
    /// The zones with a TTL for all answers.
    pub fn new(apexes: impl IntoIterator<Item = WireName>, ttl_secs: u32) -> Self {
        let mut zones: Vec<Zone> = apexes
            .into_iter()
            .map(|apex| Zone {
                label_count: apex.label_count(),
                apex,
            })
            .collect();
        zones.sort_by_key(|zone| (usize::MAX - zone.label_count, zone.apex.clone()));
        zones.dedup();
        Self {
            list: zones,
            ttl_secs,
            ns_v4: Vec::new(),
            ns_v6: Vec::new(),
        }
    }

    /// The addresses of `ns.dns.<zone>`, which the zones' NS records name: those that this server
    /// is reached at from outside, if it is to be known.
    #[must_use]
    pub fn with_server_addresses(mut self, addresses: &[IpAddr]) -> Self {
        for address in addresses {
            match address {
                IpAddr::V4(ip) => self.ns_v4.push(*ip),
                IpAddr::V6(ip) => self.ns_v6.push(*ip),
            }
        }
        self
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The names of the zones, in the order in which [`crate::Metrics`] counts them.
    pub fn names(&self) -> impl Iterator<Item = &WireName> {
        self.list.iter().map(|zone| &zone.apex)
    }

    /// The TTL of all answers.
    pub const fn ttl_secs(&self) -> u32 {
        self.ttl_secs
    }

    /// The addresses of the name server.
    pub(crate) fn server_v4(&self) -> &[Ipv4Addr] {
        &self.ns_v4
    }

    /// The addresses of the name server.
    pub(crate) fn server_v6(&self) -> &[Ipv6Addr] {
        &self.ns_v6
    }

    /// The zone that `name` is in: its index, and the label of the name at which it starts.
    pub(crate) fn find(&self, name: &QueryName) -> Option<(usize, usize)> {
        self.list.iter().enumerate().find_map(|(index, zone)| {
            let label = name.label_count().checked_sub(zone.label_count)?;
            (name.suffix(label) == zone.apex.as_bytes()).then_some((index, label))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_inner_of_nested_zones_is_found() {
        let zone = |text| WireName::parse(text).unwrap();
        let zones = Zones::new([zone("example."), zone("in.example."), zone("example.")], 5);
        assert_eq!(zones.len(), 2);
        let find = |text| {
            let name = QueryName::read(zone(text).as_bytes()).unwrap();
            zones.find(&name)
        };
        assert_eq!(find("a.in.example."), Some((0, 1)));
        assert_eq!(find("a.example."), Some((1, 1)));
        assert_eq!(find("in.example."), Some((0, 0)));
        assert_eq!(find("ain.example."), Some((1, 1)));
        assert_eq!(find("com."), None);
        assert_eq!(find("."), None);
    }
}
