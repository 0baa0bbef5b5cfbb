//! What a cluster exports, as BEHAVIOUR §1 says.

use super::*;
use crate::endpoint::EndpointPort;
use crate::names::{Namespace, ObjectName};
use crate::object::{Meta, SliceEndpoint, SlicePort};
use crate::service::{Affinity, InternalTrafficPolicy, IpFamily, Port};

/// A ServiceExport with its Service and slices.
struct Given {
    export: ExportObject,
    service: Option<ServiceObject>,
    slices: BTreeMap<ObjectName, Arc<SliceObject>>,
    namespace_problem: Option<&'static str>,
    is_derived: bool,
}

fn key() -> ServiceKey {
    ServiceKey::new(
        Namespace::try_new("shop").unwrap(),
        ObjectName::new("search"),
    )
}

fn port(name: &str, protocol: Protocol, port: u16) -> Port {
    Port {
        name: name.into(),
        protocol,
        port,
        app_protocol: None,
    }
}

fn endpoint(address: &str) -> SliceEndpoint {
    SliceEndpoint {
        address: address.parse().unwrap(),
        conditions: Conditions::READY,
        hostname: None,
        zone: None,
        node: None,
        target: None,
        hints: None,
    }
}

impl Given {
    fn new() -> Self {
        let service = ServiceObject {
            meta: Meta::to_create(key()),
            kind: ServiceKind::ClusterIp,
            headless: false,
            cluster_ips: vec![[10, 96, 0, 1].into()],
            families: vec![IpFamily::V4],
            ports: vec![
                port("http", Protocol::Tcp, 80),
                port("dns", Protocol::Udp, 53),
            ],
            affinity: Affinity::None,
            internal_traffic_policy: InternalTrafficPolicy::Cluster,
            traffic_distribution: None,
            has_selector: true,
        };
        Self {
            export: ExportObject {
                meta: Meta::to_create(key()),
                labels: Labels::new(),
                annotations: Labels::new(),
                conditions: Vec::new(),
            },
            service: Some(service),
            slices: BTreeMap::new(),
            namespace_problem: None,
            is_derived: false,
        }
    }

    fn service(&mut self) -> &mut ServiceObject {
        self.service.as_mut().unwrap()
    }

    /// Adds a slice with these ports.
    fn slice(&mut self, ports: &[(&str, Protocol, u16)], endpoints: &[SliceEndpoint]) {
        let name = ObjectName::new(&format!("search-{}", self.slices.len()));
        let ports = ports.iter().map(|&(name, protocol, port)| SlicePort {
            name: name.into(),
            protocol,
            port,
            app_protocol: None,
        });
        let slice = SliceObject {
            meta: Meta::to_create(key().sibling(&name)),
            address_type: AddressType::Ip(IpFamily::V4),
            ports: ports.collect(),
            endpoints: endpoints.into(),
        };
        self.slices.insert(name, Arc::new(slice));
    }

    fn evaluate(&self) -> LocalExport {
        evaluate(ExportInput {
            service_cidrs: &[],
            member: None,
            joined: None,
            export: &self.export,
            namespace_problem: self.namespace_problem,
            service: self.service.as_ref(),
            is_derived: self.is_derived,
            slices: &self.slices,
        })
    }

    fn invalid(&self) -> ValidReason {
        match self.evaluate().verdict {
            Verdict::Invalid { reason, .. } => reason,
            other => panic!("it is exported: {other:?}"),
        }
    }

    fn exported(&self) -> Arc<OwnService> {
        match self.evaluate().verdict {
            Verdict::Exported(own) => own,
            other => panic!("it is not exported: {other:?}"),
        }
    }

    fn endpoints(&self) -> Vec<Endpoint> {
        self.exported().stated.endpoints.to_vec()
    }

    fn notes(&self) -> Vec<&'static str> {
        self.evaluate()
            .notes
            .into_iter()
            .map(|(reason, _)| reason)
            .collect()
    }
}

const HTTP: (&str, Protocol, u16) = ("http", Protocol::Tcp, 8080);
const DNS: (&str, Protocol, u16) = ("dns", Protocol::Udp, 5353);

#[test]
fn the_first_check_that_fails_is_shown() {
    let mut given = Given::new();
    given.is_derived = true;
    assert_eq!(given.invalid(), ValidReason::InvalidServiceType);
    given.is_derived = false;
    given.service().kind = ServiceKind::ExternalName;
    assert_eq!(given.invalid(), ValidReason::InvalidServiceType);
    given.service().meta.terminating = true;
    assert_eq!(given.invalid(), ValidReason::NoService);
    given.service = None;
    assert_eq!(given.invalid(), ValidReason::NoService);
    given.namespace_problem = Some("it is marked so");
    assert_eq!(given.invalid(), ValidReason::NamespaceNotGlobal);
}

#[test]
fn everything_but_node_and_target_ports_is_taken_from_the_service() {
    let mut given = Given::new();
    given.export.meta.created = Some(Timestamp::UNIX_EPOCH);
    given.export.meta.uid = "uid".into();
    let service = given.service();
    service.kind = ServiceKind::LoadBalancer;
    service.families = vec![IpFamily::V6, IpFamily::V4];
    service.affinity = Affinity::ClientIp { timeout_secs: 7 };
    service.internal_traffic_policy = InternalTrafficPolicy::Local;
    service.traffic_distribution = Some("PreferClose".into());
    let wanted = ExportRecord {
        created: Timestamp::UNIX_EPOCH,
        uid: "uid".into(),
        kind: ImportType::ClusterSetIp,
        ports: service.ports.clone(),
        families: vec![IpFamily::V6, IpFamily::V4],
        affinity: Affinity::ClientIp { timeout_secs: 7 },
        internal_traffic_policy: InternalTrafficPolicy::Local,
        traffic_distribution: Some("PreferClose".into()),
        labels: Labels::new(),
        annotations: Labels::new(),
    };
    assert_eq!(*given.exported().stated.export, wanted);
    given.service().headless = true;
    assert_eq!(given.exported().stated.export.kind, ImportType::Headless);
}

#[test]
fn keys_that_could_steer_a_controller_are_left_out_and_told() {
    let mut given = Given::new();
    let keys = [
        "app.kubernetes.io/name",
        "app.kubernetes.io/managed-by",
        "service.kubernetes.io/headless",
        "gateway.networking.k8s.io/x",
        "tombolo.dev/x",
        "example.org/x",
        "team",
    ];
    let all: Labels = keys.iter().map(|key| ((*key).into(), "x".into())).collect();
    (given.export.labels, given.export.annotations) = (all.clone(), all);
    let own = given.exported();
    let kept = ["app.kubernetes.io/name", "example.org/x", "team"];
    for taken in [&own.stated.export.labels, &own.stated.export.annotations] {
        assert_eq!(taken.keys().map(|key| &**key).collect::<Vec<_>>(), kept);
    }
    assert_eq!(given.notes(), ["ExportedKeyDropped"; 8]);
}

#[test]
fn what_every_consumer_would_refuse_is_not_published() {
    let refused = |change: fn(&mut Given)| {
        let mut given = Given::new();
        change(&mut given);
        matches!(given.evaluate().verdict, Verdict::Refused { .. })
    };
    assert!(refused(|g| g.service().ports.clear()));
    assert!(refused(|g| {
        g.export.labels.insert("team".into(), "no value!".into());
    }));
    assert!(refused(
        |g| g.export.meta.key.name = ObjectName::new("9lives")
    ));
    assert!(!refused(|g| {
        g.service().ports.clear();
        g.service().headless = true;
    }));
}

#[test]
fn ports_keep_the_numbers_of_their_own_slice() {
    let mut given = Given::new();
    given.slice(&[HTTP, DNS], &[endpoint("10.1.0.1")]);
    given.slice(&[("http", Protocol::Tcp, 9090)], &[endpoint("10.1.0.2")]);
    let numbers: Vec<Vec<u16>> = given
        .endpoints()
        .iter()
        .map(|e| e.ports.iter().map(|p| p.port).collect())
        .collect();
    assert_eq!(numbers, [vec![5353, 8080], vec![9090]]);
}

#[test]
fn only_ports_of_the_service_count_and_a_slice_without_any_is_left_out() {
    let mut given = Given::new();
    let stray = [("http", Protocol::Udp, 1), ("admin", Protocol::Tcp, 2)];
    given.slice(&stray, &[endpoint("10.1.0.1")]);
    given.slice(&[HTTP, stray[1]], &[endpoint("10.1.0.2")]);
    let endpoints = given.endpoints();
    assert_eq!(endpoints.len(), 1);
    let port = EndpointPort {
        name: "http".into(),
        protocol: Protocol::Tcp,
        port: 8080,
    };
    assert_eq!(*endpoints[0].ports, [port]);
}

#[test]
fn a_headless_service_without_ports_has_endpoints_without_ports() {
    let mut given = Given::new();
    given.service().headless = true;
    given.service().ports.clear();
    given.slice(&[HTTP], &[endpoint("10.1.0.1")]);
    let own = given.exported();
    let keys: Vec<EntryProtocol> = own.entries.keys().map(|(_, protocol)| *protocol).collect();
    assert_eq!(keys, [EntryProtocol::None]);
    assert!(own.stated.endpoints[0].ports.is_empty());
}

#[test]
fn equal_entries_of_several_slices_are_one() {
    let states = |ready, serving, terminating| SliceEndpoint {
        conditions: Conditions {
            ready,
            serving,
            terminating,
        },
        ..endpoint("10.1.0.1")
    };
    let mut given = Given::new();
    given.slice(&[HTTP], &[states(false, true, true)]);
    given.slice(&[HTTP], &[states(true, false, false)]);
    let endpoints = given.endpoints();
    assert_eq!(endpoints.len(), 1);
    assert_eq!(endpoints[0].conditions, Conditions::READY);
}

#[test]
fn two_pods_at_one_address_are_told_apart_by_ports_or_host_name() {
    let named = SliceEndpoint {
        hostname: Some("web-0".into()),
        ..endpoint("10.1.0.1")
    };
    let mut given = Given::new();
    given.slice(&[HTTP], &[endpoint("10.1.0.1"), named]);
    given.slice(&[("http", Protocol::Tcp, 9090)], &[endpoint("10.1.0.1")]);
    assert_eq!(given.endpoints().len(), 3);
}

#[test]
fn host_names_and_addresses_that_mean_nothing_elsewhere_are_left_out_and_told() {
    let mut given = Given::new();
    let bad = [
        "127.0.0.1",
        "169.254.0.1",
        "224.0.0.1",
        "0.0.0.0",
        "::ffff:10.0.0.1",
        "fe80::1",
    ];
    let mut endpoints: Vec<SliceEndpoint> = bad.iter().map(|a| endpoint(a)).collect();
    endpoints.push(endpoint("10.1.0.1"));
    given.slice(&[HTTP], &endpoints);
    assert_eq!(given.endpoints().len(), 1);
    assert_eq!(given.notes(), ["EndpointSkipped"; 6]);

    let mut given = Given::new();
    given.slice(&[HTTP], &[]);
    let slice = given.slices.values_mut().next().unwrap();
    Arc::make_mut(slice).address_type = AddressType::Fqdn;
    assert!(given.endpoints().is_empty());
    assert_eq!(given.notes(), ["EndpointSliceSkipped"]);
}

#[test]
fn node_and_target_stay_beside_their_endpoint() {
    let on = |address: &str, node: &str| SliceEndpoint {
        node: Some(node.into()),
        ..endpoint(address)
    };
    let mut given = Given::new();
    given.slice(&[HTTP], &[on("10.1.0.2", "b"), on("10.1.0.1", "a")]);
    let own = given.exported();
    let nodes: Vec<Option<&str>> = own.details.iter().map(|d| d.node.as_deref()).collect();
    assert_eq!(nodes, [Some("a"), Some("b")]);
}
