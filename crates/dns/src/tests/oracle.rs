//! A slow, obvious server: it writes the whole zone down, record by record, and answers by looking
//! names up in it as RFC 1034 says. Compared with `answer` and the packets over random fleets.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use mcs_api::well_known::{LABEL_SERVICE_NAME, LABEL_SOURCE_CLUSTER};
use proptest::prelude::*;
use tombolo_model::object::{ImportObject, SliceEndpoint, SliceObject};
use tombolo_model::service::{ImportType, Protocol};

use super::world::{World, ask_in_full};
use crate::{Query, Rcode, RecordType, WireName};

/// All records of the zone: data as text, by name and type. A name without records has none.
#[derive(Default)]
struct Zone {
    records: BTreeMap<String, BTreeMap<u16, BTreeSet<String>>>,
}

const A: u16 = 1;
const AAAA: u16 = 28;
const SRV: u16 = 33;

impl Zone {
    fn of(world: &World) -> Self {
        let mut zone = Self::default();
        zone.add("", RecordType::SOA.0, None);
        zone.add("dns-version", 16, Some("1.0.0".to_owned()));
        zone.add("ns.dns", 0, None);
        for import in &world.imports {
            zone.add_import(import, &world.slices);
        }
        zone
    }

    /// Adds a record at `name` below the zone, and the names above it.
    fn add(&mut self, name: &str, record_type: u16, data: Option<String>) {
        let types = self.records.entry(name.to_owned()).or_default();
        types.entry(record_type).or_default().extend(data);
        let mut above = name;
        while let Some((_, rest)) = above.split_once('.') {
            self.records.entry(rest.to_owned()).or_default();
            above = rest;
        }
    }

    fn add_address(&mut self, name: &str, ip: IpAddr) {
        let record_type = if ip.is_ipv4() { A } else { AAAA };
        self.add(name, record_type, Some(ip.to_string()));
    }

    fn add_port(&mut self, service: &str, name: &str, protocol: Protocol, record: &str) {
        self.add(service, SRV, Some(record.to_owned()));
        if !name.is_empty() {
            let protocol = protocol.as_str().to_ascii_lowercase();
            let port = format!("_{name}._{protocol}.{service}");
            self.add(&port, SRV, Some(record.to_owned()));
        }
    }

    fn add_import(&mut self, import: &ImportObject, slices: &[SliceObject]) {
        let key = &import.meta.key;
        let name = format!("{}.{}.svc", key.name, key.namespace);
        let spec = import.spec.as_ref().unwrap();
        if spec.kind == ImportType::ClusterSetIp {
            self.add(&name, 0, None);
            for ip in &spec.ips {
                self.add_address(&name, *ip);
            }
            for port in &spec.ports {
                let record = format!("{} {name}.clusterset.local.", port.port);
                self.add_port(&name, &port.name, port.protocol, &record);
            }
            return;
        }
        for slice in slices {
            let of = slice.meta.label(LABEL_SERVICE_NAME) == Some(key.name.as_str());
            if of && slice.meta.key.namespace == key.namespace {
                let ready = slice.endpoints.iter().filter(|e| e.conditions.ready);
                for endpoint in ready {
                    self.add_host(&name, slice, endpoint);
                }
            }
        }
    }

    fn add_host(&mut self, service: &str, slice: &SliceObject, endpoint: &SliceEndpoint) {
        let cluster = slice.meta.label(LABEL_SOURCE_CLUSTER).unwrap();
        let dashes = endpoint.address.to_string().replace(['.', ':'], "-");
        let dashes = if dashes.ends_with('-') {
            dashes + "0"
        } else {
            dashes
        };
        let host = endpoint.hostname.as_deref().unwrap_or(&dashes);
        let host = format!("{host}.{cluster}.{service}");
        self.add_address(service, endpoint.address);
        self.add_address(&host, endpoint.address);
        for port in slice.ports.iter() {
            let record = format!("{} {host}.clusterset.local.", port.port);
            self.add_port(service, &port.name, port.protocol, &record);
        }
    }

    fn answer(&self, name: &str, record_type: u16) -> (Rcode, BTreeSet<String>) {
        match self.records.get(name) {
            None => (Rcode::NxDomain, BTreeSet::new()),
            Some(_) if record_type == 255 => (Rcode::NoError, ["RFC8482".to_owned()].into()),
            Some(types) => {
                let records = types.get(&record_type).cloned();
                (Rcode::NoError, records.unwrap_or_default())
            }
        }
    }
}

/// Few words, so that names meet.
const SERVICES: [&str; 3] = ["a", "b", "svc"];
const NAMESPACES: [&str; 3] = ["n", "svc", "dns"];
const CLUSTERS: [&str; 4] = ["c", "d.c", "a.d", "d"];
const HOSTS: [&str; 4] = ["", "d", "a", "h"];
const PORTS: [&str; 5] = [
    "web TCP/80",
    "web UDP/80",
    "dns UDP/53",
    "TCP/9",
    "dns TCP/53",
];
const ADDRESSES: [&str; 6] = [
    "10.0.0.1", "10.0.0.2", "10.0.0.3", "fd00::1", "fd00::", "fd00::2",
];
const IPS: [&str; 3] = ["10.96.0.1", "fd96::1", "10.96.0.2"];

fn some_of<const N: usize>(from: [&'static str; N]) -> impl Strategy<Value = Vec<&'static str>> {
    proptest::sample::subsequence(from.to_vec(), 0..=N)
}

fn service() -> impl Strategy<Value = String> {
    use proptest::sample::select;
    (select(&NAMESPACES[..]), select(&SERVICES[..])).prop_map(|(ns, name)| format!("{ns}/{name}"))
}

fn endpoints() -> impl Strategy<Value = Vec<String>> {
    let address = proptest::sample::select(&ADDRESSES[..]);
    let host = proptest::sample::select(&HOSTS[..]);
    let one = (address, host, any::<bool>()).prop_map(|(address, host, ready)| {
        let text = format!("{address} {host}").trim_end().to_owned();
        if ready { text } else { text + " !" }
    });
    proptest::collection::vec(one, 0..4)
}

prop_compose! {
    fn fleet()(
        imports in proptest::collection::btree_map(
            service(), (any::<bool>(), some_of(IPS), some_of(PORTS)), 0..5),
        slices in proptest::collection::vec(
            (service(), proptest::sample::select(&CLUSTERS[..]), some_of(PORTS), endpoints()),
            0..10),
    ) -> World {
        let mut world = World::default();
        for (name, (headless, ips, ports)) in imports {
            // A headless import has all ports that its slices have, as a merge makes it.
            world = if headless {
                world.headless(&name, &PORTS)
            } else {
                world.cluster_set_ip(&name, &ips, &ports)
            };
        }
        for (name, cluster, ports, endpoints) in slices {
            let endpoints: Vec<&str> = endpoints.iter().map(String::as_str).collect();
            world = world.slice(&name, cluster, &ports, &endpoints);
        }
        world
    }
}

/// Names near those that are there.
fn name() -> impl Strategy<Value = String> {
    const LABELS: [&str; 16] = [
        "a",
        "b",
        "c",
        "d",
        "h",
        "n",
        "svc",
        "dns",
        "_tcp",
        "_udp",
        "_web",
        "_dns",
        "10-0-0-1",
        "fd00--0",
        "ns",
        "dns-version",
    ];
    let label = proptest::sample::select(&LABELS[..]);
    (proptest::collection::vec(label, 0..5), 0..3_usize).prop_map(|(labels, tail)| {
        let tail = ["", "svc", "n.svc"][tail];
        let labels = labels.join(".");
        match (labels.is_empty(), tail.is_empty()) {
            (false, false) => format!("{labels}.{tail}"),
            _ => labels + tail,
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn answers_are_those_of_the_zone_written_down(
        world in fleet(),
        names in proptest::collection::vec(name(), 40),
        seed in any::<u64>(),
    ) {
        let zone = Zone::of(&world);
        let snapshot = world.snapshot();
        let all = zone.records.keys().cloned().chain(names);
        for name in all {
            for record_type in [A, AAAA, SRV, 16, 255, 65] {
                let full = format!("{name}.clusterset.local");
                let full = WireName::parse(full.trim_start_matches('.')).unwrap();
                let query = Query { name: full, record_type: RecordType(record_type), seed };
                let answer = ask_in_full(&snapshot, &query);
                let got: BTreeSet<String> =
                    answer.answers.iter().map(|r| r.data.to_string()).collect();
                prop_assert_eq!(got.len(), answer.answers.len(), "twice in {:?}", answer);
                prop_assert_eq!(
                    (answer.rcode, got), zone.answer(&name, record_type), "{} {}", name, record_type
                );
            }
        }
    }

    #[test]
    fn changes_in_any_order_make_the_snapshot_of_the_last_state(
        world in fleet(),
        other in fleet(),
        names in proptest::collection::vec(name(), 20),
    ) {
        use crate::Change;
        let mut builder = other.builder();
        builder.publish(1);
        for slice in &other.slices {
            builder.apply(Change::SliceGone(&slice.meta.key));
        }
        for import in &world.imports {
            builder.apply(Change::Import(import));
        }
        builder.publish(2);
        for slice in &world.slices {
            builder.apply(Change::Slice(slice));
        }
        for import in &other.imports {
            if !world.imports.iter().any(|i| i.meta.key == import.meta.key) {
                builder.apply(Change::ImportGone(&import.meta.key));
            }
        }
        let (got, wanted) = (builder.publish(3), world.snapshot());
        prop_assert_eq!(got.service_count(), wanted.service_count());
        for name in names {
            for record_type in [A, SRV] {
                let full = format!("{name}.clusterset.local");
                let full = WireName::parse(full.trim_start_matches('.')).unwrap();
                let query = Query::new(full, RecordType(record_type));
                let (got, wanted) =
                    (ask_in_full(&got, &query), ask_in_full(&wanted, &query));
                prop_assert_eq!((got.rcode, got.answers), (wanted.rcode, wanted.answers));
            }
        }
    }
}
