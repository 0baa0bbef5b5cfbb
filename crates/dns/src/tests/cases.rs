//! The DNS expectations of the field cases, each with the ServiceImports and EndpointSlices that
//! an importing cluster holds in it.

use super::world::World;

/// Asserts that each `name TYPE` below `zone` gets its code and its answers.
fn expect(world: &World, expectations: &[(&str, &str, &[&str])]) {
    let snapshot = world.snapshot();
    for (question, rcode, answers) in expectations {
        let mut wanted: Vec<String> = answers.iter().map(|&text| text.to_owned()).collect();
        wanted.sort();
        let got = super::world::ask(&snapshot, question);
        assert_eq!(got, (*rcode, wanted), "{question}");
    }
}

#[test]
fn d01_the_whole_set_of_names_of_a_plain_clusterset_service() {
    let world = World::default()
        .cluster_set_ip(
            "shop/shopapi",
            &["10.96.0.7"],
            &["http TCP/80", "grpc TCP/9000"],
        )
        .slice(
            "shop/shopapi",
            "east",
            &["http TCP/8080", "grpc TCP/9000"],
            &["10.1.0.10 pod-a"],
        )
        .slice(
            "shop/shopapi",
            "west",
            &["http TCP/8080", "grpc TCP/9000"],
            &["10.2.0.10"],
        );
    expect(
        &world,
        &[
            (
                "shopapi.shop.svc.clusterset.local. A",
                "NOERROR",
                &["10.96.0.7"],
            ),
            (
                "SHOPAPI.Shop.svc.clusterset.local. A",
                "NOERROR",
                &["10.96.0.7"],
            ),
            ("shopapi.shop.svc.clusterset.local. AAAA", "NOERROR", &[]),
            ("shopapi.shop.svc.clusterset.local. TXT", "NOERROR", &[]),
            (
                "_http._tcp.shopapi.shop.svc.clusterset.local. SRV",
                "NOERROR",
                &["80 shopapi.shop.svc.clusterset.local."],
            ),
            (
                "_grpc._tcp.shopapi.shop.svc.clusterset.local. SRV",
                "NOERROR",
                &["9000 shopapi.shop.svc.clusterset.local."],
            ),
            (
                "_http._udp.shopapi.shop.svc.clusterset.local. SRV",
                "NXDOMAIN",
                &[],
            ),
            ("east.shopapi.shop.svc.clusterset.local. A", "NXDOMAIN", &[]),
            ("nosuch.shop.svc.clusterset.local. A", "NXDOMAIN", &[]),
            ("shopapi.nosuch.svc.clusterset.local. A", "NXDOMAIN", &[]),
            ("dns-version.clusterset.local. TXT", "NOERROR", &["1.0.0"]),
        ],
    );
}

#[test]
fn d03_identical_stateful_sets_in_two_clusters() {
    let world = World::default()
        .headless("shop/mongo", &["db TCP/27017"])
        .slice(
            "shop/mongo",
            "east",
            &["db TCP/27017"],
            &["10.1.0.30 mongo-0", "10.1.0.31 mongo-1"],
        )
        .slice(
            "shop/mongo",
            "west",
            &["db TCP/27017"],
            &["10.2.0.30 mongo-0", "10.2.0.31 mongo-1 !"],
        );
    expect(
        &world,
        &[
            (
                "mongo.shop.svc.clusterset.local. A",
                "NOERROR",
                &["10.1.0.30", "10.1.0.31", "10.2.0.30"],
            ),
            (
                "mongo-0.east.mongo.shop.svc.clusterset.local. A",
                "NOERROR",
                &["10.1.0.30"],
            ),
            (
                "mongo-0.west.mongo.shop.svc.clusterset.local. A",
                "NOERROR",
                &["10.2.0.30"],
            ),
            (
                "mongo-1.west.mongo.shop.svc.clusterset.local. A",
                "NXDOMAIN",
                &[],
            ),
            (
                "mongo-0.mongo.shop.svc.clusterset.local. A",
                "NXDOMAIN",
                &[],
            ),
            ("west.mongo.shop.svc.clusterset.local. A", "NOERROR", &[]),
            (
                "_db._tcp.mongo.shop.svc.clusterset.local. SRV",
                "NOERROR",
                &[
                    "27017 mongo-0.east.mongo.shop.svc.clusterset.local.",
                    "27017 mongo-1.east.mongo.shop.svc.clusterset.local.",
                    "27017 mongo-0.west.mongo.shop.svc.clusterset.local.",
                ],
            ),
        ],
    );
}

#[test]
fn d05_which_names_exist_when_nothing_is_ready() {
    let world = World::default()
        .cluster_set_ip("shop/vip", &["10.96.0.8"], &["http TCP/80"])
        .slice("shop/vip", "east", &["http TCP/8080"], &["10.1.0.50 !"])
        .headless("shop/peers", &["p TCP/7000"]);
    let not_ready =
        world
            .clone()
            .slice("shop/peers", "east", &["p TCP/7000"], &["10.1.0.51 p-0 !"]);
    expect(
        &not_ready,
        &[
            (
                "vip.shop.svc.clusterset.local. A",
                "NOERROR",
                &["10.96.0.8"],
            ),
            (
                "_http._tcp.vip.shop.svc.clusterset.local. SRV",
                "NOERROR",
                &["80 vip.shop.svc.clusterset.local."],
            ),
            ("peers.shop.svc.clusterset.local. A", "NXDOMAIN", &[]),
            ("peers.shop.svc.clusterset.local. AAAA", "NXDOMAIN", &[]),
            (
                "_p._tcp.peers.shop.svc.clusterset.local. SRV",
                "NXDOMAIN",
                &[],
            ),
            (
                "p-0.east.peers.shop.svc.clusterset.local. A",
                "NXDOMAIN",
                &[],
            ),
        ],
    );
    let ready = world.slice("shop/peers", "east", &["p TCP/7000"], &["10.1.0.51 p-0"]);
    expect(
        &ready,
        &[
            (
                "peers.shop.svc.clusterset.local. A",
                "NOERROR",
                &["10.1.0.51"],
            ),
            ("peers.shop.svc.clusterset.local. AAAA", "NOERROR", &[]),
        ],
    );
}

#[test]
fn d07_srv_when_one_cluster_lacks_a_port() {
    let world = World::default()
        .headless("shop/inf", &["ping TCP/8888", "stats TCP/9779"])
        .slice("shop/inf", "east", &["ping TCP/8888"], &["10.1.0.70 inf-0"])
        .slice(
            "shop/inf",
            "west",
            &["ping TCP/8888", "stats TCP/9779"],
            &["10.2.0.70 inf-0"],
        )
        .slice("shop/inf", "west", &["ping TCP/8889"], &["10.2.0.71 inf-1"]);
    expect(
        &world,
        &[
            (
                "_ping._tcp.inf.shop.svc.clusterset.local. SRV",
                "NOERROR",
                &[
                    "8888 inf-0.east.inf.shop.svc.clusterset.local.",
                    "8888 inf-0.west.inf.shop.svc.clusterset.local.",
                    "8889 inf-1.west.inf.shop.svc.clusterset.local.",
                ],
            ),
            (
                "_stats._tcp.inf.shop.svc.clusterset.local. SRV",
                "NOERROR",
                &["9779 inf-0.west.inf.shop.svc.clusterset.local."],
            ),
        ],
    );
}

#[test]
fn e05_the_same_address_in_two_clusters_is_one_answer() {
    let world = World::default()
        .headless("shop/ftp", &["ftp TCP/21"])
        .slice(
            "shop/ftp",
            "east",
            &["ftp TCP/21"],
            &["10.9.0.50", "10.1.0.50"],
        );
    let both = world.slice("shop/ftp", "west", &["ftp TCP/21"], &["10.9.0.50"]);
    let name = "ftp.shop.svc.clusterset.local. A";
    expect(&both, &[(name, "NOERROR", &["10.9.0.50", "10.1.0.50"])]);
    let withdrawn = World::default()
        .headless("shop/ftp", &["ftp TCP/21"])
        .slice("shop/ftp", "west", &["ftp TCP/21"], &["10.9.0.50"]);
    expect(&withdrawn, &[(name, "NOERROR", &["10.9.0.50"])]);
}

#[test]
fn e11_exported_services_without_endpoints() {
    let world = World::default()
        .cluster_set_ip("shop/idle", &["10.96.0.9"], &["http TCP/80"])
        .cluster_set_ip("shop/bare", &["10.96.0.10"], &[])
        .headless("shop/peers", &["p TCP/7000"]);
    expect(
        &world,
        &[
            (
                "idle.shop.svc.clusterset.local. A",
                "NOERROR",
                &["10.96.0.9"],
            ),
            (
                "bare.shop.svc.clusterset.local. A",
                "NOERROR",
                &["10.96.0.10"],
            ),
            ("peers.shop.svc.clusterset.local. A", "NXDOMAIN", &[]),
            (
                "p-0.east.peers.shop.svc.clusterset.local. A",
                "NXDOMAIN",
                &[],
            ),
        ],
    );
}

#[test]
fn e13_an_import_that_has_no_address_yet_is_an_empty_answer() {
    let world = World::default().cluster_set_ip("shop/basket", &[], &["http TCP/80"]);
    expect(
        &world,
        &[("basket.shop.svc.clusterset.local. A", "NOERROR", &[])],
    );
}

#[test]
fn e17_e19_without_an_import_there_is_no_name() {
    let world = World::default().cluster_set_ip("shop/geo", &["10.96.0.11"], &["http TCP/80"]);
    let name = "geo.shop.svc.clusterset.local. A";
    expect(&world, &[(name, "NOERROR", &["10.96.0.11"])]);
    expect(&World::default(), &[(name, "NXDOMAIN", &[])]);
}

#[test]
fn e21_names_of_sixty_three_characters() {
    let service = "s-1234567890-1234567890-1234567890-1234567890-1234567890-123456";
    let namespace = "n-abcdefghij-abcdefghij-abcdefghij-abcdefghij-abcdefghij-abcdef";
    let port = "p".repeat(63);
    let world = World::default().cluster_set_ip(
        &format!("{namespace}/{service}"),
        &["10.96.0.12"],
        &[&format!("{port} TCP/80")],
    );
    let name = format!("{service}.{namespace}.svc.clusterset.local.");
    expect(
        &world,
        &[(&format!("{name} A"), "NOERROR", &["10.96.0.12"])],
    );
    expect(
        &world,
        &[(&format!("{name} SRV"), "NOERROR", &[&format!("80 {name}")])],
    );
}

#[test]
fn m05_three_protocols_on_one_number() {
    let world = World::default().cluster_set_ip(
        "shop/amf",
        &["10.96.0.13"],
        &["ngap SCTP/38412", "probe TCP/38412", "gtp UDP/38412"],
    );
    let answer: &[&str] = &["38412 amf.shop.svc.clusterset.local."];
    expect(
        &world,
        &[
            (
                "_ngap._sctp.amf.shop.svc.clusterset.local. SRV",
                "NOERROR",
                answer,
            ),
            (
                "_gtp._udp.amf.shop.svc.clusterset.local. SRV",
                "NOERROR",
                answer,
            ),
            (
                "_gtp._tcp.amf.shop.svc.clusterset.local. SRV",
                "NXDOMAIN",
                &[],
            ),
            ("amf.shop.svc.clusterset.local. SRV", "NOERROR", answer),
        ],
    );
}

#[test]
fn m09_a_clusterset_service_has_no_name_for_a_cluster() {
    let world = World::default()
        .cluster_set_ip("shop/db", &["10.96.0.14"], &["sql TCP/5432"])
        .slice("shop/db", "west", &["sql TCP/5432"], &["10.2.0.9 db-0"]);
    expect(
        &world,
        &[
            (
                "db.shop.svc.clusterset.local. A",
                "NOERROR",
                &["10.96.0.14"],
            ),
            ("west.db.shop.svc.clusterset.local. A", "NXDOMAIN", &[]),
            ("db-0.west.db.shop.svc.clusterset.local. A", "NXDOMAIN", &[]),
        ],
    );
}

#[test]
fn m17_there_is_never_a_cname() {
    let world = World::default().cluster_set_ip("shop/billing", &["10.96.0.15"], &["http TCP/80"]);
    expect(
        &world,
        &[
            (
                "billing.shop.svc.clusterset.local. A",
                "NOERROR",
                &["10.96.0.15"],
            ),
            ("billing.shop.svc.clusterset.local. CNAME", "NOERROR", &[]),
        ],
    );
}

#[test]
fn m21_a_family_that_the_import_lacks_is_an_empty_answer() {
    let world = World::default().cluster_set_ip("shop/img", &["10.96.0.16"], &["http TCP/80"]);
    expect(
        &world,
        &[
            (
                "img.shop.svc.clusterset.local. A",
                "NOERROR",
                &["10.96.0.16"],
            ),
            ("img.shop.svc.clusterset.local. AAAA", "NOERROR", &[]),
        ],
    );
}
