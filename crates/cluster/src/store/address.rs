//! The addresses of Services.
//!
//! Clusterset IPs come from ranges of their own, those of users' Services from others, so that a
//! user's Service never takes the address that an import had. Which address a Service gets is
//! decided by a hash of its namespace and name: the same input has the same addresses in every
//! run, and a Service that comes or goes moves no other.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use sha2::{Digest, Sha256};
use tombolo_model::names::ServiceKey;
use tombolo_model::service::IpFamily;

/// Where IPv4 clusterset IPs come from by default: the block that is reserved for the future
/// (RFC 1112 §4) and forwarded by no router. Nobody has pods in it.
pub const VIP_CIDR_V4: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(240, 16, 0, 0), 12);

/// Where IPv6 clusterset IPs come from by default: a part of the discard-only block (RFC 6666).
/// The documentation prefix, also never routed, would not do: manifests use it for pods.
pub const VIP_CIDR_V6: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0x100, 0, 0, 0, 1, 0, 0, 0), 80);

/// Where users' Services without an address get one.
const LOCAL_CIDR_V4: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(240, 32, 0, 0), 12);
const LOCAL_CIDR_V6: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0x100, 0, 0, 0, 2, 0, 0, 0), 80);

/// The ranges of clusterset IPs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VipRanges {
    v4: Ipv4Net,
    v6: Ipv6Net,
}

/// Why ranges of clusterset IPs cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VipRangesError {
    /// Two of one family.
    #[error("{first} and {second} are both {family}: give one range of each family")]
    Twice {
        /// The family.
        family: IpFamily,
        /// The first range.
        first: IpNet,
        /// The other one.
        second: IpNet,
    },
    /// There is hardly an address in it.
    #[error("{range} is too small: a range needs room for 14 Services, a /28 or a /124")]
    TooSmall {
        /// The range.
        range: IpNet,
    },
    /// No Service can have an address of it.
    #[error(
        "{range} is a loopback, link-local or multicast range, from which no Service has an address"
    )]
    NoServices {
        /// The range.
        range: IpNet,
    },
}

impl VipRangesError {
    /// A word for metrics.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Twice { .. } => "Twice",
            Self::TooSmall { .. } => "TooSmall",
            Self::NoServices { .. } => "NoServices",
        }
    }

    /// Never: the ranges have to be others.
    pub const fn is_retryable(&self) -> bool {
        false
    }
}

impl Default for VipRanges {
    fn default() -> Self {
        Self {
            v4: VIP_CIDR_V4,
            v6: VIP_CIDR_V6,
        }
    }
}

impl VipRanges {
    /// These ranges, at most one of each family, and the default for a family without one.
    pub fn try_new(cidrs: &[IpNet]) -> Result<Self, VipRangesError> {
        let (mut v4, mut v6) = (None, None);
        for cidr in cidrs {
            if cidr.max_prefix_len() - cidr.prefix_len() < 4 {
                return Err(VipRangesError::TooSmall { range: *cidr });
            }
            let first = cidr.network();
            let is_link_local = match first {
                IpAddr::V4(ip) => ip.is_link_local(),
                IpAddr::V6(ip) => ip.is_unicast_link_local(),
            };
            if first.is_loopback() || first.is_multicast() || is_link_local {
                return Err(VipRangesError::NoServices { range: *cidr });
            }
            let (family, before) = match cidr {
                IpNet::V4(net) => (IpFamily::V4, v4.replace(net.trunc()).map(IpNet::V4)),
                IpNet::V6(net) => (IpFamily::V6, v6.replace(net.trunc()).map(IpNet::V6)),
            };
            if let Some(first) = before {
                return Err(VipRangesError::Twice {
                    family,
                    first,
                    second: *cidr,
                });
            }
        }
        Ok(Self {
            v4: v4.unwrap_or(VIP_CIDR_V4),
            v6: v6.unwrap_or(VIP_CIDR_V6),
        })
    }
}

/// Which of a cluster's ranges an address comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Clusterset IPs.
    Vip,
    /// Users' Services.
    Local,
}

/// Who has which address.
#[derive(Debug)]
pub(super) struct Addresses {
    vip: VipRanges,
    local: VipRanges,
    owners: HashMap<IpAddr, ServiceKey>,
    owned: HashMap<ServiceKey, Vec<IpAddr>>,
}

impl Addresses {
    pub(super) fn new(vip: &VipRanges) -> Self {
        let overlaps_v4 = LOCAL_CIDR_V4.contains(&vip.v4) || vip.v4.contains(&LOCAL_CIDR_V4);
        let overlaps_v6 = LOCAL_CIDR_V6.contains(&vip.v6) || vip.v6.contains(&LOCAL_CIDR_V6);
        // Whoever takes these ranges for clusterset IPs leaves the others free.
        let v4 = if overlaps_v4 {
            VIP_CIDR_V4
        } else {
            LOCAL_CIDR_V4
        };
        let v6 = if overlaps_v6 {
            VIP_CIDR_V6
        } else {
            LOCAL_CIDR_V6
        };
        Self {
            vip: *vip,
            local: VipRanges { v4, v6 },
            owners: HashMap::new(),
            owned: HashMap::new(),
        }
    }

    /// All ranges of these families.
    pub(super) fn ranges(&self, families: &[IpFamily]) -> Vec<IpNet> {
        let of_family = |family: &IpFamily| match family {
            IpFamily::V4 => [IpNet::V4(self.vip.v4), IpNet::V4(self.local.v4)],
            IpFamily::V6 => [IpNet::V6(self.vip.v6), IpNet::V6(self.local.v6)],
        };
        families.iter().flat_map(of_family).collect()
    }

    /// Whether an address may be a clusterset IP.
    pub(super) fn is_vip(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => self.vip.v4.contains(&address),
            IpAddr::V6(address) => self.vip.v6.contains(&address),
        }
    }

    /// Takes an address, unless another Service has it.
    pub(super) fn reserve(&mut self, address: IpAddr, key: &ServiceKey) -> Result<(), ServiceKey> {
        match self.owners.get(&address) {
            Some(owner) if owner != key => Err(owner.clone()),
            Some(_) => Ok(()),
            None => {
                self.owners.insert(address, key.clone());
                self.owned.entry(key.clone()).or_default().push(address);
                Ok(())
            }
        }
    }

    /// Takes a free address; `None` where there is none.
    pub(super) fn allocate(
        &mut self,
        part: Part,
        family: IpFamily,
        key: &ServiceKey,
    ) -> Option<IpAddr> {
        let ranges = match part {
            Part::Vip => self.vip,
            Part::Local => self.local,
        };
        let range = match family {
            IpFamily::V4 => Range::of_v4(ranges.v4),
            IpFamily::V6 => Range::of_v6(ranges.v6),
        };
        let start = hash(key) % range.len;
        // One more than there are addresses taken is enough to find a free one.
        let tries = range.len.min(self.owners.len() as u64 + 1);
        let address = (0..tries)
            .map(|i| range.address((start + i) % range.len))
            .find(|address| !self.owners.contains_key(address))?;
        self.reserve(address, key).ok()?;
        Some(address)
    }

    /// Gives back all addresses of a Service and tells which.
    pub(super) fn release(&mut self, key: &ServiceKey) -> Vec<IpAddr> {
        let addresses = self.owned.remove(key).unwrap_or_default();
        for address in &addresses {
            self.owners.remove(address);
        }
        addresses
    }
}

/// The addresses of a network that a Service can have.
struct Range {
    family: IpFamily,
    /// The network's own address.
    base: u128,
    /// How many follow it.
    len: u64,
}

impl Range {
    fn of_v4(net: Ipv4Net) -> Self {
        Self {
            family: IpFamily::V4,
            base: u128::from(net.network().to_bits()),
            // Without the network's own address and that of broadcast.
            len: (1_u64 << (32 - net.prefix_len())) - 2,
        }
    }

    fn of_v6(net: Ipv6Net) -> Self {
        let bits = u32::from(128 - net.prefix_len());
        Self {
            family: IpFamily::V6,
            base: net.network().to_bits(),
            len: 1_u64.checked_shl(bits).unwrap_or(1 << 63) - 1,
        }
    }

    fn address(&self, index: u64) -> IpAddr {
        let bits = self.base + 1 + u128::from(index);
        match self.family {
            IpFamily::V4 => {
                let bits = u32::try_from(bits).expect("an IPv4 range ends within 32 bits");
                IpAddr::V4(Ipv4Addr::from_bits(bits))
            }
            IpFamily::V6 => IpAddr::V6(Ipv6Addr::from_bits(bits)),
        }
    }
}

fn hash(key: &ServiceKey) -> u64 {
    let digest = Sha256::digest(key.to_string());
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&digest[..8]);
    u64::from_be_bytes(bytes)
}
