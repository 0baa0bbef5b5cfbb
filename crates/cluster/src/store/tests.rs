//! What an API server would answer: versions, addresses, refusals.

use std::net::IpAddr;

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::json;
use tombolo_model::endpoint::Conditions;
use tombolo_model::io::{Effect, Outcome, Refusal, RefusalKind};
use tombolo_model::object::{
    AddressType, Condition, ImportObject, ImportStatus, ServiceKind, ServiceObject, SliceEndpoint,
    SliceObject,
};
use tombolo_model::service::{Affinity, InternalTrafficPolicy, Port, Protocol};

use super::*;
use crate::manifest::DeclaredService;

const V4: IpFamily = IpFamily::V4;
const V6: IpFamily = IpFamily::V6;
const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn key(name: &str) -> ServiceKey {
    ServiceKey::new(Namespace::try_new("shop").unwrap(), ObjectName::new(name))
}

fn reference(kind: Kind, name: &str) -> ObjectRef {
    ObjectRef {
        kind,
        key: key(name),
    }
}

fn store(families: &[IpFamily]) -> Store {
    let cluster = ClusterName::try_new("east").unwrap();
    let mut store = Store::new(cluster, families.to_vec(), &VipRanges::default());
    store.apply(&namespace(false), NOW).unwrap();
    store
}

fn namespace(terminating: bool) -> Declared {
    Declared::Namespace(Arc::new(tombolo_model::object::NamespaceObject {
        name: Namespace::try_new("shop").unwrap(),
        labels: Arc::default(),
        global: tombolo_model::object::GlobalMark::Absent,
        terminating,
        resource_version: "".into(),
    }))
}

/// A user's Service.
#[expect(
    clippy::needless_pass_by_value,
    reason = "a call reads like a manifest"
)]
fn declared(name: &str, spec: Value) -> Declared {
    let json = json!({"metadata": {"name": name, "namespace": "shop"}, "spec": spec});
    Declared::Service(Arc::new(DeclaredService {
        key: key(name),
        object: serde_json::from_value(json).unwrap(),
    }))
}

/// A Service as the engine creates it.
fn derived(name: &str, families: &[IpFamily]) -> ServiceObject {
    ServiceObject {
        meta: Meta::to_create(key(name)),
        kind: ServiceKind::ClusterIp,
        headless: false,
        cluster_ips: vec![],
        families: families.to_vec(),
        ports: vec![port("http", 80)],
        affinity: Affinity::None,
        internal_traffic_policy: InternalTrafficPolicy::Cluster,
        traffic_distribution: None,
        has_selector: false,
    }
}

fn port(name: &str, port: u16) -> Port {
    Port {
        name: name.into(),
        protocol: Protocol::Tcp,
        port,
        app_protocol: None,
    }
}

fn create(store: &mut Store, service: ServiceObject) -> Outcome {
    let effect = Effect::Create(Object::Service(Arc::new(service)));
    store.execute(&effect, NOW).unwrap().outcome
}

fn update(store: &mut Store, old: &ServiceObject, new: ServiceObject) -> Outcome {
    let (old, new) = (Arc::new(old.clone()), Arc::new(new));
    let effect = Effect::Update {
        old: Object::Service(old),
        new: Object::Service(new),
    };
    store.execute(&effect, NOW).unwrap().outcome
}

fn written(outcome: Outcome) -> ServiceObject {
    match outcome {
        Outcome::Written(Object::Service(service)) => (*service).clone(),
        other => panic!("not written: {other:?}"),
    }
}

fn refused(outcome: Outcome) -> RefusalKind {
    match outcome {
        Outcome::Refused(Refusal { kind, .. }) => kind,
        other => panic!("not refused: {other:?}"),
    }
}

fn import() -> ImportObject {
    ImportObject {
        meta: Meta::to_create(key("web")),
        spec: None,
        status: ImportStatus::default(),
    }
}

#[test]
fn a_created_object_gets_what_only_a_server_gives() {
    let mut store = store(&[V4]);
    let reply = store.execute(
        &Effect::Create(Object::ServiceImport(Arc::new(import()))),
        NOW,
    );
    let reply = reply.unwrap();
    let Outcome::Written(object) = &reply.outcome else {
        panic!("{reply:?}")
    };
    let meta = object.meta().unwrap();
    assert_eq!(
        (meta.generation, meta.created, &*meta.resource_version),
        (1, Some(NOW), "2")
    );
    assert_eq!(&*meta.uid, "010a27c5-ebe0-836b-93ca-ac3d414b823e");
    assert!(matches!(&reply.changes[..], [Input::Applied(applied)] if applied == object));
}

#[test]
fn writes_carry_preconditions_and_status_is_apart() {
    let mut store = store(&[V4]);
    let create = Effect::Create(Object::ServiceImport(Arc::new(import())));
    store.execute(&create, NOW);
    let current = store.get(&reference(Kind::ServiceImport, "web")).cloned();
    let again = store.execute(&create, NOW).unwrap();
    assert_eq!(again.outcome, Outcome::Outdated(current.clone()));
    assert!(again.changes.is_empty());

    let Some(Object::ServiceImport(old)) = current else {
        panic!()
    };
    let mut new = (*old).clone();
    new.status.clusters = vec!["east".into()];
    new.meta.labels = Arc::new([("a".into(), "b".into())].into());
    let pair = |old: &Arc<ImportObject>, new: &ImportObject| {
        (
            Object::ServiceImport(Arc::clone(old)),
            Object::ServiceImport(Arc::new(new.clone())),
        )
    };
    let (old_object, new_object) = pair(&old, &new);
    let status = Effect::UpdateStatus {
        old: old_object,
        new: new_object,
    };
    let Outcome::Written(Object::ServiceImport(first)) =
        store.execute(&status, NOW).unwrap().outcome
    else {
        panic!()
    };
    assert_eq!(first.status, new.status);
    assert!(
        first.meta.labels.is_empty(),
        "a status write changes nothing else"
    );
    assert_eq!(
        (first.meta.generation, &*first.meta.resource_version),
        (1, "3")
    );

    // The engine still thinks of the object before the status.
    let outdated = store.execute(&status, NOW).unwrap().outcome;
    assert_eq!(
        outdated,
        Outcome::Outdated(Some(Object::ServiceImport(Arc::clone(&first))))
    );
    new.status = ImportStatus::default();
    let (old_object, new_object) = pair(&first, &new);
    let update = Effect::Update {
        old: old_object,
        new: new_object,
    };
    let Outcome::Written(Object::ServiceImport(second)) =
        store.execute(&update, NOW).unwrap().outcome
    else {
        panic!()
    };
    assert_eq!(second.status, first.status, "an update leaves the status");
    assert_eq!(second.meta.labels, new.meta.labels);
    let delete = Effect::Delete(Object::ServiceImport(first));
    assert!(matches!(
        store.execute(&delete, NOW).unwrap().outcome,
        Outcome::Outdated(Some(_))
    ));
    let delete = Effect::Delete(Object::ServiceImport(second));
    assert_eq!(
        store.execute(&delete, NOW).unwrap().outcome,
        Outcome::Deleted
    );
    assert_eq!(
        store.execute(&delete, NOW).unwrap().outcome,
        Outcome::Outdated(None)
    );
}

#[test]
fn an_update_that_changes_nothing_is_no_write() {
    let mut store = store(&[V4]);
    let service = written(create(&mut store, derived("d", &[V4])));
    let same = written(update(&mut store, &service, service.clone()));
    assert_eq!(same, service);
    let mut without_ips = service.clone();
    without_ips.cluster_ips.clear();
    assert_eq!(written(update(&mut store, &service, without_ips)), service);
}

#[test]
fn namespaces_that_are_missing_or_going_take_nothing_new() {
    let mut store = store(&[V4]);
    store.apply(&namespace(true), NOW).unwrap();
    let going = refused(create(&mut store, derived("d", &[V4])));
    assert_eq!(going, RefusalKind::NamespaceTerminating);
    store.delete(&reference(Kind::Namespace, "shop"));
    assert_eq!(
        refused(create(&mut store, derived("d", &[V4]))),
        RefusalKind::Other
    );
    assert!(store.apply(&declared("web", json!({})), NOW).is_err());
}

#[test]
fn a_namespace_goes_with_all_that_is_in_it() {
    let mut store = store(&[V4]);
    store.apply(&declared("web", json!({})), NOW).unwrap();
    let service = written(create(&mut store, derived("d", &[V4])));
    let gone: Vec<Kind> = store
        .delete(&reference(Kind::Namespace, "shop"))
        .into_iter()
        .map(|input| match input {
            Input::Deleted { object, .. } => object.kind,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(gone, [Kind::Service, Kind::Service, Kind::Namespace]);
    assert_eq!(store.objects().count(), 0);
    // Its address is free again, its UID is not used twice.
    store.apply(&namespace(false), NOW).unwrap();
    let next = written(create(&mut store, derived("d", &[V4])));
    assert_eq!(next.cluster_ips, service.cluster_ips);
    assert_ne!(next.meta.uid, service.meta.uid);
}

#[test]
fn addresses_are_apart_asked_for_and_kept() {
    let mut store = store(&[V4, V6]);
    let service = written(create(&mut store, derived("d", &[V6, V4])));
    let [v6, v4] = service.cluster_ips[..] else {
        panic!()
    };
    assert!(VIP_CIDR_V6.contains(&v6.to_string().parse::<std::net::Ipv6Addr>().unwrap()));
    assert!(VIP_CIDR_V4.contains(&v4.to_string().parse::<std::net::Ipv4Addr>().unwrap()));

    store
        .apply(&declared("web", json!({"ports": [{"port": 1}]})), NOW)
        .unwrap();
    let Some(Object::Service(web)) = store.get(&reference(Kind::Service, "web")) else {
        panic!()
    };
    assert!(
        !VIP_CIDR_V4.contains(
            &web.cluster_ips[0]
                .to_string()
                .parse::<std::net::Ipv4Addr>()
                .unwrap()
        )
    );

    let ask = |address: IpAddr| ServiceObject {
        cluster_ips: vec![address],
        ..derived("e", &[IpFamily::of(address)])
    };
    assert_eq!(
        refused(create(&mut store, ask(v4))),
        RefusalKind::AddressTaken
    );
    let outside = "10.0.0.1".parse().unwrap();
    assert_eq!(
        refused(create(&mut store, ask(outside))),
        RefusalKind::AddressTaken
    );
    store.delete(&reference(Kind::Service, "d"));
    assert_eq!(written(create(&mut store, ask(v4))).cluster_ips, [v4]);

    let taken = declared("other", json!({"clusterIP": v4.to_string()}));
    let text = store.apply(&taken, NOW).unwrap_err().to_string();
    assert_eq!(
        text,
        format!("Service shop/other: spec.clusterIPs[0] is {v4}, which Service shop/e has already")
    );
}

#[test]
fn what_cannot_change_does_not() {
    let mut store = store(&[V4, V6]);
    let service = written(create(&mut store, derived("d", &[V4])));
    let kind = |store: &mut Store, new| refused(update(store, &service, new));
    let headless = ServiceObject {
        headless: true,
        cluster_ips: vec![],
        ..service.clone()
    };
    assert_eq!(kind(&mut store, headless), RefusalKind::Invalid);
    let turned = ServiceObject {
        families: vec![V6, V4],
        cluster_ips: vec![],
        ..service.clone()
    };
    assert_eq!(kind(&mut store, turned), RefusalKind::Invalid);
    let moved = ServiceObject {
        cluster_ips: vec!["240.16.0.9".parse().unwrap()],
        ..service.clone()
    };
    assert_eq!(kind(&mut store, moved), RefusalKind::Invalid);
    let wider = ServiceObject {
        families: vec![V4, V6],
        ..service.clone()
    };
    let wider = written(update(&mut store, &service, wider));
    assert_eq!(wider.cluster_ips[0], service.cluster_ips[0]);
    assert_eq!(wider.cluster_ips.len(), 2);
}

#[test]
fn services_that_a_server_would_not_take_are_refused() {
    let with_ports = |ports: Vec<Port>| ServiceObject {
        ports,
        ..derived("d", &[V4])
    };
    let mut udp = port("", 80);
    udp.protocol = Protocol::Udp;
    let bad = [
        with_ports(vec![]),
        with_ports(vec![port("a", 80), port("a", 81)]),
        with_ports(vec![port("a", 80), port("b", 80)]),
        with_ports(vec![port("", 80), port("b", 81)]),
        with_ports(vec![port("A b", 80)]),
        with_ports(vec![port("", 80), udp]),
        derived("d", &[V6]),
        ServiceObject {
            traffic_distribution: Some("PreferMars".into()),
            ..derived("d", &[V4])
        },
    ];
    let mut store = store(&[V4]);
    for service in bad {
        assert_eq!(refused(create(&mut store, service)), RefusalKind::Invalid);
    }
    let headless = ServiceObject {
        headless: true,
        ports: vec![],
        ..derived("d", &[V6, V4])
    };
    assert!(written(create(&mut store, headless)).cluster_ips.is_empty());
}

#[test]
fn a_full_range_is_said_to_be_full() {
    let vips = VipRanges::try_new(&["10.9.0.0/28".parse().unwrap()]).unwrap();
    let mut store = Store::new(ClusterName::try_new("east").unwrap(), vec![V4], &vips);
    store.apply(&namespace(false), NOW).unwrap();
    let mut seen = std::collections::HashSet::new();
    for i in 0..14 {
        let service = written(create(&mut store, derived(&format!("d{i}"), &[V4])));
        assert!(seen.insert(service.cluster_ips[0]));
    }
    assert!(!seen.contains(&"10.9.0.0".parse::<IpAddr>().unwrap()));
    assert!(!seen.contains(&"10.9.0.15".parse::<IpAddr>().unwrap()));
    assert_eq!(
        refused(create(&mut store, derived("d", &[V4]))),
        RefusalKind::Other
    );
    let two = ["10.9.0.0/24", "10.8.0.0/24"].map(|net| net.parse().unwrap());
    assert_eq!(VipRanges::try_new(&two).unwrap_err().kind(), "Twice");
    assert_eq!(
        VipRanges::try_new(&["fd00::/125".parse().unwrap()])
            .unwrap_err()
            .kind(),
        "TooSmall"
    );
}

#[test]
fn a_user_replaces_an_object_and_keeps_what_it_was_given() {
    let mut store = store(&[V4]);
    let at = |secs| Timestamp::from_second(secs).unwrap();
    store
        .apply(&declared("web", json!({"ports": [{"port": 1}]})), at(1))
        .unwrap();
    let before = store
        .get(&reference(Kind::Service, "web"))
        .cloned()
        .unwrap();
    assert!(
        store
            .apply(&declared("web", json!({"ports": [{"port": 1}]})), at(2))
            .unwrap()
            .is_none()
    );
    store
        .apply(&declared("web", json!({"ports": [{"port": 2}]})), at(2))
        .unwrap()
        .unwrap();
    let after = store
        .get(&reference(Kind::Service, "web"))
        .cloned()
        .unwrap();
    let (Object::Service(before), Object::Service(after)) = (before, after) else {
        panic!()
    };
    assert_eq!(before.meta.uid, after.meta.uid);
    assert_eq!(after.meta.created, Some(at(1)));
    assert_eq!(before.cluster_ips, after.cluster_ips);
    assert_ne!(before.meta.resource_version, after.meta.resource_version);
}

#[test]
fn a_replaced_export_keeps_its_status() {
    let export = |label: &str| {
        let json = json!({"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ServiceExport",
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"exportedLabels": {"a": label}}});
        let object: mcs_api::v1beta1::ServiceExport = serde_json::from_value(json.clone()).unwrap();
        let object = crate::convert::observe_export(&object, &mut Strings::default()).unwrap();
        Declared::ServiceExport(Arc::new(DeclaredExport { object, json }))
    };
    let mut store = store(&[V4]);
    store.apply(&export("1"), NOW).unwrap();
    let place = reference(Kind::ServiceExport, "web");
    let Some(Object::ServiceExport(old)) = store.get(&place).cloned() else {
        panic!()
    };
    let mut new = (*old).clone();
    new.conditions.push(Condition {
        kind: "Valid".into(),
        status: "True".into(),
        reason: "Valid".into(),
        message: "".into(),
        observed_generation: Some(1),
        last_transition: NOW,
    });
    let effect = Effect::UpdateStatus {
        old: Object::ServiceExport(old),
        new: Object::ServiceExport(Arc::new(new.clone())),
    };
    store.execute(&effect, NOW).unwrap();
    store.apply(&export("2"), NOW).unwrap();
    let Some(Object::ServiceExport(after)) = store.get(&place) else {
        panic!()
    };
    assert_eq!(after.conditions, new.conditions);
    assert_eq!(after.meta.generation, 2);
    assert_eq!(
        store.export_json(&key("web")).unwrap()["spec"]["exportedLabels"]["a"],
        "2"
    );
}

#[test]
fn generations_of_slices_count_changes_of_content() {
    let mut store = store(&[V4]);
    let slice = SliceObject {
        meta: Meta::to_create(key("s")),
        address_type: AddressType::Ip(V4),
        ports: Arc::new([]),
        endpoints: Arc::new([]),
    };
    let create = Effect::Create(Object::EndpointSlice(Arc::new(slice)));
    let Outcome::Written(Object::EndpointSlice(old)) = store.execute(&create, NOW).unwrap().outcome
    else {
        panic!()
    };
    let endpoint = SliceEndpoint {
        address: "10.0.0.1".parse().unwrap(),
        conditions: Conditions::READY,
        hostname: None,
        zone: None,
        node: None,
        target: None,
        hints: None,
    };
    let mut new = (*old).clone();
    new.endpoints = Arc::new([endpoint]);
    let mut other_family = new.clone();
    other_family.address_type = AddressType::Ip(V6);
    let mut update = |new: SliceObject| {
        let effect = Effect::Update {
            old: Object::EndpointSlice(Arc::clone(&old)),
            new: Object::EndpointSlice(Arc::new(new)),
        };
        store.execute(&effect, NOW).unwrap().outcome
    };
    assert_eq!(refused(update(other_family)), RefusalKind::Invalid);
    let Outcome::Written(written) = update(new) else {
        panic!()
    };
    assert_eq!(written.meta().unwrap().generation, 2);
}

#[test]
fn what_is_deleted_by_hand_must_be_there() {
    let mut store = store(&[V4]);
    create(&mut store, derived("d", &[V4]));
    let erase = [Change::Erase(reference(Kind::Service, "d"))];
    let (inputs, rejected) = store.change(&erase, NOW);
    assert!(matches!(&inputs[..], [Input::Deleted { .. }]) && rejected.is_empty());
    let (inputs, rejected) = store.change(&erase, NOW);
    assert!(inputs.is_empty());
    let text = rejected[0].to_string();
    assert_eq!(
        text,
        "Service shop/d: metadata.name is not there to be deleted"
    );
}

#[test]
fn a_listing_shows_everything_of_its_kind() {
    let mut store = store(&[V4]);
    store.apply(&declared("web", json!({})), NOW).unwrap();
    let inputs = store.list(Kind::Service);
    assert_eq!(inputs.len(), 3);
    assert!(matches!(
        inputs[0],
        Input::ListBegan(Source::Objects(Kind::Service))
    ));
    assert!(matches!(&inputs[2], Input::ListEnded { revision, .. } if **revision == *"2"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever comes and goes, no address has two owners, and none leaks.
    #[test]
    fn addresses_have_one_owner(ops in vec((0_u8..20, 0_u8..4), 0..80)) {
        let vips = VipRanges::try_new(&["10.9.0.0/28".parse().unwrap()]).unwrap();
        let mut store = Store::new(ClusterName::try_new("east").unwrap(), vec![V4], &vips);
        store.apply(&namespace(false), NOW).unwrap();
        for (name, op) in ops {
            let name = format!("d{name}");
            match op {
                0 | 1 => { create(&mut store, derived(&name, &[V4])); }
                2 => { store.delete(&reference(Kind::Service, &name)); }
                _ => { store.apply(&declared(&name, json!({"clusterIP": "10.9.0.3"})), NOW).ok(); }
            }
            let services = store.objects().filter_map(|object| match object {
                Object::Service(service) => Some(service.cluster_ips[0]),
                _ => None,
            });
            let all: Vec<IpAddr> = services.collect();
            let distinct: std::collections::HashSet<&IpAddr> = all.iter().collect();
            prop_assert_eq!(distinct.len(), all.len());
            prop_assert!(store.addresses.ranges(&[V4]).len() == 2);
        }
    }
}
