//! The examples show what `examples/README.md` says that they show.
#![expect(clippy::unwrap_used, reason = "test crate")]

use std::path::Path;

use serde_json::Value;
use tombolo_testkit::command::Binary;

/// What `plan` prints for the shop after some changes, with the exit code that it must have.
fn plan(code: i32, changes: &[&str]) -> Value {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut args = vec![Path::new("plan").to_owned(), examples.join("shop")];
    for change in changes {
        args.extend([
            Path::new("--then").to_owned(),
            examples.join("changes").join(change),
        ]);
    }
    args.extend(["-o", "json"].map(|argument| Path::new(argument).to_owned()));
    let run = Binary::new(env!("CARGO_BIN_EXE_tombolo"))
        .run(args)
        .unwrap();
    assert_eq!(run.code, Some(code), "{run:?}");
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(report["errors"], Value::Array(Vec::new()));
    report
}

/// `namespace/name from clusters: endpoints` of all that a cluster imports.
fn imports(report: &Value, cluster: &str) -> Vec<String> {
    let clusters = report["clusters"].as_array().unwrap();
    let cluster = clusters.iter().find(|one| one["name"] == cluster).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let imports = cluster["imports"].as_array().unwrap().iter().map(|import| {
        let from: Vec<String> = import["clusters"]
            .as_array()
            .unwrap()
            .iter()
            .map(text)
            .collect();
        format!(
            "{}/{} from {}: {}",
            text(&import["namespace"]),
            text(&import["name"]),
            from.join(" and "),
            import["endpoints"]
        )
    });
    imports.collect()
}

fn conflicts(report: &Value) -> Vec<String> {
    let conflicts = report["conflicts"].as_array().unwrap().iter();
    conflicts
        .map(|one| format!("{}: {}", one["name"], one["reason"]).replace('"', ""))
        .collect()
}

#[test]
fn the_shop_shows_a_union_a_conflict_and_a_headless_set() {
    let report = plan(2, &[]);
    let everywhere = [
        "shop/cart from berlin and paris: 2",
        "shop/db from berlin and tokyo: 3",
        "shop/web from berlin and paris: 4",
    ];
    assert_eq!(imports(&report, "tokyo"), everywhere);
    for cluster in ["berlin", "paris"] {
        let found = imports(&report, cluster);
        assert_eq!(found[0], "billing/invoices from berlin: 1");
        assert_eq!(found[1..], everywhere);
    }
    assert_eq!(
        conflicts(&report),
        ["cart: PortConflict", "cart: SessionAffinityConflict"]
    );
}

#[test]
fn the_changes_do_what_they_say() {
    let report = plan(0, &["agree"]);
    assert_eq!(conflicts(&report), Vec::<String>::new());
    let report = plan(0, &["agree", "move-web"]);
    let found = imports(&report, "tokyo");
    assert_eq!(found.last().unwrap(), "shop/web from paris: 2");
}
