//! Tests of what slices hold before they are packed.

use jiff::Timestamp;

use super::*;
use crate::merge::merge;
use crate::record::{ExportRecord, Labels};
use crate::service::{Affinity, ImportType, InternalTrafficPolicy, Port};

/// A cluster that exports port http with this family, and has an endpoint at each address.
fn stated(secs: i64, family: IpFamily, addresses: &[&str]) -> ClusterService {
    let export = ExportRecord {
        created: Timestamp::from_second(secs).unwrap(),
        uid: "uid".into(),
        kind: ImportType::ClusterSetIp,
        ports: vec![Port {
            name: "http".into(),
            protocol: Protocol::Tcp,
            port: 80,
            app_protocol: None,
        }],
        families: vec![family],
        affinity: Affinity::None,
        internal_traffic_policy: InternalTrafficPolicy::Cluster,
        traffic_distribution: None,
        labels: Labels::new(),
        annotations: Labels::new(),
    };
    let port = EndpointPort {
        name: "http".into(),
        protocol: Protocol::Tcp,
        port: 8080,
    };
    let endpoint = |address: &&str| crate::endpoint::Endpoint {
        address: address.parse().unwrap(),
        ports: [port.clone()].into(),
        hostname: None,
        zone: None,
        conditions: Conditions {
            ready: true,
            serving: true,
            terminating: false,
        },
    };
    ClusterService {
        export: Arc::new(export),
        endpoints: addresses.iter().map(endpoint).collect(),
        joined: None,
    }
}

#[test]
fn a_cluster_that_shares_no_family_serves_nothing() {
    let clusters = [
        ("east", stated(1, IpFamily::V4, &["10.0.0.1"])),
        // Its pods have IPv4 addresses too, but it does not export them.
        ("west", stated(2, IpFamily::V6, &["10.0.0.2", "fd00::2"])),
    ]
    .map(|(name, service)| (ClusterName::try_new(name).unwrap(), service));
    let merged = merge(clusters.iter().map(|(name, s)| (name, &*s.export))).unwrap();
    let contributors = clusters.iter().map(|(cluster, service)| Contributor {
        cluster,
        service,
        usage: Usage::All { live: true },
        details: None,
        guard: None,
    });
    let contributors: Vec<_> = contributors.collect();
    let mirrored = mirrored(&merged, &contributors, &[IpFamily::V4, IpFamily::V6]);
    let sources: Vec<_> = mirrored.keys().map(|(name, _)| name.as_str()).collect();
    assert_eq!(sources, ["east"]);
}
