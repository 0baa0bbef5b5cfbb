//! The checker of the cases can fail: outputs made by hand pass, and with one mistake in them they
//! do not.
#![expect(clippy::unwrap_used, reason = "test crate")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tombolo_testkit::cases::{Case, Seen, World, check, check_prose, check_report};
use tombolo_testkit::command::Finished;

use mistakes::Mistake;

#[path = "checker/mistakes.rs"]
mod mistakes;

const CLUSTERS: [&str; 2] = ["east", "west"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn case(id: &str) -> Case {
    let mut dirs = fs::read_dir(root().join("tests/cases"))
        .unwrap()
        .map(|dir| dir.unwrap());
    let named = |name: &str| name.starts_with(&format!("{id}-"));
    let dir = dirs
        .find(|dir| named(&dir.file_name().to_string_lossy()))
        .unwrap();
    Case::load(&dir.path()).unwrap()
}

/// The output for a case, with a text replaced in what west holds.
fn output(id: &str, from: &str, to: &str) -> tempfile::TempDir {
    let out = tempfile::tempdir().unwrap();
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/outputs");
    let read = |name: String| fs::read_to_string(dir.join(name)).unwrap();
    for cluster in CLUSTERS {
        let mut text = format!(
            "{}---\n{}",
            read(format!("{id}.yaml")),
            read(format!("{id}-{cluster}.yaml"))
        );
        if cluster == "west" && !from.is_empty() {
            assert!(text.contains(from), "{id}: nothing to replace: {from}");
            text = text.replacen(from, to, 1);
        }
        fs::create_dir(out.path().join(cluster)).unwrap();
        fs::write(out.path().join(cluster).join("all.yaml"), text).unwrap();
    }
    fs::write(out.path().join(".tombolo"), "").unwrap();
    out
}

fn problems_of(id: &str, out: &Path) -> Vec<String> {
    let case = case(id);
    let clusters = CLUSTERS.map(str::to_owned);
    let world = match World::read(out) {
        Ok(world) => world,
        Err(error) => return vec![format!("{error:#}")],
    };
    let mut problems = check(&case, 0, &clusters, &world);
    let run = Finished {
        code: Some(0),
        stdout: String::new(),
        stderr: String::new(),
    };
    let seen = Seen {
        case: &case,
        stage: 0,
        world: &world,
        run: &run,
        refusal: None,
        ask: &|name, _| anyhow::bail!("nobody to ask for {name}"),
        launch: &|_, _| anyhow::bail!("nothing to run"),
        scratch: out,
    };
    problems.extend(check_prose(&seen));
    problems
}

#[test]
fn right_outputs_pass() {
    for id in ["D03", "E07", "M03", "M07", "M13", "M23"] {
        let out = output(id, "", "");
        assert_eq!(problems_of(id, out.path()), Vec::<String>::new(), "{id}");
    }
}

fn assert_found(mistakes: &[Mistake]) {
    for (id, from, to, word) in mistakes {
        let out = output(id, from, to);
        let problems = problems_of(id, out.path());
        let found = problems.iter().any(|problem| problem.contains(word));
        assert!(
            found,
            "{id}: {from:?} -> {to:?}: expected {word:?} in {problems:#?}"
        );
    }
}

#[test]
fn mistakes_in_slices_are_found() {
    assert_found(mistakes::SLICES);
}

#[test]
fn mistakes_in_imports_and_services_are_found() {
    assert_found(mistakes::IMPORTS);
}

#[test]
fn mistakes_in_exports_are_found() {
    assert_found(mistakes::EXPORTS);
}

#[test]
fn a_message_longer_than_the_limit_is_found() {
    let long = "x".repeat(4097);
    let out = output("M03", "the Service can be exported", &long);
    assert!(
        problems_of("M03", out.path())
            .concat()
            .contains("4097 bytes")
    );
}

#[test]
fn a_cluster_without_output_is_found() {
    let out = output("M03", "", "");
    fs::remove_dir_all(out.path().join("west")).unwrap();
    assert!(
        problems_of("M03", out.path())
            .concat()
            .contains("no ServiceImport")
    );
}

#[test]
fn output_that_tombolo_does_not_write_cannot_be_read() {
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n";
    let out = output("M03", "", "");
    fs::write(out.path().join("west/more.yaml"), namespace).unwrap();
    assert!(World::read(out.path()).is_err(), "another kind");
    let out = output("M03", "", "");
    fs::copy(
        out.path().join("west/all.yaml"),
        out.path().join("west/again.yaml"),
    )
    .unwrap();
    assert!(World::read(out.path()).is_err(), "every object twice");
    let out = output("M03", "", "");
    fs::write(out.path().join("west/notes.txt"), "").unwrap();
    assert!(World::read(out.path()).is_err(), "a file of another type");
    let out = output("M03", "", "");
    fs::write(out.path().join("more"), "").unwrap();
    assert!(
        World::read(out.path()).is_err(),
        "two files beside the clusters"
    );
    let out = output(
        "M03",
        "apiVersion: v1\nkind: Service",
        "apiVersion: v2\nkind: Service",
    );
    assert!(World::read(out.path()).is_err(), "another version");
}

fn report() -> Value {
    let condition = |kind: &str, reason: &str, message: &str| json!({"type": kind, "status": "True", "reason": reason, "message": message});
    let conflict = "port metrics is exported by west only: 1/2 clusters disagree";
    let cluster = |name: &str| {
        json!({
            "name": name,
            "families": ["IPv4"],
            "exports": [{"namespace": "shop", "name": "search", "conditions": [
                condition("Valid", "Valid", "the Service can be exported"),
                condition("Ready", "Exported", "the registry has it"),
                condition("Conflict", "PortConflict", conflict),
            ]}],
            "imports": [{
                "namespace": "shop", "name": "search", "type": "ClusterSetIP",
                "ports": [
                    {"name": "http", "protocol": "TCP", "port": 80},
                    {"name": "metrics", "protocol": "TCP", "port": 9100},
                ],
                "ipFamilies": ["IPv4"], "ips": ["192.0.2.10"], "clusters": ["east", "west"],
                "endpoints": 2,
                "ready": {"status": "True", "reason": "Ready", "message": "the derived Service is there"},
            }],
        })
    };
    json!({
        "clusters": [cluster("east"), cluster("west")],
        "conflicts": [{
            "namespace": "shop", "name": "search", "reason": "PortConflict", "message": conflict,
            "clusters": ["west"],
        }],
        "errors": [],
    })
}

#[test]
fn a_report_is_compared_with_the_objects() {
    let out = output("M03", "", "");
    let world = World::read(out.path()).unwrap();
    let clusters = CLUSTERS.map(str::to_owned);
    let families = BTreeMap::from([("west".to_owned(), vec!["IPv4".to_owned()])]);
    let problems = |report: &Value| check_report(report, &world, &clusters, &families);
    assert_eq!(problems(&report()), Vec::<String>::new());
    let mistakes = [
        ("/clusters/1/name", json!("north")),
        ("/clusters/1/families", json!(["IPv6"])),
        ("/clusters/1/exports", json!([])),
        ("/clusters/1/exports/0/conditions/2/status", json!("False")),
        (
            "/clusters/1/exports/0/conditions/0/message",
            json!("all well"),
        ),
        ("/clusters/1/imports", json!([])),
        ("/clusters/1/imports/0/type", json!("Headless")),
        ("/clusters/1/imports/0/ports/1/port", json!(9101)),
        ("/clusters/1/imports/0/ipFamilies", json!(["IPv6"])),
        ("/clusters/1/imports/0/ips", json!([])),
        ("/clusters/1/imports/0/clusters", json!(["east"])),
        ("/clusters/1/imports/0/endpoints", json!(1)),
        ("/clusters/1/imports/0/ready/reason", json!("Pending")),
        ("/conflicts", json!([])),
        ("/conflicts/0/reason", json!("TypeConflict")),
        ("/conflicts/0/clusters", json!([])),
        ("/errors", json!([{"message": "?"}])),
    ];
    for (pointer, value) in mistakes {
        let mut report = report();
        *report.pointer_mut(pointer).unwrap() = value;
        assert_ne!(problems(&report), Vec::<String>::new(), "{pointer}");
    }
}
