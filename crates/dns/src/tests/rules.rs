//! One test per rule of BEHAVIOUR §5 that the field cases do not show.

use std::collections::BTreeSet;

use super::world::{NOW_SECS, World, ask_in_full, question};
use crate::{Answer, Query, Rcode, RecordData, Snapshot, WireName};

/// A headless service over two clusters, one with a dot in its id.
fn pets() -> World {
    World::default()
        .headless("shop/pets", &["web TCP/80", "TCP/81"])
        .slice(
            "shop/pets",
            "east.prod",
            &["web TCP/8080", "TCP/8081"],
            &["10.1.0.1 pet-0", "10.1.0.2"],
        )
        .slice("shop/pets", "west", &["web TCP/8080"], &["10.2.0.1 pet-0"])
        .slice(
            "shop/pets",
            "west",
            &["web TCP/8080"],
            &["2001:db8::1 pet-0", "2001:db8:1::"],
        )
}

/// Whether the name is there, by its answer to a type it does not have.
fn rcode(world: &World, name: &str) -> &'static str {
    world.ask(&format!("{name} MX")).0
}

fn full(world: &World, text: &str) -> Answer {
    ask_in_full(&world.snapshot(), &question(text))
}

#[test]
fn a_headless_host_is_found_by_its_name_or_its_address() {
    let world = pets();
    for (name, wanted) in [
        ("pet-0.east.prod", &["10.1.0.1"][..]),
        ("10-1-0-2.east.prod", &["10.1.0.2"]),
        ("pet-0.west", &["10.2.0.1"]),
        ("10-2-0-1.west", &[]),
    ] {
        let got = world.ask(&format!("{name}.pets.shop.svc.clusterset.local A"));
        let rcode = if wanted.is_empty() {
            "NXDOMAIN"
        } else {
            "NOERROR"
        };
        assert_eq!(
            (got.0, got.1.as_slice()),
            (rcode, wanted.map_to_strings().as_slice())
        );
    }
    let ask = |text: &str| {
        world
            .ask(&format!("{text}.pets.shop.svc.clusterset.local AAAA"))
            .1
    };
    assert_eq!(ask("pet-0.west"), ["2001:db8::1"]);
    assert_eq!(ask("2001-db8-1--0.west"), ["2001:db8:1::"]);
}

/// Owned texts of a list of literals.
trait MapToStrings {
    fn map_to_strings(&self) -> Vec<String>;
}

impl MapToStrings for &[&str] {
    fn map_to_strings(&self) -> Vec<String> {
        self.iter().map(|&text| text.to_owned()).collect()
    }
}

#[test]
fn a_cluster_id_with_a_dot_is_matched_not_counted() {
    let world = pets();
    let below = |labels: &str| rcode(&world, &format!("{labels}.pets.shop.svc.clusterset.local"));
    for there in ["east.prod", "prod", "west", "pet-0.east.prod", "pet-0.west"] {
        assert_eq!(below(there), "NOERROR", "{there}");
    }
    for absent in [
        "east",
        "pet-0.east",
        "pet-0.prod",
        "east.west",
        "a.pet-0.west",
    ] {
        assert_eq!(below(absent), "NXDOMAIN", "{absent}");
    }
}

#[test]
fn a_name_with_names_below_it_is_there() {
    let world = pets();
    for there in ["_tcp.pets.shop.svc", "shop.svc", "svc", "dns"] {
        assert_eq!(
            rcode(&world, &format!("{there}.clusterset.local")),
            "NOERROR",
            "{there}"
        );
    }
    for absent in [
        "_udp.pets.shop.svc",
        "_sctp.pets.shop.svc",
        "_web.pets.shop.svc",
        "x.svc",
        "x",
    ] {
        assert_eq!(
            rcode(&world, &format!("{absent}.clusterset.local")),
            "NXDOMAIN",
            "{absent}"
        );
    }
    assert_eq!(rcode(&World::default(), "svc.clusterset.local"), "NXDOMAIN");
}

#[test]
fn an_unnamed_port_has_no_srv_name_but_is_among_the_services_own() {
    let world = pets();
    assert_eq!(
        world.ask("_._tcp.pets.shop.svc.clusterset.local SRV").0,
        "NXDOMAIN"
    );
    let (_, all) = world.ask("pets.shop.svc.clusterset.local SRV");
    assert!(all.contains(&"8081 pet-0.east.prod.pets.shop.svc.clusterset.local.".to_owned()));
    assert_eq!(all.len(), 6);
    let unnamed = World::default().cluster_set_ip("shop/one", &["10.96.0.1"], &["TCP/80"]);
    assert_eq!(
        rcode(&unnamed, "_tcp.one.shop.svc.clusterset.local"),
        "NXDOMAIN"
    );
    let all = unnamed.ask("one.shop.svc.clusterset.local SRV");
    assert_eq!(all.1, ["80 one.shop.svc.clusterset.local."]);
}

#[test]
fn each_port_and_target_is_one_record() {
    let ports = &["dns UDP/53", "dns-tcp TCP/53"];
    let world = World::default()
        .cluster_set_ip("shop/vip", &["10.96.0.1"], ports)
        .headless("shop/pods", ports)
        .slice("shop/pods", "east", ports, &["10.1.0.1 a"])
        .slice("shop/pods", "east", ports, &["10.1.0.1 a", "10.1.0.2 a"]);
    let ask = |text: &str| {
        world
            .ask(&format!("{text}.shop.svc.clusterset.local SRV"))
            .1
    };
    assert_eq!(ask("vip"), ["53 vip.shop.svc.clusterset.local."]);
    assert_eq!(ask("pods"), ["53 a.east.pods.shop.svc.clusterset.local."]);
    assert_eq!(
        ask("_dns._udp.pods"),
        ["53 a.east.pods.shop.svc.clusterset.local."]
    );
    let addresses = world.ask("a.east.pods.shop.svc.clusterset.local A").1;
    assert_eq!(addresses, ["10.1.0.1", "10.1.0.2"]);
}

#[test]
fn srv_targets_come_with_their_addresses() {
    let world = pets().cluster_set_ip("shop/vip", &["10.96.0.1", "2001:db8::9"], &["web TCP/80"]);
    let answer = full(&world, "_web._tcp.vip.shop.svc.clusterset.local SRV");
    let texts = |answer: &Answer| -> Vec<String> {
        let texts = answer.additional.iter();
        let mut texts: Vec<_> = texts.map(|r| format!("{} {}", r.name, r.data)).collect();
        texts.sort();
        texts
    };
    let name = "vip.shop.svc.clusterset.local.";
    assert_eq!(
        texts(&answer),
        [format!("{name} 10.96.0.1"), format!("{name} 2001:db8::9")]
    );
    let answer = full(&world, "_web._tcp.pets.shop.svc.clusterset.local SRV");
    assert_eq!(answer.answers.len(), 4);
    let name = "pet-0.west.pets.shop.svc.clusterset.local.";
    assert!(texts(&answer).contains(&format!("{name} 10.2.0.1")));
    assert!(texts(&answer).contains(&format!("{name} 2001:db8::1")));
    assert_eq!(answer.additional.len(), 5);
}

#[test]
fn the_zone_has_soa_and_ns_and_a_version() {
    let mut world = pets();
    world.server = vec![
        "192.0.2.1".parse().unwrap(),
        "2001:db8::53".parse().unwrap(),
    ];
    let soa = full(&world, "clusterset.local SOA");
    assert!(matches!(
        soa.answers[0].data,
        RecordData::Soa {
            minimum_secs: 5,
            ..
        }
    ));
    let ns = full(&world, "clusterset.local NS");
    assert_eq!(ns.answers[0].data.to_string(), "ns.dns.clusterset.local.");
    assert_eq!(ns.additional.len(), 2);
    assert_eq!(world.ask("ns.dns.clusterset.local A").1, ["192.0.2.1"]);
    assert_eq!(world.ask("dns-version.clusterset.local TXT").1, ["1.0.0"]);
    assert_eq!(
        world.ask("dns-version.clusterset.local A"),
        ("NOERROR", vec![])
    );
    assert_eq!(world.ask("clusterset.local A"), ("NOERROR", vec![]));
}

#[test]
fn negative_answers_carry_the_soa_and_authority() {
    let world = pets();
    for text in [
        "nosuch.shop.svc.clusterset.local A",
        "pets.shop.svc.clusterset.local TXT",
        "clusterset.local PTR",
    ] {
        let answer = full(&world, text);
        assert!(answer.authoritative && answer.answers.is_empty(), "{text}");
        assert_eq!(answer.authority[0].name, "clusterset.local.", "{text}");
        assert_eq!(answer.authority[0].ttl_secs, 5, "{text}");
    }
}

#[test]
fn any_gets_one_hinfo_where_the_name_is_there() {
    let world = pets();
    for name in [
        "pets.shop.svc",
        "_web._tcp.pets.shop.svc",
        "west.pets.shop.svc",
        "dns-version",
    ] {
        let answer = world.ask(&format!("{name}.clusterset.local ANY"));
        assert_eq!(answer, ("NOERROR", vec!["RFC8482".to_owned()]), "{name}");
    }
    assert_eq!(world.ask("clusterset.local ANY").1, ["RFC8482"]);
    assert_eq!(world.ask("nosuch.clusterset.local ANY").0, "NXDOMAIN");
}

#[test]
fn outside_the_zones_is_refused() {
    let world = pets();
    for text in [
        "pets.shop.svc.cluster.local A",
        "1.0.1.10.in-addr.arpa PTR",
        "local SOA",
        ". NS",
        "notclusterset.local A",
        "clusterset.local AXFR",
    ] {
        let answer = full(&world, text);
        assert_eq!(
            (answer.rcode, answer.authoritative),
            (Rcode::Refused, false),
            "{text}"
        );
    }
}

#[test]
fn before_the_first_list_the_zones_fail_and_the_rest_is_refused() {
    let world = pets();
    let snapshot = Snapshot::unsynced(world.zone_set().into(), NOW_SECS);
    for (text, wanted) in [
        ("pets.shop.svc.clusterset.local A", Rcode::ServFail),
        ("clusterset.local SOA", Rcode::ServFail),
        ("example.org A", Rcode::Refused),
    ] {
        assert_eq!(
            ask_in_full(&snapshot, &question(text)).rcode,
            wanted,
            "{text}"
        );
    }
}

#[test]
fn several_zones_have_the_same_services() {
    let world = pets().zone("clusterset.local").zone("mesh.example.org");
    let (_, srv) = world.ask("_web._tcp.pets.shop.svc.mesh.example.org SRV");
    assert_eq!(srv.len(), 4);
    assert!(
        srv.iter()
            .all(|text| text.ends_with(".svc.mesh.example.org."))
    );
    assert_eq!(world.ask("pets.shop.svc.clusterset.local A").1.len(), 3);
}

#[test]
fn headless_addresses_come_in_another_order_each_time() {
    let endpoints: Vec<String> = (1..=20).map(|n| format!("10.0.0.{n}")).collect();
    let endpoints: Vec<&str> = endpoints.iter().map(String::as_str).collect();
    let world =
        World::default()
            .headless("shop/many", &[])
            .slice("shop/many", "east", &[], &endpoints);
    let snapshot = world.snapshot();
    let name = WireName::parse("many.shop.svc.clusterset.local").unwrap();
    let ask = |seed: u64| {
        let record_type = crate::RecordType::A;
        let query = Query {
            name: name.clone(),
            record_type,
            seed,
        };
        ask_in_full(&snapshot, &query).answers
    };
    let seeds = (0..400_u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let orders: BTreeSet<Vec<_>> = seeds.map(ask).collect();
    let firsts: BTreeSet<_> = orders.iter().map(|order| order[0].clone()).collect();
    assert!(orders.iter().all(|order| order.len() == 20));
    assert_eq!(firsts.len(), 20);
    assert!(orders.len() > 100, "{}", orders.len());
    assert_eq!(ask(7), ask(7));
}

#[test]
fn a_host_whose_name_would_be_too_long_is_left_out_of_srv_only() {
    let (service, namespace) = ("s".repeat(63), "n".repeat(63));
    let service = format!("{namespace}/{service}");
    let cluster = format!("{}.{}", "c".repeat(31), "d".repeat(31));
    let host = |length: usize| format!("10.0.0.{length} {}", "h".repeat(length));
    let world = World::default().headless(&service, &["web TCP/80"]).slice(
        &service,
        &cluster,
        &["web TCP/80"],
        &[&host(40), &host(41)],
    );
    let name = format!("{}.{}.svc.clusterset.local", "s".repeat(63), "n".repeat(63));
    let (_, srv) = world.ask(&format!("_web._tcp.{name} SRV"));
    assert_eq!(srv.len(), 1);
    assert!(srv[0].contains(&format!(" {}.", "h".repeat(40))));
    assert_eq!(world.ask(&format!("{name} A")).1.len(), 2);
    let longest = format!("{}.{cluster}.{name} A", "h".repeat(40));
    assert_eq!(world.ask(&longest).1, ["10.0.0.40"]);
}

#[test]
fn ports_that_the_import_does_not_have_are_left_out() {
    let ports = &["web TCP/8080", "debug TCP/6060"];
    let world = World::default()
        .headless("shop/a", &["web TCP/80"])
        .slice("shop/a", "east", ports, &["10.1.0.1 h"])
        .headless("shop/b", &[])
        .slice("shop/b", "east", ports, &["10.1.0.1 h"]);
    assert_eq!(world.ask("a.shop.svc.clusterset.local SRV").1.len(), 1);
    assert_eq!(
        world.ask("_debug._tcp.a.shop.svc.clusterset.local SRV").0,
        "NXDOMAIN"
    );
    // An implementation that lists no ports in a headless import leaves them to its slices.
    assert_eq!(world.ask("b.shop.svc.clusterset.local SRV").1.len(), 2);
}

#[test]
fn slices_without_the_standard_labels_count_for_nothing() {
    let mut world = World::default()
        .headless("shop/a", &["web TCP/80"])
        .slice("shop/a", "east", &["web TCP/80"], &["10.1.0.1"])
        .slice("shop/a", "west", &["web TCP/80"], &["10.2.0.1"]);
    world.slices[0].meta.labels = std::sync::Arc::default();
    assert_eq!(world.ask("a.shop.svc.clusterset.local A").1, ["10.2.0.1"]);
}
