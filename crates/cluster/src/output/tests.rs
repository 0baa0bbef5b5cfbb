//! Directories that are ours and not ours, and what a run leaves in them.

use std::os::unix::fs::symlink;
use std::sync::Arc;

use jiff::Timestamp;
use mcs_api::well_known::LABEL_SERVICE_NAME;
use proptest::prelude::*;
use serde_json::{Value, json};
use tombolo_model::io::Effect;
use tombolo_model::names::{Namespace, ObjectName};
use tombolo_model::object::{
    Condition, ImportObject, ImportSpec, ImportStatus, Kind, Meta, ObjectRef, ServiceKind,
    ServiceObject,
};
use tombolo_model::own::{LABEL_MANAGED_BY, MANAGED_BY};
use tombolo_model::service::{
    Affinity, ImportType, InternalTrafficPolicy, IpFamily, Port, Protocol,
};

use super::*;
use crate::convert::Strings;
use crate::manifest::{Manifests, Tree};
use crate::store::VipRanges;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

const MANIFEST: &str = "apiVersion: multicluster.x-k8s.io/v1alpha1\n\
                        kind: ServiceExport\n\
                        metadata: {name: web, namespace: shop, labels: {team: 'on'}}\n\
                        ---\n\
                        apiVersion: v1\nkind: Service\n\
                        metadata: {name: web, namespace: shop}\n";

fn key(name: &str) -> ServiceKey {
    ServiceKey::new(Namespace::try_new("shop").unwrap(), ObjectName::new(name))
}

fn meta(name: &str) -> Meta {
    let labels = [(LABEL_MANAGED_BY, MANAGED_BY), (LABEL_SERVICE_NAME, "web")];
    let labels = labels.map(|(key, value)| (key.into(), value.into()));
    Meta {
        labels: Arc::new(labels.into()),
        ..Meta::to_create(key(name))
    }
}

/// A cluster with an export and, made by the engine, an import and its derived Service.
fn store() -> Store {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("a.yaml"), MANIFEST).unwrap();
    let tree = Tree::read(root.path(), NOW, &mut Strings::default()).unwrap();
    let (manifests, problems) = Manifests::of(&tree);
    assert_eq!(problems, []);
    let cluster = ClusterName::try_new("east").unwrap();
    let mut store = Store::new(cluster, vec![IpFamily::V4], &VipRanges::default());
    store.change(&Manifests::default().changes_to(&manifests), NOW);
    let port = Port {
        name: "http".into(),
        protocol: Protocol::Tcp,
        port: 80,
        app_protocol: None,
    };
    let import = ImportObject {
        meta: meta("web"),
        spec: Some(ImportSpec {
            kind: ImportType::ClusterSetIp,
            ports: vec![port.clone()],
            ips: vec![],
            families: vec![IpFamily::V4],
            affinity: Affinity::None,
            internal_traffic_policy: InternalTrafficPolicy::Cluster,
            traffic_distribution: None,
        }),
        status: ImportStatus::default(),
    };
    let derived = ServiceObject {
        meta: meta("derived-0"),
        kind: ServiceKind::ClusterIp,
        headless: false,
        cluster_ips: vec![],
        families: vec![IpFamily::V4],
        ports: vec![port],
        affinity: Affinity::None,
        internal_traffic_policy: InternalTrafficPolicy::Cluster,
        traffic_distribution: None,
        has_selector: false,
    };
    for object in [
        Object::ServiceImport(Arc::new(import)),
        Object::Service(Arc::new(derived)),
    ] {
        store.execute(&Effect::Create(object), NOW).unwrap();
    }
    set_condition(&mut store, "yes: it is valid");
    store
}

/// The engine writes the export's status.
fn set_condition(store: &mut Store, message: &str) {
    let place = ObjectRef {
        kind: Kind::ServiceExport,
        key: key("web"),
    };
    let Some(Object::ServiceExport(old)) = store.get(&place).cloned() else {
        panic!("no export")
    };
    let mut new = (*old).clone();
    new.conditions = vec![Condition {
        kind: "Valid".into(),
        status: "True".into(),
        reason: "Valid".into(),
        message: message.into(),
        observed_generation: Some(1),
        last_transition: NOW,
    }];
    let effect = Effect::UpdateStatus {
        old: Object::ServiceExport(old),
        new: Object::ServiceExport(Arc::new(new)),
    };
    store.execute(&effect, NOW).unwrap();
}

fn text(root: &Path) -> String {
    fs::read_to_string(root.join("east/shop.web.yaml")).unwrap()
}

#[test]
fn a_service_is_a_file_as_a_server_would_show_it() {
    let root = tempfile::tempdir().unwrap();
    let mut output = Output::open(root.path()).unwrap();
    let written = output.write(&[&store()]).unwrap();
    assert_eq!(
        written,
        Written {
            written: 1,
            removed: 0
        }
    );
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text(root.path())).unwrap();
    let [export, import, derived] = &documents[..] else {
        panic!("{documents:?}")
    };
    let mut uid = export["metadata"]["uid"].clone();
    assert_eq!(uid.take().as_str().unwrap().len(), 36);
    assert_eq!(
        *export,
        json!({
            "apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ServiceExport",
            "metadata": {
                "name": "web", "namespace": "shop", "labels": {"team": "on"}, "generation": 1,
                "resourceVersion": "6", "creationTimestamp": "1970-01-01T00:00:00Z",
                "uid": export["metadata"]["uid"],
            },
            "status": {"conditions": [{
                "type": "Valid", "status": "True", "reason": "Valid", "message": "yes: it is valid",
                "observedGeneration": 1, "lastTransitionTime": "1970-01-01T00:00:00Z",
            }]},
        })
    );
    assert_eq!(import["apiVersion"], "multicluster.x-k8s.io/v1beta1");
    assert_eq!(derived["apiVersion"], "v1");
    assert_eq!(derived["kind"], "Service");
    assert_eq!(derived["spec"]["ports"][0]["targetPort"], 80);
}

#[test]
fn what_is_the_same_is_not_written_again_and_what_changed_is() {
    let root = tempfile::tempdir().unwrap();
    let mut store = store();
    let mut output = Output::open(root.path()).unwrap();
    output.write(&[&store]).unwrap();
    assert_eq!(output.write(&[&store]).unwrap(), Written::default());
    // The next run knows the directory and finds the file as it wants it.
    let mut output = Output::open(root.path()).unwrap();
    assert_eq!(output.write(&[&store]).unwrap(), Written::default());
    set_condition(&mut store, "still");
    let changed = output.write(&[&store]).unwrap();
    assert_eq!(
        changed,
        Written {
            written: 1,
            removed: 0
        }
    );
    assert!(text(root.path()).contains("message: still\n"));
}

#[test]
fn what_is_no_longer_wanted_goes_and_nothing_else() {
    let root = tempfile::tempdir().unwrap();
    Output::open(root.path())
        .unwrap()
        .write(&[&store()])
        .unwrap();
    fs::write(root.path().join("east/mine.yaml"), "mine").unwrap();
    let mut output = Output::open(root.path()).unwrap();
    assert_eq!(
        output.write(&[]).unwrap(),
        Written {
            written: 0,
            removed: 1
        }
    );
    assert!(root.path().join("east/mine.yaml").exists());
    fs::remove_file(root.path().join("east/mine.yaml")).unwrap();
    output.write(&[&store()]).unwrap();
    output.write(&[]).unwrap();
    let left: Vec<_> = root
        .path()
        .read_dir()
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(left, [OUTPUT_MARKER]);
}

#[test]
fn a_directory_of_somebody_else_is_refused() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("thesis.tex"), "").unwrap();
    let error = Output::open(root.path()).unwrap_err();
    assert_eq!(error.kind(), "NotOurs");
    assert!(
        error
            .to_string()
            .contains("is neither new nor empty nor from an earlier run")
    );
    assert_eq!(
        Output::open(&root.path().join("thesis.tex"))
            .unwrap_err()
            .kind(),
        "Write"
    );
    assert!(Output::open(&root.path().join("a/new/one")).is_ok());
}

#[test]
fn nothing_leads_out_of_the_directory() {
    let outside = tempfile::tempdir().unwrap();
    let precious = outside.path().join("precious.yaml");
    fs::write(&precious, "precious").unwrap();
    let root = tempfile::tempdir().unwrap();
    Output::open(root.path())
        .unwrap()
        .write(&[&store()])
        .unwrap();

    // A file that became a link is replaced, not written through.
    let file = root.path().join("east/shop.web.yaml");
    fs::remove_file(&file).unwrap();
    symlink(&precious, &file).unwrap();
    Output::open(root.path())
        .unwrap()
        .write(&[&store()])
        .unwrap();
    assert!(file.symlink_metadata().unwrap().is_file());

    // A marker that names files elsewhere is not believed.
    let marker = root.path().join(OUTPUT_MARKER);
    let out = outside.path().file_name().unwrap().to_str().unwrap();
    let lines = format!(
        "{}\n../{out}/precious.yaml\neast/../../{out}/precious.yaml\n",
        precious.display()
    );
    fs::write(&marker, lines).unwrap();
    Output::open(root.path()).unwrap().write(&[]).unwrap();

    // A cluster's directory that became a link is refused.
    fs::remove_dir_all(root.path().join("east")).unwrap();
    symlink(outside.path(), root.path().join("east")).unwrap();
    let mut output = Output::open(root.path()).unwrap();
    assert_eq!(
        output.write(&[&store()]).unwrap_err().kind(),
        "NotADirectory"
    );
    let there: Vec<_> = outside.path().read_dir().unwrap().collect();
    assert_eq!(there.len(), 1);
    assert_eq!(fs::read_to_string(precious).unwrap(), "precious");
}

#[test]
fn long_names_fit_in_a_file_name() {
    let long = |last: char| file_name(&key(&format!("{}{last}", "a".repeat(252))));
    assert!(long('a').len() <= NAME_LEN_MAX + ".yaml".len());
    assert_ne!(long('a'), long('b'));
    assert_eq!(file_name(&key("web")), "shop.web.yaml");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Whatever a message says, it is read as it was written.
    #[test]
    fn any_text_survives_yaml(text in "\\PC{0,60}|[ -~\\n\\t]{0,100}|yes|~|0x1f|1e3|1:20|---|# a|- a") {
        let json = json!({"message": &text, "list": [&text], text: 1});
        let yaml = render::yaml(&json);
        let back: Value = serde_saphyr::from_str(&yaml).unwrap();
        prop_assert_eq!(back, json);
    }
}
