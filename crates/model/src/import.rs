//! The import side: what a cluster should hold for a merged service: the ServiceImport, the
//! derived Service and the metadata of slices (BEHAVIOUR §3).

use std::net::IpAddr;
use std::sync::Arc;

use mcs_api::well_known::{ANNOTATION_DERIVED_SERVICE, LABEL_SERVICE_NAME, LABEL_SOURCE_CLUSTER};

use crate::merge::Merged;
use crate::names::{ClusterName, ObjectName, ServiceKey};
use crate::object::{
    ImportObject, ImportSpec, Meta, OwnerRef, ServiceKind, ServiceObject, SliceObject,
};
use crate::own::{
    ANNOTATION_ADDRESSES, LABEL_HEADLESS, LABEL_MANAGED_BY, LABEL_SLICE_MANAGED_BY,
    LABEL_SLICE_SERVICE, MANAGED_BY, OTHER_TOOLS_PREFIXES, SLICE_MANAGED_BY,
};
use crate::record::Labels;
use crate::service::{ImportType, IpFamily};

/// The kind of the owner of everything that an import brings.
const OWNER_KIND: &str = "ServiceImport";

/// The families of the import in this cluster, and whether any of them is usable here.
pub(crate) fn families(merged: &Merged, usable: &[IpFamily]) -> (Vec<IpFamily>, bool) {
    let here: Vec<IpFamily> = merged
        .families
        .iter()
        .copied()
        .filter(|f| usable.contains(f))
        .collect();
    if here.is_empty() {
        (merged.families.clone(), false)
    } else {
        (here, true)
    }
}

/// The spec of the ServiceImport; `derived` is the derived Service, as far as it is there.
pub(crate) fn spec(
    merged: &Merged,
    families: &[IpFamily],
    derived: Option<&ServiceObject>,
) -> ImportSpec {
    ImportSpec {
        kind: merged.kind,
        ports: merged.ports.clone(),
        ips: derived
            .map(|service| ips(service, families))
            .unwrap_or_default(),
        families: families.to_vec(),
        affinity: merged.affinity,
        internal_traffic_policy: merged.internal_traffic_policy,
        traffic_distribution: merged.traffic_distribution.clone(),
    }
}

/// The Service's cluster IPs of these families, in their order.
fn ips(service: &ServiceObject, families: &[IpFamily]) -> Vec<IpAddr> {
    families
        .iter()
        .filter_map(|family| {
            service
                .cluster_ips
                .iter()
                .find(|ip| IpFamily::of(**ip) == *family)
        })
        .copied()
        .collect()
}

/// The metadata of the ServiceImport. `present` is what is there, whose annotations of other
/// tools stay; `addresses` are remembered for the derived Service.
pub(crate) fn import_meta(
    key: &ServiceKey,
    merged: &Merged,
    present: Option<&ImportObject>,
    derived_name: &ObjectName,
    addresses: &[IpAddr],
) -> Meta {
    let mut labels = merged.labels.clone();
    labels.insert(LABEL_MANAGED_BY.into(), MANAGED_BY.into());
    let mut annotations = with_other_tools(present.map(|import| &*import.meta.annotations));
    annotations.extend(
        merged
            .annotations
            .iter()
            .map(|(k, v)| (Arc::clone(k), Arc::clone(v))),
    );
    annotations.insert(
        ANNOTATION_DERIVED_SERVICE.into(),
        derived_name.as_str().into(),
    );
    if !addresses.is_empty() {
        let text: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
        annotations.insert(ANNOTATION_ADDRESSES.into(), text.join(",").into());
    }
    let mut meta = present.map_or_else(|| Meta::to_create(key.clone()), |i| i.meta.clone());
    meta.labels = share(labels, present.map(|import| &import.meta.labels));
    meta.annotations = share(annotations, present.map(|import| &import.meta.annotations));
    meta
}

/// The addresses that an import remembers.
pub(crate) fn remembered(import: &ImportObject) -> Vec<IpAddr> {
    let text = import
        .meta
        .annotation(ANNOTATION_ADDRESSES)
        .unwrap_or_default();
    text.split(',')
        .filter_map(|address| address.trim().parse().ok())
        .collect()
}

/// Whether a Service is this import's derived one: it carries our mark and the import's name, or
/// the import owns it. Any other Service of the name is a stranger's.
pub(crate) fn is_ours(service: &ServiceObject, import: &ImportObject) -> bool {
    let marked = service.meta.label(LABEL_MANAGED_BY) == Some(MANAGED_BY)
        && service.meta.label(LABEL_SERVICE_NAME) == Some(import.meta.key.name.as_str());
    marked
        || service
            .meta
            .owners
            .iter()
            .any(|owner| *owner == owner_of(import))
}

/// What the derived Service depends on.
pub(crate) struct DerivedInput<'a> {
    pub(crate) import: &'a ImportObject,
    pub(crate) merged: &'a Merged,
    /// The import's families that are usable here; never empty.
    pub(crate) families: &'a [IpFamily],
    pub(crate) name: &'a ObjectName,
    /// The values of trafficDistribution that this cluster's release takes.
    pub(crate) known_distributions: &'a [&'static str],
}

/// The derived Service as it is wanted. `present` is ours where there is one: its addresses stay,
/// its families are only added to.
pub(crate) fn derived(input: &DerivedInput<'_>, present: Option<&ServiceObject>) -> ServiceObject {
    let DerivedInput {
        import,
        merged,
        families,
        name,
        known_distributions,
    } = *input;
    let headless = merged.kind == ImportType::Headless;
    let remembered = remembered(import);
    let ip_of = |f: &IpFamily| remembered.iter().find(|ip| IpFamily::of(**ip) == *f);
    let mut all_families = present
        .map(|service| service.families.clone())
        .unwrap_or_default();
    let mut lacking: Vec<IpFamily> = families.to_vec();
    lacking.retain(|f| !all_families.contains(f));
    // The API server takes a second address only with a first: families with one lead.
    lacking.sort_by_key(|f| ip_of(f).is_none());
    all_families.extend(lacking);
    let mut cluster_ips = present
        .map(|service| service.cluster_ips.clone())
        .unwrap_or_default();
    if !headless {
        let lacking = all_families.iter().skip(cluster_ips.len());
        cluster_ips.extend(lacking.map_while(ip_of).copied().collect::<Vec<_>>());
    }
    let mut labels = merged.labels.clone();
    labels.insert(LABEL_MANAGED_BY.into(), MANAGED_BY.into());
    labels.insert(
        LABEL_SERVICE_NAME.into(),
        import.meta.key.name.as_str().into(),
    );
    let mut annotations = with_other_tools(present.map(|service| &*service.meta.annotations));
    annotations.extend(
        merged
            .annotations
            .iter()
            .map(|(k, v)| (Arc::clone(k), Arc::clone(v))),
    );
    let mut meta = present.map_or_else(
        || Meta::to_create(import.meta.key.sibling(name)),
        |s| s.meta.clone(),
    );
    meta.labels = share(labels, present.map(|service| &service.meta.labels));
    meta.annotations = share(
        annotations,
        present.map(|service| &service.meta.annotations),
    );
    own(&mut meta, import);
    ServiceObject {
        meta,
        kind: ServiceKind::ClusterIp,
        headless,
        cluster_ips,
        families: all_families,
        ports: merged.ports.clone(),
        affinity: merged.affinity,
        internal_traffic_policy: merged.internal_traffic_policy,
        traffic_distribution: merged
            .traffic_distribution
            .clone()
            .filter(|value| known_distributions.contains(&value.as_ref())),
        has_selector: false,
    }
}

/// The metadata of a mirrored slice. `present` is the slice as it is.
pub(crate) fn slice_meta(
    import: &ImportObject,
    derived_name: &ObjectName,
    cluster: &ClusterName,
    headless: bool,
    slice: SliceIdentity<'_>,
) -> Meta {
    let mut labels = Labels::new();
    labels.insert(LABEL_MANAGED_BY.into(), MANAGED_BY.into());
    labels.insert(
        LABEL_SERVICE_NAME.into(),
        import.meta.key.name.as_str().into(),
    );
    labels.insert(LABEL_SOURCE_CLUSTER.into(), cluster.as_str().into());
    labels.insert(LABEL_SLICE_SERVICE.into(), derived_name.as_str().into());
    labels.insert(LABEL_SLICE_MANAGED_BY.into(), SLICE_MANAGED_BY.into());
    if headless {
        labels.insert(LABEL_HEADLESS.into(), "".into());
    }
    let (mut meta, old_labels) = match slice {
        SliceIdentity::Present(slice) => (slice.meta.clone(), Some(&slice.meta.labels)),
        SliceIdentity::New(name) => (Meta::to_create(import.meta.key.sibling(&name)), None),
    };
    meta.labels = share(labels, old_labels);
    own(&mut meta, import);
    meta
}

/// Which slice: one that is there, or one to be created under a name.
pub(crate) enum SliceIdentity<'a> {
    Present(&'a SliceObject),
    New(ObjectName),
}

/// The owner reference to an import.
fn owner_of(import: &ImportObject) -> OwnerRef {
    OwnerRef {
        kind: OWNER_KIND.into(),
        name: import.meta.key.name.clone(),
        uid: Arc::clone(&import.meta.uid),
    }
}

/// Makes the import the owner, under its present UID; owners of others stay.
fn own(meta: &mut Meta, import: &ImportObject) {
    let owner = owner_of(import);
    if !meta.owners.contains(&owner) {
        meta.owners
            .retain(|other| other.kind.as_ref() != OWNER_KIND || other.name != owner.name);
        meta.owners.push(owner);
    }
}

/// The annotations that other tools keep on objects they do not own.
fn with_other_tools(present: Option<&Labels>) -> Labels {
    present
        .into_iter()
        .flatten()
        .filter(|(key, _)| {
            OTHER_TOOLS_PREFIXES
                .iter()
                .any(|prefix| key.starts_with(prefix))
        })
        .map(|(key, value)| (Arc::clone(key), Arc::clone(value)))
        .collect()
}

/// The same map where it is unchanged, so that comparing and keeping it costs nothing.
fn share(labels: Labels, present: Option<&Arc<Labels>>) -> Arc<Labels> {
    match present {
        Some(present) if **present == labels => Arc::clone(present),
        _ => Arc::new(labels),
    }
}
