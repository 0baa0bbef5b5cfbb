//! Input that is wrong: every message names the thing and says what to do, the exit code tells
//! what cannot run (1) and what is typed wrong (64) from what runs with something left out (2),
//! and nothing else is disturbed.
#![expect(clippy::unwrap_used, reason = "test crate")]

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;

use serde_json::Value;
use tombolo_testkit::command::{Binary, Finished};
use tombolo_testkit::files::{Tree, snapshot};
use tombolo_testkit::manifest;

fn tombolo(args: &[&str]) -> Finished {
    Binary::new(env!("CARGO_BIN_EXE_tombolo"))
        .run(args)
        .unwrap()
}

/// It cannot run: exit code 1, a message with these words, and no output anywhere.
fn assert_cannot_run(tree: &Tree, sources: &[&str], words: &[&str]) {
    let before = snapshot(&tree.path("")).unwrap();
    for command in ["plan", "up"] {
        let sources: Vec<String> = sources.iter().map(|source| tree.arg(source)).collect();
        let out = tree.arg("out");
        let mut args = vec![command, "--out", &out];
        args.extend(sources.iter().map(String::as_str));
        let run = tombolo(&args);
        assert_eq!(run.code, Some(1), "{args:?}: {run:?}");
        assert!(run.stderr.starts_with("tombolo: "), "{}", run.stderr);
        assert_eq!(run.stdout, "");
        for word in words {
            assert!(run.stderr.contains(word), "no {word} in: {}", run.stderr);
        }
        assert_eq!(
            snapshot(&tree.path("")).unwrap(),
            before,
            "{args:?} wrote something"
        );
        assert!(!tree.path("out").exists(), "{args:?} made a directory");
    }
}

/// It runs without one document: exit code 2, the message names file, document and these words,
/// the report has it as an error, and the rest of the input counts.
fn assert_reported(text: &str, document: u64, words: &[&str]) {
    let tree = Tree::with(&[
        (
            "clusters/east/good.yaml",
            manifest::exported("shop", "web", 5, "10.1.0.1").as_str(),
        ),
        ("clusters/east/sub/bad.yaml", text),
        (
            "clusters/west/shop.yaml",
            manifest::namespace("shop").as_str(),
        ),
    ])
    .unwrap();
    let args = ["plan", &tree.arg("clusters"), "-o", "json"];
    let run = tombolo(&args);
    assert_eq!(run.code, Some(2), "{text}\n{run:?}");
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    let errors = report["errors"].as_array().unwrap();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert_eq!(errors[0]["cluster"], "east");
    assert!(
        errors[0]["file"]
            .as_str()
            .unwrap()
            .ends_with("sub/bad.yaml"),
        "{errors:?}"
    );
    assert_eq!(errors[0]["document"], document, "{errors:?}");
    let message = errors[0]["message"].as_str().unwrap();
    for word in words {
        assert!(message.contains(word), "no {word} in: {message}");
    }
    assert_eq!(
        report["clusters"][1]["imports"][0]["name"], "web",
        "{report}"
    );

    let table = tombolo(&args[..2]);
    assert_eq!(table.code, Some(2), "{table:?}");
    let line = table
        .stderr
        .lines()
        .find(|line| line.contains("sub/bad.yaml"));
    assert!(line.is_some(), "no line names the file: {}", table.stderr);
    assert!(line.unwrap().contains(&document.to_string()), "{line:?}");
}

fn export_of(namespace: &str, name: &str) -> String {
    manifest::export(namespace, name, 5)
}

// What cannot run.

#[test]
fn a_directory_that_is_not_there() {
    let tree = Tree::with(&[("east/shop.yaml", manifest::namespace("shop"))]).unwrap();
    assert_cannot_run(&tree, &["east", "nowhere"], &["nowhere"]);
}

#[test]
fn a_file_instead_of_a_directory() {
    let tree = Tree::with(&[("east.yaml", manifest::namespace("shop"))]).unwrap();
    assert_cannot_run(&tree, &["east.yaml"], &["east.yaml", "directory"]);
}

#[test]
fn a_directory_that_cannot_be_read() {
    // A link to itself, as a test that runs as root can read everything else.
    let tree = Tree::with(&[("east/shop.yaml", manifest::namespace("shop"))]).unwrap();
    symlink("loop", tree.path("loop")).unwrap();
    let run = tombolo(&["plan", &tree.arg("east"), &tree.arg("loop")]);
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.stderr.contains("loop"), "{}", run.stderr);
}

#[test]
fn an_empty_directory() {
    let tree = Tree::with(&[("east/shop.yaml", manifest::namespace("shop"))]).unwrap();
    fs::create_dir(tree.path("west")).unwrap();
    assert_cannot_run(&tree, &["west"], &["west"]);
    assert_cannot_run(&tree, &["east", "west"], &["west"]);
}

#[test]
fn no_cluster_at_all() {
    let tree = Tree::with(&[("docs/README.md", "nothing to see")]).unwrap();
    assert_cannot_run(&tree, &["docs"], &["docs", ".yaml"]);
    fs::create_dir_all(tree.path("empty/east")).unwrap();
    fs::create_dir_all(tree.path("empty/west")).unwrap();
    assert_cannot_run(&tree, &["empty"], &["empty"]);
}

#[test]
fn two_clusters_of_one_name() {
    let text = manifest::namespace("shop");
    let tree = Tree::with(&[("a/east/shop.yaml", &text), ("b/east/shop.yaml", &text)]).unwrap();
    assert_cannot_run(
        &tree,
        &["a/east", "b/east"],
        &["east", &tree.arg("a"), &tree.arg("b")],
    );
    assert_cannot_run(&tree, &["a/east", "a/east"], &["east"]);
}

#[test]
fn every_bad_cluster_name_is_named_at_once() {
    let text = manifest::namespace("shop");
    let long = "a".repeat(64);
    let names = [
        "East",
        "under_score",
        "a.b.c",
        "-dash",
        "dot.",
        &long,
        "sp ace",
        "ünï",
    ];
    let tree = Tree::new().unwrap();
    for name in names {
        tree.put(&format!("clusters/{name}/shop.yaml"), &text)
            .unwrap();
    }
    tree.put("clusters/east.prod/shop.yaml", &text).unwrap();
    assert_cannot_run(&tree, &["clusters"], &names);
    let run = tombolo(&["plan", &tree.arg("clusters/east.prod")]);
    assert_eq!(run.code, Some(0), "a name of two labels is fine: {run:?}");
}

// What is typed wrong.

#[test]
fn what_is_typed_wrong_is_a_usage_error() {
    let tree = Tree::with(&[("east/shop.yaml", manifest::namespace("shop"))]).unwrap();
    let east = tree.arg("east");
    let wrong: [&[&str]; 13] = [
        &[],
        &["plam", &east],
        &["plan"],
        &["up"],
        &["plan", &east, "--nonsense"],
        &["up", &east, "--nonsense"],
        &["plan", &east, "-o", "xml"],
        &["plan", &east, "--out"],
        &["plan", &east, "--families", "east"],
        &["plan", &east, "--families", "east="],
        &["plan", &east, "--families", "=IPv4"],
        &["plan", &east, "--families", "east=IPv5"],
        &["up", &east, "--vip-cidr", "not-a-network"],
    ];
    for args in wrong {
        let run = tombolo(args);
        assert_eq!(run.code, Some(64), "{args:?}: {run:?}");
        assert_eq!(run.stdout, "", "{args:?}");
        assert!(!run.stderr.is_empty(), "{args:?}");
    }
}

#[test]
fn help_and_version_are_no_errors() {
    for args in [
        &["--help"][..],
        &["--version"],
        &["plan", "--help"],
        &["up", "--help"],
    ] {
        let run = tombolo(args);
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{args:?}");
        assert!(!run.stdout.is_empty());
    }
}

#[test]
fn families_of_a_cluster_that_takes_no_part() {
    let tree = Tree::with(&[("east/shop.yaml", manifest::namespace("shop"))]).unwrap();
    let run = tombolo(&["plan", &tree.arg("east"), "--families", "wset=IPv4"]);
    assert!(matches!(run.code, Some(1 | 64)), "{run:?}");
    assert!(run.stderr.contains("wset"), "{}", run.stderr);
}

#[test]
fn a_change_that_names_no_cluster_of_the_run() {
    let tree = Tree::with(&[
        (
            "clusters/east/web.yaml",
            manifest::exported("shop", "web", 5, "10.1.0.1"),
        ),
        ("1/apply/wset/shop.yaml", manifest::namespace("shop")),
        ("2/shop.yaml", manifest::namespace("shop")),
    ])
    .unwrap();
    for (step, word) in [("1", "wset"), ("2", "apply"), ("3", "3")] {
        let (clusters, step) = (tree.arg("clusters"), tree.arg(step));
        let run = tombolo(&[
            "plan",
            &clusters,
            "--then",
            &step,
            "--out",
            &tree.arg("out"),
        ]);
        assert_eq!(run.code, Some(1), "{step}: {run:?}");
        assert!(run.stderr.contains(word), "no {word} in {}", run.stderr);
        assert!(!tree.path("out").exists(), "{step}");
    }
}

// What is left out.

#[test]
fn yaml_that_does_not_parse() {
    let good = manifest::exported("shop", "api", 5, "10.1.0.2");
    let text = format!(
        "{good}---\nkind: [Service\n---\n{}",
        export_of("shop", "pay")
    );
    // Four documents are good, the fifth is broken, the sixth exports what is not there.
    let tree = Tree::with(&[
        ("clusters/east/bad.yaml", text.as_str()),
        (
            "clusters/west/shop.yaml",
            manifest::namespace("shop").as_str(),
        ),
    ])
    .unwrap();
    let run = tombolo(&["plan", &tree.arg("clusters"), "-o", "json"]);
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(run.code, Some(2), "{run:?}");
    assert_eq!(report["errors"].as_array().unwrap().len(), 1, "{report}");
    assert_eq!(report["errors"][0]["document"], 5, "{report}");
    assert_eq!(
        report["clusters"][1]["imports"][0]["name"], "api",
        "before it: {report}"
    );
    let exports = report["clusters"][0]["exports"].to_string();
    assert!(exports.contains("pay"), "after it: {exports}");
}

#[test]
fn documents_that_are_wrong() {
    assert_reported("kind: [Service\n", 1, &[]);
    assert_reported("just a sentence\n", 1, &[]);
    assert_reported("- a\n- list\n", 1, &[]);
    let port = manifest::service("shop", "api", 80).replace("port: 80", "port: eighty");
    assert_reported(&port, 1, &["port"]);
    let after = format!(
        "# a comment is no document\n---\n{}---\n{port}",
        manifest::service("shop", "other", 80)
    );
    assert_reported(&after, 2, &["port"]);
    let port = manifest::service("shop", "api", 80).replace("port: 80", "port: 70000");
    assert_reported(&port, 1, &["70000"]);
    let address = manifest::slice("shop", "api", &["10.1.0.256"]);
    assert_reported(&address, 1, &["10.1.0.256"]);
    let twice =
        manifest::namespace("shop").replace("  name: shop\n", "  name: shop\n  name: bank\n");
    assert_reported(&twice, 1, &["name"]);
}

#[test]
fn what_an_api_server_refuses_in_words_of_manifests() {
    let list = "apiVersion: v1\nkind: ServiceList\nitems:\n- metadata: {name: a, namespace: shop}\n- metadata: {}\n";
    assert_reported(list, 1, &["items[1]: Service has no metadata.name"]);
    let port =
        "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {ports: [{port: '80'}]}\n";
    let words = "spec.ports[0].port: is the text \"80\", must be a whole number";
    assert_reported(port, 1, &[words]);
    let node_port = "apiVersion: v1\nkind: Service\nmetadata: {name: a}\n\
                     spec: {type: NodePort, clusterIP: None, ports: [{port: 80}]}\n";
    assert_reported(node_port, 1, &["spec.clusterIP is None", "NodePort"]);
    let host = manifest::slice("shop", "api", &["10.1.0.9"]) + "  hostname: DB\n";
    assert_reported(&host, 1, &["endpoints[0].hostname", "upper case"]);
    assert_reported("a: 1\na: 2\n", 1, &["duplicate mapping key: a"]);
}

#[test]
fn two_objects_of_one_name() {
    assert_reported(
        &manifest::service("shop", "web", 81),
        1,
        &["good.yaml", "shop/web"],
    );
}

#[test]
fn versions_that_are_not_known() {
    let export = export_of("shop", "api").replace("/v1beta1", "/v2");
    assert_reported(&export, 1, &["multicluster.x-k8s.io/v2", "v1beta1"]);
    let slice =
        manifest::slice("shop", "api", &["10.1.0.2"]).replace("k8s.io/v1", "k8s.io/v1beta1");
    assert_reported(
        &slice,
        1,
        &["discovery.k8s.io/v1beta1", "discovery.k8s.io/v1"],
    );
    assert_reported("kind: Service\nmetadata: {name: web}\n", 1, &["apiVersion"]);
}

#[test]
fn objects_without_a_name_that_can_be_one() {
    let text = manifest::service("shop", "api", 80);
    assert_reported(&text.replace("  name: api\n", ""), 1, &["name"]);
    assert_reported(
        &text.replace("  name: api\n", "  generateName: api-\n"),
        1,
        &["name"],
    );
    assert_reported(&text.replace("name: api", "name: ''"), 1, &["name"]);
    assert_reported(
        &text.replace("namespace: shop", "namespace: Not_A_Label"),
        1,
        &["Not_A_Label"],
    );
}

#[test]
fn an_export_of_a_name_that_no_service_can_have() {
    for name in ["1web", "web.v2", "Web"] {
        let tree = Tree::with(&[
            (
                "east/good.yaml",
                manifest::exported("shop", "web", 5, "10.1.0.1"),
            ),
            ("east/bad.yaml", export_of("shop", name)),
        ])
        .unwrap();
        let run = tombolo(&["plan", &tree.arg("east"), "-o", "json"]);
        assert_eq!(run.code, Some(2), "{name}: {run:?}");
        let report: Value = serde_json::from_str(&run.stdout).unwrap();
        let imports = report["clusters"][0]["imports"].as_array().unwrap();
        assert_eq!(imports.len(), 1, "{name}: {imports:?}");
        let said = format!("{} {}", report["errors"], report["clusters"][0]["exports"]);
        assert!(
            said.contains(&format!("shop/{name}")) || said.contains(&format!("\"{name}\"")),
            "{said}"
        );
        assert!(
            said.contains("RFC 1"),
            "it says what a name has to be: {said}"
        );
    }
}

#[test]
fn a_file_that_is_no_text() {
    let tree = Tree::with(&[
        (
            "clusters/east/good.yaml",
            manifest::exported("shop", "web", 5, "10.1.0.1"),
        ),
        ("clusters/west/shop.yaml", manifest::namespace("shop")),
    ])
    .unwrap();
    fs::write(
        tree.path("clusters/east/picture.yaml"),
        [0x89, b'P', b'N', b'G', 0xff, 0],
    )
    .unwrap();
    symlink("nowhere", tree.path("clusters/east/dangling.yaml")).unwrap();
    let run = tombolo(&["plan", &tree.arg("clusters")]);
    assert_eq!(run.code, Some(2), "{run:?}");
    for file in ["picture.yaml", "dangling.yaml"] {
        let count = run
            .stderr
            .lines()
            .filter(|line| line.contains(file))
            .count();
        assert_eq!(count, 1, "{file}: {}", run.stderr);
    }
    assert!(run.stdout.contains("web"), "{}", run.stdout);
}

#[test]
fn an_alias_bomb_ends() {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let aliases = vec![format!("*a{}", level - 1); 9].join(", ");
        writeln!(text, "a{level}: &a{level} [{aliases}]").unwrap();
    }
    assert_reported(&format!("{text}kind: Service\napiVersion: v1\n"), 1, &[]);
}

#[test]
fn a_file_of_ten_megabytes() {
    let line = format!("  k%: {}\n", "x".repeat(990));
    let mut data: String = (0..10_500)
        .map(|n| line.replace('%', &n.to_string()))
        .collect();
    data.insert_str(
        0,
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: big\n  namespace: shop\ndata:\n",
    );
    assert!(data.len() > 10_000_000);
    let tree = Tree::with(&[
        (
            "clusters/east/big.yaml",
            format!("{data}---\n{}", manifest::service("shop", "api", 80)),
        ),
        (
            "clusters/east/good.yaml",
            manifest::exported("shop", "web", 5, "10.1.0.1"),
        ),
        ("clusters/east/api.yaml", export_of("shop", "api")),
        ("clusters/west/shop.yaml", manifest::namespace("shop")),
    ])
    .unwrap();
    let run = tombolo(&["plan", &tree.arg("clusters"), "-o", "json"]);
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    let imports: Vec<&Value> = report["clusters"][1]["imports"]
        .as_array()
        .unwrap()
        .iter()
        .collect();
    let names: Vec<&str> = imports
        .iter()
        .map(|import| import["name"].as_str().unwrap())
        .collect();
    // Read, or refused by name; what is in other files counts in any case.
    if run.code == Some(0) {
        assert_eq!(names, ["api", "web"], "{report}");
    } else {
        assert_eq!(run.code, Some(2), "{run:?}");
        assert!(run.stderr.contains("big.yaml"), "{}", run.stderr);
        assert_eq!(names, ["web"], "{report}");
    }
}
