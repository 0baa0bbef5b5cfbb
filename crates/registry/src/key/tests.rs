//! Keys: one for each place, and only that.

use proptest::prelude::*;
use proptest::string::string_regex;
use tombolo_model::service::Protocol;

use super::*;

const OWN: &str = "/tombolo/v1/regions/eu/clusters/east";

fn refused(key: impl AsRef<[u8]>) -> KeyError {
    let key = key.as_ref();
    match Layout::default().parse(key) {
        Err(error) => error,
        Ok(place) => panic!("{} was taken for {place:?}", String::from_utf8_lossy(key)),
    }
}

#[test]
fn the_layout_is_that_of_the_design() {
    let layout = Layout::try_new("/t").unwrap();
    let origin = Origin {
        region: Region::try_new("eu").unwrap(),
        cluster: ClusterName::try_new("east.prod").unwrap(),
    };
    let service = service("", "shop", "checkout").unwrap();
    let key = |key| layout.record(&origin, &key).unwrap();
    assert_eq!(key(RecordKey::Owner), "/t/eu/clusters/east.prod/owner");
    assert_eq!(key(RecordKey::Session), "/t/eu/clusters/east.prod/session");
    assert_eq!(key(RecordKey::Synced), "/t/eu/clusters/east.prod/synced");
    assert_eq!(key(RecordKey::Left), "/t/eu/clusters/east.prod/left");
    assert_eq!(key(RecordKey::Report), "/t/eu/clusters/east.prod/report");
    assert_eq!(
        key(RecordKey::Export(service.clone())),
        "/t/eu/clusters/east.prod/ns/shop/exports/checkout"
    );
    let endpoint = RecordKey::Endpoint {
        service: service.clone(),
        protocol: EntryProtocol::Some(Protocol::Tcp),
        address: "fd00:0::1".parse().unwrap(),
    };
    assert_eq!(
        key(endpoint),
        "/t/eu/clusters/east.prod/ns/shop/services/checkout/protocols/TCP/endpoints/fd00::1"
    );
    let kind = "retries".into();
    assert_eq!(
        key(RecordKey::Config { service, kind }),
        "/t/eu/clusters/east.prod/ns/shop/config/checkout/retries"
    );
    let region = origin.region.clone();
    assert_eq!(layout.own_prefix(&origin), "/t/eu/clusters/east.prod/");
    assert_eq!(layout.region_prefix(&region), "/t/eu/");
    assert_eq!(layout.root_prefix(), "/t/");
    let key = |place| layout.key(&place).unwrap();
    assert_eq!(key(Place::Member(origin)), "/t/eu/members/east.prod");
    assert_eq!(key(Place::Settings(region.clone())), "/t/eu/settings");
    assert_eq!(key(Place::Replicator(region)), "/t/eu/replicator");
}

#[test]
fn a_root_is_a_path() {
    for good in ["/a", "/a/b", "/tombolo/v1/regions", "/A.b_c-1"] {
        assert!(Layout::try_new(good).is_ok(), "{good}");
    }
    let long = format!("/{}", "a".repeat(256));
    for bad in ["", "/", "a", "/a/", "/a//b", "/a b", "/ä", "a/b", &long] {
        assert!(Layout::try_new(bad).is_err(), "{bad}");
    }
}

#[test]
fn what_is_not_in_canonical_form_is_refused() {
    let endpoints = |rest: &str| format!("{OWN}/ns/shop/services/checkout/protocols/{rest}");
    for (key, kind) in [
        (endpoints("TCP/endpoints/010.0.0.1"), "key-address"),
        (endpoints("TCP/endpoints/10.0.0"), "key-address"),
        (endpoints("TCP/endpoints/FD00::1"), "key-address"),
        (endpoints("TCP/endpoints/fd00:0:0::1"), "key-address"),
        (endpoints("TCP/endpoints/fe80::1%eth0"), "key-address"),
        (endpoints("TCP/endpoints/[fd00::1]"), "key-address"),
        (endpoints("TCP/endpoints/"), "key-address"),
        (endpoints("tcp/endpoints/10.0.0.1"), "key-protocol"),
        (endpoints("ICMP/endpoints/10.0.0.1"), "key-protocol"),
        (endpoints("TCP/endpoints/10.0.0.1/"), "key-unknown"),
        (endpoints("TCP/endpoint/10.0.0.1"), "key-unknown"),
        (endpoints("TCP/endpoints"), "key-unknown"),
        (format!("{OWN}/ns/shop/exports/Checkout"), "key-name"),
        (format!("{OWN}/ns/shop/exports/1checkout"), "key-name"),
        (format!("{OWN}/ns/shop/exports/"), "key-name"),
        (format!("{OWN}/ns//exports/checkout"), "key-name"),
        (format!("{OWN}/ns/a.b/exports/checkout"), "key-name"),
        (format!("{OWN}/ns/shop/config/checkout/a.b"), "key-name"),
        (format!("{OWN}/ns/shop/config/checkout"), "key-unknown"),
        (format!("{OWN}/"), "key-unknown"),
        (OWN.to_owned(), "key-unknown"),
        (format!("{OWN}//owner"), "key-unknown"),
        (format!("{OWN}/owner/"), "key-unknown"),
        (format!("{OWN}/Owner"), "key-unknown"),
        ("/tombolo/v1/regions/e.u/settings".to_owned(), "key-name"),
        (
            "/tombolo/v1/regions/eu/clusters/a.b.c/owner".to_owned(),
            "key-name",
        ),
        ("/tombolo/v1/regions//settings".to_owned(), "key-name"),
        ("/tombolo/v1/regions/".to_owned(), "key-unknown"),
        ("/tombolo/v1/regions".to_owned(), "key-outside"),
        ("/tombolo/v1/regionsx/eu/settings".to_owned(), "key-outside"),
        ("tombolo/v1/regions/eu/settings".to_owned(), "key-outside"),
        (String::new(), "key-outside"),
    ] {
        assert_eq!(refused(&key).kind(), kind, "{key}");
    }
}

#[test]
fn hostile_bytes_are_named_and_cut() {
    let not_text = refused(b"/tombolo/v1/regions/\xff\xfe/settings");
    assert_eq!(not_text.kind(), "key-not-text");
    assert!(not_text.to_string().contains("/tombolo/v1/regions/"));
    let huge = refused("/tombolo/v1/regions/".to_owned() + &"a/".repeat(1 << 20));
    assert_eq!(huge.kind(), "key-too-long");
    assert!(huge.to_string().len() < 400, "{huge}");
    let long = refused(format!("{OWN}/ns/{}/exports/a", "\u{1}".repeat(900)));
    assert!(long.to_string().len() < 1500, "{long}");
    let name = refused(format!("{OWN}/ns/shop/exports/Checkout"));
    assert_eq!(
        name.to_string(),
        format!("key \"{OWN}/ns/shop/exports/Checkout\" holds a name that cannot be used")
    );
}

#[test]
fn a_name_that_no_key_can_hold_is_refused() {
    let origin = Origin {
        region: Region::try_new("eu").unwrap(),
        cluster: ClusterName::try_new("east").unwrap(),
    };
    let key = |name| {
        let namespace = Namespace::try_new("shop").unwrap();
        ServiceKey::new(namespace, ObjectName::new(name))
    };
    let layout = Layout::default();
    for bad in ["a/b", "", "..", "1a", "a.b"] {
        assert!(
            layout
                .record(&origin, &RecordKey::Export(key(bad)))
                .is_err(),
            "{bad}"
        );
        assert!(
            layout.endpoints_prefix(&origin, &key(bad)).is_err(),
            "{bad}"
        );
        let (service, kind) = (key("checkout"), bad.into());
        let config = layout.record(&origin, &RecordKey::Config { service, kind });
        assert_eq!(config.is_err(), bad != "1a", "{bad}");
    }
}

#[test]
fn a_range_holds_what_it_says() {
    let range = KeyRange::of_prefix("/a/");
    let inside = |range: &KeyRange, key: &str| {
        range.start.as_slice() <= key.as_bytes() && key.as_bytes() < range.end.as_slice()
    };
    assert!(inside(&range, "/a/") && inside(&range, "/a/\u{10ffff}"));
    assert!(!inside(&range, "/a") && !inside(&range, "/a0") && !inside(&range, "/a.b/"));
    let rest = range.clone().after(b"/a/x");
    assert!(!inside(&rest, "/a/x") && inside(&rest, "/a/x/y") && inside(&rest, "/a/x\0"));
    let rest = range.after_prefix("/a/x/");
    assert!(!inside(&rest, "/a/x/y") && inside(&rest, "/a/x0"));
    assert!(KeyRange::of_prefix("/a/").after_prefix("/a/").is_empty());
    let alone = KeyRange::of_key("/a");
    assert!(inside(&alone, "/a") && !inside(&alone, "/a/") && !inside(&alone, "/a\0"));
}

fn label() -> impl Strategy<Value = String> {
    string_regex("[a-z]([a-z0-9-]{0,20}[a-z0-9])?").unwrap()
}

fn places() -> impl Strategy<Value = Place> {
    let origin = (label(), label(), proptest::option::of(label())).prop_map(|(r, a, b)| Origin {
        region: Region::try_new(&r).unwrap(),
        cluster: ClusterName::try_new(&b.map_or_else(|| a.clone(), |b| format!("{a}.{b}")))
            .unwrap(),
    });
    let service = (label(), label()).prop_map(|(ns, name)| service("", &ns, &name).unwrap());
    let protocol = prop_oneof![Just("TCP"), Just("UDP"), Just("SCTP"), Just("NONE")];
    (origin, service, protocol, any::<IpAddr>(), label(), 0..11).prop_map(
        |(origin, service, protocol, address, kind, which)| {
            let kind = kind.as_str().into();
            let protocol = EntryProtocol::parse(protocol).unwrap();
            let key = match which {
                0 => return Place::Member(origin),
                1 => return Place::Settings(origin.region),
                2 => return Place::Replicator(origin.region),
                3 => RecordKey::Owner,
                4 => RecordKey::Session,
                5 => RecordKey::Synced,
                6 => RecordKey::Left,
                7 => RecordKey::Report,
                8 => RecordKey::Export(service),
                9 => RecordKey::Config { service, kind },
                _ => RecordKey::Endpoint {
                    service,
                    protocol,
                    address,
                },
            };
            Place::Record { origin, key }
        },
    )
}

proptest! {
    #[test]
    fn every_place_comes_back_from_its_key(place in places()) {
        let layout = Layout::default();
        let key = layout.key(&place).unwrap();
        prop_assert!(key.len() <= KEY_LEN_MAX);
        prop_assert_eq!(layout.parse(key.as_bytes()), Ok(place));
    }

    #[test]
    fn what_is_taken_is_the_one_key_of_its_place(
        place in places(), at in 0_usize..200, byte in any::<u8>(), what in 0..3,
    ) {
        // One byte off: mostly refused; what is not is the key of another place.
        let layout = Layout::default();
        let mut key = layout.key(&place).unwrap().into_bytes();
        let at = at % key.len();
        match what {
            0 => key[at] = byte,
            1 => key.insert(at, byte),
            _ => { key.remove(at); }
        }
        if let Ok(other) = layout.parse(&key) {
            prop_assert_eq!(layout.key(&other).unwrap().into_bytes(), key);
        }
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let layout = Layout::default();
        prop_assert!(layout.parse(&bytes).is_err());
        let below = [b"/tombolo/v1/regions/".as_slice(), &bytes].concat();
        if let Ok(place) = layout.parse(&below) {
            prop_assert_eq!(layout.key(&place).unwrap().into_bytes(), below);
        }
    }
}
