//! ServiceImports. Objects of v1alpha1 turn into those of v1beta1 before they come here.

use std::net::IpAddr;

use mcs_api::v1beta1::{
    ClusterStatus, EndpointSliceObjects, ServiceImport, ServiceImportSpec, ServiceImportStatus,
    ServiceImportType, ServicePort,
};
use serde_json::Value;
use tombolo_model::names::ServiceKey;
use tombolo_model::object::{ImportObject, ImportSpec, ImportStatus, Kind};
use tombolo_model::service::{ImportType, Port};

use super::export::{observe_conditions, write_conditions};
use super::service::{
    affinity, internal_traffic_policy, parse_families, protocol, some_text, write_affinity_config,
    write_families,
};
use super::{Rejected, Strings, Subject, meta};

/// A ServiceImport as the model sees it, and what is wrong with its spec, in which case the
/// model's spec is `None`.
pub fn observe_import(
    object: &ServiceImport,
    strings: &mut Strings,
) -> Result<(ImportObject, Option<Rejected>), Rejected> {
    let meta = meta::observe(Kind::ServiceImport, &object.metadata, strings)?;
    let (spec, problem) = match observe_spec(&meta.key, &object.spec, strings) {
        Ok(spec) => (Some(spec), None),
        Err(problem) => (None, Some(problem)),
    };
    let import = ImportObject {
        meta,
        spec,
        status: observe_status(object.status.as_ref(), strings),
    };
    Ok((import, problem))
}

/// The same from JSON, whose spec may hold what the API's types cannot: another release or another
/// implementation wrote it.
pub fn observe_import_json(
    json: Value,
    strings: &mut Strings,
) -> Result<(ImportObject, Option<Rejected>), Rejected> {
    let whole: Result<ServiceImport, _> = serde_path_to_error::deserialize(&json);
    let error = match whole {
        Ok(object) => return observe_import(&object, strings),
        Err(error) => error,
    };
    let Value::Object(mut fields) = json else {
        return Err(unreadable(&error));
    };
    fields.insert(
        "spec".to_owned(),
        serde_json::json!({"ports": [], "type": "ClusterSetIP"}),
    );
    let Ok(rest) = serde_json::from_value::<ServiceImport>(Value::Object(fields)) else {
        return Err(unreadable(&error));
    };
    let (mut import, _) = observe_import(&rest, strings)?;
    import.spec = None;
    let subject = Subject {
        kind: Kind::ServiceImport,
        key: &import.meta.key,
    };
    let problem = subject.reject(error.path().to_string(), reason(&error));
    Ok((import, Some(problem)))
}

fn unreadable(error: &serde_path_to_error::Error<serde_json::Error>) -> Rejected {
    Rejected {
        object: Kind::ServiceImport.as_str().to_owned(),
        field: error.path().to_string(),
        problem: reason(error),
    }
}

fn reason(error: &serde_path_to_error::Error<serde_json::Error>) -> String {
    format!("cannot be read: {}", error.inner())
}

fn observe_spec(
    key: &ServiceKey,
    spec: &ServiceImportSpec,
    strings: &mut Strings,
) -> Result<ImportSpec, Rejected> {
    let subject = Subject {
        kind: Kind::ServiceImport,
        key,
    };
    Ok(ImportSpec {
        kind: match spec.type_ {
            ServiceImportType::ClusterSetIp => ImportType::ClusterSetIp,
            ServiceImportType::Headless => ImportType::Headless,
        },
        ports: ports(subject, &spec.ports, strings)?,
        ips: ips(subject, &spec.ips)?,
        families: parse_families(subject, &spec.ip_families)?,
        affinity: affinity(
            subject,
            spec.session_affinity.as_deref(),
            spec.session_affinity_config.as_ref(),
        )?,
        internal_traffic_policy: internal_traffic_policy(
            subject,
            spec.internal_traffic_policy.as_deref(),
        )?,
        traffic_distribution: strings.share_some(spec.traffic_distribution.as_deref()),
    })
}

fn ports(
    subject: Subject<'_>,
    ports: &[ServicePort],
    strings: &mut Strings,
) -> Result<Vec<Port>, Rejected> {
    let ports = ports.iter().enumerate();
    ports
        .map(|(i, port)| {
            let protocol_field = || format!("spec.ports[{i}].protocol");
            Ok(Port {
                name: strings.share(port.name.as_deref().unwrap_or_default()),
                protocol: protocol(subject, protocol_field, port.protocol.as_deref())?,
                port: subject.port(|| format!("spec.ports[{i}].port"), port.port)?,
                app_protocol: strings.share_some(port.app_protocol.as_deref()),
            })
        })
        .collect()
}

fn ips(subject: Subject<'_>, texts: &[String]) -> Result<Vec<IpAddr>, Rejected> {
    let texts = texts.iter().enumerate();
    texts
        .map(|(i, text)| {
            text.parse().map_err(|_| {
                let field = format!("spec.ips[{i}]");
                subject.reject(field, format!("is {text:?}, which is no IP address"))
            })
        })
        .collect()
}

fn observe_status(status: Option<&ServiceImportStatus>, strings: &mut Strings) -> ImportStatus {
    let Some(status) = status else {
        return ImportStatus::default();
    };
    let clusters = status.clusters.iter();
    ImportStatus {
        clusters: clusters.map(|c| strings.share(&c.cluster)).collect(),
        slices_present: status.endpoint_slice_objects.map(|present| match present {
            EndpointSliceObjects::Present => true,
            EndpointSliceObjects::Absent => false,
        }),
        conditions: observe_conditions(&status.conditions, strings),
    }
}

/// A ServiceImport to send or to show. One whose spec could not be read has an empty one.
pub fn write_import(object: &ImportObject) -> ServiceImport {
    let ImportObject { meta, spec, status } = object;
    ServiceImport {
        metadata: meta::write(meta),
        spec: spec.as_ref().map(write_spec).unwrap_or_default(),
        status: (*status != ImportStatus::default()).then(|| write_status(status)),
    }
}

fn write_spec(spec: &ImportSpec) -> ServiceImportSpec {
    let ImportSpec {
        kind,
        ports,
        ips,
        families,
        affinity,
        internal_traffic_policy,
        traffic_distribution,
    } = spec;
    ServiceImportSpec {
        type_: match kind {
            ImportType::ClusterSetIp => ServiceImportType::ClusterSetIp,
            ImportType::Headless => ServiceImportType::Headless,
        },
        ports: ports.iter().map(write_port).collect(),
        ips: ips.iter().map(IpAddr::to_string).collect(),
        ip_families: write_families(families),
        session_affinity: Some(affinity.as_str().to_owned()),
        session_affinity_config: write_affinity_config(*affinity),
        internal_traffic_policy: Some(internal_traffic_policy.as_str().to_owned()),
        traffic_distribution: traffic_distribution.as_deref().map(str::to_owned),
    }
}

fn write_port(port: &Port) -> ServicePort {
    let Port {
        name,
        protocol,
        port,
        app_protocol,
    } = port;
    ServicePort {
        name: some_text(name),
        protocol: Some(protocol.as_str().to_owned()),
        app_protocol: app_protocol.as_deref().map(str::to_owned),
        port: i32::from(*port),
    }
}

/// The status alone, as it is sent to the status subresource.
fn write_status(status: &ImportStatus) -> ServiceImportStatus {
    let ImportStatus {
        clusters,
        slices_present,
        conditions,
    } = status;
    let cluster = |name: &std::sync::Arc<str>| ClusterStatus {
        cluster: name.to_string(),
    };
    ServiceImportStatus {
        endpoint_slice_objects: slices_present.map(|present| {
            if present {
                EndpointSliceObjects::Present
            } else {
                EndpointSliceObjects::Absent
            }
        }),
        clusters: clusters.iter().map(cluster).collect(),
        conditions: write_conditions(conditions),
    }
}
