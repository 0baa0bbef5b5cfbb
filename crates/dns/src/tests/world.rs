//! Builds what the server sees, and asks it.

use std::net::IpAddr;
use std::sync::Arc;

use hickory_proto::op::Message;
use hickory_proto::rr::RData;
use mcs_api::well_known::{LABEL_SERVICE_NAME, LABEL_SOURCE_CLUSTER};
use tombolo_model::endpoint::Conditions;
use tombolo_model::names::{Namespace, ObjectName, ServiceKey};
use tombolo_model::object::{
    AddressType, ImportObject, ImportSpec, ImportStatus, Meta, SliceEndpoint, SliceObject,
    SlicePort,
};
use tombolo_model::service::{
    Affinity, ImportType, InternalTrafficPolicy, IpFamily, Port, Protocol,
};

use crate::{
    Answer, Change, Listing, Outcome, PacketContext, Query, Record, RecordData, Snapshot,
    SnapshotBuilder, Transport, WireName, Zones, answer, handle_packet,
};

/// The time at which test snapshots are made.
pub(crate) const NOW_SECS: u32 = 1_700_000_000;

/// A namespace and a name, from `namespace/name`.
pub(crate) fn key(text: &str) -> ServiceKey {
    let (namespace, name) = text.split_once('/').unwrap();
    ServiceKey::new(
        Namespace::try_new(namespace).unwrap(),
        ObjectName::new(name),
    )
}

/// A port, from `name PROTOCOL/number` or `PROTOCOL/number`.
fn port(text: &str) -> (Arc<str>, Protocol, u16) {
    let (name, rest) = text.split_once(' ').unwrap_or(("", text));
    let (protocol, number) = rest.split_once('/').unwrap();
    let protocol = Protocol::parse(protocol).unwrap();
    (name.into(), protocol, number.parse().unwrap())
}

/// A ServiceImport.
pub(crate) fn import(name: &str, kind: ImportType, ips: &[&str], ports: &[&str]) -> ImportObject {
    let ports = ports.iter().map(|text| {
        let (name, protocol, port) = port(text);
        Port {
            name,
            protocol,
            port,
            app_protocol: None,
        }
    });
    ImportObject {
        meta: Meta::to_create(key(name)),
        spec: Some(ImportSpec {
            kind,
            ports: ports.collect(),
            ips: ips.iter().map(|ip| ip.parse().unwrap()).collect(),
            families: vec![IpFamily::V4],
            affinity: Affinity::None,
            internal_traffic_policy: InternalTrafficPolicy::Cluster,
            traffic_distribution: None,
        }),
        status: ImportStatus::default(),
    }
}

/// An endpoint, from `address`, `address hostname`, either with ` !` at its end if not ready.
pub(crate) fn endpoint(text: &str) -> SliceEndpoint {
    let (text, ready) = match text.strip_suffix(" !") {
        Some(text) => (text, false),
        None => (text, true),
    };
    let (address, hostname) = text.split_once(' ').unwrap_or((text, ""));
    SliceEndpoint {
        address: address.parse().unwrap(),
        conditions: Conditions {
            ready,
            ..Conditions::READY
        },
        hostname: (!hostname.is_empty()).then(|| hostname.into()),
        zone: None,
        node: None,
        target: None,
        hints: None,
    }
}

/// An EndpointSlice of `service` (as `namespace/name`), called `slice`.
pub(crate) fn slice(
    service: &str,
    slice: &str,
    cluster: &str,
    ports: &[&str],
    endpoints: &[&str],
) -> SliceObject {
    let service = key(service);
    let mut meta = Meta::to_create(service.sibling(&ObjectName::new(slice)));
    meta.labels = Arc::new(
        [
            (LABEL_SERVICE_NAME.into(), service.name.as_str().into()),
            (LABEL_SOURCE_CLUSTER.into(), cluster.into()),
        ]
        .into_iter()
        .collect(),
    );
    let endpoints: Vec<SliceEndpoint> = endpoints.iter().map(|text| endpoint(text)).collect();
    let v6 = endpoints.first().is_some_and(|e| e.address.is_ipv6());
    let ports = ports.iter().map(|text| {
        let (name, protocol, port) = port(text);
        SlicePort {
            name,
            protocol,
            port,
            app_protocol: None,
        }
    });
    SliceObject {
        meta,
        address_type: AddressType::Ip(if v6 { IpFamily::V6 } else { IpFamily::V4 }),
        ports: ports.collect(),
        endpoints: endpoints.into(),
    }
}

/// What the server has seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct World {
    pub(crate) imports: Vec<ImportObject>,
    pub(crate) slices: Vec<SliceObject>,
    pub(crate) zones: Vec<&'static str>,
    pub(crate) server: Vec<IpAddr>,
}

impl World {
    /// Adds a service with clusterset IPs.
    pub(crate) fn cluster_set_ip(mut self, name: &str, ips: &[&str], ports: &[&str]) -> Self {
        let import = import(name, ImportType::ClusterSetIp, ips, ports);
        self.imports.push(import);
        self
    }

    /// Adds a headless service.
    pub(crate) fn headless(mut self, name: &str, ports: &[&str]) -> Self {
        let import = import(name, ImportType::Headless, &[], ports);
        self.imports.push(import);
        self
    }

    /// Adds a slice.
    pub(crate) fn slice(
        mut self,
        service: &str,
        cluster: &str,
        ports: &[&str],
        endpoints: &[&str],
    ) -> Self {
        let name = format!("slice-{}", self.slices.len());
        let slice = slice(service, &name, cluster, ports, endpoints);
        self.slices.push(slice);
        self
    }

    /// Serves this zone, in place of `clusterset.local`.
    pub(crate) fn zone(mut self, zone: &'static str) -> Self {
        self.zones.push(zone);
        self
    }

    /// The zones.
    pub(crate) fn zone_set(&self) -> Zones {
        let default = ["clusterset.local"];
        let zones = if self.zones.is_empty() {
            &default[..]
        } else {
            &self.zones
        };
        let names = zones.iter().map(|zone| WireName::parse(zone).unwrap());
        Zones::new(names, 5).with_server_addresses(&self.server)
    }

    /// A builder that has listed everything.
    pub(crate) fn builder(&self) -> SnapshotBuilder {
        let mut builder = SnapshotBuilder::new(self.zone_set(), NOW_SECS);
        for listing in [Listing::Imports, Listing::Slices] {
            builder.apply(Change::ListBegins(listing));
        }
        for slice in &self.slices {
            builder.apply(Change::Slice(slice));
        }
        for import in &self.imports {
            builder.apply(Change::Import(import));
        }
        for listing in [Listing::Imports, Listing::Slices] {
            builder.apply(Change::ListEnds(listing));
        }
        builder
    }

    /// The snapshot of all of it.
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        self.builder().publish(NOW_SECS)
    }

    /// Asks `name TYPE`: the code and the answers as text, sorted.
    pub(crate) fn ask(&self, question: &str) -> (&'static str, Vec<String>) {
        ask(&self.snapshot(), question)
    }
}

/// A question, from `name TYPE`.
pub(crate) fn question(text: &str) -> Query {
    let (name, record_type) = text.split_once(' ').unwrap();
    Query::new(WireName::parse(name).unwrap(), record_type.parse().unwrap())
}

/// Asks `name TYPE` both ways, as data and over TCP, which must agree: the code and the answers as
/// text, sorted.
pub(crate) fn ask(snapshot: &Snapshot, text: &str) -> (&'static str, Vec<String>) {
    let answer = ask_in_full(snapshot, &question(text));
    let mut answers: Vec<String> = answer.answers.iter().map(|r| r.data.to_string()).collect();
    answers.sort();
    (answer.rcode.as_str(), answers)
}

/// Asks both ways, which must agree.
pub(crate) fn ask_in_full(snapshot: &Snapshot, query: &Query) -> Answer {
    let answer = answer(snapshot, query);
    let message = ask_packet(snapshot, query);
    assert_eq!(decode(&message), answer, "{query:?}");
    answer
}

/// Asks over TCP.
fn ask_packet(snapshot: &Snapshot, query: &Query) -> Message {
    let mut packet = vec![1, 2, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    packet.extend_from_slice(query.name.as_bytes());
    packet.extend_from_slice(&query.record_type.0.to_be_bytes());
    packet.extend_from_slice(&[0, 1]);
    let context = PacketContext {
        transport: Transport::Tcp,
        udp_len_max: 1232,
        forwards: false,
        seed: query.seed,
    };
    let mut out = Vec::new();
    let outcome = handle_packet(snapshot, &packet, context, &mut out);
    assert!(matches!(outcome, Outcome::Answered(_)));
    Message::from_vec(&out).unwrap()
}

/// An answer off the wire.
pub(crate) fn decode(message: &Message) -> Answer {
    let section = |records: &[hickory_proto::rr::Record]| records.iter().map(record).collect();
    let number = u16::from(message.metadata.response_code);
    Answer {
        rcode: *crate::Rcode::ALL
            .iter()
            .find(|rcode| rcode.number() == number)
            .unwrap(),
        authoritative: message.metadata.authoritative,
        answers: section(&message.answers),
        authority: section(&message.authorities),
        additional: section(&message.additionals),
    }
}

fn record(record: &hickory_proto::rr::Record) -> Record {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let data = match &record.data {
        RData::A(ip) => RecordData::A(ip.0),
        RData::AAAA(ip) => RecordData::Aaaa(ip.0),
        RData::SRV(srv) => RecordData::Srv {
            port: srv.port,
            target: srv.target.to_string().to_ascii_lowercase(),
        },
        RData::TXT(txt) => RecordData::Txt(text(&txt.txt_data.concat())),
        RData::NS(ns) => RecordData::Ns(ns.0.to_string()),
        RData::SOA(soa) => RecordData::Soa {
            serial: soa.serial,
            minimum_secs: soa.minimum,
        },
        RData::HINFO(hinfo) => RecordData::Hinfo(text(&hinfo.cpu)),
        other => panic!("a record of an unexpected type: {other:?}"),
    };
    Record {
        name: record.name.to_string(),
        ttl_secs: record.ttl,
        data,
    }
}
