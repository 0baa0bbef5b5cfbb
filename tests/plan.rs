//! `tombolo plan` as a user runs it: how clusters are given, what is read, what is written and
//! printed. Which objects come out is the subject of `tests/cases`; what happens to input that is
//! wrong, of `tests/bad_input.rs`.
#![expect(clippy::unwrap_used, reason = "test crate")]

use std::fs;

use serde_json::Value;
use tombolo_testkit::command::{Binary, Finished};
use tombolo_testkit::files::{Tree, contents, snapshot};
use tombolo_testkit::manifest;

fn tombolo(args: &[&str]) -> Finished {
    Binary::new(env!("CARGO_BIN_EXE_tombolo"))
        .run(args)
        .unwrap()
}

/// What `plan -o json` prints, with the exit code that it must have.
fn report(code: i32, args: &[&str]) -> Value {
    let run = tombolo(&[&["plan", "-o", "json"], args].concat());
    assert_eq!(run.code, Some(code), "{run:?}");
    serde_json::from_str(&run.stdout).unwrap()
}

/// A cluster of a report.
fn cluster<'a>(report: &'a Value, name: &str) -> &'a Value {
    let clusters = report["clusters"].as_array().unwrap();
    clusters
        .iter()
        .find(|cluster| cluster["name"] == name)
        .unwrap()
}

/// The names of what a cluster imports, with their namespaces.
fn imports(report: &Value, name: &str) -> Vec<String> {
    let imports = cluster(report, name)["imports"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    imports
        .iter()
        .map(|import| format!("{}/{}", text(&import["namespace"]), text(&import["name"])))
        .collect()
}

/// East exports shop/web; west has the namespace.
fn two_clusters() -> Tree {
    Tree::with(&[
        (
            "clusters/east/web.yaml",
            manifest::exported("shop", "web", 5, "10.1.0.1"),
        ),
        ("clusters/west/shop.yaml", manifest::namespace("shop")),
    ])
    .unwrap()
}

// How clusters are given.

#[test]
fn one_argument_may_hold_a_directory_per_cluster() {
    let tree = two_clusters();
    let together = report(0, &[&tree.arg("clusters")]);
    let apart = report(0, &[&tree.arg("clusters/west"), &tree.arg("clusters/east")]);
    assert_eq!(together, apart);
    assert_eq!(imports(&together, "west"), ["shop/web"]);
}

#[test]
fn one_directory_of_manifests_is_one_cluster() {
    let tree = two_clusters();
    let alone = report(0, &[&tree.arg("clusters/east")]);
    assert_eq!(alone["clusters"].as_array().unwrap().len(), 1);
    assert_eq!(imports(&alone, "east"), ["shop/web"]);
}

#[test]
fn a_cluster_has_the_name_of_its_directory_however_it_is_written() {
    let tree = two_clusters();
    let slash = report(
        0,
        &[&tree.arg("clusters/east/"), &tree.arg("clusters/west/.")],
    );
    assert_eq!(slash, report(0, &[&tree.arg("clusters")]));
    let here = |dir: &str| {
        let binary = Binary::new(env!("CARGO_BIN_EXE_tombolo")).within(tree.path(dir));
        let run = binary.run(["plan", "-o", "json", "."]).unwrap();
        serde_json::from_str::<Value>(&run.stdout).unwrap()
    };
    assert_eq!(imports(&here("clusters/east"), "east"), ["shop/web"]);
    assert_eq!(here("clusters"), slash);
}

// What is read.

#[test]
fn every_yaml_and_json_file_below_a_directory_is_read() {
    let list = "apiVersion: v1\nkind: List\nitems:\n- apiVersion: multicluster.x-k8s.io/v1beta1\n  \
                kind: ServiceExport\n  metadata:\n    name: web\n    namespace: shop\n    \
                creationTimestamp: '2026-01-05T00:00:00Z'\n";
    let services = "apiVersion: v1\nkind: ServiceList\nitems:\n- metadata:\n    name: web\n    \
                    namespace: shop\n  spec:\n    ports:\n    - name: http\n      port: 80\n      \
                    targetPort: 8080\n";
    let slice = r#"{"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": "web-1", "namespace": "shop",
            "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4", "ports": [{"name": "http", "port": 8080}],
        "endpoints": [{"addresses": ["10.1.0.1"]}]}"#;
    let tree = two_clusters();
    tree.remove("clusters/east").unwrap();
    for (path, text) in [
        (
            "clusters/east/namespace.yml",
            manifest::namespace("shop").as_str(),
        ),
        ("clusters/east/list.yaml", list),
        ("clusters/east/deep/down/services.yaml", services),
        ("clusters/east/deep/slice.json", slice),
        ("clusters/east/notes.txt", "neither: [YAML, nor JSON"),
        ("clusters/east/empty.yaml", ""),
        (
            "clusters/east/comment.yaml",
            "# nothing here\n---\n---\n# nor here\n",
        ),
    ] {
        tree.put(path, text).unwrap();
    }
    let report = report(0, &[&tree.arg("clusters/east"), &tree.arg("clusters/west")]);
    assert_eq!(imports(&report, "west"), ["shop/web"]);
    assert_eq!(cluster(&report, "west")["imports"][0]["endpoints"], 1);
    assert_eq!(report["errors"].as_array().unwrap().len(), 0);
}

#[test]
fn line_ends_of_windows_and_a_byte_order_mark_are_fine() {
    let tree = two_clusters();
    let expected = report(0, &[&tree.arg("clusters")]);
    let text = manifest::exported("shop", "web", 5, "10.1.0.1").replace('\n', "\r\n");
    tree.put("clusters/east/web.yaml", &format!("\u{feff}{text}"))
        .unwrap();
    assert_eq!(report(0, &[&tree.arg("clusters")]), expected);
}

#[test]
fn objects_that_are_not_needed_are_ignored() {
    let tree = two_clusters();
    let expected = report(0, &[&tree.arg("clusters")]);
    let others = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: shop}\n\
                  spec: {replicas: 2}\n---\napiVersion: example.com/v7\nkind: Service\nmetadata: \
                  {name: web, namespace: shop}\n---\napiVersion: v1\nkind: Secret\nmetadata: \
                  {name: web, namespace: shop}\ndata: {}\n";
    tree.put("clusters/east/others.yaml", others).unwrap();
    let run = tombolo(&["plan", &tree.arg("clusters")]);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
    assert_eq!(report(0, &[&tree.arg("clusters")]), expected);
}

#[test]
fn without_namespace_objects_the_namespaces_that_are_used_exist() {
    let tree = two_clusters();
    let other = manifest::service("shop", "other", 80);
    tree.put("clusters/west/shop.yaml", &other).unwrap();
    assert_eq!(
        imports(&report(0, &[&tree.arg("clusters")]), "west"),
        ["shop/web"]
    );
    tree.put("clusters/west/bank.yaml", &manifest::namespace("bank"))
        .unwrap();
    let report = report(2, &[&tree.arg("clusters")]);
    assert_eq!(imports(&report, "west"), Vec::<String>::new());
    let message = report["errors"][0]["message"].to_string();
    assert!(
        message.contains("shop/other") && message.contains("Namespaces"),
        "{message}"
    );
}

#[test]
fn an_object_without_namespace_is_in_default() {
    let exported = manifest::exported("default", "web", 5, "10.1.0.1");
    let bare = exported.replace("  namespace: default\n", "");
    let tree = Tree::with(&[("east/web.yaml", bare)]).unwrap();
    assert_eq!(
        imports(&report(0, &[&tree.arg("east")]), "east"),
        ["default/web"]
    );
}

#[test]
fn a_namespace_that_is_not_global_takes_no_part() {
    let tree = two_clusters();
    let local = "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: shop\n  annotations:\n    \
                 tombolo.dev/global: 'false'\n";
    tree.put("clusters/west/shop.yaml", local).unwrap();
    assert_eq!(
        imports(&report(0, &[&tree.arg("clusters")]), "west"),
        Vec::<String>::new()
    );
}

#[test]
fn the_rules_are_those_of_a_controller() {
    let tree = two_clusters();
    let clusters = tree.arg("clusters");
    let with = |code: i32, options: &[&str]| {
        let report = report(code, &[&[clusters.as_str()], options].concat());
        (imports(&report, "west"), report)
    };
    assert_eq!(with(2, &["--namespaces", "team=a"]).0, [""; 0]);
    assert_eq!(with(2, &["--global-by-default", "false"]).0, [""; 0]);
    let out = tree.arg("out");
    let options = ["--derived-names", "suffix", "--endpoint-slices", "none"];
    let (imports, report) = with(0, &[&options[..], &["--out", &out]].concat());
    assert_eq!(imports, ["shop/web"]);
    let import = &cluster(&report, "west")["imports"][0];
    assert_eq!(import["endpoints"], 0, "{import}");
    let written = contents(&tree.path("out/west")).unwrap();
    let names = |text: &[u8]| String::from_utf8_lossy(text).contains("name: web-clusterset");
    assert!(written.values().any(|text| names(text)), "{written:?}");
}

#[test]
fn exports_without_a_time_come_after_all_that_have_one() {
    let sticky = "spec:\n  sessionAffinity: ClientIP\n";
    let timed = manifest::exported("shop", "web", 25, "10.2.0.1");
    let untimed = manifest::exported("shop", "web", 1, "10.1.0.1")
        .replace("  creationTimestamp: '2026-01-01T00:00:00Z'\n", "")
        .replace("spec:\n", sticky);
    let tree = Tree::with(&[("a/web.yaml", &untimed), ("b/web.yaml", &timed)]).unwrap();
    let report_ab = report(2, &[&tree.arg("a"), &tree.arg("b")]);
    assert_eq!(
        report_ab["conflicts"][0]["reason"],
        "SessionAffinityConflict"
    );
    let message = report_ab["conflicts"][0]["message"].as_str().unwrap();
    assert!(
        message.contains('b') && message.contains("None"),
        "{message}"
    );
    let out = tree.arg("out");
    tombolo(&["plan", &tree.arg("a"), &tree.arg("b"), "--out", &out]);
    let written = contents(&tree.path("out")).unwrap();
    let all: Vec<u8> = written.into_values().flatten().collect();
    assert!(
        !String::from_utf8(all)
            .unwrap()
            .contains("sessionAffinity: ClientIP")
    );
}

// What is printed.

#[test]
fn yaml_and_json_say_the_same() {
    let tree = two_clusters();
    let json = report(0, &[&tree.arg("clusters")]);
    let yaml = tombolo(&["plan", &tree.arg("clusters"), "-o", "yaml"]);
    assert_eq!(yaml.code, Some(0));
    let yaml: Value = serde_saphyr::from_str(&yaml.stdout).unwrap();
    assert_eq!(yaml, json);
}

#[test]
fn the_table_shows_exports_and_imports_of_each_cluster() {
    let tree = two_clusters();
    let table = tombolo(&["plan", &tree.arg("clusters")]);
    assert_eq!((table.code, table.stderr.as_str()), (Some(0), ""));
    assert_eq!(
        table,
        tombolo(&["plan", &tree.arg("clusters"), "-o", "table"])
    );
    let ip = report(0, &[&tree.arg("clusters")])["clusters"][0]["imports"][0]["ips"][0].clone();
    for word in [
        "east",
        "west",
        "shop",
        "web",
        "http",
        "80",
        "ClusterSetIP",
        ip.as_str().unwrap(),
    ] {
        assert!(
            table.stdout.contains(word),
            "no {word} in:\n{}",
            table.stdout
        );
    }
    assert!(!table.stdout.contains('\u{1b}'), "not on a terminal");
    let ends_in_blank = table.stdout.lines().any(|line| line.ends_with(' '));
    assert!(!ends_in_blank, "{}", table.stdout);
}

#[test]
fn conflicts_show_the_values_that_won_and_lost() {
    let tree = two_clusters();
    let other =
        manifest::exported("shop", "web", 6, "10.2.0.1").replace("port: 80\n", "port: 81\n");
    tree.put("clusters/west/shop.yaml", &other).unwrap();
    let report = report(2, &[&tree.arg("clusters")]);
    let conflict = &report["conflicts"][0];
    assert_eq!(report["conflicts"].as_array().unwrap().len(), 1);
    assert_eq!(conflict["reason"], "PortConflict");
    let message = conflict["message"].as_str().unwrap();
    for word in ["http", "80", "81", "east", "west", "1/2 clusters disagree"] {
        assert!(message.contains(word), "no {word} in {message}");
    }
    let table = tombolo(&["plan", &tree.arg("clusters")]);
    assert_eq!(table.code, Some(2));
    for word in ["PortConflict", "81", "1/2 clusters disagree"] {
        assert!(
            table.stdout.contains(word),
            "no {word} in:\n{}",
            table.stdout
        );
    }
}

#[test]
fn what_is_left_out_or_not_understood_is_a_warning() {
    let moon = manifest::exported("shop", "web", 5, "10.1.0.1").replacen(
        "spec:\n",
        "spec:\n  trafficDistribution: PreferMoon\n",
        1,
    );
    assert!(moon.contains("PreferMoon"), "{moon}");
    let mark = manifest::namespace("shop") + "  annotations: {tombolo.dev/global: 'yes'}\n";
    let tree = Tree::with(&[("c/east/web.yaml", moon), ("c/west/shop.yaml", mark)]).unwrap();
    let report = report(2, &[&tree.arg("c")]);
    let warnings = report["warnings"].as_array().unwrap();
    let told = |warning: &Value| {
        let text = |field: &str| warning[field].as_str().unwrap().to_owned();
        [text("cluster"), text("object"), text("reason")].join(" ")
    };
    assert_eq!(
        warnings.iter().map(told).collect::<Vec<_>>(),
        [
            "east ServiceImport shop/web TrafficDistributionUnknown",
            "west Namespace shop GlobalMarkUnknown",
        ]
    );
}

#[test]
fn a_pod_of_two_clusters_is_a_warning_where_it_is_refused() {
    let east = manifest::exported("shop", "web", 5, "10.1.0.1");
    let pod = manifest::slice("shop", "db", &["10.1.0.1"]) + "  targetRef: {kind: Pod, name: db}\n";
    let west = manifest::documents(&[manifest::namespace("shop"), pod]);
    let tree = Tree::with(&[("c/east/web.yaml", east), ("c/west/db.yaml", west)]).unwrap();
    let report = report(2, &[&tree.arg("c")]);
    let warning = &report["warnings"][0];
    assert_eq!(warning["cluster"], "west", "{report:#}");
    assert_eq!(warning["object"], "ServiceImport shop/web");
    assert_eq!(warning["reason"], "EndpointsRefused");
    let message = warning["message"].as_str().unwrap();
    assert!(message.contains("the networks overlap"), "{message}");
}

#[test]
fn the_same_input_prints_and_writes_the_same() {
    let tree = two_clusters();
    let first = tombolo(&[
        "plan",
        &tree.arg("clusters"),
        "-o",
        "json",
        "--out",
        &tree.arg("a"),
    ]);
    let second = tombolo(&[
        "plan",
        &tree.arg("clusters"),
        "-o",
        "json",
        "--out",
        &tree.arg("b"),
    ]);
    assert_eq!(first, second);
    assert_eq!(
        contents(&tree.path("a")).unwrap(),
        contents(&tree.path("b")).unwrap()
    );
}

// What is written.

#[test]
fn a_second_run_writes_nothing() {
    let tree = two_clusters();
    let args = ["plan", &tree.arg("clusters"), "--out", &tree.arg("out")];
    assert_eq!(tombolo(&args).code, Some(0));
    let first = snapshot(&tree.path("out")).unwrap();
    assert!(!first.is_empty());
    assert_eq!(tombolo(&args).code, Some(0));
    assert_eq!(snapshot(&tree.path("out")).unwrap(), first);
}

#[test]
fn what_is_no_longer_wanted_is_removed() {
    let tree = two_clusters();
    let more = manifest::exported("bank", "pay", 5, "10.1.0.2");
    tree.put("clusters/east/pay.yaml", &more).unwrap();
    tree.put("clusters/north/shop.yaml", &manifest::namespace("shop"))
        .unwrap();
    let args = ["plan", &tree.arg("clusters"), "--out", &tree.arg("out")];
    assert_eq!(tombolo(&args).code, Some(0));
    tree.remove("clusters/east/pay.yaml").unwrap();
    tree.remove("clusters/north").unwrap();
    assert_eq!(tombolo(&args).code, Some(0));
    let fresh = ["plan", &tree.arg("clusters"), "--out", &tree.arg("fresh")];
    assert_eq!(tombolo(&fresh).code, Some(0));
    let left = contents(&tree.path("out")).unwrap();
    assert_eq!(left, contents(&tree.path("fresh")).unwrap());
    assert!(
        !tree.path("out/north").exists(),
        "the directory of a cluster that is gone"
    );
}

#[test]
fn an_empty_directory_will_do_for_output() {
    let tree = two_clusters();
    fs::create_dir(tree.path("out")).unwrap();
    let run = tombolo(&["plan", &tree.arg("clusters"), "--out", &tree.arg("out")]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(tree.path("out/west").is_dir());
}

#[test]
fn output_does_not_go_among_files_of_others() {
    let tree = two_clusters();
    tree.put("home/notes.txt", "mine").unwrap();
    tree.put("home/east/web.yaml", "mine: too").unwrap();
    let before = snapshot(&tree.path("home")).unwrap();
    let run = tombolo(&["plan", &tree.arg("clusters"), "--out", &tree.arg("home")]);
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.stderr.starts_with("tombolo: "), "{}", run.stderr);
    assert!(run.stderr.contains(&tree.arg("home")), "{}", run.stderr);
    assert_eq!(snapshot(&tree.path("home")).unwrap(), before);
}

#[test]
fn output_does_not_go_where_a_file_is_or_into_the_input() {
    let tree = two_clusters();
    tree.put("file", "mine").unwrap();
    let before = snapshot(&tree.path("")).unwrap();
    for out in ["file", "clusters", "clusters/east"] {
        let run = tombolo(&["plan", &tree.arg("clusters"), "--out", &tree.arg(out)]);
        assert_eq!(run.code, Some(1), "{out}: {run:?}");
        assert!(run.stderr.contains(&tree.arg(out)), "{}", run.stderr);
    }
    assert_eq!(snapshot(&tree.path("")).unwrap(), before);
}

// Later states.

#[test]
fn then_shows_the_state_after_all_changes_in_their_order() {
    let tree = two_clusters();
    tree.put(
        "1/delete/east/web.yaml",
        &manifest::export("shop", "web", 5),
    )
    .unwrap();
    tree.put(
        "2/apply/east/web.yaml",
        &manifest::service("shop", "web", 8443),
    )
    .unwrap();
    tree.put(
        "2/apply/east/export.yaml",
        &manifest::export("shop", "web", 6),
    )
    .unwrap();
    let clusters = tree.arg("clusters");
    let (first, second) = (tree.arg("1"), tree.arg("2"));
    let gone = report(0, &[&clusters, "--then", &first]);
    assert_eq!(imports(&gone, "west"), Vec::<String>::new());
    let back = report(0, &[&clusters, "--then", &first, "--then", &second]);
    assert_eq!(
        cluster(&back, "west")["imports"][0]["ports"][0]["port"],
        8443
    );
    let other_order = report(0, &[&clusters, "--then", &second, "--then", &first]);
    assert_eq!(imports(&other_order, "west"), Vec::<String>::new());
}

#[test]
fn an_address_stays_through_changes() {
    let tree = two_clusters();
    let clusters = tree.arg("clusters");
    let before = report(0, &[&clusters]);
    let more = manifest::exported("shop", "aaa", 4, "10.1.0.9");
    tree.put("1/apply/east/aaa.yaml", &more).unwrap();
    let after = report(0, &[&clusters, "--then", &tree.arg("1")]);
    let ips = |report: &Value| {
        let imports = cluster(report, "west")["imports"]
            .as_array()
            .unwrap()
            .clone();
        imports
            .iter()
            .find(|import| import["name"] == "web")
            .unwrap()["ips"]
            .clone()
    };
    assert_eq!(ips(&after), ips(&before));
}

// IP families.

#[test]
fn a_cluster_without_services_supports_what_those_of_the_run_name() {
    let six = manifest::exported("shop", "web", 5, "10.1.0.1")
        .replace(
            "spec:\n",
            "spec:\n  ipFamilies: [IPv6]\n  ipFamilyPolicy: SingleStack\n",
        )
        .replace("addressType: IPv4", "addressType: IPv6")
        .replace("10.1.0.1", "fd00:1::1");
    let tree = two_clusters();
    tree.put("clusters/east/web.yaml", &six).unwrap();
    let named = report(0, &[&tree.arg("clusters")]);
    let families =
        |report: &Value| ["east", "west"].map(|name| cluster(report, name)["families"].to_string());
    assert_eq!(families(&named), [r#"["IPv6"]"#, r#"["IPv6"]"#]);
    let ip = cluster(&named, "west")["imports"][0]["ips"][0]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(ip.contains(':'), "{ip}");
    assert_eq!(
        families(&report(0, &[&two_clusters().arg("clusters")])),
        [r#"["IPv4"]"#; 2]
    );
    // No family of the import is usable in west: neither Service nor slices, and said so.
    let out = tree.arg("out");
    let args = [
        &tree.arg("clusters"),
        "--families",
        "west=IPv4",
        "--out",
        &out,
    ];
    let unusable = report(2, &args);
    assert_eq!(families(&unusable), [r#"["IPv6"]"#, r#"["IPv4"]"#]);
    let ready = &cluster(&unusable, "west")["imports"][0]["ready"];
    assert_eq!(
        (&ready["status"], &ready["reason"]),
        (&"False".into(), &"IPFamilyNotSupported".into())
    );
    let west = contents(&tree.path("out/west"))
        .unwrap()
        .into_values()
        .flatten()
        .collect();
    let west = String::from_utf8(west).unwrap();
    assert!(west.contains("kind: ServiceImport"), "{west}");
    assert!(
        !west.contains("kind: EndpointSlice") && !west.contains("kind: Service\n"),
        "{west}"
    );
}

#[test]
fn families_can_be_given_for_each_cluster() {
    let tree = two_clusters();
    let args = [
        &tree.arg("clusters"),
        "--families",
        "east=IPv4",
        "--families",
        "west=IPv6,IPv4",
    ];
    let report = report(0, &args);
    assert_eq!(
        cluster(&report, "east")["families"].to_string(),
        r#"["IPv4"]"#
    );
    assert_eq!(
        cluster(&report, "west")["families"].to_string(),
        r#"["IPv6","IPv4"]"#
    );
}
