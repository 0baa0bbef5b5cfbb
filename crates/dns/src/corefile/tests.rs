//! Corefiles from the field, and files that nobody should touch.

use proptest::prelude::*;

use super::*;

/// As kubeadm installs it.
const KUBEADM: &str = "\
.:53 {
    errors
    health {
       lameduck 5s
    }
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {
       pods insecure
       fallthrough in-addr.arpa ip6.arpa
       ttl 30
    }
    prometheus :9153
    forward . /etc/resolv.conf {
       max_concurrent 1000
    }
    cache 30
    loop
    reload
    loadbalance
}
";

/// As k3s does: tabs, a snippet of hosts, imports, no newline at the end.
const K3S: &str = ".:53 {\n\terrors\n\thosts /etc/coredns/NodeHosts {\n\t  ttl 60\n\t}\n\timport \
                   /etc/coredns/custom/*.override\n}\nimport /etc/coredns/custom/*.server";

/// NodeLocal DNSCache, shortened.
const NODE_LOCAL: &str = "\
cluster.local:53 {
    errors
    cache {
            success 9984 30
            denial 9984 5
    }
    bind 169.254.20.10 10.96.0.10
    forward . __PILLAR__CLUSTER__DNS__ {
            force_tcp
    }
}
.:53 {
    errors
    cache 30
    bind 169.254.20.10 10.96.0.10
    forward . __PILLAR__UPSTREAM__SERVERS__
}
";

fn stub() -> Stub {
    Stub {
        zones: vec![WireName::parse("clusterset.local").unwrap()],
        servers: vec!["10.96.0.53:53".parse().unwrap()],
        cache_secs: 5,
    }
}

#[test]
fn the_stub_stands_before_everything_else() {
    let added = stub().add_to(KUBEADM).unwrap();
    let stanza = "\
# tombolo: begin stub zone (made by `tombolo dns-stub`, which also removes it)
clusterset.local:53 {
    errors
    cache 5
    loadbalance
    forward . 10.96.0.53:53
}
# tombolo: end stub zone
";
    assert_eq!(added, format!("{stanza}{KUBEADM}"));
    assert_eq!(stub().stanza(), stanza);
}

#[test]
fn adding_twice_is_adding_once_and_removing_restores() {
    for text in [KUBEADM, K3S, NODE_LOCAL] {
        let once = stub().add_to(text).unwrap();
        assert_eq!(stub().add_to(&once).unwrap(), once);
        assert_eq!(remove_stub(&once).unwrap(), text);
        assert_eq!(remove_stub(text).unwrap(), text);
    }
}

#[test]
fn another_server_replaces_the_first() {
    let once = stub().add_to(KUBEADM).unwrap();
    let other = Stub {
        zones: vec![
            WireName::parse("a.example").unwrap(),
            WireName::parse("b.example").unwrap(),
        ],
        servers: vec![
            "[fd00::53]:5353".parse().unwrap(),
            "10.0.0.1:53".parse().unwrap(),
        ],
        cache_secs: 0,
    };
    let twice = other.add_to(&once).unwrap();
    assert!(twice.contains("a.example:53 b.example:53 {\n"), "{twice}");
    assert!(twice.contains("forward . [fd00::53]:5353 10.0.0.1:53\n"));
    assert!(!twice.contains("clusterset.local") && !twice.contains("cache 5"));
    assert_eq!(remove_stub(&twice).unwrap(), KUBEADM);
}

#[test]
fn the_stub_listens_where_the_root_zone_does() {
    let added = stub().add_to(NODE_LOCAL).unwrap();
    assert!(
        added.contains("clusterset.local:53 {\n    bind 169.254.20.10 10.96.0.10\n    errors"),
        "{added}"
    );
    let port = stub()
        .add_to(&KUBEADM.replace(".:53", "dns://.:5353"))
        .unwrap();
    assert!(port.contains("clusterset.local:5353 {"), "{port}");
    let env = stub()
        .add_to(&KUBEADM.replace(".:53", ".:{$PORT}"))
        .unwrap();
    assert!(env.contains("clusterset.local:{$PORT} {"), "{env}");
    let none = stub().add_to(&KUBEADM.replace(".:53", ".")).unwrap();
    assert!(none.contains("\nclusterset.local {"), "{none}");
}

#[test]
fn a_zone_that_is_served_already_is_refused() {
    for key in [
        "clusterset.local",
        "ClusterSet.Local.:53",
        "a.example,clusterset.local:5353",
    ] {
        let text = format!("{KUBEADM}{key} {{\n}}\n");
        let error = stub().add_to(&text).unwrap_err();
        assert!(
            matches!(error, CorefileError::Taken { line: 21, .. }),
            "{key}: {error}"
        );
    }
    // Neither below nor above it, nor by another protocol.
    for key in ["east.clusterset.local", "local", "tls://clusterset.local"] {
        let text = format!("{KUBEADM}{key} {{\n}}\n");
        assert!(stub().add_to(&text).is_ok(), "{key}");
    }
}

#[test]
fn what_is_not_understood_is_refused() {
    let own = stub().add_to(KUBEADM).unwrap();
    let bad = [
        // One server without braces, which CoreDNS accepts.
        ".:53\nerrors\nforward . 1.1.1.1\n",
        ".:53 {\n    errors\n",
        ".:53 {\n    errors }\n",
        ".:53 { errors\n}\n",
        ".:53 {\n}\n}\n",
        ".:53\n{\n}\n",
        "{$ZONE} {\n}\n",
        "\u{feff}.:53 {\n}\n",
        ".:53 {\n  log \"a\n}\n",
        ".:53 {\n  bind 10.0.0.1 {\n    except 10.0.0.2\n  }\n}\n",
        // No root zone, or two.
        "",
        "cluster.local {\n}\n",
        ".:53 {\n}\n.:54 {\n}\n",
        // Somebody edited our comments, or what is between them.
        &own.replace(END, ""),
        &own.replace(BEGIN, ""),
        &format!("{own}{own}"),
        &own.replace(
            "    errors\n    cache 5",
            "}\na.example {\n    errors\n    cache 5",
        ),
    ];
    for text in bad {
        assert!(stub().add_to(text).is_err(), "{text}");
    }
    for text in &bad[..10] {
        assert!(remove_stub(text).is_err(), "{text}");
    }
}

#[test]
fn comments_quotes_and_snippets_are_read() {
    let text = "# } {\n(snip) {\n  errors # {\n}\n. {\n  import snip\n  log \"a { \\\" }\" #\n}\n";
    let added = stub().add_to(text).unwrap();
    assert_eq!(remove_stub(&added).unwrap(), text);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Whatever a file is: refused, or restored to the last byte.
    #[test]
    fn any_file_is_refused_or_restored(
        parts in proptest::collection::vec(
            prop_oneof![
                Just(".:53 {\n"), Just("}\n"), Just("  }"), Just("\n"), Just("\r\n"), Just(" {"),
                Just("errors\n"), Just("# x {"), Just("\"a\n\""), Just("a.b:1, "), Just("import x\n"),
                Just("health {\n"), Just(BEGIN), Just(END), Just("clusterset.local"), Just("(s)"),
            ],
            0..14,
        ),
    ) {
        let text = parts.concat();
        if let Ok(added) = stub().add_to(&text) {
            prop_assert_eq!(stub().add_to(&added), Ok(added.clone()));
            let removed = remove_stub(&added);
            prop_assert_eq!(removed, remove_stub(&text));
        }
        if !text.contains(BEGIN) && let Ok(removed) = remove_stub(&text) {
            prop_assert_eq!(removed, text);
        }
    }
}
