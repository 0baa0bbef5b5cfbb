//! The entry for hostile octets, shared by the fuzz target and a property test.
//!
//! Built for tests and under `cfg(fuzzing)`, which cargo-fuzz sets.

use std::sync::{Arc, LazyLock};

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

use crate::snapshot::Snapshot;
use crate::{
    Change, Listing, Outcome, PacketContext, SnapshotBuilder, Transport, WireName, Zones,
    handle_packet,
};

/// The snapshot that packets are answered from.
static SNAPSHOT: LazyLock<Arc<Snapshot>> = LazyLock::new(fleet);

/// Answers a packet over both transports and checks what holds for any.
///
/// # Panics
///
/// When it does not hold: that is the finding.
pub fn packet(packet: &[u8]) {
    let mut out = Vec::new();
    for (transport, limit) in [(Transport::Udp, 1_232), (Transport::Tcp, 65_535)] {
        let context = PacketContext {
            transport,
            udp_len_max: 1_232,
            forwards: packet.len().is_multiple_of(2),
            seed: packet.len() as u64,
        };
        match handle_packet(&SNAPSHOT, packet, context, &mut out) {
            Outcome::Silent => assert!(packet.len() < 12 || packet[2] & 0x80 != 0),
            Outcome::Answered(_) | Outcome::Forward(_) => {
                assert!((12..=limit).contains(&out.len()), "{} octets", out.len());
                assert_eq!(out[..2], packet[..2], "the id");
                let message = hickory_proto::op::Message::from_vec(&out);
                assert!(message.is_ok(), "{message:?}");
            }
        }
    }
}

/// A service of each kind, `v` and `h` in namespace `n` below the zone `z`: short names, which a
/// fuzzer finds.
fn fleet() -> Arc<Snapshot> {
    let zone = WireName::parse("z").expect("a zone of one letter");
    let mut builder = SnapshotBuilder::new(Zones::new([zone], 5), 1);
    for listing in [Listing::Imports, Listing::Slices] {
        builder.apply(Change::ListBegins(listing));
    }
    builder.apply(Change::Import(&import("v", ImportType::ClusterSetIp)));
    builder.apply(Change::Import(&import("h", ImportType::Headless)));
    builder.apply(Change::Slice(&slice()));
    for listing in [Listing::Imports, Listing::Slices] {
        builder.apply(Change::ListEnds(listing));
    }
    builder.publish(1)
}

fn meta(name: &str) -> Meta {
    let namespace = Namespace::try_new("n").expect("a namespace of one letter");
    Meta::to_create(ServiceKey::new(namespace, ObjectName::new(name)))
}

fn import(name: &str, kind: ImportType) -> ImportObject {
    let port = Port {
        name: "p".into(),
        protocol: Protocol::Tcp,
        port: 80,
        app_protocol: None,
    };
    ImportObject {
        meta: meta(name),
        spec: Some(ImportSpec {
            kind,
            ports: vec![port],
            ips: vec![[10, 96, 0, 1].into(), [0xfd00, 0, 0, 0, 0, 0, 0, 1].into()],
            families: vec![IpFamily::V4, IpFamily::V6],
            affinity: Affinity::None,
            internal_traffic_policy: InternalTrafficPolicy::Cluster,
            traffic_distribution: None,
        }),
        status: ImportStatus::default(),
    }
}

/// Ninety hosts in cluster `c.d`, so that answers are cut over UDP.
fn slice() -> SliceObject {
    let mut meta = meta("s");
    let labels = [(LABEL_SERVICE_NAME, "h"), (LABEL_SOURCE_CLUSTER, "c.d")];
    meta.labels = Arc::new(labels.map(|(key, value)| (key.into(), value.into())).into());
    let endpoints = (0..90).map(|number: u8| SliceEndpoint {
        address: [10, 0, 0, number].into(),
        conditions: Conditions::READY,
        hostname: number
            .is_multiple_of(2)
            .then(|| format!("x{number}").into()),
        zone: None,
        node: None,
        target: None,
        hints: None,
    });
    SliceObject {
        meta,
        address_type: AddressType::Ip(IpFamily::V4),
        ports: Arc::new([SlicePort {
            name: "p".into(),
            protocol: Protocol::Tcp,
            port: 8_080,
            app_protocol: None,
        }]),
        endpoints: endpoints.collect(),
    }
}
