//! The address plan: everything follows from the testbed's slot, so that no two testbeds of a
//! machine meet, and nothing has to be looked up.
//!
//! | what | IPv4 | IPv6 |
//! |---|---|---|
//! | bridge, nodes | `172.30.SLOT.0/24` | `fd54:6f6d:SLOT::/64` |
//! | pods of a node | `10.(64+SLOT).NODE.0/24` | `fd54:6f6d:SLOT:NODE::/64` |
//! | Services of a cluster | `10.(192+CLUSTER).0.0/16` | `fd54:6f6d:ff:CLUSTER::/112` |
//!
//! `NODE` counts all nodes of the testbed: 16 × cluster + node. Services of different testbeds
//! share their range, as a Service address never leaves its node; those of the clusters of one
//! testbed differ, so that a test sees whose address it got.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::spec::Family;

/// Ports of a slot.
pub(crate) const PORTS_PER_SLOT: u16 = 100;
/// Below the range of ephemeral ports, so that no connection of anyone takes one meanwhile.
const FIRST_PORT: u16 = 20_000;
/// Slots of a machine.
pub(crate) const SLOTS: u8 = 120;

/// A share of the machine's ports and addresses: 0 to [`SLOTS`] - 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Slot(pub(crate) u8);

/// A node's number: unique in its testbed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NodeNumber(u8);

impl NodeNumber {
    /// Node `node` (from 0) of cluster `cluster` (from 1).
    pub(crate) fn new(cluster: u8, node: u8) -> Self {
        Self(cluster * 16 + node)
    }

    /// As a number.
    pub(crate) fn get(self) -> u8 {
        self.0
    }
}

impl Slot {
    /// A port of this slot.
    pub(crate) fn port(self, offset: u16) -> u16 {
        FIRST_PORT + u16::from(self.0) * PORTS_PER_SLOT + offset
    }

    /// A group id for the part that has the port at this offset.
    pub(crate) fn gid(self, offset: u16) -> u32 {
        1_900_000_000 + u32::from(self.port(offset))
    }

    /// A group id for the program that was started as the testbed's `index`th part.
    pub(crate) fn program_gid(self, index: u32) -> u32 {
        1_950_000_000 + u32::from(self.0) * 10_000 + index
    }

    /// The machine's own address on the bridge.
    pub(crate) fn gateway(self, family: Family) -> IpAddr {
        self.on_bridge(family, 1)
    }

    /// A node's address on the bridge.
    pub(crate) fn node(self, family: Family, node: NodeNumber) -> IpAddr {
        self.on_bridge(family, node.0)
    }

    fn on_bridge(self, family: Family, host: u8) -> IpAddr {
        match family {
            Family::V4 => Ipv4Addr::new(172, 30, self.0, host).into(),
            Family::V6 => {
                Ipv6Addr::new(0xfd54, 0x6f6d, self.0.into(), 0, 0, 0, 0, host.into()).into()
            }
        }
    }

    /// Length of the bridge's network.
    pub(crate) fn bridge_prefix_len(family: Family) -> u8 {
        match family {
            Family::V4 => 24,
            Family::V6 => 64,
        }
    }

    /// Pods of a node.
    pub(crate) fn pods(self, family: Family, node: NodeNumber) -> String {
        match family {
            Family::V4 => format!("10.{}.{}.0/24", 64 + self.0, node.0),
            Family::V6 => format!("fd54:6f6d:{:x}:{:x}::/64", self.0, node.0),
        }
    }

    /// Pods of all nodes of a cluster (from 1).
    pub(crate) fn pods_of_cluster(self, family: Family, cluster: u8) -> String {
        let first = NodeNumber::new(cluster, 0).0;
        match family {
            Family::V4 => format!("10.{}.{first}.0/20", 64 + self.0),
            Family::V6 => format!("fd54:6f6d:{:x}:{first:x}::/60", self.0),
        }
    }
}

/// Service addresses of a cluster (from 1).
pub(crate) fn services(family: Family, cluster: u8) -> String {
    match family {
        Family::V4 => format!("10.{}.0.0/16", 192 + cluster),
        Family::V6 => format!("fd54:6f6d:ff:{cluster:x}::/112"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_a_node() {
        let (slot, node) = (Slot(10), NodeNumber::new(2, 1));
        assert_eq!(slot.node(Family::V4, node).to_string(), "172.30.10.33");
        assert_eq!(slot.node(Family::V6, node).to_string(), "fd54:6f6d:a::21");
        assert_eq!(slot.pods(Family::V4, node), "10.74.33.0/24");
        assert_eq!(slot.pods(Family::V6, node), "fd54:6f6d:a:21::/64");
        assert_eq!(services(Family::V4, 2), "10.194.0.0/16");
    }

    #[test]
    fn the_last_slot_stays_in_its_ranges() {
        let slot = Slot(SLOTS - 1);
        assert!(slot.port(PORTS_PER_SLOT - 1) < 32_768);
        assert!(64 + slot.0 < 192);
        assert!(slot.0 < 0xff);
    }
}
