//! The `CustomResourceDefinition`s, generated from the types.

use std::collections::BTreeMap;

pub(crate) use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition as Definition;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinitionNames, CustomResourceDefinitionSpec,
    CustomResourceDefinitionVersion, CustomResourceSubresourceStatus, CustomResourceSubresources,
    CustomResourceValidation, JSONSchemaProps,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_core::CustomResourceExt as _;
use kube_core::schema::{OptionalEnum, StructuralSchemaRewriter};
use schemars::generate::SchemaSettings;
use schemars::transform::{AddNullable, transform_subschemas};
use schemars::{JsonSchema, Schema};
use serde_json::json;

use crate::{GROUP, v1alpha1, v1beta1, well_known};

/// What the versions of a kind have in common.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) singular: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) crd_name: &'static str,
    pub(crate) short_names: &'static [&'static str],
    /// What `kubectl get` shows between name and age.
    pub(crate) columns: &'static [Column],
}

/// One column of text that `kubectl get` shows.
pub(crate) struct Column {
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    pub(crate) json_path: &'static str,
}

/// The CRDs of `ServiceExport` and `ServiceImport`, in this order: v1beta1 stored, v1alpha1
/// served too, labelled with the release and revision of the schema they have.
///
/// Before replacing a CRD that is installed, compare its labels
/// [`LABEL_RELEASE_VERSION`](well_known::LABEL_RELEASE_VERSION) and
/// [`LABEL_CRD_SCHEMA_REVISION`](well_known::LABEL_CRD_SCHEMA_REVISION): it may be newer.
pub fn crds() -> [Definition; 2] {
    [
        merge(
            v1alpha1::ServiceExport::crd(),
            v1beta1::ServiceExport::crd(),
        ),
        merge(
            v1alpha1::ServiceImport::crd(),
            v1beta1::ServiceImport::crd(),
        ),
    ]
}

/// The stored version's definition with the versions of both.
fn merge(served: Definition, mut stored: Definition) -> Definition {
    stored.spec.versions.splice(0..0, served.spec.versions);
    stored
}

/// The definition of a kind with a single version.
pub(crate) fn of_version<T: JsonSchema>(kind: &Kind, version: &str, stored: bool) -> Definition {
    let labels = [
        (
            well_known::LABEL_RELEASE_VERSION,
            well_known::RELEASE_VERSION,
        ),
        (
            well_known::LABEL_CRD_SCHEMA_REVISION,
            well_known::CRD_SCHEMA_REVISION,
        ),
    ];
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let version = CustomResourceDefinitionVersion {
        name: version.to_owned(),
        served: true,
        storage: stored,
        schema: Some(CustomResourceValidation {
            open_api_v3_schema: Some(schema::<T>()),
        }),
        subresources: Some(CustomResourceSubresources {
            status: Some(CustomResourceSubresourceStatus(json!({}))),
            ..Default::default()
        }),
        additional_printer_columns: Some(printer_columns(kind)),
        ..Default::default()
    };
    Definition {
        metadata: ObjectMeta {
            name: Some(kind.crd_name.to_owned()),
            labels: Some(BTreeMap::from(labels)),
            ..Default::default()
        },
        spec: CustomResourceDefinitionSpec {
            group: GROUP.to_owned(),
            scope: "Namespaced".to_owned(),
            names: CustomResourceDefinitionNames {
                kind: kind.name.to_owned(),
                plural: kind.plural.to_owned(),
                singular: Some(kind.singular.to_owned()),
                short_names: Some(
                    kind.short_names
                        .iter()
                        .map(|&name| name.to_owned())
                        .collect(),
                ),
                ..Default::default()
            },
            versions: vec![version],
            ..Default::default()
        },
        status: None,
    }
}

fn printer_columns(kind: &Kind) -> Vec<CustomResourceColumnDefinition> {
    let own = kind
        .columns
        .iter()
        .map(|column| CustomResourceColumnDefinition {
            name: column.name.to_owned(),
            type_: "string".to_owned(),
            description: Some(column.description.to_owned()),
            json_path: column.json_path.to_owned(),
            ..Default::default()
        });
    let age = CustomResourceColumnDefinition {
        name: "Age".to_owned(),
        type_: "date".to_owned(),
        json_path: ".metadata.creationTimestamp".to_owned(),
        ..Default::default()
    };
    own.chain([age]).collect()
}

/// The structural schema of a root kind.
fn schema<T: JsonSchema>() -> JSONSchemaProps {
    let mut schema = SchemaSettings::openapi3()
        .with(|settings| {
            // The API server knows neither references nor `$schema`.
            settings.inline_subschemas = true;
            settings.meta_schema = None;
        })
        .with_transform(AddNullable::default())
        .with_transform(StructuralSchemaRewriter)
        .with_transform(OptionalEnum)
        .with_transform(drop_rust_details)
        .into_generator()
        .into_root_schema_for::<T>();
    let properties = schema
        .pointer_mut("/properties")
        .and_then(|value| value.as_object_mut());
    let properties = properties.expect("a root kind is an object with properties");
    let of_every_object = [
        (
            "apiVersion",
            json!({"type": "string", "description": "The group and version."}),
        ),
        (
            "kind",
            json!({"type": "string", "description": "The kind of the object."}),
        ),
        // The API server has a schema of its own for it, and refuses so much as a description.
        ("metadata", json!({"type": "object"})),
    ];
    properties.extend(of_every_object.map(|(name, schema)| (name.to_owned(), schema)));
    serde_json::from_value(schema.to_value()).expect("schemars makes valid OpenAPI schemas")
}

/// Drops what describes the Rust types and not the API, where an optional field may be absent
/// but not `null`, and has no default.
fn drop_rust_details(schema: &mut Schema) {
    for keyword in ["title", "nullable", "default"] {
        schema.remove(keyword);
    }
    transform_subschemas(&mut drop_rust_details, schema);
}
