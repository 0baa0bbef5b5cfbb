//! The generated CRDs against what the published ones of release v0.5.2 say.
//!
//! `published/*.txt` holds the published schema, which both versions have: a line for each path,
//! with its type and every keyword beside the description. `[]` stands for the items of a list,
//! `{}` for the values of a map.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// The generated CRD of this index, as the API server gets it.
fn generated(index: usize) -> Value {
    serde_json::to_value(&mcs_api::crds()[index]).expect("CRDs are JSON")
}

/// Adds the lines of a schema and of all below it.
fn describe(path: &str, schema: &Value, lines: &mut Vec<String>) {
    let mut keywords = sorted(schema);
    let type_ = keywords
        .remove("type")
        .and_then(Value::as_str)
        .unwrap_or("-");
    let mut words = vec![
        if path.is_empty() { "." } else { path }.to_owned(),
        type_.to_owned(),
    ];
    keywords.remove("description");
    let properties = keywords
        .remove("properties")
        .map(sorted)
        .unwrap_or_default();
    let items = keywords.remove("items");
    let values = keywords.remove("additionalProperties");
    words.extend(keywords.into_iter().map(|(keyword, value)| match value {
        Value::String(value) => format!("{keyword}={value}"),
        value => format!("{keyword}={value}"),
    }));
    lines.push(words.join(" "));
    for (name, property) in properties {
        describe(&format!("{path}.{name}"), property, lines);
    }
    for (suffix, below) in [("[]", items), ("{}", values)] {
        if let Some(schema) = below {
            describe(&format!("{path}{suffix}"), schema, lines);
        }
    }
}

fn sorted(object: &Value) -> BTreeMap<&str, &Value> {
    let object = object.as_object().expect("this is an object");
    object
        .iter()
        .map(|(key, value)| (key.as_str(), value))
        .collect()
}

/// Compares the schemas of both versions with the published one.
fn assert_schemas(index: usize, published: &str) {
    let crd = generated(index);
    let versions = crd["spec"]["versions"]
        .as_array()
        .expect("versions is a list");
    assert_eq!(versions.len(), 2);
    for version in versions {
        let mut lines = Vec::new();
        describe("", &version["schema"]["openAPIV3Schema"], &mut lines);
        let expected: Vec<_> = published.lines().collect();
        assert_eq!(lines, expected, "the schema of {}", version["name"]);
    }
}

/// Everything of a CRD but the schemas.
fn without_schemas(index: usize) -> Value {
    let mut crd = generated(index);
    for version in crd["spec"]["versions"]
        .as_array_mut()
        .expect("versions is a list")
    {
        version
            .as_object_mut()
            .expect("a version is an object")
            .remove("schema");
    }
    crd
}

/// The published facts about a kind beside its schema.
fn published(names: &Value, columns: &Value) -> Value {
    let plural = names["plural"].as_str().expect("plural is a string");
    let version = |name: &str, stored: bool| {
        json!({
            "name": name, "served": true, "storage": stored,
            "subresources": {"status": {}}, "additionalPrinterColumns": columns,
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{plural}.multicluster.x-k8s.io"),
            "labels": {
                "multicluster.x-k8s.io/release-version": "v0.5.2",
                "multicluster.x-k8s.io/crd-schema-revision": "0",
            },
        },
        "spec": {
            "group": "multicluster.x-k8s.io",
            "scope": "Namespaced",
            "names": names,
            "versions": [version("v1alpha1", false), version("v1beta1", true)],
        },
    })
}

#[test]
fn service_export_has_the_published_schema() {
    assert_schemas(0, include_str!("published/serviceexports.txt"));
}

#[test]
fn service_import_has_the_published_schema() {
    assert_schemas(1, include_str!("published/serviceimports.txt"));
}

#[test]
fn service_export_has_the_published_names_and_columns() {
    let names = json!({
        "kind": "ServiceExport", "singular": "serviceexport", "plural": "serviceexports",
        "shortNames": ["svcex", "svcexport"],
    });
    let age = json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"});
    assert_eq!(without_schemas(0), published(&names, &json!([age])));
}

#[test]
fn service_import_has_the_published_names_and_columns() {
    let names = json!({
        "kind": "ServiceImport", "singular": "serviceimport", "plural": "serviceimports",
        "shortNames": ["svcim", "svcimport"],
    });
    let columns = json!([
        {
            "name": "Type", "type": "string", "jsonPath": ".spec.type",
            "description": "The type of this ServiceImport",
        },
        {
            "name": "IP", "type": "string", "jsonPath": ".spec.ips",
            "description": "The VIP for this ServiceImport",
        },
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]);
    assert_eq!(without_schemas(1), published(&names, &columns));
}

/// `kubectl explain` shows the descriptions. The API server describes the metadata itself and
/// refuses a CRD that says more of it than its type.
#[test]
fn every_property_but_the_metadata_is_described() {
    fn assert_described(path: &str, schema: &Value) {
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.{name}");
            // The API server describes the metadata itself.
            assert!(
                path == ".metadata" || property["description"].is_string(),
                "{path}"
            );
            assert_described(&path, property);
            assert_described(&path, &property["items"]);
        }
    }
    for index in [0, 1] {
        for version in generated(index)["spec"]["versions"]
            .as_array()
            .into_iter()
            .flatten()
        {
            assert_described("", &version["schema"]["openAPIV3Schema"]);
        }
    }
}
