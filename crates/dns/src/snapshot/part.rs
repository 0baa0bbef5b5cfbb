//! What one EndpointSlice adds to a service: its ready endpoints, packed.
//!
//! A fleet has a million of them, so an endpoint is its address and its host label, without an
//! allocation of its own. Endpoints that are not ready are in no answer and are left out.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use mcs_api::well_known::LABEL_SOURCE_CLUSTER;
use tombolo_model::object::SliceObject;

use super::PortId;
use crate::name::{relative_labels, single_label};

/// The ready endpoints of one slice.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SlicePart {
    /// The labels of the source cluster's id.
    pub(super) cluster: Box<[u8]>,
    /// The ports of all its endpoints.
    pub(super) ports: Box<[(PortId, u16)]>,
    v4: Box<[Ipv4Addr]>,
    v6: Box<[Ipv6Addr]>,
    /// The host labels with their lengths, those of `v4` first.
    labels: Box<[u8]>,
}

impl SlicePart {
    /// Takes what is needed of a slice. `None` for one without a usable source cluster.
    pub(super) fn new(slice: &SliceObject) -> Option<Self> {
        let cluster = relative_labels(slice.meta.label(LABEL_SOURCE_CLUSTER)?)?;
        let ports = slice
            .ports
            .iter()
            .map(|port| (PortId::new(&port.name, port.protocol), port.port))
            .collect();
        let mut part = Self {
            cluster,
            ports,
            v4: Box::default(),
            v6: Box::default(),
            labels: Box::default(),
        };
        let mut labels = Vec::new();
        let ready = || slice.endpoints.iter().filter(|e| e.conditions.ready);
        let mut v4 = Vec::new();
        let mut v6 = Vec::new();
        for endpoint in ready() {
            if let IpAddr::V4(ip) = endpoint.address {
                v4.push(ip);
                labels.extend(host_label(endpoint.hostname.as_deref(), endpoint.address));
            }
        }
        for endpoint in ready() {
            if let IpAddr::V6(ip) = endpoint.address {
                v6.push(ip);
                labels.extend(host_label(endpoint.hostname.as_deref(), endpoint.address));
            }
        }
        part.v4 = v4.into();
        part.v6 = v6.into();
        part.labels = labels.into();
        Some(part)
    }

    /// The endpoints with their host labels, lengths included.
    pub(super) fn endpoints(&self) -> impl Iterator<Item = (IpAddr, &[u8])> {
        let v4 = self.v4.iter().copied().map(IpAddr::V4);
        let v6 = self.v6.iter().copied().map(IpAddr::V6);
        let mut rest: &[u8] = &self.labels;
        v4.chain(v6).map(move |address| {
            let (label, tail) = rest.split_at(usize::from(rest[0]) + 1);
            rest = tail;
            (address, label)
        })
    }

    /// How many endpoints there are.
    pub(super) const fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }
}

/// The label that an endpoint is reached by: its host name, or its address with dashes.
fn host_label(hostname: Option<&str>, address: IpAddr) -> Box<[u8]> {
    if let Some(label) = hostname.and_then(single_label) {
        return label;
    }
    let mut text = address.to_string().replace(['.', ':'], "-");
    // `2001:db8::` would end in a dash, which no host name may (RFC 1123 §2.1).
    if text.ends_with('-') {
        text.push('0');
    }
    single_label(&text).expect("an address with dashes is at most 45 letters, digits and dashes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_without_a_name_is_its_address_with_dashes() {
        let label = |name, ip: &str| {
            let label = host_label(name, ip.parse().unwrap());
            String::from_utf8(label[1..].to_vec()).unwrap()
        };
        assert_eq!(label(None, "10.1.0.7"), "10-1-0-7");
        assert_eq!(label(None, "2001:db8::1"), "2001-db8--1");
        assert_eq!(label(None, "2001:db8::"), "2001-db8--0");
        assert_eq!(label(Some("Pod-A"), "10.1.0.7"), "pod-a");
        assert_eq!(label(Some(""), "10.1.0.7"), "10-1-0-7");
        assert_eq!(label(Some("a.b"), "10.1.0.7"), "10-1-0-7");
        assert_eq!(label(Some(&"a".repeat(64)), "10.1.0.7"), "10-1-0-7");
    }
}
