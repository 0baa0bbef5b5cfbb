//! Packing, as examples; its promises over random histories are in the testkit.

use std::ops::Range;

use super::*;
use crate::endpoint::Conditions;
use crate::service::Protocol;

fn ports(number: u16) -> Ports {
    Arc::new([SlicePort {
        name: "http".into(),
        protocol: Protocol::Tcp,
        port: number,
        app_protocol: None,
    }])
}

fn endpoint(host: u16) -> SliceEndpoint {
    let [high, low] = host.to_be_bytes();
    SliceEndpoint {
        address: IpAddr::from([10, 0, high, low]),
        conditions: Conditions::READY,
        hostname: None,
        zone: None,
        node: None,
        target: None,
        hints: None,
    }
}

fn hosts(range: Range<u16>) -> Vec<SliceEndpoint> {
    range.map(endpoint).collect()
}

/// Packs the endpoints of one port set; says which slices there are: name and hosts.
fn packed(
    present: &[(&str, &[SliceEndpoint])],
    wanted: Vec<SliceEndpoint>,
) -> Vec<(String, Vec<u16>)> {
    let present: Vec<Present<'_, &str>> = present
        .iter()
        .map(|(name, list)| (*name, ports(80), *list))
        .collect();
    let wanted = wanted.into_iter().map(|e| (ports(80), e)).collect();
    pack(&present, wanted).iter().map(show).collect()
}

fn show(packed: &Packed<&str>) -> (String, Vec<u16>) {
    let host = |e: &SliceEndpoint| match e.address {
        IpAddr::V4(v4) => u16::from_be_bytes([v4.octets()[2], v4.octets()[3]]),
        IpAddr::V6(_) => 0,
    };
    let name = packed.name.unwrap_or("new").to_owned();
    (name, packed.content.endpoints.iter().map(host).collect())
}

fn slice(name: &str, hosts: impl IntoIterator<Item = u16>) -> (String, Vec<u16>) {
    (name.to_owned(), hosts.into_iter().collect())
}

#[test]
fn a_slice_holds_at_most_a_hundred() {
    let got = packed(&[], hosts(0..250));
    let lens: Vec<usize> = got.iter().map(|(_, hosts)| hosts.len()).collect();
    assert_eq!(lens, [100, 100, 50]);
}

#[test]
fn endpoints_stay_where_they_are() {
    let (a, b) = (hosts(0..60), hosts(100..160));
    let wanted = [hosts(100..160), hosts(0..60)].concat();
    assert_eq!(
        packed(&[("a", &a), ("b", &b)], wanted),
        [slice("a", 0..60), slice("b", 100..160)]
    );
}

#[test]
fn a_new_endpoint_goes_where_something_is_written_anyway() {
    let (a, b) = (hosts(0..60), hosts(100..160));
    // Host 100 goes, so slice b is written; host 7 is new.
    let wanted = [hosts(0..60), hosts(101..160), hosts(200..201)].concat();
    let got = packed(&[("a", &a), ("b", &b)], wanted);
    assert_eq!(got[0], slice("a", 0..60));
    assert_eq!(got[1], slice("b", (101..160).chain([200])));
}

#[test]
fn what_fits_in_one_slice_is_not_spread() {
    let (a, b) = (hosts(0..95), hosts(100..160));
    let wanted = [hosts(0..95), hosts(100..160), hosts(200..210)].concat();
    let got = packed(&[("a", &a), ("b", &b)], wanted);
    assert_eq!(got[0], slice("a", 0..95));
    assert_eq!(got[1], slice("b", (100..160).chain(200..210)));
}

#[test]
fn slices_that_hold_fifty_together_become_one() {
    let (a, b) = (hosts(0..25), hosts(100..160));
    let wanted = |last| [hosts(0..25), hosts(100..last)].concat();
    let present: [(&str, &[SliceEndpoint]); 2] = [("a", &a), ("b", &b)];
    // 51 together: both stay.
    let got = packed(&present, wanted(126));
    assert_eq!(got, [slice("a", 0..25), slice("b", 100..126)]);
    // 49 together: the emptier one moves.
    let got = packed(&present, wanted(124));
    assert_eq!(got, [slice("a", (0..25).chain(100..124))]);
}

#[test]
fn empty_slices_are_given_up() {
    let a = hosts(0..60);
    assert_eq!(packed(&[("a", &a)], Vec::new()), []);
}

#[test]
fn another_port_set_takes_over_the_slice_whose_ports_nobody_wants() {
    let a = hosts(0..10);
    let present = [("a", ports(80), a.as_slice())];
    let wanted = hosts(0..10).into_iter().map(|e| (ports(81), e)).collect();
    let got = pack(&present, wanted);
    assert_eq!(got.len(), 1);
    assert_eq!(
        (got[0].name, &got[0].content.ports),
        (Some("a"), &ports(81))
    );
}

#[test]
fn port_sets_never_share_a_slice() {
    let wanted = [(ports(80), endpoint(1)), (ports(81), endpoint(1))];
    let got = pack::<&str>(&[], wanted.into());
    let sets: Vec<Ports> = got.into_iter().map(|p| p.content.ports).collect();
    assert_eq!(sets, [ports(80), ports(81)]);
}

#[test]
fn endpoints_of_one_address_are_told_apart_by_host_name() {
    let named = |name: &str| SliceEndpoint {
        hostname: Some(name.into()),
        ..endpoint(1)
    };
    let (a, wanted) = ([named("x"), named("y")], vec![named("y")]);
    let present = [("a", ports(80), a.as_slice())];
    let got = pack(
        &present,
        wanted.into_iter().map(|e| (ports(80), e)).collect(),
    );
    assert_eq!(*got[0].content.endpoints, [named("y")]);
}

#[test]
fn an_oversized_slice_of_before_is_split() {
    let a = hosts(0..130);
    let got = packed(&[("a", &a)], hosts(0..130));
    assert_eq!(got, [slice("a", 0..100), slice("new", 100..130)]);
}
