//! What an API server checks and fills in when a Service is written.

use std::net::IpAddr;

use tombolo_model::config::KNOWN_DISTRIBUTIONS;
use tombolo_model::io::{Refusal, RefusalKind};
use tombolo_model::object::{ServiceKind, ServiceObject};
use tombolo_model::service::IpFamily;

use super::Store;
use super::address::Part;
use crate::convert::check_ports;

/// Whether a Service has cluster IPs.
pub(super) fn needs_addresses(service: &ServiceObject) -> bool {
    let is_routed = match service.kind {
        ServiceKind::ClusterIp | ServiceKind::NodePort | ServiceKind::LoadBalancer => true,
        ServiceKind::ExternalName => false,
    };
    is_routed && !service.headless
}

impl Store {
    /// A Service of Tombolo as it would be stored: checked, with its addresses taken. `current` is
    /// the one that it replaces. Nothing is changed where it is refused.
    pub(super) fn admit(
        &mut self,
        mut new: ServiceObject,
        current: Option<&ServiceObject>,
    ) -> Result<ServiceObject, Refusal> {
        self.check(&new)?;
        if new.families.is_empty() {
            new.families.extend(self.families.first());
        }
        if let Some(current) = current {
            check_change(&mut new, current)?;
        }
        if !needs_addresses(&new) {
            self.addresses.release(&new.meta.key);
            return Ok(new);
        }
        let before = self.addresses.release(&new.meta.key);
        let given = self.vips(&mut new, &before);
        if given.is_err() {
            self.addresses.release(&new.meta.key);
            for address in before {
                // They were this Service's a moment ago.
                self.addresses.reserve(address, &new.meta.key).ok();
            }
        }
        given.map(|()| new)
    }

    fn check(&self, new: &ServiceObject) -> Result<(), Refusal> {
        check_ports(&new.ports)
            .map_err(|(field, problem)| invalid(format!("{field}: {problem}")))?;
        if new.ports.is_empty() && needs_addresses(new) {
            return Err(invalid(
                "spec.ports: a Service with a cluster IP needs a port",
            ));
        }
        let is_free = new.headless && !new.has_selector;
        for family in &new.families {
            if !is_free && !self.families.contains(family) {
                let text = format!("spec.ipFamilies: {family} is not configured on this cluster");
                return Err(invalid(text));
            }
        }
        if let Some(value) = &new.traffic_distribution
            && !KNOWN_DISTRIBUTIONS.contains(&value.as_ref())
        {
            let text = format!("spec.trafficDistribution: {value} is not known to this cluster");
            return Err(invalid(text));
        }
        Ok(())
    }

    /// Takes the addresses that are asked for, and free ones for the families without one.
    fn vips(&mut self, new: &mut ServiceObject, before: &[IpAddr]) -> Result<(), Refusal> {
        let key = new.meta.key.clone();
        for (i, address) in new.cluster_ips.iter().enumerate() {
            let field = format!("spec.clusterIPs[{i}]");
            if new.families.get(i) != Some(&IpFamily::of(*address)) {
                let text = format!("{field}: {address} is not of the family at the same place");
                return Err(invalid(text));
            }
            let is_taken = self.addresses.reserve(*address, &key).is_err();
            // A manifest may have given the Service any address, which it keeps.
            let is_in_range = before.contains(address) || self.addresses.is_vip(*address);
            if is_taken || !is_in_range {
                let why = if is_taken {
                    "taken"
                } else {
                    "not in the range"
                };
                return Err(Refusal {
                    kind: RefusalKind::AddressTaken,
                    message: format!("{field}: {address} is {why}").into(),
                });
            }
        }
        let missing = new.families.get(new.cluster_ips.len()..);
        for family in missing.into_iter().flatten() {
            let Some(address) = self.addresses.allocate(Part::Vip, *family, &key) else {
                return Err(Refusal {
                    kind: RefusalKind::Other,
                    message: format!("there is no free {family} address left").into(),
                });
            };
            new.cluster_ips.push(address);
        }
        Ok(())
    }
}

/// What of a Service cannot change, and the addresses that it keeps where none are asked for.
fn check_change(new: &mut ServiceObject, current: &ServiceObject) -> Result<(), Refusal> {
    if needs_addresses(current) && needs_addresses(new) || current.headless && new.headless {
        if new.families.first() != current.families.first() {
            return Err(invalid(
                "spec.ipFamilies[0]: the primary family cannot be changed",
            ));
        }
    } else if current.kind == new.kind {
        return Err(invalid(
            "spec.clusterIPs[0]: may not change between None and an address",
        ));
    }
    if !needs_addresses(new) {
        new.cluster_ips.clear();
        return Ok(());
    }
    let asked = new.cluster_ips.len();
    let kept = current.cluster_ips.iter().take(new.families.len());
    new.cluster_ips.extend(kept.skip(asked));
    let both = current.cluster_ips.iter().zip(&new.cluster_ips);
    if both.into_iter().any(|(old, new)| old != new) {
        return Err(invalid("spec.clusterIPs: an address cannot be changed"));
    }
    Ok(())
}

fn invalid(message: impl Into<std::sync::Arc<str>>) -> Refusal {
    Refusal {
        kind: RefusalKind::Invalid,
        message: message.into(),
    }
}
