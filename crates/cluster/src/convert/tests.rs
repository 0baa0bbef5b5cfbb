//! Objects there and back, and what is refused with which words.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use mcs_api::v1beta1;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use serde_json::{Value, json};
use tombolo_model::endpoint::Conditions;
use tombolo_model::names::{Namespace, ObjectName};
use tombolo_model::object::{
    AddressType, Condition, ExportObject, Hints, ImportObject, ImportSpec, ImportStatus, Meta,
    OwnerRef, ServiceKind, ServiceObject, SliceEndpoint, SliceObject, SlicePort, TargetRef,
};
use tombolo_model::own::{LABEL_MANAGED_BY, LABEL_SLICE_MANAGED_BY, MANAGED_BY, SLICE_MANAGED_BY};
use tombolo_model::record::Labels;
use tombolo_model::service::{
    Affinity, ImportType, InternalTrafficPolicy, IpFamily, Port, Protocol,
};

use super::*;

const V4: IpFamily = IpFamily::V4;
const V6: IpFamily = IpFamily::V6;

#[expect(
    clippy::needless_pass_by_value,
    reason = "a call reads like a manifest"
)]
fn service_on(families: &[IpFamily], spec: Value) -> Result<ServiceObject, Rejected> {
    let json = json!({"metadata": {"name": "web", "namespace": "shop"}, "spec": spec});
    let object: Service = serde_json::from_value(json).unwrap();
    observe_service(&object, families, &mut Strings::default())
}

fn service(spec: Value) -> ServiceObject {
    service_on(&[V4], spec).unwrap()
}

fn slice(mut json: Value) -> Result<SliceObject, Rejected> {
    json["metadata"] = json!({"name": "web-1", "namespace": "shop"});
    let object: EndpointSlice = serde_json::from_value(json).unwrap();
    observe_slice(&object, &mut Strings::default())
}

#[test]
fn a_service_gets_the_defaults_of_an_api_server() {
    let short = service(json!({"sessionAffinity": "ClientIP", "ports": [{"port": 80}]}));
    let long = service(json!({
        "type": "ClusterIP", "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
        "sessionAffinity": "ClientIP",
        "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10800}},
        "internalTrafficPolicy": "Cluster", "trafficDistribution": "",
        "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80, "appProtocol": ""}],
    }));
    assert_eq!(short, long);
    assert_eq!(short.families, [V4]);
}

#[test]
fn families_are_those_given_or_of_the_addresses_or_of_the_cluster() {
    let families = |cluster: &[IpFamily], spec| service_on(cluster, spec).unwrap().families;
    assert_eq!(families(&[V6, V4], json!({})), [V6]);
    assert_eq!(families(&[V4], json!({"clusterIP": "fd00::1"})), [V6]);
    assert_eq!(
        families(&[V4, V6], json!({"ipFamilyPolicy": "PreferDualStack"})),
        [V4, V6]
    );
    assert_eq!(
        families(&[V4], json!({"ipFamilyPolicy": "PreferDualStack"})),
        [V4]
    );
    assert_eq!(families(&[V4, V6], json!({"ipFamilies": ["IPv6"]})), [V6]);
    // Headless without a selector: both, whatever the cluster has (its API server does so).
    assert_eq!(families(&[V6], json!({"clusterIP": "None"})), [V6, V4]);
    let selecting = json!({"clusterIP": "None", "selector": {"app": "web"}});
    assert_eq!(families(&[V6], selecting), [V6]);
    assert_eq!(
        families(
            &[V4],
            json!({"type": "ExternalName", "externalName": "x.y"})
        ),
        []
    );
}

#[test]
fn headless_is_a_cluster_ip_of_none_in_either_field() {
    for spec in [
        json!({"clusterIP": "None"}),
        json!({"clusterIPs": ["None"]}),
    ] {
        let service = service(spec);
        assert!(service.headless && service.cluster_ips.is_empty());
    }
    assert!(!service(json!({"clusterIP": ""})).headless);
    assert!(!service(json!({"type": "ExternalName", "clusterIP": "None"})).headless);
}

#[test]
fn what_the_model_cannot_hold_is_rejected_with_the_field() {
    let cases = [
        (json!({"type": "Magic"}), "spec.type is \"Magic\""),
        (
            json!({"clusterIP": "10.0.0"}),
            "spec.clusterIPs[0] is \"10.0.0\"",
        ),
        (
            json!({"clusterIPs": ["10.0.0.1", "10.0.0.2"]}),
            "spec.clusterIPs[1]",
        ),
        (
            json!({"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.2"]}),
            "must be equal",
        ),
        (
            json!({"clusterIPs": ["10.0.0.1", "fd00::1", "fd00::2"]}),
            "more than two",
        ),
        (
            json!({"clusterIP": "fd00::1", "ipFamilies": ["IPv4"]}),
            "spec.clusterIPs[0]",
        ),
        (json!({"ipFamilies": ["IPv5"]}), "spec.ipFamilies[0]"),
        (
            json!({"ipFamilies": ["IPv4", "IPv4"]}),
            "spec.ipFamilies[1]",
        ),
        (
            json!({"ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "SingleStack"}),
            "spec.ipFamilies has two families",
        ),
        (json!({"ipFamilyPolicy": "Some"}), "spec.ipFamilyPolicy"),
        (
            json!({"ports": [{"port": 80}, {"port": 0}]}),
            "spec.ports[1].port is 0",
        ),
        (
            json!({"ports": [{"port": 65536}]}),
            "spec.ports[0].port is 65536",
        ),
        (
            json!({"ports": [{"port": 1, "protocol": "tcp"}]}),
            "spec.ports[0].protocol",
        ),
        (json!({"sessionAffinity": "Cookie"}), "spec.sessionAffinity"),
        (
            json!({"sessionAffinity": "ClientIP",
                "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 86401}}}),
            "timeoutSeconds is 86401",
        ),
        (
            json!({"internalTrafficPolicy": "Node"}),
            "spec.internalTrafficPolicy",
        ),
    ];
    for (spec, expected) in cases {
        let text = service_on(&[V4, V6], spec).unwrap_err().to_string();
        assert!(text.starts_with("Service shop/web: "), "{text}");
        assert!(text.contains(expected), "{text} lacks {expected}");
    }
}

#[test]
fn unset_conditions_count_as_ready_and_serving_follows_ready() {
    let endpoint = |conditions: Value| {
        let endpoints = json!([{"addresses": ["10.0.0.1"], "conditions": conditions}]);
        let slice = slice(json!({"addressType": "IPv4", "endpoints": endpoints}));
        let Conditions {
            ready,
            serving,
            terminating,
        } = slice.unwrap().endpoints[0].conditions;
        (ready, serving, terminating)
    };
    assert_eq!(endpoint(Value::Null), (true, true, false));
    assert_eq!(endpoint(json!({})), (true, true, false));
    assert_eq!(endpoint(json!({"ready": false})), (false, false, false));
    let draining = json!({"ready": false, "serving": true, "terminating": true});
    assert_eq!(endpoint(draining), (false, true, true));
}

#[test]
fn a_slice_keeps_first_addresses_and_numbered_ports() {
    let slice = slice(json!({
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080}, {"name": "any"}, {"port": 53, "protocol": "UDP"}],
        "endpoints": [
            {"addresses": ["10.0.0.1", "10.0.0.2"], "hostname": "", "zone": "a",
             "hints": {"forZones": [{"name": "a"}]}},
            {"addresses": ["10.0.0.3"], "zone": "a", "hints": {"forZones": [{"name": "a"}]}},
        ],
    }))
    .unwrap();
    let ports: Vec<_> = slice
        .ports
        .iter()
        .map(|p| (&*p.name, p.protocol, p.port))
        .collect();
    assert_eq!(
        ports,
        [("http", Protocol::Tcp, 8080), ("", Protocol::Udp, 53)]
    );
    let addresses: Vec<_> = slice
        .endpoints
        .iter()
        .map(|e| e.address.to_string())
        .collect();
    assert_eq!(addresses, ["10.0.0.1", "10.0.0.3"]);
    let [a, b] = &*slice.endpoints else {
        panic!("two")
    };
    assert_eq!(a.hostname, None);
    assert!(Arc::ptr_eq(
        a.zone.as_ref().unwrap(),
        b.zone.as_ref().unwrap()
    ));
    assert!(Arc::ptr_eq(
        a.hints.as_ref().unwrap(),
        b.hints.as_ref().unwrap()
    ));
}

#[test]
fn a_slice_of_host_names_is_kept_without_endpoints() {
    let slice = slice(json!({"addressType": "FQDN", "endpoints": [{"addresses": ["a.b"]}]}));
    let slice = slice.unwrap();
    assert_eq!(slice.address_type, AddressType::Fqdn);
    assert!(slice.endpoints.is_empty());
}

#[test]
fn slices_with_addresses_that_are_none_are_rejected() {
    let endpoints = |addresses: Value| {
        let endpoints = json!([{"addresses": ["10.0.0.1"]}, {"addresses": addresses}]);
        slice(json!({"addressType": "IPv4", "endpoints": endpoints}))
    };
    for bad in [
        json!(["fd00::1"]),
        json!(["10.0.0.256"]),
        json!(["host"]),
        json!([]),
    ] {
        let text = endpoints(bad).unwrap_err().to_string();
        assert!(
            text.starts_with("EndpointSlice shop/web-1: endpoints[1].addresses"),
            "{text}"
        );
    }
    assert!(slice(json!({"addressType": "IPX", "endpoints": []})).is_err());
}

#[test]
fn annotations_are_kept_only_where_something_reads_them() {
    let annotations = |kind: &str, labels: Value| {
        let json = json!({"metadata": {"name": "a", "namespace": "b", "labels": labels,
            "annotations": {"k": "v"}}, "addressType": "IPv4", "endpoints": []});
        let strings = &mut Strings::default();
        let meta = match kind {
            "Service" => {
                let object = serde_json::from_value(json).unwrap();
                observe_service(&object, &[V4], strings).unwrap().meta
            }
            _ => {
                observe_slice(&serde_json::from_value(json).unwrap(), strings)
                    .unwrap()
                    .meta
            }
        };
        meta.annotations.len()
    };
    assert_eq!(annotations("Service", json!({})), 0);
    assert_eq!(
        annotations("Service", json!({LABEL_MANAGED_BY: MANAGED_BY})),
        1
    );
    assert_eq!(annotations("Slice", json!({LABEL_MANAGED_BY: "me"})), 0);
    assert_eq!(
        annotations("Slice", json!({LABEL_SLICE_MANAGED_BY: SLICE_MANAGED_BY})),
        1
    );
}

#[test]
fn an_import_that_cannot_be_read_is_there_without_a_spec() {
    let import = |spec: Value| {
        let json = json!({"metadata": {"name": "a", "namespace": "b", "uid": "u"}, "spec": spec,
            "status": {"clusters": [{"cluster": "east"}]}});
        observe_import_json(json, &mut Strings::default()).unwrap()
    };
    let bad = [
        json!({"ports": [], "type": "Anycast"}),
        json!({"ports": [{"port": 70000}], "type": "Headless"}),
        json!({"ports": [], "type": "ClusterSetIP", "ips": ["nonsense"]}),
        json!({"type": "ClusterSetIP", "ports": [{"port": "http"}]}),
    ];
    for spec in bad {
        let (object, problem) = import(spec);
        assert_eq!(object.spec, None);
        assert_eq!(&*object.meta.uid, "u");
        assert_eq!(object.status.clusters, ["east".into()]);
        assert!(
            problem
                .unwrap()
                .to_string()
                .starts_with("ServiceImport b/a: spec.")
        );
    }
    let (object, problem) = import(json!({"ports": [], "type": "Headless"}));
    assert_eq!(object.spec.unwrap().kind, ImportType::Headless);
    assert_eq!(problem, None);
}

// === Round trips ===

fn text() -> impl Strategy<Value = Arc<str>> {
    "[a-z][a-z0-9]{0,8}".prop_map(Arc::from)
}

fn labels() -> impl Strategy<Value = Labels> {
    btree_map(text(), text(), 0..3)
}

fn time() -> impl Strategy<Value = Timestamp> {
    (0_i64..4_000_000_000).prop_map(|secs| Timestamp::from_second(secs).unwrap())
}

/// Metadata of an object of Tombolo, whose annotations are kept.
fn meta() -> impl Strategy<Value = Meta> {
    let owner = (text(), text(), text()).prop_map(|(kind, name, uid)| OwnerRef {
        kind,
        name: ObjectName::new(&name),
        uid,
    });
    let head = (
        text(),
        text(),
        text(),
        0_i64..5,
        proptest::option::of(time()),
    );
    (head, labels(), labels(), vec(owner, 0..2)).prop_map(|(head, labels, annotations, owners)| {
        let (namespace, name, uid, generation, created) = head;
        let mut labels = labels;
        labels.insert(LABEL_MANAGED_BY.into(), MANAGED_BY.into());
        Meta {
            key: ServiceKey::new(
                Namespace::try_new(&namespace).unwrap(),
                ObjectName::new(&name),
            ),
            resource_version: Arc::clone(&uid),
            uid,
            generation,
            created,
            terminating: false,
            labels: Arc::new(labels),
            annotations: Arc::new(annotations),
            owners,
        }
    })
}

fn protocol() -> impl Strategy<Value = Protocol> {
    prop_oneof![
        Just(Protocol::Tcp),
        Just(Protocol::Udp),
        Just(Protocol::Sctp)
    ]
}

fn port() -> impl Strategy<Value = Port> {
    let app_protocol = proptest::option::of(text());
    (text(), protocol(), 1_u16.., app_protocol).prop_map(|(name, protocol, port, app_protocol)| {
        Port {
            name,
            protocol,
            port,
            app_protocol,
        }
    })
}

fn affinity() -> impl Strategy<Value = Affinity> {
    let client_ip = (1_u32..=86_400).prop_map(|timeout_secs| Affinity::ClientIp { timeout_secs });
    prop_oneof![Just(Affinity::None), client_ip]
}

fn policy() -> impl Strategy<Value = InternalTrafficPolicy> {
    prop_oneof![
        Just(InternalTrafficPolicy::Cluster),
        Just(InternalTrafficPolicy::Local)
    ]
}

fn families() -> impl Strategy<Value = Vec<IpFamily>> {
    prop_oneof![
        Just(vec![V4]),
        Just(vec![V6]),
        Just(vec![V4, V6]),
        Just(vec![V6, V4])
    ]
}

fn ip(family: IpFamily, seed: u32) -> std::net::IpAddr {
    match family {
        V4 => std::net::Ipv4Addr::from_bits(seed).into(),
        V6 => std::net::Ipv6Addr::from_bits(0x100_u128 << 112 | u128::from(seed)).into(),
    }
}

fn service_object() -> impl Strategy<Value = ServiceObject> {
    let head = (meta(), any::<bool>(), families(), any::<u32>());
    let tail = (
        vec(port(), 0..4),
        affinity(),
        policy(),
        proptest::option::of(text()),
    );
    (head, tail).prop_map(|((meta, headless, families, seed), tail)| {
        let (ports, affinity, internal_traffic_policy, traffic_distribution) = tail;
        let addresses = families.iter().filter(|_| !headless);
        ServiceObject {
            meta,
            kind: ServiceKind::ClusterIp,
            headless,
            cluster_ips: addresses.map(|family| ip(*family, seed)).collect(),
            families,
            ports,
            affinity,
            internal_traffic_policy,
            traffic_distribution,
            has_selector: false,
        }
    })
}

fn slice_endpoint(family: IpFamily) -> impl Strategy<Value = SliceEndpoint> {
    let some = || proptest::option::of(text());
    let conditions = (any::<bool>(), any::<bool>(), any::<bool>());
    let target = proptest::option::of((text(), text()));
    let names = (some(), some(), some(), some());
    (any::<u32>(), conditions, names, target).prop_map(move |(seed, conditions, names, target)| {
        let (hostname, zone, node, hint) = names;
        let (ready, serving, terminating) = conditions;
        let target = target.map(|(name, uid)| TargetRef {
            kind: "Pod".into(),
            namespace: "shop".into(),
            name,
            uid,
        });
        SliceEndpoint {
            address: ip(family, seed),
            conditions: Conditions {
                ready,
                serving,
                terminating,
            },
            hostname,
            zone,
            node: node.clone(),
            target: target.map(Arc::new),
            hints: hint.map(|zone| {
                Arc::new(Hints {
                    zones: vec![zone],
                    nodes: node.into_iter().collect(),
                })
            }),
        }
    })
}

fn slice_object() -> impl Strategy<Value = SliceObject> {
    let family = prop_oneof![Just(V4), Just(V6)];
    let body = family.prop_flat_map(|f| (Just(f), vec(slice_endpoint(f), 0..4)));
    (meta(), vec(port(), 0..3), body).prop_map(|(meta, ports, (family, endpoints))| SliceObject {
        meta,
        address_type: AddressType::Ip(family),
        ports: ports
            .into_iter()
            .map(|port| SlicePort {
                name: port.name,
                protocol: port.protocol,
                port: port.port,
                app_protocol: port.app_protocol,
            })
            .collect(),
        endpoints: endpoints.into(),
    })
}

fn conditions() -> impl Strategy<Value = Vec<Condition>> {
    let generation = proptest::option::of(0_i64..9);
    let condition = (text(), text(), text(), generation, time()).prop_map(
        |(kind, reason, message, observed_generation, last_transition)| Condition {
            kind,
            status: "True".into(),
            reason,
            message,
            observed_generation,
            last_transition,
        },
    );
    vec(condition, 0..3)
}

fn export_object() -> impl Strategy<Value = ExportObject> {
    (meta(), labels(), labels(), conditions()).prop_map(
        |(meta, labels, annotations, conditions)| ExportObject {
            meta,
            labels,
            annotations,
            conditions,
        },
    )
}

fn import_object() -> impl Strategy<Value = ImportObject> {
    let status = (
        vec(text(), 0..3),
        proptest::option::of(any::<bool>()),
        conditions(),
    );
    (service_object(), status).prop_map(|(service, (clusters, slices_present, conditions))| {
        let kind = if service.headless {
            ImportType::Headless
        } else {
            ImportType::ClusterSetIp
        };
        ImportObject {
            meta: service.meta,
            spec: Some(ImportSpec {
                kind,
                ports: service.ports,
                ips: service.cluster_ips,
                families: service.families,
                affinity: service.affinity,
                internal_traffic_policy: service.internal_traffic_policy,
                traffic_distribution: service.traffic_distribution,
            }),
            status: ImportStatus {
                clusters,
                slices_present,
                conditions,
            },
        }
    })
}

/// Through the JSON that an API server would see.
fn via_json<T: serde::Serialize, U: serde::de::DeserializeOwned>(object: &T) -> U {
    serde_json::from_value(serde_json::to_value(object).unwrap()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn services_come_back_as_they_went(object in service_object()) {
        let written: Service = via_json(&write_service(&object));
        let strings = &mut Strings::default();
        prop_assert_eq!(observe_service(&written, &[V4, V6], strings), Ok(object));
    }

    #[test]
    fn slices_come_back_as_they_went(object in slice_object()) {
        let written: EndpointSlice = via_json(&write_slice(&object));
        prop_assert_eq!(observe_slice(&written, &mut Strings::default()), Ok(object));
    }

    #[test]
    fn exports_come_back_as_they_went_in_both_versions(object in export_object()) {
        let strings = &mut Strings::default();
        let beta: v1beta1::ServiceExport = via_json(&write_export(&object));
        prop_assert_eq!(observe_export(&beta, strings), Ok(object.clone()));
        let alpha = mcs_api::v1alpha1::ServiceExport::from(beta);
        let alpha: mcs_api::v1alpha1::ServiceExport = via_json(&alpha);
        prop_assert_eq!(observe_export(&alpha.into(), strings), Ok(object));
    }

    #[test]
    fn imports_come_back_as_they_went(object in import_object()) {
        let json = serde_json::to_value(write_import(&object)).unwrap();
        let strings = &mut Strings::default();
        prop_assert_eq!(observe_import_json(json, strings), Ok((object, None)));
    }
}
