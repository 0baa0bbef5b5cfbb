//! JSON values to declared objects: which kinds count, in which versions, under which names.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace as K8sNamespace, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use mcs_api::{GROUP, v1alpha1, v1beta1};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tombolo_model::names::{Namespace, ObjectName, ServiceKey, check_hostname, check_service_name};
use tombolo_model::object::{Kind, ObjectRef, ServiceKind};
use tombolo_model::service::IpFamily;

use super::{Declared, DeclaredExport, DeclaredService, Place, describe, words};
use crate::convert::{
    Strings, check_ports, observe_export, observe_import_json, observe_namespace, observe_service,
    observe_slice,
};

/// A `List` in a `List` in a `List` … is read this deep; nobody means more.
const LIST_DEPTH_MAX: usize = 8;

/// The longest name of an object that is not a DNS label (RFC 1123 subdomain).
const SUBDOMAIN_LEN_MAX: usize = 253;

/// Something found at a place of a file.
#[derive(Clone, Debug)]
pub(crate) struct Found<T> {
    pub(crate) place: Place,
    pub(crate) what: T,
}

/// What a document has to say: a full object, or only which one.
pub(crate) trait Read: Sized {
    fn read(document: Recognised, strings: &mut Strings) -> Result<Self, String>;
}

/// A document of a kind and version that counts, with the key it has.
pub(crate) struct Recognised {
    kind: Kind,
    alpha: bool,
    key: ServiceKey,
    json: Value,
}

/// Which object a document names, as the files of a step's `delete` do.
#[derive(Clone, Debug)]
pub(crate) struct Stub(pub(crate) ObjectRef);

impl Read for Stub {
    fn read(document: Recognised, _: &mut Strings) -> Result<Self, String> {
        Ok(Self(ObjectRef {
            kind: document.kind,
            key: document.key,
        }))
    }
}

/// What documents hold, and what is wrong with them.
pub(crate) struct Contents<T> {
    pub(crate) found: Vec<Found<T>>,
    pub(crate) faults: Vec<Found<String>>,
    /// The namespaces of objects that nobody needs: they exist all the same.
    pub(crate) namespaces: BTreeSet<Namespace>,
}

impl<T: Read> Contents<T> {
    pub(super) fn new() -> Self {
        Self {
            found: Vec::new(),
            faults: Vec::new(),
            namespaces: BTreeSet::new(),
        }
    }

    /// Takes a document: an object, a list of them, or something that nobody needs.
    pub(super) fn add(&mut self, json: Value, place: Place, strings: &mut Strings) {
        self.add_nested(json, place, "", strings);
    }

    pub(super) fn fault(&mut self, place: Place, reason: String) {
        self.faults.push(Found {
            place,
            what: reason,
        });
    }

    /// `path` says which item of which list it is, as `items[3]: `.
    fn add_nested(&mut self, json: Value, place: Place, path: &str, strings: &mut Strings) {
        let Value::Object(fields) = json else {
            let problem = "is no Kubernetes object: it has no fields";
            return self.fault(place, format!("{path}{problem}"));
        };
        match recognise(&fields) {
            Err(reason) => self.fault(place, format!("{path}{reason}")),
            Ok(Class::NotNeeded) => {
                let metadata = fields.get("metadata");
                let name = metadata
                    .and_then(|m| m.get("namespace"))
                    .and_then(Value::as_str);
                self.namespaces
                    .extend(name.and_then(|name| Namespace::try_new(name).ok()));
            }
            Ok(Class::List { items_are }) => {
                if path.matches('[').count() == LIST_DEPTH_MAX {
                    return self.fault(place, "has lists nested too deep".to_owned());
                }
                for (index, item) in items(fields, items_are.as_ref()).enumerate() {
                    let outer = path.trim_end_matches(": ");
                    let dot = if outer.is_empty() { "" } else { "." };
                    let path = format!("{outer}{dot}items[{index}]: ");
                    self.add_nested(item, place, &path, strings);
                }
            }
            Ok(Class::Object { kind, alpha }) => {
                let read = identify(kind, alpha, fields).and_then(|doc| T::read(doc, strings));
                match read {
                    Ok(what) => self.found.push(Found { place, what }),
                    Err(reason) => self.fault(place, format!("{path}{reason}")),
                }
            }
        }
    }
}

/// What a document is, by its `apiVersion` and `kind`.
enum Class {
    Object {
        kind: Kind,
        alpha: bool,
    },
    /// A list; `items_are` the version and kind of items that do not say themselves.
    List {
        items_are: Option<(String, String)>,
    },
    NotNeeded,
}

fn recognise(fields: &Map<String, Value>) -> Result<Class, String> {
    let text = |field: &str| {
        fields
            .get(field)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    if kind.is_empty() || api_version.is_empty() {
        let missing = if kind.is_empty() {
            "kind"
        } else {
            "apiVersion"
        };
        return Err(format!("is no Kubernetes object: it has no {missing}"));
    }
    if (api_version, kind) == ("v1", "List") {
        return Ok(Class::List { items_are: None });
    }
    let class = object_class(api_version, kind)?;
    if let (Class::NotNeeded, Some(item_kind)) = (&class, kind.strip_suffix("List"))
        && let Class::Object { .. } = object_class(api_version, item_kind)?
    {
        let items_are = Some((api_version.to_owned(), item_kind.to_owned()));
        return Ok(Class::List { items_are });
    }
    Ok(class)
}

/// Whether an object of this version and kind counts; an error where its kind does, but not in
/// this version.
fn object_class(api_version: &str, kind: &str) -> Result<Class, String> {
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    let (kind, versions): (Kind, &[&str]) = match (group, kind) {
        ("", "Namespace") => (Kind::Namespace, &["v1"]),
        ("", "Service") => (Kind::Service, &["v1"]),
        ("discovery.k8s.io", "EndpointSlice") => (Kind::EndpointSlice, &["v1"]),
        (GROUP, "ServiceExport") => (Kind::ServiceExport, &[v1beta1::VERSION, v1alpha1::VERSION]),
        (GROUP, "ServiceImport") => (Kind::ServiceImport, &[v1beta1::VERSION, v1alpha1::VERSION]),
        (_, _) => return Ok(Class::NotNeeded),
    };
    if !versions.contains(&version) {
        let slash = if group.is_empty() { "" } else { "/" };
        let known: Vec<String> = versions
            .iter()
            .map(|v| format!("{group}{slash}{v}"))
            .collect();
        return Err(format!(
            "apiVersion {api_version} of {} is not known: write {}",
            kind.as_str(),
            known.join(" or ")
        ));
    }
    Ok(Class::Object {
        kind,
        alpha: version == v1alpha1::VERSION,
    })
}

fn items(
    mut fields: Map<String, Value>,
    items_are: Option<&(String, String)>,
) -> impl Iterator<Item = Value> {
    let items = match fields.remove("items") {
        Some(Value::Array(items)) => items,
        // kubectl writes `items: null` for an empty list.
        Some(_) | None => Vec::new(),
    };
    items.into_iter().map(move |mut item| {
        if let (Value::Object(fields), Some((api_version, kind))) = (&mut item, items_are) {
            let mut fill = |field: &str, text: &str| {
                fields
                    .entry(field)
                    .or_insert_with(|| Value::String(text.to_owned()));
            };
            fill("apiVersion", api_version);
            fill("kind", kind);
        }
        item
    })
}

/// Checks the names of an object; one without a namespace is in `default`.
fn identify(kind: Kind, alpha: bool, mut fields: Map<String, Value>) -> Result<Recognised, String> {
    let kind_text = kind.as_str();
    let metadata = match fields.get_mut("metadata") {
        Some(Value::Object(metadata)) => metadata,
        None | Some(Value::Null) => return Err(format!("{kind_text} has no metadata.name")),
        Some(_) => return Err(format!("{kind_text}: metadata has no fields")),
    };
    let name = match metadata.get("name") {
        Some(Value::String(name)) if !name.is_empty() => name.clone(),
        Some(Value::String(_) | Value::Null) | None if metadata.contains_key("generateName") => {
            return Err(format!(
                "{kind_text} has metadata.generateName only: give it a metadata.name"
            ));
        }
        Some(Value::String(_) | Value::Null) | None => {
            return Err(format!("{kind_text} has no metadata.name"));
        }
        Some(other) => return Err(format!("{kind_text}: metadata.name is {other}, not a text")),
    };
    let namespace = match (kind, metadata.get("namespace")) {
        (Kind::Namespace, _) => name.clone(),
        (_, Some(Value::String(namespace))) if !namespace.is_empty() => namespace.clone(),
        (_, None | Some(Value::Null | Value::String(_))) => {
            metadata.insert("namespace".to_owned(), "default".into());
            "default".to_owned()
        }
        (_, Some(other)) => {
            let problem = format!("{kind_text} {name}: metadata.namespace is {other}, not a text");
            return Err(problem);
        }
    };
    let namespace = Namespace::try_new(&namespace)
        .map_err(|error| format!("{kind_text} {namespace}/{name}: {error}"))?;
    check_name(kind, &name)
        .map_err(|problem| format!("{kind_text} {namespace}/{name}: {problem}"))?;
    Ok(Recognised {
        kind,
        alpha,
        key: ServiceKey::new(namespace, ObjectName::new(&name)),
        json: Value::Object(fields),
    })
}

/// Whether an API server lets an object of this kind have this name. A ServiceExport may have one
/// that no Service can have: it is told so in its status.
fn check_name(kind: Kind, name: &str) -> Result<(), String> {
    match kind {
        Kind::Namespace => Ok(()),
        Kind::Service => check_service_name(name).map_err(|error| error.to_string()),
        Kind::EndpointSlice | Kind::ServiceExport | Kind::ServiceImport => {
            let byte_ok = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
            let label_ok = |label: &str| {
                !label.is_empty()
                    && label.bytes().all(byte_ok)
                    && !label.starts_with('-')
                    && !label.ends_with('-')
            };
            if name.len() <= SUBDOMAIN_LEN_MAX && name.split('.').all(label_ok) {
                Ok(())
            } else {
                Err(
                    "metadata.name is not an RFC 1123 subdomain: a-z, 0-9, '-' and '.', at most \
                     253 characters"
                        .to_owned(),
                )
            }
        }
    }
}

impl Read for Declared {
    fn read(document: Recognised, strings: &mut Strings) -> Result<Self, String> {
        let reference = ObjectRef {
            kind: document.kind,
            key: document.key,
        };
        let json = document.json;
        let declared = match document.kind {
            Kind::Namespace => {
                let object: K8sNamespace = typed(json, &reference)?;
                Self::Namespace(Arc::new(text(observe_namespace(&object, strings))?))
            }
            Kind::Service => {
                let object: Service = typed(json, &reference)?;
                // The families only fill gaps, so what is wrong is wrong with any.
                let observed = text(observe_service(&object, &[IpFamily::V4], strings))?;
                check_ports(&observed.ports).map_err(|(field, problem)| {
                    format!("{}: {field} {problem}", describe(&reference))
                })?;
                if observed.headless && observed.kind != ServiceKind::ClusterIp {
                    let (object, kind) = (describe(&reference), observed.kind.as_str());
                    return Err(format!(
                        "{object}: spec.clusterIP is None, which a Service of type {kind} cannot have"
                    ));
                }
                let key = reference.key;
                Self::Service(Arc::new(DeclaredService { key, object }))
            }
            Kind::EndpointSlice => {
                let object: EndpointSlice = typed(json, &reference)?;
                let observed = text(observe_slice(&object, strings))?;
                for (i, endpoint) in observed.endpoints.iter().enumerate() {
                    if let Some(hostname) = &endpoint.hostname {
                        check_hostname(hostname).map_err(|error| {
                            let object = describe(&reference);
                            format!("{object}: endpoints[{i}].hostname: {error}")
                        })?;
                    }
                }
                Self::EndpointSlice(Arc::new(observed))
            }
            Kind::ServiceExport => {
                let object = if document.alpha {
                    typed::<v1alpha1::ServiceExport>(json.clone(), &reference)?.into()
                } else {
                    typed::<v1beta1::ServiceExport>(json.clone(), &reference)?
                };
                let object = text(observe_export(&object, strings))?;
                Self::ServiceExport(Arc::new(DeclaredExport { object, json }))
            }
            Kind::ServiceImport => {
                let (object, problem) = text(observe_import_json(json, strings))?;
                if let Some(problem) = problem {
                    return Err(problem.to_string());
                }
                Self::ServiceImport(Arc::new(object))
            }
        };
        Ok(declared)
    }
}

fn text<T>(result: Result<T, crate::convert::Rejected>) -> Result<T, String> {
    result.map_err(|rejected| rejected.to_string())
}

/// The object as its API type; the field that has the wrong type is named.
fn typed<T: DeserializeOwned>(json: Value, reference: &ObjectRef) -> Result<T, String> {
    serde_path_to_error::deserialize(json).map_err(|error| {
        let (path, inner) = (error.path().to_string(), error.inner());
        let problem = words::field(&inner.to_string());
        format!("{}: {path}: {problem}", describe(reference))
    })
}
