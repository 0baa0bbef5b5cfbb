//! Packing held to its promises, on random slices and random wishes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use tombolo_model::object::{SliceEndpoint, SlicePort};
use tombolo_model::packing::{Content, Packed, Ports, pack};
use tombolo_model::service::Protocol;
use tombolo_testkit::build::endpoint;
use tombolo_testkit::tries;

/// The most endpoints of a slice.
const MAX: usize = 100;
/// Two slices of one port set that hold no more together are one.
const SPARSE: usize = 50;

type Wish = BTreeSet<(u8, u16)>;

fn ports(number: u8) -> Ports {
    Arc::new([SlicePort {
        name: "http".into(),
        protocol: Protocol::Tcp,
        port: 8000 + u16::from(number),
        app_protocol: None,
    }])
}

fn wanted(wish: &Wish) -> Vec<(Ports, SliceEndpoint)> {
    let endpoints = wish.iter();
    endpoints
        .map(|&(set, host)| {
            let address = Ipv4Addr::from(0x0a00_0000 + u32::from(host));
            (ports(set), endpoint(&address.to_string()))
        })
        .collect()
}

/// Endpoints of up to two port sets, some of them many.
fn wish() -> impl Strategy<Value = Wish> {
    let few = btree_set((0..2_u8, 0..400_u16), 0..60);
    let range = (0..2_u8, 0..300_u16, 0..260_u16);
    (few, proptest::option::of(range)).prop_map(|(mut wish, range)| {
        if let Some((set, from, count)) = range {
            wish.extend((from..from + count).map(|host| (set, host)));
        }
        wish
    })
}

/// Changes of a few endpoints, or another wish altogether.
fn history() -> impl Strategy<Value = Vec<Wish>> {
    let step = prop_oneof![
        3 => btree_set((0..2_u8, 0..400_u16), 0..6).prop_map(Ok),
        1 => wish().prop_map(Err),
    ];
    vec(step, 1..12).prop_map(|steps| {
        let mut now = Wish::new();
        let mut history = Vec::new();
        for step in steps {
            now = match step {
                Ok(flip) => now.symmetric_difference(&flip).copied().collect(),
                Err(other) => other,
            };
            history.push(now.clone());
        }
        history
    })
}

/// A slice: its ports and endpoints.
type Slices = BTreeMap<usize, Content>;

fn apply(slices: &Slices, packed: Vec<Packed<usize>>, next: &mut usize) -> Slices {
    let mut after = Slices::new();
    for Packed { name, content } in packed {
        let name = name.unwrap_or_else(|| {
            *next += 1;
            *next
        });
        assert!(
            slices.contains_key(&name) || name == *next,
            "a slice that nobody has"
        );
        assert!(after.insert(name, content).is_none(), "a slice twice");
    }
    after
}

fn view(slices: &Slices) -> Vec<(usize, Ports, &[SliceEndpoint])> {
    let slices = slices.iter();
    slices
        .map(|(name, slice)| (*name, Arc::clone(&slice.ports), &*slice.endpoints))
        .collect()
}

/// Where each endpoint of a port set is.
fn places(slices: &Slices) -> BTreeMap<(Ports, IpAddr), usize> {
    let mut places = BTreeMap::new();
    for (name, Content { ports, endpoints }) in slices {
        for endpoint in &**endpoints {
            let twice = places.insert((Arc::clone(ports), endpoint.address), *name);
            assert!(twice.is_none(), "{} is there twice", endpoint.address);
        }
    }
    places
}

fn by_ports(slices: &Slices) -> BTreeMap<Ports, Vec<usize>> {
    let mut lens: BTreeMap<Ports, Vec<usize>> = BTreeMap::new();
    for Content { ports, endpoints } in slices.values() {
        lens.entry(Arc::clone(ports))
            .or_default()
            .push(endpoints.len());
    }
    lens
}

fn check(before: &Slices, after: &Slices, wish: &Wish) {
    let there: BTreeSet<(Ports, IpAddr)> = places(after).into_keys().collect();
    let asked: BTreeSet<(Ports, IpAddr)> = wanted(wish)
        .into_iter()
        .map(|(ports, e)| (ports, e.address))
        .collect();
    assert_eq!(there, asked);
    for mut lens in by_ports(after).into_values() {
        assert!(lens.iter().all(|len| (1..=MAX).contains(len)), "{lens:?}");
        lens.sort_unstable();
        assert!(
            lens.len() < 2 || lens[0] + lens[1] > SPARSE,
            "sparse: {lens:?}"
        );
    }
    let new = places(after);
    for (endpoint, old) in places(before) {
        let Some(now) = new.get(&endpoint) else {
            continue;
        };
        if *now != old {
            // It moved: only because its slice was given up, into one with room by the rule.
            let home = after.get(&old).filter(|slice| slice.ports == endpoint.0);
            assert!(home.is_none(), "{} moved without need", endpoint.1);
            assert!(after[now].endpoints.len() <= MAX);
        }
    }
}

proptest! {
    #![proptest_config(tries(300))]

    /// Every endpoint is in one slice of its ports, slices are neither too full nor sparse, and
    /// nothing moves that need not.
    #[test]
    fn packing_keeps_its_promises(history in history()) {
        let (mut slices, mut next) = (Slices::new(), 0);
        for wish in &history {
            let packed = pack(&view(&slices), wanted(wish));
            let after = apply(&slices, packed, &mut next);
            check(&slices, &after, wish);
            let again = apply(&after, pack(&view(&after), wanted(wish)), &mut next);
            prop_assert_eq!(&again, &after, "the same wish packed again");
            slices = after;
        }
    }

    /// A single endpoint that comes, changes or goes costs one slice, two where slices are
    /// gathered.
    #[test]
    fn one_change_writes_few_slices(wish in wish(), set in 0..2_u8, host in 0..400_u16) {
        let mut next = 0;
        let before = apply(&Slices::new(), pack(&view(&Slices::new()), wanted(&wish)), &mut next);
        let mut other = wish;
        if !other.remove(&(set, host)) {
            other.insert((set, host));
        }
        let after = apply(&before, pack(&view(&before), wanted(&other)), &mut next);
        let names: BTreeSet<&usize> = before.keys().chain(after.keys()).collect();
        let written = names.into_iter().filter(|name| before.get(name) != after.get(name)).count();
        prop_assert!(written <= 2, "{} slices are written", written);
    }
}
