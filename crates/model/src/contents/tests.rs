//! Tests of shared slice contents.

use super::*;
use crate::endpoint::Conditions;
use crate::object::SlicePort;
use crate::service::Protocol;

fn mirrored(hosts: impl IntoIterator<Item = u8>) -> Mirrored {
    let endpoint = |host: u8| SliceEndpoint {
        address: [10, 0, 0, host].into(),
        conditions: Conditions {
            ready: true,
            serving: true,
            terminating: false,
        },
        hostname: None,
        zone: None,
        node: None,
        target: None,
        hints: None,
    };
    let cluster = ClusterName::try_new("east").unwrap();
    let endpoints = hosts.into_iter().map(|host| ([].into(), endpoint(host)));
    Mirrored::from([((cluster, IpFamily::V4), endpoints.collect())])
}

fn only(contents: Contents) -> Vec<Content> {
    contents.into_values().flatten().collect()
}

#[test]
fn clusters_of_the_same_families_share_one() {
    let shared = SharedContents::default();
    let first = only(shared.get(&[IpFamily::V4], || mirrored(0..3)));
    let second = only(shared.get(&[IpFamily::V4], || unreachable!("it is held")));
    assert!(Arc::ptr_eq(&first[0].endpoints, &second[0].endpoints));
    let other = only(shared.get(&[IpFamily::V6], || mirrored(0..3)));
    assert!(!Arc::ptr_eq(&first[0].endpoints, &other[0].endpoints));
}

#[test]
fn what_nobody_holds_is_made_again() {
    let shared = SharedContents::default();
    drop(shared.get(&[IpFamily::V4], || mirrored(0..3)));
    let mut made = 0;
    let got = shared.get(&[IpFamily::V4], || {
        made += 1;
        mirrored(0..3)
    });
    assert_eq!((made, only(got)[0].endpoints.len()), (1, 3));
}

#[test]
fn what_is_there_keeps_its_places_and_takes_over_what_is_equal() {
    let full = only(contents(mirrored(0..120)));
    let present: Vec<Present<'_, usize>> = full
        .iter()
        .enumerate()
        .map(|(at, c)| (at, Arc::clone(&c.ports), &*c.endpoints))
        .collect();
    // The last of the first slice goes; the second stays as it is.
    let wanted = only(contents(mirrored((0..99).chain(100..120))));
    let packed = fit(&present, wanted);
    let lens: Vec<_> = packed
        .iter()
        .map(|p| (p.name, p.content.endpoints.len()))
        .collect();
    assert_eq!(lens, [(Some(0), 99), (Some(1), 20)]);
    let same = fit(&present, full.clone());
    assert!(
        same.iter()
            .zip(&full)
            .all(|(p, c)| Arc::ptr_eq(&p.content.endpoints, &c.endpoints))
    );
}

#[test]
fn slices_of_the_same_endpoints_are_told_apart_by_their_ports() {
    let of_ports = |port: u16| {
        let port = SlicePort {
            name: "http".into(),
            protocol: Protocol::Tcp,
            port,
            app_protocol: None,
        };
        let endpoints = Arc::clone(&only(contents(mirrored(0..3)))[0].endpoints);
        Content {
            ports: [port].into(),
            endpoints,
        }
    };
    let (a, b) = (of_ports(8080), of_ports(8081));
    let present = [(0, &b), (1, &a)].map(|(name, c)| (name, Arc::clone(&c.ports), &*c.endpoints));
    let mut packed = fit(&present, vec![a.clone(), b.clone()]);
    packed.sort_by_key(|packed| packed.name);
    // None is written: each is as wanted already.
    let contents: Vec<_> = packed.into_iter().map(|p| (p.name, p.content)).collect();
    assert_eq!(contents, [(Some(0), b), (Some(1), a)]);
}
