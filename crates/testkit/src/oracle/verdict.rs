//! Compares what is there with what must be there, up to what BEHAVIOUR leaves open: how endpoints
//! are split over slices, which addresses were given, families that a derived Service kept.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;

use tombolo_model::names::ServiceKey;
use tombolo_model::object::{
    AddressType, Condition, ExportObject, ImportObject, OwnerRef, ServiceKind, ServiceObject,
    SliceObject,
};
use tombolo_model::record::Labels;
use tombolo_model::service::{ImportType, IpFamily};

use super::{Expected, ExpectedEndpoint, ExpectedExport, ExpectedImport, ExpectedService, Truth};

/// The most endpoints of a slice.
const SLICE_ENDPOINTS_MAX: usize = 100;
/// Two slices of one kind that hold no more together are one.
const SPARSE_MAX: usize = 50;
/// The longest message of a condition.
const MESSAGE_LEN_MAX: usize = 4096;
/// The most clusters that a message names for a field.
const CLUSTERS_NAMED_MAX: usize = 5;
/// Prefixes of annotations that other tools keep.
const OTHER_TOOLS: [&str; 8] = [
    "kubectl.kubernetes.io/",
    "argocd.argoproj.io/",
    "cloud.google.com/",
    "config.kubernetes.io/",
    "helm.toolkit.fluxcd.io/",
    "internal.config.kubernetes.io/",
    "kustomize.toolkit.fluxcd.io/",
    "meta.helm.sh/",
];

/// Every difference, as a sentence.
pub fn differences(expected: &Expected, there: &Truth) -> Vec<String> {
    let mut report = Report::default();
    for (key, export) in &expected.exports {
        if let Some(object) = there.exports.get(key) {
            export_differences(key, export, object, &mut report);
        }
    }
    let settled = |key: &ServiceKey| {
        let namespace = there.namespaces.get(&key.namespace);
        namespace.is_some_and(|object| !object.terminating)
    };
    let wanted: BTreeSet<&ServiceKey> = expected.imports.keys().collect();
    let present: BTreeSet<&ServiceKey> = there.imports.keys().filter(|k| settled(k)).collect();
    for key in wanted.difference(&present) {
        report.say(key, "the import is missing");
    }
    for key in present.difference(&wanted) {
        if !expected.strangers.contains_key(*key) {
            report.say(key, "the import should be gone");
        }
    }
    for (key, import) in &expected.imports {
        if let Some(object) = there.imports.get(key) {
            import_differences(key, import, object, there, &mut report);
        }
    }
    leftovers(expected, there, &settled, &mut report);
    report.lines
}

#[derive(Default)]
struct Report {
    lines: Vec<String>,
}

impl Report {
    fn say(&mut self, key: &ServiceKey, text: impl AsRef<str>) {
        self.lines.push(format!("{key}: {}", text.as_ref()));
    }

    fn same<T: PartialEq + Debug>(&mut self, key: &ServiceKey, what: &str, there: &T, wanted: &T) {
        if there != wanted {
            self.say(key, format!("{what} is {there:?}, wanted {wanted:?}"));
        }
    }
}

/// Objects of ours that belong to no import.
fn leftovers(
    expected: &Expected,
    there: &Truth,
    settled: &dyn Fn(&ServiceKey) -> bool,
    report: &mut Report,
) {
    let derived: BTreeMap<&ServiceKey, &ExpectedImport> = expected
        .imports
        .values()
        .map(|import| (&import.derived, import))
        .collect();
    for (key, service) in there.services.iter().filter(|(key, _)| settled(key)) {
        let ours = service.meta.label("app.kubernetes.io/managed-by") == Some("tombolo")
            && service
                .meta
                .label("multicluster.kubernetes.io/service-name")
                .is_some();
        let import = derived.get(key);
        if ours && import.is_none_or(|import| import.service.is_none()) {
            report.say(key, "the derived Service should be gone");
        }
    }
    for (key, slice) in there.slices.iter().filter(|(key, _)| settled(key)) {
        let of = slice.meta.label("kubernetes.io/service-name");
        let is_known = of.is_some_and(|of| {
            derived
                .keys()
                .any(|k| k.namespace == key.namespace && k.name.as_str() == of)
        });
        if is_our_slice(slice) && !is_known {
            report.say(key, "the slice should be gone");
        }
    }
}

fn is_our_slice(slice: &SliceObject) -> bool {
    slice.meta.label("endpointslice.kubernetes.io/managed-by") == Some("controller.tombolo.dev")
}

fn condition<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| &*condition.kind == kind)
}

fn export_differences(
    key: &ServiceKey,
    expected: &ExpectedExport,
    object: &ExportObject,
    report: &mut Report,
) {
    let mut check = |kind: &str, status: &str, reason: &str| {
        let Some(found) = condition(&object.conditions, kind) else {
            report.say(
                key,
                format!("condition {kind} is missing, wanted {status} {reason}"),
            );
            return;
        };
        let is = (&*found.status, &*found.reason);
        report.same(key, &format!("condition {kind}"), &is, &(status, reason));
        let generation = Some(object.meta.generation);
        report.same(
            key,
            &format!("observedGeneration of {kind}"),
            &found.observed_generation,
            &generation,
        );
        if found.message.is_empty() || found.message.len() > MESSAGE_LEN_MAX {
            report.say(
                key,
                format!("the message of {kind} has {} bytes", found.message.len()),
            );
        }
    };
    let yes = |holds: bool| if holds { "True" } else { "False" };
    check("Valid", yes(expected.valid == "Valid"), expected.valid);
    check("Ready", yes(expected.ready == "Exported"), expected.ready);
    let Some(conflicts) = &expected.conflicts else {
        if expected.valid != "Valid" && condition(&object.conditions, "Conflict").is_some() {
            report.say(key, "condition Conflict should be absent");
        }
        return;
    };
    if conflicts.is_empty() {
        check("Conflict", "False", "NoConflicts");
        return;
    }
    let reasons: Vec<&str> = conflicts.iter().map(|c| c.reason).collect();
    check("Conflict", "True", &reasons.join(","));
    let message = condition(&object.conditions, "Conflict").map_or("", |c| &c.message);
    for conflict in conflicts {
        let count = format!(
            "{}/{} clusters disagree",
            conflict.clusters.len(),
            conflict.of
        );
        let names = conflict.clusters.iter().take(CLUSTERS_NAMED_MAX);
        let unnamed: Vec<_> = names.filter(|c| !message.contains(c.as_str())).collect();
        if !message.contains(&count) || !unnamed.is_empty() {
            let reason = conflict.reason;
            report.say(
                key,
                format!("{reason}: no {count:?} or {unnamed:?} in {message:?}"),
            );
        }
    }
}

fn import_differences(
    key: &ServiceKey,
    expected: &ExpectedImport,
    object: &ImportObject,
    there: &Truth,
    report: &mut Report,
) {
    let service = there.services.get(&expected.derived);
    let service = service.filter(|_| expected.service.is_some());
    let mut wanted = expected.spec.clone();
    if let Some(service) = service.filter(|_| wanted.kind == ImportType::ClusterSetIp) {
        let of = |family: &IpFamily| {
            let mut ips = service.cluster_ips.iter().copied();
            ips.find(|ip| IpFamily::of(*ip) == *family)
        };
        wanted.ips = wanted.families.iter().filter_map(of).collect();
        report.same(
            key,
            "count of ips",
            &wanted.ips.len(),
            &wanted.families.len(),
        );
    }
    report.same(key, "spec", &object.spec.as_ref(), &Some(&wanted));
    report.same(key, "labels", &*object.meta.labels, &expected.labels);
    let annotations = without_open(&object.meta.annotations, &expected.annotations);
    report.same(key, "annotations", &annotations, &expected.annotations);
    report.same(key, "clusters", &object.status.clusters, &expected.clusters);
    report.same(
        key,
        "slices_present",
        &object.status.slices_present,
        &Some(expected.slices_present),
    );
    match condition(&object.status.conditions, "Ready") {
        None => report.say(key, "condition Ready is missing"),
        Some(ready) => {
            let status = if expected.ready == "Ready" {
                "True"
            } else {
                "False"
            };
            let is = (&*ready.status, &*ready.reason);
            report.same(key, "condition Ready", &is, &(status, expected.ready));
            if expected.ready == "Ready" {
                let unnamed = expected
                    .amiss
                    .iter()
                    .find(|cluster| !ready.message.contains(&format!("cluster {cluster} ")));
                let is_too_much =
                    expected.amiss.is_empty() && ready.message.contains("not heard of");
                if let Some(cluster) = unnamed {
                    report.say(key, format!("{:?} does not name {cluster}", ready.message));
                }
                if is_too_much {
                    report.say(key, format!("{:?} says too much", ready.message));
                }
            }
            if expected.ready == "Pending"
                && !ready.message.contains(expected.derived.name.as_str())
            {
                report.say(
                    key,
                    format!("{:?} does not name the Service", ready.message),
                );
            }
        }
    }
    match (&expected.service, service) {
        (Some(wanted), Some(service)) => {
            service_differences(key, expected, wanted, object, service, report);
        }
        (Some(_), None) => report.say(key, "the derived Service is missing"),
        (None, _) => {}
    }
    slice_differences(key, expected, object, there, report);
}

/// Annotations but for remembered addresses and what other tools wrote.
fn without_open(there: &Labels, wanted: &Labels) -> Labels {
    let is_open = |key: &Arc<str>| {
        &**key == "tombolo.dev/addresses"
            || OTHER_TOOLS.iter().any(|prefix| key.starts_with(prefix))
    };
    there
        .iter()
        .filter(|(key, _)| wanted.contains_key(*key) || !is_open(key))
        .map(|(key, value)| (Arc::clone(key), Arc::clone(value)))
        .collect()
}

fn owned_by(owners: &[OwnerRef], import: &ImportObject) -> bool {
    owners.iter().any(|owner| {
        &*owner.kind == "ServiceImport"
            && owner.name == import.meta.key.name
            && owner.uid == import.meta.uid
    })
}

fn service_differences(
    key: &ServiceKey,
    import: &ExpectedImport,
    expected: &ExpectedService,
    object: &ImportObject,
    service: &ServiceObject,
    report: &mut Report,
) {
    let spec = &import.spec;
    report.same(key, "type", &service.kind, &ServiceKind::ClusterIp);
    report.same(
        key,
        "headless",
        &service.headless,
        &(spec.kind == ImportType::Headless),
    );
    report.same(key, "ports of the Service", &service.ports, &spec.ports);
    report.same(
        key,
        "affinity of the Service",
        &service.affinity,
        &spec.affinity,
    );
    let policy = service.internal_traffic_policy;
    report.same(
        key,
        "policy of the Service",
        &policy,
        &spec.internal_traffic_policy,
    );
    let distribution = &service.traffic_distribution;
    report.same(
        key,
        "distribution of the Service",
        distribution,
        &expected.traffic_distribution,
    );
    report.same(
        key,
        "labels of the Service",
        &*service.meta.labels,
        &expected.labels,
    );
    let annotations = without_open(&service.meta.annotations, &expected.annotations);
    report.same(
        key,
        "annotations of the Service",
        &annotations,
        &expected.annotations,
    );
    if service.has_selector {
        report.say(key, "the Service has a selector");
    }
    if !expected
        .families
        .iter()
        .all(|f| service.families.contains(f))
    {
        report.say(
            key,
            format!(
                "the Service has {:?} of {:?}",
                service.families, expected.families
            ),
        );
    }
    if !owned_by(&service.meta.owners, object) {
        report.say(key, "the Service is not owned by the import");
    }
}

fn slice_differences(
    key: &ServiceKey,
    expected: &ExpectedImport,
    object: &ImportObject,
    there: &Truth,
    report: &mut Report,
) {
    let mut found: BTreeSet<ExpectedEndpoint> = BTreeSet::new();
    let mut groups: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    let slices = there.slices.values().filter(|slice| {
        slice.meta.key.namespace == key.namespace
            && slice.meta.label("kubernetes.io/service-name")
                == Some(expected.derived.name.as_str())
            && is_our_slice(slice)
    });
    for slice in slices {
        let name = &slice.meta.key.name;
        let cluster: Arc<str> = slice
            .meta
            .label("multicluster.kubernetes.io/source-cluster")
            .unwrap_or_default()
            .into();
        let wanted = slice_labels(key, expected, &cluster);
        report.same(
            key,
            &format!("labels of {name}"),
            &*slice.meta.labels,
            &wanted,
        );
        if !owned_by(&slice.meta.owners, object) {
            report.say(key, format!("{name} is not owned by the import"));
        }
        let count = slice.endpoints.len();
        if count == 0 || count > SLICE_ENDPOINTS_MAX {
            report.say(key, format!("{name} holds {count} endpoints"));
        }
        groups
            .entry((
                Arc::clone(&cluster),
                slice.address_type,
                Arc::clone(&slice.ports),
            ))
            .or_default()
            .push(count);
        for endpoint in endpoints_of(slice, &cluster) {
            if slice.address_type != AddressType::Ip(IpFamily::of(endpoint.address)) {
                report.say(
                    key,
                    format!("{name} holds {} of another family", endpoint.address),
                );
            }
            if let Some(twice) = found.replace(endpoint) {
                report.say(key, format!("{} is there twice", twice.address));
            }
        }
    }
    for endpoint in expected.endpoints.difference(&found) {
        report.say(key, format!("no slice holds {endpoint:?}"));
    }
    for endpoint in found.difference(&expected.endpoints) {
        report.say(key, format!("a slice holds {endpoint:?}"));
    }
    for ((cluster, ..), mut counts) in groups {
        counts.sort_unstable();
        if counts.len() > 1 && counts[0] + counts[1] <= SPARSE_MAX {
            report.say(key, format!("sparse slices of {cluster}: {counts:?}"));
        }
    }
}

fn slice_labels(key: &ServiceKey, expected: &ExpectedImport, cluster: &Arc<str>) -> Labels {
    let mut labels: Labels = [
        ("app.kubernetes.io/managed-by", "tombolo"),
        (
            "endpointslice.kubernetes.io/managed-by",
            "controller.tombolo.dev",
        ),
        ("kubernetes.io/service-name", expected.derived.name.as_str()),
        ("multicluster.kubernetes.io/service-name", key.name.as_str()),
        ("multicluster.kubernetes.io/source-cluster", cluster),
    ]
    .into_iter()
    .map(|(key, value)| (key.into(), value.into()))
    .collect();
    if expected.spec.kind == ImportType::Headless {
        labels.insert("service.kubernetes.io/headless".into(), "".into());
    }
    if expected.kept.iter().any(|kept| kept.as_str() == &**cluster) {
        labels.insert("tombolo.dev/kept-last".into(), "true".into());
    }
    labels
}

/// A slice's endpoints, in the form of the oracle.
pub(super) fn endpoints_of(slice: &SliceObject, cluster: &Arc<str>) -> Vec<ExpectedEndpoint> {
    let mut ports = slice.ports.to_vec();
    ports.sort();
    let form = |endpoint: &tombolo_model::object::SliceEndpoint| ExpectedEndpoint {
        cluster: Arc::clone(cluster),
        address: endpoint.address,
        ports: ports.clone(),
        hostname: endpoint.hostname.clone(),
        zone: endpoint.zone.clone(),
        conditions: endpoint.conditions,
        node: endpoint.node.clone(),
        target: endpoint
            .target
            .as_ref()
            .map(|t| format!("{}/{}/{}/{}", t.kind, t.namespace, t.name, t.uid)),
        hints: endpoint
            .hints
            .as_ref()
            .map(|h| (h.zones.clone(), h.nodes.clone())),
    };
    slice.endpoints.iter().map(form).collect()
}
