//! Random contents of objects and records, from small pools so that every row of the tables of
//! BEHAVIOUR §2 comes up often.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use proptest::collection::vec;
use proptest::prelude::*;
use tombolo_model::endpoint::Conditions;
use tombolo_model::names::ServiceKey;
use tombolo_model::object::{
    AddressType, ExportObject, Meta, ServiceKind, ServiceObject, SliceEndpoint, SliceObject,
    SlicePort, TargetRef,
};
use tombolo_model::record::Labels;
use tombolo_model::service::{Affinity, InternalTrafficPolicy, IpFamily, Port, Protocol};

use crate::ops::families;

/// Ports that clash in every way: same name, same number, same both, unnamed.
const PORTS: [(&str, Protocol, u16); 9] = [
    ("http", Protocol::Tcp, 80),
    ("http", Protocol::Tcp, 8080),
    ("http", Protocol::Udp, 80),
    ("web", Protocol::Tcp, 80),
    ("", Protocol::Tcp, 80),
    ("", Protocol::Udp, 53),
    ("dns", Protocol::Udp, 53),
    ("dns-tcp", Protocol::Tcp, 53),
    ("sig", Protocol::Sctp, 132),
];

/// What a Service is.
#[derive(Clone, Debug)]
pub struct ServiceShape {
    /// Its type; `None`: headless.
    pub kind: Option<ServiceKind>,
    /// Ports of the pool, each with an application protocol or none.
    pub ports: Vec<(usize, Option<u8>)>,
    /// The families.
    pub families: Vec<IpFamily>,
    /// The timeout of ClientIP affinity, if that is wanted.
    pub affinity: Option<u32>,
    /// Whether the policy is Local.
    pub is_local: bool,
    /// A traffic distribution of the pool.
    pub distribution: Option<u8>,
}

impl ServiceShape {
    /// Any.
    pub fn any() -> impl Strategy<Value = Self> {
        let kind = prop_oneof![
            6 => Just(Some(ServiceKind::ClusterIp)),
            3 => Just(None),
            1 => Just(Some(ServiceKind::NodePort)),
            1 => Just(Some(ServiceKind::ExternalName)),
        ];
        let port = (
            prop_oneof![3 => Just(0_usize), 5 => 0..PORTS.len()],
            prop_oneof![4 => Just(None), 1 => (0..2_u8).prop_map(Some)],
        );
        (
            kind,
            vec(port, 0..4),
            families(),
            prop_oneof![3 => Just(None), 1 => Just(Some(10_800)), 1 => Just(Some(600))],
            prop_oneof![4 => Just(false), 1 => Just(true)],
            prop_oneof![3 => Just(None), 2 => (0..4_u8).prop_map(Some)],
        )
            .prop_map(
                |(kind, ports, families, affinity, is_local, distribution)| Self {
                    kind,
                    ports,
                    families,
                    affinity,
                    is_local,
                    distribution,
                },
            )
    }

    fn ports(&self) -> Vec<Port> {
        let (mut names, mut numbers) = (BTreeSet::new(), BTreeSet::new());
        let mut ports = Vec::new();
        for (at, app_protocol) in &self.ports {
            let (name, protocol, port) = PORTS[*at];
            if names.insert(name) && numbers.insert((protocol, port)) {
                ports.push(Port {
                    name: name.into(),
                    protocol,
                    port,
                    app_protocol: app_protocol
                        .map(|n| ["http", "kubernetes.io/h2c"][n as usize].into()),
                });
            }
        }
        if ports.len() > 1 {
            ports.retain(|port| !port.name.is_empty());
        }
        if ports.is_empty() && self.kind.is_some() {
            ports.push(Port {
                name: "http".into(),
                protocol: Protocol::Tcp,
                port: 80,
                app_protocol: None,
            });
        }
        ports
    }

    /// The Service of this shape.
    pub fn object(&self, key: ServiceKey) -> ServiceObject {
        ServiceObject {
            meta: Meta::to_create(key),
            kind: self.kind.unwrap_or(ServiceKind::ClusterIp),
            headless: self.kind.is_none(),
            cluster_ips: Vec::new(),
            families: self.families.clone(),
            ports: self.ports(),
            affinity: self
                .affinity
                .map_or(Affinity::None, |timeout_secs| Affinity::ClientIp {
                    timeout_secs,
                }),
            internal_traffic_policy: if self.is_local {
                InternalTrafficPolicy::Local
            } else {
                InternalTrafficPolicy::Cluster
            },
            traffic_distribution: self.distribution.map(|n| {
                [
                    "PreferClose",
                    "PreferSameNode",
                    "PreferSameZone",
                    "PreferMoon",
                ][n as usize]
                    .into()
            }),
            has_selector: true,
        }
    }
}

/// What a ServiceExport says.
#[derive(Clone, Debug)]
pub struct ExportShape {
    /// Its age, with few values so that they meet.
    pub created: u8,
    /// Exported labels of the pool.
    pub labels: Vec<u8>,
    /// Exported annotations of the pool.
    pub annotations: Vec<u8>,
}

/// Labels and annotations: harmless, allowed, steering, not allowed by Kubernetes.
const LABELS: [(&str, &str); 6] = [
    ("team", "shop"),
    ("team", "web"),
    ("app.kubernetes.io/name", "checkout"),
    ("app.kubernetes.io/managed-by", "helm"),
    ("service.kubernetes.io/service-proxy-name", "other"),
    ("tombolo.dev/global", "true"),
];

impl ExportShape {
    /// Any.
    pub fn any() -> impl Strategy<Value = Self> {
        let some = || prop_oneof![3 => Just(Vec::new()), 2 => vec(0..6_u8, 0..3)];
        let broken = prop_oneof![30 => Just(None), 1 => Just(Some(6_u8))];
        (0..3_u8, some(), some(), broken).prop_map(|(created, mut labels, annotations, broken)| {
            labels.extend(broken);
            Self {
                created,
                labels,
                annotations,
            }
        })
    }

    /// One that exports no labels.
    pub const fn bare() -> Self {
        Self {
            created: 0,
            labels: Vec::new(),
            annotations: Vec::new(),
        }
    }

    fn pick(numbers: &[u8]) -> Labels {
        numbers
            .iter()
            .map(|n| {
                LABELS
                    .get(*n as usize)
                    .copied()
                    .unwrap_or(("bad", "no value!"))
            })
            .map(|(key, value)| (key.into(), value.into()))
            .collect()
    }

    /// The ServiceExport of this shape.
    pub fn object(&self, key: ServiceKey) -> ExportObject {
        let mut meta = Meta::to_create(key);
        meta.created = Some(created(self.created));
        ExportObject {
            meta,
            labels: Self::pick(&self.labels),
            annotations: Self::pick(&self.annotations),
            conditions: Vec::new(),
        }
    }
}

/// A time on the scale of the ages of exports.
pub(crate) fn created(age: u8) -> Timestamp {
    let age = SignedDuration::from_secs(1_700_000_000 + i64::from(age) * 10);
    Timestamp::UNIX_EPOCH + age
}

/// One endpoint of a slice.
#[derive(Clone, Debug)]
pub struct EndpointShape {
    address: u8,
    conditions: u8,
    hostname: u8,
    zone: u8,
}

/// What an EndpointSlice holds.
#[derive(Clone, Debug)]
pub struct SliceShape {
    /// The family; `None`: host names.
    pub family: Option<IpFamily>,
    /// Which of the Service's ports it has, as bits; 8 adds one that the Service does not have.
    pub ports: u8,
    /// What is added to the port numbers.
    pub shift: u16,
    /// Whose it is: 0 the cluster's own, else a foreign manager's or label's.
    pub foreign: u8,
    /// Endpoints, some of them at addresses that other clusters have too.
    pub endpoints: Vec<EndpointShape>,
    /// Ready endpoints beside them.
    pub bulk: u8,
}

impl SliceShape {
    /// Any.
    pub fn any() -> impl Strategy<Value = Self> {
        let endpoint = (0..7_u8, 0..5_u8, 0..6_u8, 0..4_u8).prop_map(
            |(address, conditions, hostname, zone)| EndpointShape {
                address,
                conditions,
                hostname,
                zone,
            },
        );
        (
            prop_oneof![
                6 => Just(Some(IpFamily::V4)),
                4 => Just(Some(IpFamily::V6)),
                1 => Just(None),
            ],
            prop_oneof![5 => Just(7_u8), 4 => 0..16_u8],
            prop_oneof![3 => Just(8000_u16), 1 => Just(9000)],
            prop_oneof![12 => Just(0_u8), 1 => 1..4_u8],
            vec(endpoint, 0..5),
            prop_oneof![8 => Just(0_u8), 1 => 1..130_u8],
        )
            .prop_map(|(family, ports, shift, foreign, endpoints, bulk)| Self {
                family,
                ports,
                shift,
                foreign,
                endpoints,
                bulk,
            })
    }

    /// The slice of this shape, for a Service with these ports in the cluster of this number.
    pub fn object(&self, key: ServiceKey, of: &str, ports: &[Port], cluster: u8) -> SliceObject {
        let mut meta = Meta::to_create(key);
        let labels = Arc::make_mut(&mut meta.labels);
        let manager = match self.foreign {
            1 => "lighthouse-agent.submariner.io",
            2 => "mesh.example.org",
            _ => "endpointslice-controller.k8s.io",
        };
        let mut label = |key: &str, value: &str| labels.insert(key.into(), value.into());
        label("endpointslice.kubernetes.io/managed-by", manager);
        label("kubernetes.io/service-name", of);
        if self.foreign == 3 {
            label("multicluster.kubernetes.io/source-cluster", "elsewhere");
        }
        SliceObject {
            meta,
            address_type: self.family.map_or(AddressType::Fqdn, AddressType::Ip),
            ports: self.slice_ports(ports).into(),
            endpoints: self.endpoints(cluster).into(),
        }
    }

    fn slice_ports(&self, ports: &[Port]) -> Vec<SlicePort> {
        let has = |at: usize| self.ports & (1 << at) != 0;
        let mut all: Vec<SlicePort> = ports
            .iter()
            .enumerate()
            .filter(|(at, _)| has(*at))
            .map(|(_, port)| SlicePort {
                name: Arc::clone(&port.name),
                protocol: port.protocol,
                port: port.port + self.shift,
                app_protocol: port.app_protocol.clone(),
            })
            .collect();
        if has(3) {
            all.push(SlicePort {
                name: "stray".into(),
                protocol: Protocol::Tcp,
                port: 1,
                app_protocol: None,
            });
        }
        all
    }

    /// The endpoints; none where the addresses are host names.
    pub fn endpoints(&self, cluster: u8) -> Vec<SliceEndpoint> {
        let Some(family) = self.family else {
            return Vec::new();
        };
        let mut seen = BTreeSet::new();
        let few = self.endpoints.iter().filter_map(|shape| {
            let is_new = seen.insert((shape.address, shape.hostname));
            is_new.then(|| shape.endpoint(family))
        });
        let mut all: Vec<SliceEndpoint> = few.collect();
        all.extend((0..self.bulk).map(|host| plain(address(family, 10 + cluster, host))));
        all
    }
}

impl EndpointShape {
    fn endpoint(&self, family: IpFamily) -> SliceEndpoint {
        let bad: IpAddr = match family {
            IpFamily::V4 => Ipv4Addr::LOCALHOST.into(),
            IpFamily::V6 => Ipv6Addr::LOCALHOST.into(),
        };
        let address = if self.address == 6 {
            bad
        } else {
            address(family, 9, self.address)
        };
        let conditions = |ready, serving, terminating| Conditions {
            ready,
            serving,
            terminating,
        };
        SliceEndpoint {
            conditions: match self.conditions {
                0..=2 => Conditions::READY,
                3 => conditions(false, true, true),
                _ => conditions(false, false, false),
            },
            hostname: [None, None, None, None, Some("web-0"), Some("web-1")]
                [self.hostname as usize]
                .map(Into::into),
            zone: [None, None, Some("zone-a"), Some("zone-b")][self.zone as usize].map(Into::into),
            ..plain(address)
        }
    }
}

/// An endpoint whose node and target follow from its address.
fn plain(address: IpAddr) -> SliceEndpoint {
    let last = match address {
        IpAddr::V4(v4) => v4.octets()[3],
        IpAddr::V6(v6) => v6.octets()[15],
    };
    let target = TargetRef {
        kind: "Pod".into(),
        namespace: "shop".into(),
        name: format!("pod-{last}").into(),
        uid: format!("uid-of-pod-{last}").into(),
    };
    SliceEndpoint {
        address,
        conditions: Conditions::READY,
        hostname: None,
        zone: None,
        node: (last % 3 != 0).then(|| format!("node-{}", last % 3).into()),
        target: last.is_multiple_of(2).then(|| Arc::new(target)),
        hints: None,
    }
}

fn address(family: IpFamily, net: u8, host: u8) -> IpAddr {
    match family {
        IpFamily::V4 => Ipv4Addr::new(10, net, 0, host + 1).into(),
        IpFamily::V6 => {
            Ipv6Addr::new(0xfd00, u16::from(net), 0, 0, 0, 0, 0, u16::from(host) + 1).into()
        }
    }
}
