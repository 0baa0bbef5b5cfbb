//! The EndpointSlices of an import: what they should hold, packed into what is there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::compare::Part;
use crate::contents::{contents, fit};
use crate::engine::imports::Import;
use crate::engine::{Engine, Step};
use crate::fleet::ClusterService;
use crate::import::{SliceIdentity, SliceKind, slice_meta};
use crate::io::Effect;
use crate::mirror::{Contributor, Usage, mirrored};
use crate::names::{ClusterName, ObjectName, ServiceKey};
use crate::object::{AddressType, ImportObject, Kind, Object, SliceObject};
use crate::packing::Packed;
use crate::presence::Standing;
use crate::service::{ImportType, IpFamily};
use crate::world::{parse_slice_name, slice_name};
use crate::writes::Target;

/// Our slices of one import, by source cluster and family.
type Present = BTreeMap<(ClusterName, IpFamily), Vec<PresentSlice>>;

/// A slice as it is, or as it will be once the write that is under way is done.
struct PresentSlice {
    coming: Arc<SliceObject>,
    /// As it was observed; `None` while it is being created.
    observed: Option<Arc<SliceObject>>,
}

impl Engine {
    /// Makes the slices of an import what they should be.
    pub(super) fn plan_slices(
        &mut self,
        step: &mut Step<'_>,
        present: &ImportObject,
        import: &Import,
    ) {
        let service = step.service;
        let stated = self.stated(service);
        let contributors = self.contributors(service, &stated);
        let mirrored = || mirrored(&import.merged, &contributors, &import.families);
        let has_own = contributors.iter().any(|c| c.details.is_some());
        let all_used = contributors
            .iter()
            .all(|c| matches!(c.usage, Usage::All { .. }));
        let peers = self.fleet.get(service).filter(|fleet| {
            // Then nothing in the slices is this cluster's alone.
            !has_own
                && !self.refusing.any_of(service)
                && all_used
                && !import.frozen
                && !fleet.clusters().contains_key(&self.config.cluster)
        });
        let mut wanted = match peers {
            Some(fleet) => fleet.contents().get(&import.families, mirrored),
            None => contents(mirrored()),
        };
        let unheard = |cluster: &ClusterName| {
            import.frozen
                && !stated.contains_key(cluster)
                && *cluster != self.config.cluster
                && !self
                    .trusted
                    .as_ref()
                    .is_some_and(|trusted| trusted.contains(cluster))
        };
        let (mut slices, strays) = self.present_slices(service, &import.derived);
        // Nothing is known of these clusters, so nothing of theirs is changed.
        slices.retain(|(cluster, _), _| !unheard(cluster));

        for slice in strays {
            self.write(step, Effect::Delete(Object::EndpointSlice(slice)));
        }
        let keys: BTreeSet<_> = wanted.keys().chain(slices.keys()).cloned().collect();
        for key in keys {
            let wanted = wanted.remove(&key).unwrap_or_default();
            let there = slices.remove(&key).unwrap_or_default();
            let view: Vec<_> = there
                .iter()
                .enumerate()
                .map(|(i, s)| (i, Arc::clone(&s.coming.ports), &*s.coming.endpoints))
                .collect();
            let packed = fit(&view, wanted);
            self.write_slices(step, present, import, (&key.0, key.1), &there, packed);
        }
    }

    /// The clusters that state a service, and which of their endpoints are used.
    pub(super) fn contributors<'a>(
        &'a self,
        service: &ServiceKey,
        stated: &BTreeMap<&'a ClusterName, &'a Arc<ClusterService>>,
    ) -> Vec<Contributor<'a>> {
        let own = self.own_service(service);
        let contributors = stated.iter().map(|(cluster, state)| {
            let is_own = **cluster == self.config.cluster;
            let usage = match self.presence.standing(cluster) {
                Standing::Drained => Usage::None,
                // What this cluster has is known without the registry.
                _ if is_own => Usage::All { live: true },
                Standing::Over if self.config.keep_last => Usage::Last,
                Standing::Over => Usage::None,
                standing => Usage::All {
                    live: standing.is_live(),
                },
            };
            Contributor {
                cluster,
                service: state,
                usage,
                details: own.filter(|_| is_own).map(|own| own.details.as_slice()),
                guard: (!is_own).then(|| self.guard()),
            }
        });
        contributors.collect()
    }

    /// Our slices of an import, and those that nothing tells which cluster they are of.
    fn present_slices(
        &self,
        service: &ServiceKey,
        derived: &ObjectName,
    ) -> (Present, Vec<Arc<SliceObject>>) {
        let mut slices = Present::new();
        let mut strays = Vec::new();
        let observed = self.world.mirrored(service).into_iter().flatten();
        for (name, slice) in observed.filter(|(_, slice)| !slice.meta.terminating) {
            let place = parse_slice_name(name.as_str(), derived.as_str())
                .filter(|(_, family)| slice.address_type == AddressType::Ip(*family));
            let Some(place) = place else {
                strays.push(Arc::clone(slice));
                continue;
            };
            let coming = match self.on_object(Kind::EndpointSlice, &service.sibling(name)) {
                Some(Effect::Delete(_)) => continue,
                Some(Effect::Update {
                    new: Object::EndpointSlice(new),
                    ..
                }) => Arc::clone(new),
                _ => Arc::clone(slice),
            };
            slices.entry(place).or_default().push(PresentSlice {
                coming,
                observed: Some(Arc::clone(slice)),
            });
        }
        for slice in self.writes.slices_being_created(service) {
            let name = &slice.meta.key.name;
            let is_observed = self
                .world
                .mirrored(service)
                .is_some_and(|slices| slices.contains_key(name));
            if let Some(place) = parse_slice_name(name.as_str(), derived.as_str())
                && !is_observed
            {
                let coming = Arc::clone(slice);
                slices.entry(place).or_default().push(PresentSlice {
                    coming,
                    observed: None,
                });
            }
        }
        (slices, strays)
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "one call, to keep the packing loop readable"
    )]
    fn write_slices(
        &mut self,
        step: &mut Step<'_>,
        present: &ImportObject,
        import: &Import,
        (cluster, family): (&ClusterName, IpFamily),
        there: &[PresentSlice],
        packed: Vec<Packed<usize>>,
    ) {
        let service = step.service;
        let headless = import.merged.kind == ImportType::Headless;
        let mut number = 0;
        let mut kept = BTreeSet::new();
        for Packed { name, content } in packed {
            let place = name.map(|index| &there[index]);
            kept.extend(name);
            let identity = match place {
                Some(PresentSlice {
                    observed: Some(observed),
                    ..
                }) => SliceIdentity::Present(observed),
                // It is being created: the answer plans it again.
                Some(PresentSlice { observed: None, .. }) => continue,
                None => {
                    let name =
                        self.free_name(service, &import.derived, cluster, family, &mut number);
                    SliceIdentity::New(name)
                }
            };
            let kind = SliceKind {
                headless,
                kept: self.presence.standing(cluster) == Standing::Over
                    && *cluster != self.config.cluster,
            };
            let meta = slice_meta(present, &import.derived, cluster, kind, identity);
            let new = Object::EndpointSlice(Arc::new(SliceObject {
                meta,
                address_type: AddressType::Ip(family),
                ports: content.ports,
                endpoints: content.endpoints,
            }));
            match place.and_then(|place| place.observed.clone()) {
                None => self.write(step, Effect::Create(new)),
                Some(observed) => {
                    let old = Object::EndpointSlice(observed);
                    let target = Target::Object(old.reference(), Part::Body);
                    if !self.writes.is_settled(&target, &new, &old) {
                        self.write(step, Effect::Update { old, new });
                    }
                }
            }
        }
        for (_, slice) in there
            .iter()
            .enumerate()
            .filter(|(index, _)| !kept.contains(index))
        {
            if let Some(observed) = &slice.observed {
                let effect = Effect::Delete(Object::EndpointSlice(Arc::clone(observed)));
                self.write(step, effect);
            }
        }
    }

    /// A name that no slice has, by the lowest number.
    fn free_name(
        &self,
        service: &ServiceKey,
        derived: &ObjectName,
        cluster: &ClusterName,
        family: IpFamily,
        number: &mut usize,
    ) -> ObjectName {
        loop {
            let name = slice_name(derived, cluster, family, *number);
            *number += 1;
            let key = service.sibling(&name);
            let is_taken =
                self.world.has_slice(&key) || self.on_object(Kind::EndpointSlice, &key).is_some();
            if !is_taken {
                return name;
            }
        }
    }

    /// Deletes all our slices of an import.
    pub(super) fn delete_slices(&mut self, step: &mut Step<'_>) {
        let service = step.service;
        let slices: Vec<Arc<SliceObject>> = self
            .world
            .mirrored(service)
            .into_iter()
            .flat_map(BTreeMap::values)
            .filter(|slice| !slice.meta.terminating)
            .map(Arc::clone)
            .collect();
        for slice in slices {
            self.write(step, Effect::Delete(Object::EndpointSlice(slice)));
        }
    }
}
