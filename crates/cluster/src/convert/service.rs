//! Services.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    ClientIPConfig, Service, ServicePort, ServiceSpec, SessionAffinityConfig,
};
use tombolo_model::object::{Kind, ServiceKind, ServiceObject};
use tombolo_model::service::{
    AFFINITY_TIMEOUT_DEFAULT_SECS, AFFINITY_TIMEOUT_MAX_SECS, Affinity, InternalTrafficPolicy,
    IpFamily, Port, Protocol,
};

use super::{Rejected, Strings, Subject, meta};

/// `spec.clusterIP` of a headless Service.
const HEADLESS: &str = "None";

/// A Service as the model sees it, with what an API server of a cluster with these families (in
/// its order) defaults.
pub fn observe_service(
    object: &Service,
    cluster_families: &[IpFamily],
    strings: &mut Strings,
) -> Result<ServiceObject, Rejected> {
    let meta = meta::observe(Kind::Service, &object.metadata, strings)?;
    let subject = Subject {
        kind: Kind::Service,
        key: &meta.key,
    };
    let default_spec = ServiceSpec::default();
    let spec = object.spec.as_ref().unwrap_or(&default_spec);
    let kind = kind(subject, spec)?;
    let (headless, cluster_ips) = match kind {
        ServiceKind::ExternalName => (false, Vec::new()),
        ServiceKind::ClusterIp | ServiceKind::NodePort | ServiceKind::LoadBalancer => {
            cluster_ips(subject, spec)?
        }
    };
    let has_selector = spec.selector.as_ref().is_some_and(|map| !map.is_empty());
    let families = match kind {
        ServiceKind::ExternalName => Vec::new(),
        ServiceKind::ClusterIp | ServiceKind::NodePort | ServiceKind::LoadBalancer => {
            let free = headless && !has_selector;
            families(subject, spec, &cluster_ips, cluster_families, free)?
        }
    };
    Ok(ServiceObject {
        kind,
        headless,
        cluster_ips,
        families,
        ports: ports(subject, spec, strings)?,
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
        has_selector,
        meta,
    })
}

/// The families that a Service's spec names, by `ipFamilies` or by its cluster IPs; what cannot
/// be read is passed over.
pub fn families_named(object: &Service) -> Vec<IpFamily> {
    let Some(spec) = &object.spec else {
        return Vec::new();
    };
    let named = spec.ip_families.iter().flatten();
    let addresses = spec.cluster_ips.iter().flatten().chain(&spec.cluster_ip);
    let mut families: Vec<IpFamily> = named
        .filter_map(|family| IpFamily::parse(family))
        .chain(addresses.filter_map(|a| Some(IpFamily::of(a.parse().ok()?))))
        .collect();
    families.sort_unstable();
    families.dedup();
    families
}

fn kind(subject: Subject<'_>, spec: &ServiceSpec) -> Result<ServiceKind, Rejected> {
    let text = match spec.type_.as_deref() {
        None | Some("") => return Ok(ServiceKind::ClusterIp),
        Some(text) => text,
    };
    [
        ServiceKind::ClusterIp,
        ServiceKind::NodePort,
        ServiceKind::LoadBalancer,
        ServiceKind::ExternalName,
    ]
    .into_iter()
    .find(|kind| kind.as_str() == text)
    .ok_or_else(|| {
        let known = "ClusterIP, NodePort, LoadBalancer, ExternalName";
        subject.not_one_of("spec.type", text, known)
    })
}

/// Whether the Service is headless, else its cluster IPs.
fn cluster_ips(subject: Subject<'_>, spec: &ServiceSpec) -> Result<(bool, Vec<IpAddr>), Rejected> {
    let first = spec.cluster_ip.as_deref().filter(|ip| !ip.is_empty());
    let mut texts: Vec<&str> = spec
        .cluster_ips
        .iter()
        .flatten()
        .map(String::as_str)
        .collect();
    match (first, texts.first()) {
        (Some(ip), Some(head)) if ip != *head => {
            let problem = format!("is {head}, but spec.clusterIP is {ip}: they must be equal");
            return Err(subject.reject("spec.clusterIPs[0]", problem));
        }
        (Some(ip), None) => texts.push(ip),
        (Some(_) | None, Some(_)) | (None, None) => {}
    }
    if texts == [HEADLESS] {
        return Ok((true, Vec::new()));
    }
    if texts == [""] {
        return Ok((false, Vec::new()));
    }
    if texts.len() > 2 {
        let problem = "has more than two addresses: at most one of each family is allowed";
        return Err(subject.reject("spec.clusterIPs", problem));
    }
    let mut addresses: Vec<IpAddr> = Vec::with_capacity(texts.len());
    for (i, text) in texts.into_iter().enumerate() {
        let field = format!("spec.clusterIPs[{i}]");
        let Ok(address) = text.parse::<IpAddr>() else {
            return Err(subject.reject(field, format!("is {text:?}, which is no IP address")));
        };
        let same_family = |other: &IpAddr| other.is_ipv4() == address.is_ipv4();
        if addresses.iter().any(same_family) {
            let problem = format!("is {text}: it is of the same family as the first address");
            return Err(subject.reject(field, problem));
        }
        addresses.push(address);
    }
    Ok((false, addresses))
}

/// The families: those given, else those of its addresses, else the cluster's first; a second one
/// where the policy asks for it and the cluster has it. `free`: headless without a selector, which
/// may have any family, and gets both where nothing is said.
fn families(
    subject: Subject<'_>,
    spec: &ServiceSpec,
    cluster_ips: &[IpAddr],
    of_cluster: &[IpFamily],
    free: bool,
) -> Result<Vec<IpFamily>, Rejected> {
    let mut families = parse_families(subject, spec.ip_families.as_deref().unwrap_or_default())?;
    if families.is_empty() {
        families = cluster_ips.iter().copied().map(IpFamily::of).collect();
    }
    for (i, address) in cluster_ips.iter().enumerate() {
        if families.get(i).is_none_or(|f| *f != IpFamily::of(*address)) {
            let field = format!("spec.clusterIPs[{i}]");
            return Err(subject.reject(
                field,
                format!("is {address}, which is not of the family at the same place in ipFamilies"),
            ));
        }
    }
    if families.is_empty() {
        families.extend(of_cluster.first().copied().or(Some(IpFamily::V4)));
    }
    let dual = match spec.ip_family_policy.as_deref() {
        None | Some("") => families.len() == 2 || free,
        Some("PreferDualStack" | "RequireDualStack") => true,
        Some("SingleStack") if families.len() == 2 => {
            let problem = "has two families, but spec.ipFamilyPolicy is SingleStack";
            return Err(subject.reject("spec.ipFamilies", problem));
        }
        Some("SingleStack") => false,
        Some(other) => {
            let known = "SingleStack, PreferDualStack, RequireDualStack";
            return Err(subject.not_one_of("spec.ipFamilyPolicy", other, known));
        }
    };
    if dual && let [first] = families[..] {
        let second = match first {
            IpFamily::V4 => IpFamily::V6,
            IpFamily::V6 => IpFamily::V4,
        };
        if free || of_cluster.contains(&second) {
            families.push(second);
        }
    }
    Ok(families)
}

/// A list of families as Kubernetes writes it.
pub(super) fn parse_families(
    subject: Subject<'_>,
    texts: &[String],
) -> Result<Vec<IpFamily>, Rejected> {
    let mut families = Vec::with_capacity(texts.len());
    for (i, text) in texts.iter().enumerate() {
        let field = || format!("spec.ipFamilies[{i}]");
        let Some(family) = IpFamily::parse(text) else {
            return Err(subject.not_one_of(field(), text, "IPv4, IPv6"));
        };
        if families.contains(&family) {
            return Err(subject.reject(field(), format!("is {text}, which is there already")));
        }
        families.push(family);
    }
    Ok(families)
}

fn ports(
    subject: Subject<'_>,
    spec: &ServiceSpec,
    strings: &mut Strings,
) -> Result<Vec<Port>, Rejected> {
    let ports = spec.ports.iter().flatten().enumerate();
    ports
        .map(|(i, port)| {
            Ok(Port {
                name: strings.share(port.name.as_deref().unwrap_or_default()),
                protocol: protocol(
                    subject,
                    || format!("spec.ports[{i}].protocol"),
                    port.protocol.as_deref(),
                )?,
                port: subject.port(|| format!("spec.ports[{i}].port"), port.port)?,
                app_protocol: strings.share_some(port.app_protocol.as_deref()),
            })
        })
        .collect()
}

/// What is wrong with a Service's ports: the field and the problem.
pub(crate) fn check_ports(ports: &[Port]) -> Result<(), (String, String)> {
    let (mut names, mut numbers) = (HashSet::new(), HashSet::new());
    for (i, port) in ports.iter().enumerate() {
        let name_field = || format!("spec.ports[{i}].name");
        if port.name.is_empty() && ports.len() > 1 {
            let problem = "is missing: a Service of several ports needs names".to_owned();
            return Err((name_field(), problem));
        }
        let is_label = |name: &str| {
            let ok = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
            name.len() <= 63
                && name.bytes().all(ok)
                && !name.starts_with('-')
                && !name.ends_with('-')
        };
        if !is_label(&port.name) {
            let problem = format!("is {:?}, which is not an RFC 1123 label", port.name);
            return Err((name_field(), problem));
        }
        if !names.insert(&port.name) {
            return Err((
                name_field(),
                format!("is {}, which is there already", port.name),
            ));
        }
        if !numbers.insert((port.protocol, port.port)) {
            let problem = format!("is {}/{}, which is there already", port.protocol, port.port);
            return Err((format!("spec.ports[{i}]"), problem));
        }
    }
    Ok(())
}

/// A protocol; TCP where none is given.
pub(super) fn protocol(
    subject: Subject<'_>,
    field: impl FnOnce() -> String,
    text: Option<&str>,
) -> Result<Protocol, Rejected> {
    match text {
        None | Some("") => Ok(Protocol::Tcp),
        Some(text) => {
            Protocol::parse(text).ok_or_else(|| subject.not_one_of(field(), text, "TCP, UDP, SCTP"))
        }
    }
}

/// Session affinity with its timeout.
pub(super) fn affinity(
    subject: Subject<'_>,
    text: Option<&str>,
    config: Option<&SessionAffinityConfig>,
) -> Result<Affinity, Rejected> {
    match text {
        None | Some("" | "None") => Ok(Affinity::None),
        Some("ClientIP") => {
            let client_ip = config.and_then(|config| config.client_ip.as_ref());
            let Some(secs) = client_ip.and_then(|client_ip| client_ip.timeout_seconds) else {
                return Ok(Affinity::ClientIp {
                    timeout_secs: AFFINITY_TIMEOUT_DEFAULT_SECS,
                });
            };
            match u32::try_from(secs) {
                Ok(timeout_secs @ 1..=AFFINITY_TIMEOUT_MAX_SECS) => {
                    Ok(Affinity::ClientIp { timeout_secs })
                }
                Ok(_) | Err(_) => Err(subject.reject(
                    "spec.sessionAffinityConfig.clientIP.timeoutSeconds",
                    format!("is {secs}, it goes from 1 to {AFFINITY_TIMEOUT_MAX_SECS}"),
                )),
            }
        }
        Some(other) => Err(subject.not_one_of("spec.sessionAffinity", other, "None, ClientIP")),
    }
}

/// Internal traffic policy; Cluster where none is given.
pub(super) fn internal_traffic_policy(
    subject: Subject<'_>,
    text: Option<&str>,
) -> Result<InternalTrafficPolicy, Rejected> {
    match text {
        None | Some("" | "Cluster") => Ok(InternalTrafficPolicy::Cluster),
        Some("Local") => Ok(InternalTrafficPolicy::Local),
        Some(other) => {
            Err(subject.not_one_of("spec.internalTrafficPolicy", other, "Cluster, Local"))
        }
    }
}

/// A Service to send or to show. `targetPort` stays unset, as the model has none.
pub fn write_service(object: &ServiceObject) -> Service {
    let ServiceObject {
        meta,
        kind,
        headless,
        cluster_ips,
        families,
        ports,
        affinity,
        internal_traffic_policy,
        traffic_distribution,
        has_selector: _,
    } = object;
    let addresses: Vec<String> = if *headless {
        vec![HEADLESS.to_owned()]
    } else {
        cluster_ips.iter().map(IpAddr::to_string).collect()
    };
    let policy = match families.len() {
        0 => None,
        1 => Some("SingleStack"),
        _ => Some("PreferDualStack"),
    };
    let some_list = |list: Vec<String>| (!list.is_empty()).then_some(list);
    Service {
        metadata: meta::write(meta),
        spec: Some(ServiceSpec {
            type_: Some(kind.as_str().to_owned()),
            cluster_ip: addresses.first().cloned(),
            cluster_ips: some_list(addresses),
            ip_families: some_list(write_families(families)),
            ip_family_policy: policy.map(str::to_owned),
            ports: (!ports.is_empty()).then(|| ports.iter().map(write_port).collect()),
            session_affinity: Some(affinity.as_str().to_owned()),
            session_affinity_config: write_affinity_config(*affinity),
            internal_traffic_policy: Some(internal_traffic_policy.as_str().to_owned()),
            traffic_distribution: traffic_distribution.as_deref().map(str::to_owned),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}

pub(super) fn write_families(families: &[IpFamily]) -> Vec<String> {
    families.iter().map(IpFamily::to_string).collect()
}

pub(super) fn write_affinity_config(affinity: Affinity) -> Option<SessionAffinityConfig> {
    match affinity {
        Affinity::None => None,
        Affinity::ClientIp { timeout_secs } => Some(SessionAffinityConfig {
            client_ip: Some(ClientIPConfig {
                timeout_seconds: i32::try_from(timeout_secs).ok(),
            }),
        }),
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
        port: i32::from(*port),
        app_protocol: app_protocol.as_deref().map(str::to_owned),
        ..ServicePort::default()
    }
}

/// Empty text is written as absent.
pub(super) fn some_text(text: &Arc<str>) -> Option<String> {
    (!text.is_empty()).then(|| text.to_string())
}
