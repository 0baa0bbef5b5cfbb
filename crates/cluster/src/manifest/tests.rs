//! Files to objects: kinds, places, faults, files that change while they are read.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use jiff::{SignedDuration, Timestamp};
use tombolo_model::service::IpFamily;

use super::*;
use crate::convert::Strings;

const SERVICE: &str = "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\n";
const EXPORT: &str = "apiVersion: multicluster.x-k8s.io/v1beta1\nkind: ServiceExport\n\
                      metadata: {name: web, namespace: shop}\n";

/// A directory of manifests that is read, changed and read again.
struct Directory {
    root: tempfile::TempDir,
    strings: Strings,
    now: Timestamp,
}

impl Directory {
    fn of(files: &[(&str, &str)]) -> Self {
        let directory = Self {
            root: tempfile::tempdir().unwrap(),
            strings: Strings::default(),
            now: Timestamp::UNIX_EPOCH,
        };
        for (path, text) in files {
            directory.write(path, text);
        }
        directory
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn tree(&mut self) -> Tree {
        Tree::read(self.root.path(), self.now, &mut self.strings).unwrap()
    }

    /// Reads again, long after everything was written.
    fn rescan(&mut self, tree: &mut Tree) -> Scan {
        let later = Timestamp::from_second(1 << 36).unwrap();
        tree.rescan(later, &mut self.strings)
    }

    /// The objects by name, and the problems with paths from the directory.
    fn read(&mut self) -> (Vec<String>, Vec<String>) {
        let tree = self.tree();
        self.show(&tree)
    }

    fn show(&self, tree: &Tree) -> (Vec<String>, Vec<String>) {
        let (manifests, problems) = Manifests::of(tree);
        let root = format!("{}/", self.root.path().display());
        let problems = problems.iter().map(|p| p.to_string().replace(&root, ""));
        (names(&manifests), problems.collect())
    }
}

fn names(manifests: &Manifests) -> Vec<String> {
    let references = manifests.objects().map(Declared::reference);
    references.map(|reference| describe(&reference)).collect()
}

fn read_one(name: &str, text: &str) -> (Vec<String>, Vec<String>) {
    Directory::of(&[(name, text)]).read()
}

#[test]
fn a_document_that_does_not_parse_leaves_the_others_alone() {
    let text =
        format!("# first\n---\n{SERVICE}---\nkind: [\n---\n\n---\n{EXPORT}...\n---\na: b: c\n");
    let (objects, problems) = read_one("all.yaml", &text);
    assert_eq!(
        objects,
        [
            "Namespace shop",
            "Service shop/web",
            "ServiceExport shop/web"
        ]
    );
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(
        problems[0].starts_with("all.yaml, document 2, line 7: YAML: "),
        "{problems:?}"
    );
    assert!(
        problems[1].starts_with("all.yaml, document 4, line 16: YAML: "),
        "{problems:?}"
    );
    assert!(
        !problems[0].contains('\n') && !problems[0].contains(" at line "),
        "{problems:?}"
    );
}

#[test]
fn lists_hold_objects_and_fill_in_what_their_items_leave_out() {
    let text = r#"{"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "ServiceList", "items": [{"metadata": {"name": "a"}}]},
        {"apiVersion": "v1", "kind": "PodList", "items": [{"metadata": {}}]},
        {"apiVersion": "v1", "kind": "ServiceList", "items": null}
    ]} {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "b"}}"#;
    let expected = [
        "Namespace default",
        "Service default/a",
        "Service default/b",
    ];
    assert_eq!(
        read_one("all.json", text),
        (expected.map(str::to_owned).to_vec(), vec![])
    );
}

#[test]
fn json_is_read_up_to_what_does_not_parse() {
    let service = r#"{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}}"#;
    let (objects, problems) = read_one("all.json", &format!("{service}\n\n{{\"kind\":\n]"));
    assert_eq!(objects, ["Namespace default", "Service default/a"]);
    assert_eq!(
        problems,
        ["all.json, document 2, line 4: JSON: expected value"]
    );
}

/// What is wrong with a file that has no object to offer.
fn fault(text: &str) -> String {
    let (objects, problems) = read_one("a.yaml", text);
    assert!(objects.is_empty(), "{objects:?}");
    problems.join("\n")
}

#[test]
fn what_nobody_needs_is_passed_over() {
    assert_eq!(fault("apiVersion: apps/v1\nkind: Deployment\n"), "");
    assert_eq!(
        fault("apiVersion: serving.knative.dev/v1\nkind: Service\n"),
        ""
    );
    assert_eq!(fault("# nothing\n---\n---\n~\n"), "");
}

#[test]
fn what_is_wrong_is_told_with_object_and_field() {
    let cases = [
        (
            "just text",
            "a.yaml, document 1, line 1: is no Kubernetes object: it has no fields",
        ),
        ("replicas: 3", "is no Kubernetes object: it has no kind"),
        (
            "kind: Service",
            "is no Kubernetes object: it has no apiVersion",
        ),
        (
            "apiVersion: multicluster.x-k8s.io/v1\nkind: ServiceExport\nmetadata: {name: a}",
            "apiVersion multicluster.x-k8s.io/v1 of ServiceExport is not known: write \
             multicluster.x-k8s.io/v1beta1 or multicluster.x-k8s.io/v1alpha1",
        ),
        (
            "apiVersion: discovery.k8s.io/v1beta1\nkind: EndpointSliceList\nitems: []",
            "apiVersion discovery.k8s.io/v1beta1 of EndpointSlice is not known",
        ),
        (
            "apiVersion: v1\nkind: Service",
            "Service has no metadata.name",
        ),
        (
            "apiVersion: v1\nkind: Service\nmetadata: []",
            "metadata has no fields",
        ),
        (
            "apiVersion: v1\nkind: Service\nmetadata: {generateName: a-}",
            "Service has metadata.generateName only",
        ),
        (
            "apiVersion: v1\nkind: Service\nmetadata: {name: 7}",
            "metadata.name is 7, not a text",
        ),
        (
            "apiVersion: v1\nkind: Service\nmetadata: {name: 7web}",
            "Service default/7web: service name \"7web\" is not an RFC 1035 label",
        ),
        (
            "apiVersion: v1\nkind: Service\nmetadata: {name: a, namespace: A_B}",
            "Service A_B/a: namespace \"A_B\" is not an RFC 1123 label",
        ),
        (
            "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {ports: [{port: http}]}",
            "Service default/a: spec.ports[0].port: is ",
        ),
        (
            "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {type: Magic}",
            "Service default/a: spec.type is \"Magic\"",
        ),
        (
            "apiVersion: v1\nkind: Service\nmetadata: {name: a, labels: {on: 1}}",
            "Service default/a: metadata.labels.on: is ",
        ),
        (
            "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nmetadata: {name: b}",
            "a.yaml, document 1, line 4: YAML: ",
        ),
    ];
    for (text, expected) in cases {
        let fault = fault(text);
        assert!(fault.contains(expected), "{fault} lacks {expected}");
    }
}

#[test]
fn an_export_of_a_name_that_no_service_can_have_is_kept() {
    let text = EXPORT.replace("name: web", "name: 7.web");
    let (objects, problems) = read_one("a.yaml", &text);
    assert_eq!(objects, ["Namespace shop", "ServiceExport shop/7.web"]);
    assert!(problems.is_empty());
    let (_, problems) = read_one("a.yaml", &EXPORT.replace("name: web", "name: Web"));
    assert!(
        problems[0].contains("not an RFC 1123 subdomain"),
        "{problems:?}"
    );
}

#[test]
fn of_two_objects_of_a_name_the_first_counts() {
    let mut directory = Directory::of(&[
        ("a/a.yaml", SERVICE),
        (
            "b.yml",
            &format!("---\n{EXPORT}---\n{SERVICE}spec: {{clusterIP: None}}"),
        ),
    ]);
    let root = directory.root.path().display().to_string();
    let (objects, problems) = directory.read();
    assert_eq!(objects.len(), 3);
    let expected = "b.yml, document 2, line 6: Service shop/web is declared already in a/a.yaml, \
                    document 1: that one counts";
    assert_eq!(
        problems,
        [expected
            .replace("in a/", &format!("in {root}/a/"))
            .replace(&format!("{root}/"), "")]
    );
}

#[test]
fn namespaces_are_those_declared_else_those_used() {
    let namespace =
        |name: &str| format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}}}\n");
    let (objects, problems) = Directory::of(&[
        (
            "0.yaml",
            &format!(
                "{}---\n{}status: {{phase: Terminating}}",
                namespace("other"),
                namespace("going")
            ),
        ),
        ("1.yaml", SERVICE),
    ])
    .read();
    assert_eq!(objects, ["Namespace going", "Namespace other"]);
    assert_eq!(
        problems,
        [
            "1.yaml, document 1, line 1: Service shop/web cannot exist: the cluster declares \
          Namespaces, but not shop"
        ]
    );
}

#[test]
fn objects_that_nobody_needs_have_their_namespace_all_the_same() {
    let config = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web, namespace: shop}\n";
    let (objects, problems) = Directory::of(&[("a.yaml", config)]).read();
    assert_eq!(
        (objects, problems),
        (vec!["Namespace shop".to_owned()], Vec::new())
    );
}

#[test]
fn a_copy_of_an_object_is_no_problem() {
    let (objects, problems) = Directory::of(&[("a.yaml", SERVICE), ("b.yaml", SERVICE)]).read();
    assert_eq!(objects, ["Namespace shop", "Service shop/web"]);
    assert!(problems.is_empty(), "{problems:?}");
}

#[test]
fn links_and_hidden_names_are_handled() {
    let mut directory = Directory::of(&[
        ("a/web.yaml", SERVICE),
        (".git/web.yaml", EXPORT),
        ("a/.web.yaml.swp", "{"),
        ("notes.txt", "{"),
        ("out/.tombolo-output", ""),
        ("out/x.yaml", EXPORT),
    ]);
    symlink(directory.root.path(), directory.path("a/loop")).unwrap();
    symlink("a", directory.path("again")).unwrap();
    symlink("nowhere", directory.path("gone.yaml")).unwrap();
    let (objects, problems) = directory.read();
    assert_eq!(objects, ["Namespace shop", "Service shop/web"]);
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(
        problems[0].starts_with("gone.yaml: cannot be read: "),
        "{problems:?}"
    );
    assert!(directory.tree().has_links());
}

#[test]
fn a_directory_without_manifests_or_none_at_all_is_an_error() {
    let mut strings = Strings::default();
    let mut read = |path: &Path| Tree::read(path, Timestamp::UNIX_EPOCH, &mut strings).unwrap_err();
    let directory = Directory::of(&[("notes.txt", "")]);
    assert!(matches!(
        read(directory.root.path()),
        TreeError::Empty { .. }
    ));
    assert!(matches!(
        read(&directory.path("notes.txt")),
        TreeError::NotADirectory { .. }
    ));
    assert!(matches!(
        read(&directory.path("nowhere")),
        TreeError::List { .. }
    ));
}

#[test]
fn bytes_that_are_no_text_are_told_and_bombs_do_not_go_off() {
    let mut directory = Directory::of(&[("a.yaml", SERVICE)]);
    fs::write(directory.path("b.yaml"), b"\xff\xfe\x00").unwrap();
    let layers = (1..10).map(|i| {
        let below = vec![format!("*a{}", i - 1); 10].join(", ");
        format!("a{i}: &a{i} [{below}]\n")
    });
    let layers: String = layers.collect();
    directory.write(
        "c.yaml",
        &format!("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n{layers}"),
    );
    directory.write("d.yaml", &"[".repeat(100_000));
    let (objects, problems) = directory.read();
    assert_eq!(objects.len(), 2);
    assert_eq!(problems.len(), 3, "{problems:?}");
    assert_eq!(problems[0], "b.yaml: cannot be read: it is not UTF-8 text");
    assert!(
        problems[1].starts_with("c.yaml, document 1, line "),
        "{problems:?}"
    );
    assert!(
        problems[2].starts_with("d.yaml, document 1, line "),
        "{problems:?}"
    );
}

#[test]
fn a_document_of_very_many_nodes_is_read() {
    // More than the parser's own bounds for a document allow.
    let nodes = "x,".repeat(300_000);
    let text = format!("{SERVICE}spec: {{unknown: [{nodes}]}}");
    let (objects, problems) = read_one("all.yaml", &text);
    assert_eq!((objects.len(), problems.len()), (2, 0), "{problems:?}");
}

// === Changes ===

#[test]
fn only_changed_files_are_read_again() {
    let mut directory = Directory::of(&[("a.yaml", SERVICE), ("b.yaml", EXPORT)]);
    let mut tree = directory.tree();
    assert_eq!(directory.rescan(&mut tree), Scan::default());
    directory.write("a.yaml", &format!("{SERVICE}spec: {{clusterIP: None}}"));
    directory.write("c/c.yaml", &SERVICE.replace("web", "api"));
    assert_eq!(directory.rescan(&mut tree).files_changed, 2);
    fs::remove_file(directory.path("b.yaml")).unwrap();
    assert_eq!(directory.rescan(&mut tree).files_changed, 1);
    let (objects, _) = directory.show(&tree);
    assert_eq!(
        objects,
        ["Namespace shop", "Service shop/api", "Service shop/web"]
    );
}

#[test]
fn a_file_that_stops_parsing_keeps_what_it_had() {
    let both = format!("{SERVICE}---\n{EXPORT}");
    let mut directory = Directory::of(&[("a.yaml", &both)]);
    let mut tree = directory.tree();
    let (before, _) = directory.show(&tree);
    directory.write("a.yaml", &format!("{SERVICE}---\nkind: [\n"));
    directory.rescan(&mut tree);
    let (objects, problems) = directory.show(&tree);
    assert_eq!(objects, before);
    assert_eq!(problems.len(), 1);
    directory.write("a.yaml", SERVICE);
    directory.rescan(&mut tree);
    assert_eq!(
        directory.show(&tree).0,
        ["Namespace shop", "Service shop/web"]
    );
}

#[test]
fn a_file_that_was_just_emptied_is_awaited() {
    let mut directory = Directory::of(&[("a.yaml", SERVICE)]);
    let mut tree = directory.tree();
    directory.write("a.yaml", "");
    let written = fs::metadata(directory.path("a.yaml"))
        .unwrap()
        .modified()
        .unwrap();
    let written = Timestamp::try_from(written).unwrap();
    let scan = tree.rescan(written, &mut directory.strings);
    assert!(scan.unsettled);
    assert_eq!(directory.show(&tree).0.len(), 2);
    let scan = tree.rescan(
        written + SignedDuration::from_secs(5),
        &mut directory.strings,
    );
    assert!(!scan.unsettled);
    assert_eq!(directory.show(&tree).0.len(), 0);
}

#[test]
fn a_directory_that_is_gone_withdraws_nothing() {
    let mut directory = Directory::of(&[("a.yaml", SERVICE)]);
    let mut tree = directory.tree();
    fs::rename(
        directory.root.path(),
        directory.root.path().with_extension("away"),
    )
    .unwrap();
    directory.rescan(&mut tree);
    let (objects, problems) = directory.show(&tree);
    assert_eq!(objects.len(), 2);
    assert!(problems[0].contains("cannot be listed"), "{problems:?}");
    fs::rename(
        directory.root.path().with_extension("away"),
        directory.root.path(),
    )
    .unwrap();
}

#[test]
fn changes_lead_from_one_state_to_the_next() {
    let mut directory = Directory::of(&[("a.yaml", SERVICE), ("b.yaml", EXPORT)]);
    let mut tree = directory.tree();
    let (before, _) = Manifests::of(&tree);
    assert_eq!(before.families_named(), []);
    directory.write("a.yaml", &format!("{SERVICE}spec: {{ipFamilies: [IPv6]}}"));
    directory.write("c.yaml", &SERVICE.replace("shop", "other"));
    fs::remove_file(directory.path("b.yaml")).unwrap();
    directory.rescan(&mut tree);
    let (after, _) = Manifests::of(&tree);
    assert_eq!(after.families_named(), [IpFamily::V6]);
    let changes = before.changes_to(&after);
    let texts = changes.iter().map(|change| match change {
        Change::Apply(object) => format!("+ {}", describe(&object.reference())),
        Change::Delete(reference) => format!("- {}", describe(reference)),
        Change::Erase(reference) => format!("x {}", describe(reference)),
    });
    let texts: Vec<String> = texts.collect();
    assert_eq!(
        texts,
        [
            "- ServiceExport shop/web",
            "+ Namespace other",
            "+ Service other/web",
            "+ Service shop/web"
        ]
    );
    assert_eq!(after.changes_to(&after), []);
}

#[test]
fn a_step_that_deletes_a_namespace_takes_what_is_in_it() {
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n";
    let mut directory = Directory::of(&[("a.yaml", &format!("{namespace}---\n{SERVICE}"))]);
    let (before, _) = Manifests::of(&directory.tree());
    let step = Directory::of(&[
        ("delete/east/a.yaml", &format!("{namespace}---\n{EXPORT}")),
        ("apply/east/b.yaml", EXPORT),
    ]);
    let east = tombolo_model::names::ClusterName::try_new("east").unwrap();
    let known = [east.clone()];
    let step = crate::steps::read_step(step.root.path(), &known, &mut directory.strings).unwrap();
    let (after, problems) = before.after(&step.clusters[&east]);
    assert_eq!(names(&after), Vec::<String>::new());
    let reasons: Vec<&str> = problems.iter().map(|p| p.reason.as_str()).collect();
    assert_eq!(
        reasons,
        [
            "ServiceExport shop/web is not there to be deleted",
            "ServiceExport shop/web cannot exist: the cluster declares Namespaces, but not shop"
        ]
    );
}

#[test]
fn what_tombolo_made_can_be_deleted_by_a_step_as_often_as_it_comes_back() {
    let mut directory = Directory::of(&[("a.yaml", SERVICE)]);
    let (before, _) = Manifests::of(&directory.tree());
    let derived = SERVICE.replace("web", "derived-0");
    let step = Directory::of(&[("delete/east/a.yaml", &derived)]);
    let east = tombolo_model::names::ClusterName::try_new("east").unwrap();
    let known = [east.clone()];
    let step = crate::steps::read_step(step.root.path(), &known, &mut directory.strings).unwrap();
    let (once, problems) = before.after(&step.clusters[&east]);
    assert_eq!(problems, []);
    let (twice, _) = once.after(&step.clusters[&east]);
    let erased = |from: &Manifests, to: &Manifests| match &from.changes_to(to)[..] {
        [Change::Erase(reference)] => describe(reference),
        other => panic!("{other:?}"),
    };
    assert_eq!(erased(&before, &once), "Service shop/derived-0");
    assert_eq!(erased(&once, &twice), "Service shop/derived-0");
    assert_eq!(twice.changes_to(&twice), []);
}

// === Which clusters ===

#[test]
fn arguments_are_clusters_and_one_may_hold_several() {
    let directory = Directory::of(&[("all/east/a.yaml", ""), ("all/west.prod/b.yaml", "")]);
    let all = directory.path("all");
    let found = |arguments: &[PathBuf]| {
        let clusters = find_clusters(arguments).unwrap().into_keys();
        clusters.map(|name| name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(found(std::slice::from_ref(&all)), ["east", "west.prod"]);
    assert_eq!(found(&[all.join("east")]), ["east"]);
    assert_eq!(
        found(&[all.join("west.prod"), all.join("east/")]),
        ["east", "west.prod"]
    );
    assert_eq!(found(&[all.join("east/../east/.")]), ["east"]);
}

#[test]
fn all_bad_cluster_names_are_told_at_once() {
    let directory = Directory::of(&[
        ("all/East_1/a.yaml", ""),
        ("all/a.b.c/a.yaml", ""),
        ("all/west/a.yaml", ""),
        ("more/west/a.yaml", ""),
    ]);
    let errors = find_clusters(&[directory.path("all")]).unwrap_err();
    assert_eq!(
        errors.iter().map(SourceError::kind).collect::<Vec<_>>(),
        ["BadName", "BadName"]
    );
    let two = [directory.path("all/west"), directory.path("more/west")];
    assert!(
        find_clusters(&two).unwrap_err()[0]
            .to_string()
            .contains("both named west")
    );
    assert!(matches!(
        find_clusters(&[]).unwrap_err()[..],
        [SourceError::None]
    ));
    let nowhere = find_clusters(&[directory.path("nowhere")]).unwrap_err();
    assert!(matches!(nowhere[..], [SourceError::List { .. }]));
}
