//! Questions about a clusterset: every name that it has, and names beside each of them.

use std::collections::BTreeSet;

use crate::world::{Clusterset, Service};

/// The types that are asked for at every name.
const KINDS: [&str; 5] = ["A", "AAAA", "SRV", "TXT", "ANY"];

/// Names and types.
pub(crate) fn all(clusterset: &Clusterset) -> Vec<(String, &'static str)> {
    let mut names: BTreeSet<String> = [
        "",
        "svc.",
        "pod.",
        "nosuch.",
        "nosuch.svc.",
        "bare.svc.",
        "web.bare.svc.",
        "shop-0.svc.",
        "shop-0.",
        "a.b.c.d.e.f.shop-0.svc.",
        "dns-version.",
        "ns.dns.",
        "dns.",
    ]
    .iter()
    .map(|name| format!("{name}clusterset.local."))
    .collect();
    for service in &clusterset.services {
        names.extend(names_of(service));
    }
    names.extend(
        [
            "clusterset.local.example.",
            "1.0.0.10.in-addr.arpa.",
            "example.com.",
        ]
        .map(str::to_owned),
    );
    let asked = names.into_iter();
    asked
        .flat_map(|name| KINDS.map(|kind| (name.clone(), kind)))
        .collect()
}

fn names_of(service: &Service) -> BTreeSet<String> {
    let fqdn = service.fqdn();
    let mut below: BTreeSet<String> = ["", "nosuch.", "_nosuch._tcp.", "_tcp.", "_p0.", "p0.tcp."]
        .iter()
        .map(|&name| name.to_owned())
        .collect();
    for (name, protocol, _) in &service.ports {
        let protocol = protocol.to_lowercase();
        if !name.is_empty() {
            below.insert(format!("_{name}._{protocol}."));
            below.insert(format!("{name}._{protocol}."));
        }
        below.insert(format!("_{protocol}."));
    }
    for slice in &service.slices {
        let cluster = &slice.cluster;
        below.insert(format!("{cluster}."));
        below.insert(format!("nosuch.{cluster}."));
        for (address, hostname, _) in &slice.endpoints {
            let dashed = address.replace(['.', ':'], "-");
            let dashed = if dashed.ends_with('-') {
                dashed + "0"
            } else {
                dashed
            };
            below.insert(format!("{dashed}.{cluster}."));
            if let Some(hostname) = hostname {
                below.insert(format!("{hostname}.{cluster}."));
                below.insert(format!("{hostname}.nosuch."));
                below.insert(format!("{hostname}."));
            }
        }
    }
    let mut names: BTreeSet<String> = below.iter().map(|name| format!("{name}{fqdn}")).collect();
    names.insert(fqdn.to_uppercase().replace("SHOP", "Shop"));
    names
}
