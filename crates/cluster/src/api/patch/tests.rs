//! Patches from one state of an object to another.

use std::sync::Arc;

use serde_json::json;
use tombolo_model::names::{Namespace, ObjectName, ServiceKey};
use tombolo_model::object::{Meta, Object, OwnerRef, ServiceKind, ServiceObject};
use tombolo_model::record::Labels;
use tombolo_model::service::{Affinity, InternalTrafficPolicy, IpFamily, Port, Protocol};

use super::*;
use crate::api::resource::ApiVersion;

fn service() -> ServiceObject {
    let key = ServiceKey::new(Namespace::try_new("shop").unwrap(), ObjectName::new("d"));
    let mut meta = Meta::to_create(key);
    meta.uid = "u1".into();
    meta.resource_version = "5".into();
    meta.labels = Arc::new(labels(&[("a", "1"), ("b", "2")]));
    ServiceObject {
        meta,
        kind: ServiceKind::ClusterIp,
        headless: false,
        cluster_ips: vec!["10.0.0.1".parse().unwrap()],
        families: vec![IpFamily::V4],
        ports: vec![port(80)],
        affinity: Affinity::None,
        internal_traffic_policy: InternalTrafficPolicy::Cluster,
        traffic_distribution: None,
        has_selector: false,
    }
}

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs
        .iter()
        .map(|(k, v)| ((*k).into(), (*v).into()))
        .collect()
}

fn port(number: u16) -> Port {
    Port {
        name: "http".into(),
        protocol: Protocol::Tcp,
        port: number,
        app_protocol: None,
    }
}

fn owner(uid: &str) -> OwnerRef {
    OwnerRef {
        kind: "ServiceImport".into(),
        name: ObjectName::new("d"),
        uid: uid.into(),
    }
}

fn patch(old: ServiceObject, new: ServiceObject) -> Patch {
    let object = |o| Object::Service(Arc::new(o));
    update(&Versions::default(), &object(old), &object(new))
}

#[test]
fn only_what_differs_is_named_and_what_is_gone_is_removed() {
    let mut new = service();
    new.meta.labels = Arc::new(labels(&[("a", "1"), ("c", "3")]));
    new.families.push(IpFamily::V6);
    let expected = json!({
        "metadata": {"uid": "u1", "resourceVersion": "5", "labels": {"b": null, "c": "3"}},
        "spec": {"ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "PreferDualStack"},
    });
    let patch = patch(service(), new);
    assert_eq!((patch.content_type, patch.body), (MERGE_PATCH, expected));
}

#[test]
fn owners_of_others_are_not_touched() {
    let mut old = service();
    old.meta.owners = vec![owner("old"), owner("other")];
    let mut new = old.clone();
    new.meta.owners = vec![owner("other"), owner("new")];
    new.ports = vec![port(81)];
    let expected = json!({
        "metadata": {"uid": "u1", "resourceVersion": "5", "ownerReferences": [
            {"apiVersion": "multicluster.x-k8s.io/v1beta1", "kind": "ServiceImport",
             "name": "d", "uid": "new"},
            {"$patch": "delete", "uid": "old"},
        ]},
        "spec": {"ports": [
            {"$patch": "replace"},
            {"name": "http", "protocol": "TCP", "port": 81},
        ]},
    });
    let patch = patch(old, new);
    assert_eq!(
        (patch.content_type, patch.body),
        (STRATEGIC_PATCH, expected)
    );
}

#[test]
fn a_cluster_with_only_v1alpha1_gets_that() {
    let versions = Versions::default();
    versions.set(Kind::ServiceImport, ApiVersion::V1Alpha1);
    let mut service = service();
    service.meta.owners = vec![owner("u")];
    let json = creation(&versions, &Object::Service(Arc::new(service)));
    assert_eq!(json["apiVersion"], "v1");
    let owner = &json["metadata"]["ownerReferences"][0];
    assert_eq!(owner["apiVersion"], "multicluster.x-k8s.io/v1alpha1");
}
