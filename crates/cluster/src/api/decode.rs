//! What the API server sends to model objects: each is read by itself, so that one that cannot be
//! read spoils nothing else.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace as K8sNamespace, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use mcs_api::v1beta1::ServiceExport;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tombolo_model::object::{Kind, Object, ObjectRef};

use crate::convert::{
    Rejected, Strings, key_of, observe_export, observe_import_json, observe_namespace,
    observe_service, observe_slice,
};

/// Says that all that was there when a streaming list began has been sent.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// One line of a watch.
#[derive(Deserialize)]
pub(super) struct Line<'a> {
    #[serde(rename = "type", borrow)]
    pub(super) kind: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) object: &'a RawValue,
}

/// A page of a list.
#[derive(Deserialize)]
pub(super) struct ListPage<'a> {
    pub(super) metadata: ListHead,
    #[serde(borrow, default)]
    pub(super) items: Option<Vec<&'a RawValue>>,
}

/// What a page says of itself.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ListHead {
    #[serde(default)]
    pub(super) resource_version: String,
    #[serde(default, rename = "continue")]
    pub(super) token: Option<String>,
}

/// An object of which only the metadata counts.
#[derive(Deserialize)]
struct Stub {
    metadata: StubMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StubMeta {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    namespace: Option<String>,
    #[serde(default)]
    resource_version: Option<String>,
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
}

/// What a bookmark says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Bookmark {
    pub(super) revision: String,
    /// Whether it ends the initial events of a streaming list.
    pub(super) ends_list: bool,
}

/// Reads a bookmark.
pub(super) fn bookmark(raw: &RawValue) -> Result<Bookmark, serde_json::Error> {
    let Stub { metadata } = serde_json::from_str(raw.get())?;
    let annotations = metadata.annotations.unwrap_or_default();
    let mark = annotations.get(INITIAL_EVENTS_END);
    Ok(Bookmark {
        revision: metadata.resource_version.unwrap_or_default(),
        ends_list: mark.is_some_and(|mark| mark == "true"),
    })
}

/// An object that was read.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) object: Object,
    /// What of it cannot be used.
    pub(super) problem: Option<Rejected>,
}

/// An object that cannot be read.
#[derive(Debug)]
pub(super) struct Unreadable {
    /// Which one, if that can be read at least, and in which resource version.
    pub(super) which: Option<(ObjectRef, Arc<str>)>,
    pub(super) rejected: Rejected,
}

/// Reads objects of one kind.
#[derive(Debug)]
pub(super) struct Decoder {
    kind: Kind,
    strings: Strings,
}

impl Decoder {
    pub(super) fn new(kind: Kind) -> Self {
        Self {
            kind,
            strings: Strings::default(),
        }
    }

    /// Reads an object.
    pub(super) fn object(&mut self, raw: &str) -> Result<Read, Box<Unreadable>> {
        let strings = &mut self.strings;
        let whole = |object| Read {
            object,
            problem: None,
        };
        let read = match self.kind {
            Kind::Namespace => parse::<K8sNamespace>(self.kind, raw)
                .and_then(|o| observe_namespace(&o, strings))
                .map(|o| whole(Object::Namespace(Arc::new(o)))),
            // A server has filled in all families.
            Kind::Service => parse::<Service>(self.kind, raw)
                .and_then(|o| observe_service(&o, &[], strings))
                .map(|o| whole(Object::Service(Arc::new(o)))),
            Kind::EndpointSlice => parse::<EndpointSlice>(self.kind, raw)
                .and_then(|o| observe_slice(&o, strings))
                .map(|o| whole(Object::EndpointSlice(Arc::new(o)))),
            Kind::ServiceExport => parse::<ServiceExport>(self.kind, raw)
                .and_then(|o| observe_export(&o, strings))
                .map(|o| whole(Object::ServiceExport(Arc::new(o)))),
            Kind::ServiceImport => parse::<serde_json::Value>(self.kind, raw)
                .and_then(|o| observe_import_json(o, strings))
                .map(|(o, problem)| Read {
                    object: Object::ServiceImport(Arc::new(o)),
                    problem,
                }),
        };
        read.map_err(|rejected| {
            let which = self.which(raw).ok();
            let name = which
                .as_ref()
                .map(|(object, _)| crate::manifest::describe(object));
            let object = name.unwrap_or_else(|| rejected.object.clone());
            Box::new(Unreadable {
                which,
                rejected: Rejected { object, ..rejected },
            })
        })
    }

    /// Which object this is, and its resource version.
    pub(super) fn which(&self, raw: &str) -> Result<(ObjectRef, Arc<str>), Rejected> {
        let Stub { metadata } = parse(self.kind, raw)?;
        let StubMeta {
            name,
            namespace,
            resource_version,
            annotations: _,
        } = metadata;
        let meta = ObjectMeta {
            name,
            namespace,
            ..ObjectMeta::default()
        };
        let key = key_of(self.kind, &meta)?;
        let kind = self.kind;
        let version = resource_version.unwrap_or_default().into();
        Ok((ObjectRef { kind, key }, version))
    }
}

fn parse<T: DeserializeOwned>(kind: Kind, raw: &str) -> Result<T, Rejected> {
    let mut json = serde_json::Deserializer::from_str(raw);
    serde_path_to_error::deserialize(&mut json).map_err(|error| Rejected {
        object: kind.as_str().to_owned(),
        field: error.path().to_string(),
        problem: format!("cannot be read: {}", error.inner()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unreadable_object_is_named() {
        let raw = r#"{"metadata":{"name":"a","namespace":"shop","resourceVersion":"7"},
            "spec":{"ports":[{"port":"eighty"}]}}"#;
        let unreadable = Decoder::new(Kind::Service).object(raw).unwrap_err();
        let (object, version) = unreadable.which.unwrap();
        assert_eq!(
            (object.key.to_string().as_str(), &*version),
            ("shop/a", "7")
        );
        let text = unreadable.rejected.to_string();
        assert!(
            text.starts_with("Service shop/a: spec.ports[0].port cannot be read"),
            "{text}"
        );
    }

    #[test]
    fn a_bookmark_may_end_a_list() {
        let line = r#"{"type":"BOOKMARK","object":{"kind":"Service","metadata":
            {"resourceVersion":"12","annotations":{"k8s.io/initial-events-end":"true"}}}}"#;
        let line: Line<'_> = serde_json::from_str(line).unwrap();
        let ends = Bookmark {
            revision: "12".to_owned(),
            ends_list: true,
        };
        assert_eq!(bookmark(line.object).unwrap(), ends);
    }
}
