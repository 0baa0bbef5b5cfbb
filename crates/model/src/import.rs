//! The import side: what a cluster should hold for a merged service: the ServiceImport, the
//! derived Service and the metadata of slices (BEHAVIOUR §3).

use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

use mcs_api::well_known::{ANNOTATION_DERIVED_SERVICE, LABEL_SERVICE_NAME, LABEL_SOURCE_CLUSTER};

use crate::merge::Merged;
use crate::names::{ClusterName, ObjectName, ServiceKey};
use crate::object::{
    ImportObject, ImportSpec, Meta, OwnerRef, ServiceKind, ServiceObject, SliceObject,
};
use crate::own::{
    ANNOTATION_ADDRESSES, LABEL_HEADLESS, LABEL_KEPT_LAST, LABEL_MANAGED_BY,
    LABEL_SLICE_MANAGED_BY, LABEL_SLICE_SERVICE, MANAGED_BY, OTHER_TOOLS_PREFIXES,
    SLICE_MANAGED_BY,
};
use crate::record::Labels;
use crate::service::{ImportType, IpFamily};

/// The kind of the owner of everything that an import brings.
static OWNER_KIND: LazyLock<Arc<str>> = LazyLock::new(|| "ServiceImport".into());

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
    let present = present.map(|import| &import.meta);
    let addresses: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
    let addresses = addresses.join(",");
    let own = [
        (ANNOTATION_DERIVED_SERVICE, derived_name.as_str()),
        (ANNOTATION_ADDRESSES, &addresses),
    ];
    let own = if addresses.is_empty() {
        &own[..1]
    } else {
        &own
    };
    let tools = with_other_tools(present.map(|meta| &*meta.annotations));
    let annotations = [&tools, &merged.annotations];
    let mut meta = present.map_or_else(|| Meta::to_create(key.clone()), Meta::clone);
    let labels = present.map(|meta| &meta.labels);
    meta.labels = map_of(&[&merged.labels], &[(LABEL_MANAGED_BY, MANAGED_BY)], labels);
    meta.annotations = map_of(&annotations, own, present.map(|meta| &meta.annotations));
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
        known_distributions,
        ..
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
    let mut meta = derived_meta(input, present.map(|service| &service.meta));
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

/// What to tell of a trafficDistribution that the cluster's release does not know, if it is one.
pub(crate) fn unknown_distribution(value: Option<&str>, known: &[&str]) -> Option<String> {
    let value = value.filter(|value| !known.contains(value))?;
    Some(format!(
        "trafficDistribution {value:?} is not known here, so the derived Service has none; known: {}",
        known.join(", ")
    ))
}

/// The metadata of the derived Service but for its owner.
fn derived_meta(input: &DerivedInput<'_>, present: Option<&Meta>) -> Meta {
    let key = &input.import.meta.key;
    let own = [
        (LABEL_MANAGED_BY, MANAGED_BY),
        (LABEL_SERVICE_NAME, key.name.as_str()),
    ];
    let tools = with_other_tools(present.map(|meta| &*meta.annotations));
    let annotations = [&tools, &input.merged.annotations];
    let mut meta = present.map_or_else(|| Meta::to_create(key.sibling(input.name)), Meta::clone);
    let labels = present.map(|meta| &meta.labels);
    meta.labels = map_of(&[&input.merged.labels], &own, labels);
    meta.annotations = map_of(&annotations, &[], present.map(|meta| &meta.annotations));
    meta
}

/// The metadata of a mirrored slice. `present` is the slice as it is.
pub(crate) fn slice_meta(
    import: &ImportObject,
    derived_name: &ObjectName,
    cluster: &ClusterName,
    kind: SliceKind,
    slice: SliceIdentity<'_>,
) -> Meta {
    let mut labels = vec![
        (LABEL_MANAGED_BY, MANAGED_BY),
        (LABEL_SERVICE_NAME, import.meta.key.name.as_str()),
        (LABEL_SOURCE_CLUSTER, cluster.as_str()),
        (LABEL_SLICE_SERVICE, derived_name.as_str()),
        (LABEL_SLICE_MANAGED_BY, SLICE_MANAGED_BY),
    ];
    labels.extend(kind.headless.then_some((LABEL_HEADLESS, "")));
    labels.extend(kind.kept.then_some((LABEL_KEPT_LAST, "true")));
    let (mut meta, old_labels) = match slice {
        SliceIdentity::Present(slice) => (slice.meta.clone(), Some(&slice.meta.labels)),
        SliceIdentity::New(name) => (Meta::to_create(import.meta.key.sibling(&name)), None),
    };
    meta.labels = map_of(&[], &labels, old_labels);
    own(&mut meta, import);
    meta
}

/// What a slice's labels say beside whose it is.
#[derive(Clone, Copy)]
pub(crate) struct SliceKind {
    /// Of a headless import.
    pub(crate) headless: bool,
    /// Its cluster is not heard of, and these are the last endpoints.
    pub(crate) kept: bool,
}

/// Which slice: one that is there, or one to be created under a name.
pub(crate) enum SliceIdentity<'a> {
    Present(&'a SliceObject),
    New(ObjectName),
}

/// The owner reference to an import.
fn owner_of(import: &ImportObject) -> OwnerRef {
    OwnerRef {
        kind: Arc::clone(&OWNER_KIND),
        name: import.meta.key.name.clone(),
        uid: Arc::clone(&import.meta.uid),
    }
}

/// Makes the import the owner, under its present UID; owners of others stay.
fn own(meta: &mut Meta, import: &ImportObject) {
    let owner = owner_of(import);
    if !meta.owners.contains(&owner) {
        meta.owners
            .retain(|other| other.kind != *OWNER_KIND || other.name != owner.name);
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

/// A map of several ones, of which the later count, and of pairs, which count before all. It is the
/// present one where that is the same, so that comparing and keeping it costs nothing.
fn map_of(maps: &[&Labels], own: &[(&str, &str)], present: Option<&Arc<Labels>>) -> Arc<Labels> {
    let is_own = |key: &str| own.iter().any(|(name, _)| *name == key);
    let is_later = |at: usize, key: &str| maps.iter().skip(at + 1).any(|m| m.contains_key(key));
    let given = || {
        let maps = maps.iter().enumerate();
        let all = maps.flat_map(|(at, map)| map.iter().map(move |pair| (at, pair)));
        all.filter(|(at, (key, _))| !is_own(key) && !is_later(*at, key))
            .map(|(_, pair)| pair)
    };
    let is_present = |present: &Labels| {
        let has = |(key, value): (&str, &str)| {
            present
                .get(key)
                .is_some_and(|there| there.as_ref() == value)
        };
        present.len() == given().count() + own.len()
            && given().all(|(key, value)| has((key, value)))
            && own.iter().all(|(key, value)| has((key, value)))
    };
    if let Some(present) = present.filter(|present| is_present(present)) {
        return Arc::clone(present);
    }
    let given = given().map(|(key, value)| (Arc::clone(key), Arc::clone(value)));
    let own = own
        .iter()
        .map(|(key, value)| ((*key).into(), (*value).into()));
    Arc::new(given.chain(own).collect())
}
