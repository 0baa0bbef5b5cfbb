//! EndpointSlices: the bulk of what is read, so strings are shared and nothing is kept twice.

use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::discovery::v1::{
    Endpoint, EndpointConditions, EndpointHints, EndpointPort, EndpointSlice, ForNode, ForZone,
};
use tombolo_model::endpoint::Conditions;
use tombolo_model::object::{
    AddressType, Hints, Kind, SliceEndpoint, SliceObject, SlicePort, TargetRef,
};
use tombolo_model::service::IpFamily;

use super::service::{protocol, some_text};
use super::{Rejected, Strings, Subject, meta};

/// An EndpointSlice as the model sees it: ports without a number are dropped, of an endpoint's
/// addresses the first counts, host names are not read.
pub fn observe_slice(
    object: &EndpointSlice,
    strings: &mut Strings,
) -> Result<SliceObject, Rejected> {
    let meta = meta::observe(Kind::EndpointSlice, &object.metadata, strings)?;
    let subject = Subject {
        kind: Kind::EndpointSlice,
        key: &meta.key,
    };
    let address_type = match object.address_type.as_str() {
        "IPv4" => AddressType::Ip(IpFamily::V4),
        "IPv6" => AddressType::Ip(IpFamily::V6),
        "FQDN" => AddressType::Fqdn,
        other => return Err(subject.not_one_of("addressType", other, "IPv4, IPv6, FQDN")),
    };
    let endpoints = match address_type {
        AddressType::Fqdn => Vec::new(),
        AddressType::Ip(family) => endpoints(subject, &object.endpoints, family, strings)?,
    };
    let ports = ports(
        subject,
        object.ports.as_deref().unwrap_or_default(),
        strings,
    )?;
    Ok(SliceObject {
        address_type,
        ports: ports.into(),
        endpoints: endpoints.into(),
        meta,
    })
}

fn ports(
    subject: Subject<'_>,
    ports: &[EndpointPort],
    strings: &mut Strings,
) -> Result<Vec<SlicePort>, Rejected> {
    let numbered = ports
        .iter()
        .enumerate()
        .filter_map(|(i, port)| Some((i, port, port.port?)));
    numbered
        .map(|(i, port, number)| {
            let protocol_field = || format!("ports[{i}].protocol");
            Ok(SlicePort {
                name: strings.share(port.name.as_deref().unwrap_or_default()),
                protocol: protocol(subject, protocol_field, port.protocol.as_deref())?,
                port: subject.port(|| format!("ports[{i}].port"), number)?,
                app_protocol: strings.share_some(port.app_protocol.as_deref()),
            })
        })
        .collect()
}

fn endpoints(
    subject: Subject<'_>,
    endpoints: &[Endpoint],
    family: IpFamily,
    strings: &mut Strings,
) -> Result<Vec<SliceEndpoint>, Rejected> {
    let mut read: Vec<SliceEndpoint> = Vec::with_capacity(endpoints.len());
    for (i, endpoint) in endpoints.iter().enumerate() {
        // Neighbours mostly have the same hints.
        let hints = endpoint.hints.as_ref().and_then(|h| hints(h, strings));
        let hints = match (hints, read.last().and_then(|last| last.hints.as_ref())) {
            (Some(new), Some(last)) if new == **last => Some(Arc::clone(last)),
            (new, _) => new.map(Arc::new),
        };
        read.push(SliceEndpoint {
            address: address(subject, i, endpoint, family)?,
            conditions: conditions(endpoint.conditions.as_ref()),
            hostname: strings.share_some(endpoint.hostname.as_deref()),
            zone: strings.share_some(endpoint.zone.as_deref()),
            node: strings.share_some(endpoint.node_name.as_deref()),
            target: endpoint.target_ref.as_ref().map(|t| target(t, strings)),
            hints,
        });
    }
    Ok(read)
}

fn address(
    subject: Subject<'_>,
    index: usize,
    endpoint: &Endpoint,
    family: IpFamily,
) -> Result<IpAddr, Rejected> {
    let Some(text) = endpoint.addresses.first() else {
        let field = format!("endpoints[{index}].addresses");
        return Err(subject.reject(field, "is empty: an endpoint needs an address"));
    };
    match text.parse::<IpAddr>() {
        Ok(address) if IpFamily::of(address) == family => Ok(address),
        Ok(_) | Err(_) => {
            let field = format!("endpoints[{index}].addresses[0]");
            Err(subject.reject(field, format!("is {text:?}, which is no {family} address")))
        }
    }
}

/// Unset conditions as BEHAVIOUR §1 reads them: ready counts as true, serving as ready.
fn conditions(conditions: Option<&EndpointConditions>) -> Conditions {
    let Some(conditions) = conditions else {
        return Conditions::READY;
    };
    let ready = conditions.ready.unwrap_or(true);
    Conditions {
        ready,
        serving: conditions.serving.unwrap_or(ready),
        terminating: conditions.terminating.unwrap_or(false),
    }
}

fn hints(hints: &EndpointHints, strings: &mut Strings) -> Option<Hints> {
    let zones = hints.for_zones.iter().flatten();
    let nodes = hints.for_nodes.iter().flatten();
    let read = Hints {
        zones: zones.map(|zone| strings.share(&zone.name)).collect(),
        nodes: nodes.map(|node| strings.share(&node.name)).collect(),
    };
    (read != Hints::default()).then_some(read)
}

/// Names and UIDs of pods are not shared: each occurs once.
fn target(target: &ObjectReference, strings: &mut Strings) -> Arc<TargetRef> {
    Arc::new(TargetRef {
        kind: strings.share(target.kind.as_deref().unwrap_or_default()),
        namespace: strings.share(target.namespace.as_deref().unwrap_or_default()),
        name: target.name.as_deref().unwrap_or_default().into(),
        uid: target.uid.as_deref().unwrap_or_default().into(),
    })
}

/// An EndpointSlice to send or to show, every condition written out.
pub fn write_slice(object: &SliceObject) -> EndpointSlice {
    let SliceObject {
        meta,
        address_type,
        ports,
        endpoints,
    } = object;
    let address_type = match address_type {
        AddressType::Ip(family) => family.as_str(),
        AddressType::Fqdn => "FQDN",
    };
    EndpointSlice {
        metadata: meta::write(meta),
        address_type: address_type.to_owned(),
        ports: (!ports.is_empty()).then(|| ports.iter().map(write_port).collect()),
        endpoints: endpoints.iter().map(write_endpoint).collect(),
    }
}

fn write_port(port: &SlicePort) -> EndpointPort {
    let SlicePort {
        name,
        protocol,
        port,
        app_protocol,
    } = port;
    EndpointPort {
        // The unnamed port has an empty name, as the endpointslice controller writes it.
        name: Some(name.to_string()),
        protocol: Some(protocol.as_str().to_owned()),
        port: Some(i32::from(*port)),
        app_protocol: app_protocol.as_deref().map(str::to_owned),
    }
}

fn write_endpoint(endpoint: &SliceEndpoint) -> Endpoint {
    let SliceEndpoint {
        address,
        conditions,
        hostname,
        zone,
        node,
        target,
        hints,
    } = endpoint;
    let text = |text: &Option<Arc<str>>| text.as_deref().map(str::to_owned);
    Endpoint {
        addresses: vec![address.to_string()],
        conditions: Some(EndpointConditions {
            ready: Some(conditions.ready),
            serving: Some(conditions.serving),
            terminating: Some(conditions.terminating),
        }),
        hostname: text(hostname),
        zone: text(zone),
        node_name: text(node),
        target_ref: target.as_deref().map(write_target),
        hints: hints.as_deref().map(write_hints),
        ..Endpoint::default()
    }
}

fn write_target(target: &TargetRef) -> ObjectReference {
    let TargetRef {
        kind,
        namespace,
        name,
        uid,
    } = target;
    ObjectReference {
        kind: some_text(kind),
        namespace: some_text(namespace),
        name: some_text(name),
        uid: some_text(uid),
        ..ObjectReference::default()
    }
}

fn write_hints(hints: &Hints) -> EndpointHints {
    let Hints { zones, nodes } = hints;
    let zone = |name: &Arc<str>| ForZone {
        name: name.to_string(),
    };
    let node = |name: &Arc<str>| ForNode {
        name: name.to_string(),
    };
    EndpointHints {
        for_zones: (!zones.is_empty()).then(|| zones.iter().map(zone).collect()),
        for_nodes: (!nodes.is_empty()).then(|| nodes.iter().map(node).collect()),
    }
}
