//! Which services have an endpoint at an address. A cluster asks when an address becomes one of
//! its own Pods', so that this costs the services that are concerned and no others.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

use parking_lot::RwLock;

use super::FleetService;
use crate::names::ServiceKey;

/// An index over all endpoints of the registry, shared by all engines of a process. It may be
/// ahead of what an engine was told, never behind.
#[derive(Debug, Default)]
pub struct Claims(RwLock<Index>);

#[derive(Debug, Default)]
struct Index {
    /// A print of the address, and the service's number: 8 bytes for an endpoint, as there may be
    /// a million.
    places: BTreeSet<(u32, u32)>,
    numbers: HashMap<ServiceKey, u32>,
    services: Vec<Option<ServiceKey>>,
    /// Numbers of services that are gone.
    free: Vec<u32>,
}

impl Claims {
    /// The services that may have an endpoint at an address: different addresses may have one
    /// print, so who asks looks for itself.
    pub(crate) fn at(&self, address: IpAddr) -> Vec<ServiceKey> {
        let index = self.0.read();
        let print = print(address);
        let places = index.places.range((print, 0)..=(print, u32::MAX));
        places
            .filter_map(|(_, number)| index.services.get(*number as usize)?.clone())
            .collect()
    }

    /// Takes a change of a service in.
    pub(super) fn change(
        &self,
        service: &ServiceKey,
        old: Option<&FleetService>,
        new: Option<&FleetService>,
    ) {
        let (old, new) = (prints(old), prints(new));
        if old == new {
            return;
        }
        let mut index = self.0.write();
        let number = index.number(service);
        for print in old.iter().filter(|print| new.binary_search(print).is_err()) {
            index.places.remove(&(*print, number));
        }
        for print in new.iter().filter(|print| old.binary_search(print).is_err()) {
            index.places.insert((*print, number));
        }
        if new.is_empty() {
            index.forget(service, number);
        }
    }
}

impl Index {
    fn number(&mut self, service: &ServiceKey) -> u32 {
        if let Some(number) = self.numbers.get(service) {
            return *number;
        }
        let number = self.free.pop().unwrap_or_else(|| {
            self.services.push(None);
            u32::try_from(self.services.len() - 1).unwrap_or(u32::MAX)
        });
        if let Some(place) = self.services.get_mut(number as usize) {
            *place = Some(service.clone());
        }
        self.numbers.insert(service.clone(), number);
        number
    }

    fn forget(&mut self, service: &ServiceKey, number: u32) {
        self.numbers.remove(service);
        if let Some(place) = self.services.get_mut(number as usize) {
            *place = None;
        }
        self.free.push(number);
    }
}

/// The prints of all addresses of a service, sorted, each once.
fn prints(service: Option<&FleetService>) -> Vec<u32> {
    let clusters = service.into_iter().flat_map(|s| s.clusters().values());
    let endpoints = clusters.flat_map(|state| state.endpoints.iter());
    let mut prints: Vec<u32> = endpoints.map(|e| print(e.address)).collect();
    prints.sort_unstable();
    prints.dedup();
    prints
}

fn print(address: IpAddr) -> u32 {
    match address {
        IpAddr::V4(v4) => v4.to_bits(),
        IpAddr::V6(v6) => {
            let parts = v6.segments();
            let words = parts
                .chunks(2)
                .map(|w| u32::from(w[0]) << 16 | u32::from(w[1]));
            words.fold(0, |print, word| print.rotate_left(7) ^ word)
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::endpoint::{Conditions, Endpoint};
    use crate::fleet::ClusterService;
    use crate::names::{ClusterName, Namespace, ObjectName};
    use crate::record::{ExportRecord, Labels};
    use crate::service::{Affinity, ImportType, InternalTrafficPolicy};

    fn key(name: &str) -> ServiceKey {
        ServiceKey::new(Namespace::try_new("shop").unwrap(), ObjectName::new(name))
    }

    fn service(addresses: &[&str]) -> FleetService {
        let export = ExportRecord {
            created: Timestamp::UNIX_EPOCH,
            uid: "1".into(),
            kind: ImportType::Headless,
            ports: Vec::new(),
            families: Vec::new(),
            affinity: Affinity::None,
            internal_traffic_policy: InternalTrafficPolicy::Cluster,
            traffic_distribution: None,
            labels: Labels::new(),
            annotations: Labels::new(),
        };
        let endpoints = addresses.iter().map(|address| Endpoint {
            address: address.parse().unwrap(),
            ports: [].into(),
            hostname: None,
            zone: None,
            conditions: Conditions::READY,
        });
        let state = ClusterService {
            export: export.into(),
            endpoints: endpoints.collect(),
            joined: None,
        };
        FleetService::new([(ClusterName::try_new("k").unwrap(), state.into())].into())
    }

    fn found(claims: &Claims, address: &str) -> Vec<String> {
        let found = claims.at(address.parse().unwrap());
        found
            .iter()
            .map(|service| service.name.to_string())
            .collect()
    }

    #[test]
    fn services_are_found_by_an_address_while_they_have_it() {
        let claims = Claims::default();
        let (a, b) = (key("a"), key("b"));
        let of_a = service(&["10.0.0.1", "10.0.0.2", "fd00::1", "10.0.0.2"]);
        let of_b = service(&["10.0.0.2"]);
        claims.change(&a, None, Some(&of_a));
        claims.change(&b, None, Some(&of_b));
        assert_eq!(found(&claims, "10.0.0.2"), ["a", "b"]);
        assert_eq!(found(&claims, "fd00::1"), ["a"]);
        assert_eq!(found(&claims, "10.0.0.3"), [""; 0]);
        let fewer = service(&["10.0.0.1", "10.0.0.3"]);
        claims.change(&a, Some(&of_a), Some(&fewer));
        assert_eq!(found(&claims, "10.0.0.2"), ["b"]);
        assert_eq!(found(&claims, "10.0.0.3"), ["a"]);
        claims.change(&a, Some(&fewer), None);
        assert_eq!(found(&claims, "10.0.0.1"), [""; 0]);
        // Its number is another's from now on.
        let c = key("c");
        claims.change(&c, None, Some(&fewer));
        assert_eq!(found(&claims, "10.0.0.1"), ["c"]);
        assert_eq!(found(&claims, "10.0.0.2"), ["b"]);
        assert_eq!(claims.0.read().services.len(), 2);
    }
}
