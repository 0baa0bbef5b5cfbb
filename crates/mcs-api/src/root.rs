//! The root kinds: metadata, spec and status under one version's name.
//!
//! `kube`'s derive is not used for them. It ties a spec type to a single version, and it makes
//! `spec` a required field, while the published schema does not and most `ServiceExport`s that
//! people write have none. Here an object without a spec gets the default of its type.

use serde::{Deserialize, Deserializer};

/// Reads `null` like an absent field, as the API server does for fields that are not nullable.
pub(crate) fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Defines the root kind of one version.
macro_rules! root_kind {
    (
        $(#[$doc:meta])*
        $name:ident: $spec:ty, $status:ty;
        kind: $kind:expr, version: $version:expr, stored: $stored:expr, omit_spec: $omit_spec:expr
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, serde::Deserialize, schemars::JsonSchema)]
        #[serde(rename_all = "camelCase")]
        pub struct $name {
            /// Standard metadata of the object.
            #[serde(default)]
            #[schemars(skip)]
            pub metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,

            /// What is wanted.
            #[serde(default, deserialize_with = "crate::root::null_as_default")]
            pub spec: $spec,

            /// What is the case; written by the implementation.
            #[serde(default)]
            pub status: Option<$status>,
        }

        impl $name {
            /// An object of this name without namespace and status.
            pub fn new(name: &str, spec: $spec) -> Self {
                let metadata = k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                    name: Some(name.to_owned()),
                    ..Default::default()
                };
                Self { metadata, spec, status: None }
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeStruct as _;

                let Self { metadata, spec, status } = self;
                let omit_spec: fn(&$spec) -> bool = $omit_spec;
                let mut root = serializer.serialize_struct(
                    stringify!($name),
                    3 + usize::from(!omit_spec(spec)) + usize::from(status.is_some()),
                )?;
                root.serialize_field("apiVersion", &<Self as kube_core::Resource>::api_version(&()))?;
                root.serialize_field("kind", $kind.name)?;
                root.serialize_field("metadata", metadata)?;
                if omit_spec(spec) {
                    root.skip_field("spec")?;
                } else {
                    root.serialize_field("spec", spec)?;
                }
                match status {
                    Some(status) => root.serialize_field("status", status)?,
                    None => root.skip_field("status")?,
                }
                root.end()
            }
        }

        impl kube_core::Resource for $name {
            type DynamicType = ();
            type Scope = kube_core::NamespaceResourceScope;

            fn kind((): &()) -> std::borrow::Cow<'_, str> {
                $kind.name.into()
            }

            fn group((): &()) -> std::borrow::Cow<'_, str> {
                crate::GROUP.into()
            }

            fn version((): &()) -> std::borrow::Cow<'_, str> {
                $version.into()
            }

            fn plural((): &()) -> std::borrow::Cow<'_, str> {
                $kind.plural.into()
            }

            fn meta(&self) -> &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &self.metadata
            }

            fn meta_mut(
                &mut self,
            ) -> &mut k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &mut self.metadata
            }
        }

        impl kube_core::object::HasSpec for $name {
            type Spec = $spec;

            fn spec(&self) -> &$spec {
                &self.spec
            }

            fn spec_mut(&mut self) -> &mut $spec {
                &mut self.spec
            }
        }

        impl kube_core::object::HasStatus for $name {
            type Status = $status;

            fn status(&self) -> Option<&$status> {
                self.status.as_ref()
            }

            fn status_mut(&mut self) -> &mut Option<$status> {
                &mut self.status
            }
        }

        impl kube_core::CustomResourceExt for $name {
            fn crd() -> $crate::crd::Definition {
                crate::crd::of_version::<Self>(&$kind, $version, $stored)
            }

            fn crd_name() -> &'static str {
                $kind.crd_name
            }

            fn api_resource() -> kube_core::ApiResource {
                kube_core::ApiResource::erase::<Self>(&())
            }

            fn shortnames() -> &'static [&'static str] {
                $kind.short_names
            }
        }
    };
}

pub(crate) use root_kind;
