//! What the API server refuses, and which part of an object is its status.

use std::collections::BTreeSet;
use std::sync::Arc;

use tombolo_model::object::{Object, ServiceKind, ServiceObject, SliceObject};
use tombolo_model::record::Labels;
use tombolo_model::service::Port;

/// What is wrong with an object, if anything.
pub(super) fn problem(object: &Object) -> Option<String> {
    let meta = object.meta()?;
    let name = meta.key.name.as_str();
    let is_subdomain = name.len() <= 253 && name.split('.').all(|part| is_label(part, 253));
    if !is_subdomain {
        return Some(format!("name {name:?} is not a DNS subdomain"));
    }
    if let Some((key, value)) = bad_label(&meta.labels) {
        return Some(format!("label {key}={value} is not valid"));
    }
    match object {
        Object::Service(service) => service_problem(service),
        Object::EndpointSlice(slice) => slice_problem(slice),
        Object::Namespace(_) | Object::ServiceExport(_) | Object::ServiceImport(_) => None,
    }
}

fn is_label(text: &str, max: usize) -> bool {
    !text.is_empty()
        && text.len() <= max
        && !text.starts_with('-')
        && !text.ends_with('-')
        && text
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

fn bad_label(labels: &Labels) -> Option<(&Arc<str>, &Arc<str>)> {
    labels.iter().find(|(_, value)| {
        let good = value
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
        !good || value.len() > 63 || value.starts_with('-') || value.ends_with('-')
    })
}

fn ports_problem<'a>(
    ports: impl Iterator<Item = (&'a str, String)>,
    numbers: bool,
) -> Option<String> {
    let (mut names, mut seen) = (BTreeSet::new(), BTreeSet::new());
    for (name, number) in ports {
        if !names.insert(name.to_owned()) {
            return Some(format!("port name {name:?} is there twice"));
        }
        if numbers && !seen.insert(number.clone()) {
            return Some(format!("port {number} is there twice"));
        }
        if !name.is_empty() && !is_label(name, 63) {
            return Some(format!("port name {name:?} is not a label"));
        }
    }
    if names.len() > 1 && names.contains("") {
        return Some("a port of several has no name".to_owned());
    }
    None
}

fn service_problem(service: &ServiceObject) -> Option<String> {
    let name = service.meta.key.name.as_str();
    if !is_label(name, 63) || !name.starts_with(|c: char| c.is_ascii_lowercase()) {
        return Some(format!("name {name:?} is not an RFC 1035 label"));
    }
    let needs_ports = !service.headless && service.kind != ServiceKind::ExternalName;
    if needs_ports && service.ports.is_empty() {
        return Some("a Service that is not headless needs a port".to_owned());
    }
    if service.families.is_empty() && service.kind != ServiceKind::ExternalName {
        return Some("no IP family".to_owned());
    }
    let number = |p: &Port| format!("{}/{}", p.protocol, p.port);
    ports_problem(service.ports.iter().map(|p| (&*p.name, number(p))), true)
}

fn slice_problem(slice: &SliceObject) -> Option<String> {
    if slice.endpoints.len() > 1000 || slice.ports.len() > 100 {
        return Some("too many endpoints or ports".to_owned());
    }
    ports_problem(slice.ports.iter().map(|p| (&*p.name, String::new())), false)
}

/// Whether an update of the one object to the other is allowed.
pub(super) fn can_become(old: &Object, new: &Object) -> bool {
    match (old, new) {
        (Object::Service(old), Object::Service(new)) => {
            let external = |s: &ServiceObject| s.kind == ServiceKind::ExternalName;
            if external(old) || external(new) {
                return external(old) == external(new);
            }
            let keeps_ips = new.cluster_ips.is_empty()
                || old
                    .cluster_ips
                    .iter()
                    .zip(&new.cluster_ips)
                    .all(|(a, b)| a == b);
            old.headless == new.headless
                && old.families.first() == new.families.first()
                && keeps_ips
        }
        (Object::EndpointSlice(old), Object::EndpointSlice(new)) => {
            old.address_type == new.address_type
        }
        _ => old.kind() == new.kind(),
    }
}

/// The first object with the status of the second.
pub(super) fn with_status_of(body: &Object, status: &Object) -> Object {
    match (body, status) {
        (Object::ServiceExport(body), Object::ServiceExport(status)) => {
            let mut object = (**body).clone();
            object.conditions.clone_from(&status.conditions);
            Object::ServiceExport(Arc::new(object))
        }
        (Object::ServiceImport(body), Object::ServiceImport(status)) => {
            let mut object = (**body).clone();
            object.status = status.status.clone();
            Object::ServiceImport(Arc::new(object))
        }
        _ => body.clone(),
    }
}

/// Whether more than metadata and status differ.
pub(super) fn spec_differs(old: &Object, new: &Object) -> bool {
    match (old, new) {
        (Object::ServiceExport(a), Object::ServiceExport(b)) => {
            a.labels != b.labels || a.annotations != b.annotations
        }
        (Object::ServiceImport(a), Object::ServiceImport(b)) => a.spec != b.spec,
        _ => false,
    }
}
