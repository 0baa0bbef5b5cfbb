//! Comparing what is wanted with what is there: by content, never by metadata that a server sets.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::object::{Condition, Meta, Object};

/// The part of an object that one kind of write is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Part {
    /// Everything but the status.
    Body,
    /// The status.
    Status,
}

/// Whether the wanted object says the same as the one that is there.
pub(crate) fn same(part: Part, wanted: &Object, present: &Object) -> bool {
    match (wanted, present) {
        (Object::Service(a), Object::Service(b)) => {
            same_meta(&a.meta, &b.meta)
                && (
                    a.kind,
                    a.headless,
                    a.affinity,
                    a.internal_traffic_policy,
                    a.has_selector,
                ) == (
                    b.kind,
                    b.headless,
                    b.affinity,
                    b.internal_traffic_policy,
                    b.has_selector,
                )
                && a.families == b.families
                && a.ports == b.ports
                && a.traffic_distribution == b.traffic_distribution
        }
        (Object::EndpointSlice(a), Object::EndpointSlice(b)) => {
            same_meta(&a.meta, &b.meta)
                && a.address_type == b.address_type
                && a.ports == b.ports
                && a.endpoints == b.endpoints
        }
        (Object::ServiceExport(a), Object::ServiceExport(b)) => {
            same_conditions(&a.conditions, &b.conditions)
        }
        (Object::ServiceImport(a), Object::ServiceImport(b)) => match part {
            Part::Body => same_meta(&a.meta, &b.meta) && a.spec == b.spec,
            Part::Status => {
                a.status.clusters == b.status.clusters
                    && a.status.slices_present == b.status.slices_present
                    && same_conditions(&a.status.conditions, &b.status.conditions)
            }
        },
        _ => false,
    }
}

/// A number for the content that [`same`] compares: equal contents have equal ones.
pub(crate) fn fingerprint(part: Part, object: &Object) -> u64 {
    let mut hasher = DefaultHasher::new();
    let h = &mut hasher;
    match object {
        Object::Service(o) => {
            hash_meta(&o.meta, h);
            (
                o.kind,
                o.headless,
                o.affinity,
                o.internal_traffic_policy,
                o.has_selector,
            )
                .hash(h);
            (&o.families, &o.ports, &o.traffic_distribution).hash(h);
        }
        Object::EndpointSlice(o) => {
            hash_meta(&o.meta, h);
            (o.address_type, &o.ports, &o.endpoints).hash(h);
        }
        Object::ServiceExport(o) => o.conditions.iter().for_each(|c| hash_condition(c, h)),
        Object::ServiceImport(o) => match part {
            Part::Body => {
                hash_meta(&o.meta, h);
                o.spec.hash(h);
            }
            Part::Status => {
                (&o.status.clusters, o.status.slices_present).hash(h);
                o.status
                    .conditions
                    .iter()
                    .for_each(|c| hash_condition(c, h));
            }
        },
        Object::Namespace(o) => o.name.hash(h),
    }
    hasher.finish()
}

fn same_meta(a: &Meta, b: &Meta) -> bool {
    a.labels == b.labels && a.annotations == b.annotations && a.owners == b.owners
}

fn hash_meta(meta: &Meta, hasher: &mut DefaultHasher) {
    (&meta.labels, &meta.annotations, &meta.owners).hash(hasher);
}

/// Conditions but for their times: those follow from the rest.
fn same_conditions(a: &[Condition], b: &[Condition]) -> bool {
    let same = |(a, b): (&Condition, &Condition)| {
        a.kind == b.kind
            && a.status == b.status
            && a.reason == b.reason
            && a.message == b.message
            && a.observed_generation == b.observed_generation
    };
    a.len() == b.len() && a.iter().zip(b).all(same)
}

fn hash_condition(c: &Condition, hasher: &mut DefaultHasher) {
    (
        &c.kind,
        &c.status,
        &c.reason,
        &c.message,
        c.observed_generation,
    )
        .hash(hasher);
}
