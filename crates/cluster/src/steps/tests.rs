//! Changes in order, and those that change nothing.

use std::fs;

use super::*;

fn known() -> Vec<ClusterName> {
    ["east", "west"]
        .map(|name| ClusterName::try_new(name).unwrap())
        .to_vec()
}

fn step(files: &[(&str, &str)]) -> Result<Step, Vec<StepError>> {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    read_step(root.path(), &known(), &mut Strings::default())
}

const STUB: &str = "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\n";

#[test]
fn apply_takes_objects_and_delete_takes_stubs() {
    let slice = "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: web-1}\n";
    let step = step(&[("apply/east/s.yaml", STUB), ("delete/west/s.yaml", slice)]).unwrap();
    assert_eq!(step.problems, []);
    let [east, west] = known().try_into().unwrap();
    assert_eq!(step.clusters[&east].apply.len(), 1);
    // A slice without addressType is none, but a stub of it is enough to delete it.
    let deleted = &step.clusters[&west].delete[0].1.what;
    assert_eq!(
        crate::manifest::describe(deleted),
        "EndpointSlice default/web-1"
    );
}

#[test]
fn what_is_out_of_place_is_told_all_at_once() {
    let errors = step(&[
        ("apply/north/s.yaml", STUB),
        ("apply/s.yaml", STUB),
        ("replace/east/s.yaml", STUB),
    ])
    .unwrap_err();
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(texts.len(), 3, "{texts:?}");
    assert!(texts[0].ends_with("no cluster of this run is named \"north\", there are east, west"));
    assert!(texts[1].contains("apply/s.yaml is out of place"));
    assert!(texts[2].contains("replace is out of place"));
    assert!(matches!(
        step(&[(".hidden", "")]).unwrap_err()[..],
        [StepError::Empty { .. }]
    ));
}
