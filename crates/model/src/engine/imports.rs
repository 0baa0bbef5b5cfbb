//! The import side of the engine: the ServiceImport, the derived Service and the import's status.
//! Slices are in the sister module.
//!
//! The order of a new import: the ServiceImport first, as the others name its UID as their
//! owner; then Service and slices side by side; then the ServiceImport's `ips`; then its status.

use std::net::IpAddr;
use std::sync::Arc;

use mcs_api::well_known::LABEL_SERVICE_NAME;

use crate::compare::Part;
use crate::config::SliceMode;
use crate::engine::{Engine, Participation, Step};
use crate::import::{self, DerivedInput};
use crate::io::{Effect, REASON_ADDRESS_CHANGED};
use crate::merge::{Claim, Merged};
use crate::names::{ObjectName, ServiceKey};
use crate::object::{ImportObject, ImportStatus, Object, ServiceObject};
use crate::own::{LABEL_MANAGED_BY, MANAGED_BY};
use crate::service::{ImportType, IpFamily};
use crate::status::ImportState;
use crate::writes::Target;

/// An import as it is wanted, with what the steps of its plan share.
pub(super) struct Import {
    pub(super) merged: Arc<Merged>,
    /// Its families in this cluster.
    pub(super) families: Vec<IpFamily>,
    /// Whether this cluster can use any of them.
    pub(super) usable: bool,
    /// The name of its derived Service.
    pub(super) derived: ObjectName,
    /// Whether it is kept as it is, as some of its clusters are only not heard of.
    pub(super) frozen: bool,
}

/// The Service under an import's derived name.
pub(super) enum Derived {
    None,
    Ours(Arc<ServiceObject>),
    Foreign,
}

impl Engine {
    /// Brings the import of a service in order.
    pub(super) fn plan_import(
        &mut self,
        step: &mut Step<'_>,
        merged: Option<Arc<Merged>>,
        participation: &Participation,
    ) {
        let service = step.service;
        let present = self.world.imports.get(service).cloned();
        let takes_part = *participation == Participation::Global;
        let frozen = present
            .as_deref()
            .filter(|_| takes_part)
            .filter(|i| self.is_frozen(service, i));
        if frozen.is_some() {
            self.frozen.insert(service.clone());
        } else {
            self.frozen.remove(service);
        }
        let merged = match frozen {
            Some(import) => self.frozen_merge(service, import),
            None => merged.filter(|_| takes_part),
        };
        let Some(merged) = merged else {
            if frozen.is_none() {
                self.remove_import(step, present.as_ref());
            }
            return;
        };
        let families = self.families.as_deref().unwrap_or_default();
        let (families, usable) = import::families(&merged, families);
        let derived = match self.config.naming.name(service) {
            Ok(derived) => derived,
            Err(error) => {
                return self.plan_unnameable(step, &merged, &error.to_string());
            }
        };
        self.world.derives(service, &service.sibling(&derived));
        let import = Import {
            merged,
            families,
            usable,
            derived,
            frozen: frozen.is_some(),
        };
        self.plan_wanted(step, present, &import);
    }

    /// Whether an import of ours names a cluster of which nothing is known, not even that it does
    /// not export the service any more (DESIGN §2.2, "Absence is not withdrawal").
    fn is_frozen(&self, service: &ServiceKey, import: &ImportObject) -> bool {
        if !is_managed(import) {
            return false;
        }
        let stated = self.stated(service);
        let is_known = |cluster: &str| {
            cluster == self.config.cluster.as_str()
                || stated.keys().any(|known| known.as_str() == cluster)
                || self
                    .trusted
                    .as_ref()
                    .is_some_and(|trusted| trusted.contains(cluster))
        };
        // Before the registry was ever listed, an import without status may be anybody's.
        let nothing_known = self.trusted.is_none() && stated.is_empty();
        (nothing_known && import.status.clusters.is_empty())
            || !import
                .status
                .clusters
                .iter()
                .all(|cluster| is_known(cluster))
    }

    /// The import of what is there, as it stands, and of the clusters whose records are there.
    fn frozen_merge(&self, service: &ServiceKey, import: &ImportObject) -> Option<Arc<Merged>> {
        let spec = import.spec.as_ref()?;
        let stated = self.stated(service);
        let claims = stated
            .into_iter()
            .map(|(cluster, state)| Claim::of(cluster, state));
        Some(Arc::new(crate::merge::onto(spec, claims)))
    }

    /// An import whose derived Service cannot have a name: it is there, and says so.
    fn plan_unnameable(&mut self, step: &mut Step<'_>, merged: &Arc<Merged>, problem: &str) {
        let service = step.service;
        self.delete_slices(step);
        let Some(present) = self.world.imports.get(service).cloned() else {
            let usable = self.families.clone().unwrap_or_default();
            let families = import::families(merged, &usable).0;
            let derived = ObjectName::new("");
            let import = Import {
                merged: Arc::clone(merged),
                families,
                usable: false,
                derived,
                frozen: false,
            };
            self.create_import(step, &import);
            return;
        };
        let state = ImportState::Pending(problem.to_owned());
        self.write_status(
            step,
            &present,
            &merged.parts.keys().cloned().collect::<Vec<_>>(),
            false,
            &state,
        );
    }

    fn plan_wanted(
        &mut self,
        step: &mut Step<'_>,
        present: Option<Arc<ImportObject>>,
        import: &Import,
    ) {
        let service = step.service;
        let Some(present) = present else {
            self.create_import(step, import);
            return;
        };
        // Until it is gone nothing can be made in its place, and what it owns goes with it.
        if present.meta.terminating {
            return;
        }
        let derived_key = service.sibling(&import.derived);
        self.remove_strays(step, Some(&import.derived));
        let derived = match self.world.services.get(&derived_key) {
            None => Derived::None,
            Some(object) if import::is_ours(object, &present) => Derived::Ours(Arc::clone(object)),
            Some(_) => Derived::Foreign,
        };
        self.plan_derived(step, &present, import, &derived);
        let wants_slices = import.usable
            && !matches!(derived, Derived::Foreign)
            && self.wants_slices(import.merged.kind);
        if wants_slices {
            self.plan_slices(step, &present, import);
        } else {
            self.delete_slices(step);
        }
        let is_settled = import.frozen || self.plan_import_body(step, &present, import, &derived);
        if is_settled {
            self.plan_import_status(step, &present, import, &derived);
        }
    }

    pub(super) fn wants_slices(&self, kind: ImportType) -> bool {
        match self.config.slices {
            SliceMode::All => true,
            SliceMode::Headless => kind == ImportType::Headless,
            SliceMode::None => false,
        }
    }

    fn create_import(&mut self, step: &mut Step<'_>, import: &Import) {
        let service = step.service;
        let meta = import::import_meta(service, &import.merged, None, &import.derived, &[]);
        let object = ImportObject {
            meta,
            spec: Some(import::spec(&import.merged, &import.families, None)),
            status: ImportStatus::default(),
        };
        self.write(
            step,
            Effect::Create(Object::ServiceImport(Arc::new(object))),
        );
    }

    /// Makes spec and metadata of the ServiceImport what they should be; says whether they are.
    fn plan_import_body(
        &mut self,
        step: &mut Step<'_>,
        present: &Arc<ImportObject>,
        import: &Import,
        derived: &Derived,
    ) -> bool {
        let (now, service) = (step.now, step.service);
        let is_headless = import.merged.kind == ImportType::Headless;
        let is_coming = import.usable && !is_headless && !matches!(derived, Derived::Foreign);
        let derived = match derived {
            Derived::Ours(object) if import.usable => Some(&**object),
            Derived::None | Derived::Ours(_) | Derived::Foreign => None,
        };
        let derived = derived.filter(|object| object.headless == is_headless);
        let remembered = import::remembered(present);
        let addresses = addresses(derived, &remembered);
        let meta = import::import_meta(
            service,
            &import.merged,
            Some(present),
            &import.derived,
            &addresses,
        );
        let mut spec = import::spec(&import.merged, &import.families, derived);
        // Until the derived Service is back, its addresses stay announced: they are asked for again.
        if derived.is_none() && is_coming {
            let old = present.spec.as_ref().filter(|old| old.kind == spec.kind);
            spec.ips = old.map(|old| old.ips.clone()).unwrap_or_default();
            spec.ips
                .retain(|ip| import.families.contains(&IpFamily::of(*ip)));
        }
        let new = ImportObject {
            meta,
            spec: Some(spec),
            status: present.status.clone(),
        };
        let (old, new) = (
            Object::ServiceImport(Arc::clone(present)),
            Object::ServiceImport(Arc::new(new)),
        );
        let target = Target::Object(old.reference(), Part::Body);
        if self.writes.is_settled(&target, &new, &old) {
            return true;
        }
        let before = step.actions.len();
        self.write(
            step,
            Effect::Update {
                old: old.clone(),
                new,
            },
        );
        let lost: Vec<String> = remembered
            .iter()
            .filter(|ip| !addresses.contains(ip))
            .map(IpAddr::to_string)
            .collect();
        if step.actions.len() > before && !lost.is_empty() {
            let message = format!(
                "the clusterset IP {} is taken by another Service; the import now has {}",
                lost.join(", "),
                addresses
                    .iter()
                    .map(IpAddr::to_string)
                    .collect::<Vec<_>>()
                    .join(", ")
            );
            self.tell(step, &old, true, REASON_ADDRESS_CHANGED, message.into());
        }
        // What cannot be written now must not hide how the import is doing.
        self.writes.is_contended(&target, now)
    }

    /// Makes the derived Service what it should be.
    fn plan_derived(
        &mut self,
        step: &mut Step<'_>,
        present: &ImportObject,
        import: &Import,
        derived: &Derived,
    ) {
        let service = step.service;
        if import.frozen && !matches!(derived, Derived::None) {
            return;
        }
        let usable: Vec<IpFamily> = if import.usable {
            import.families.clone()
        } else {
            Vec::new()
        };
        let input = DerivedInput {
            import: present,
            merged: &import.merged,
            families: &usable,
            name: &import.derived,
            known_distributions: &self.config.known_distributions,
        };
        match derived {
            Derived::Foreign => {}
            Derived::None if usable.is_empty() => {}
            Derived::None => {
                let mut object = import::derived(&input, None);
                if self.any_address.contains(service) {
                    object.cluster_ips.clear();
                }
                if self.is_held_by_stray(service, &object.cluster_ips) {
                    return;
                }
                self.write(step, Effect::Create(Object::Service(Arc::new(object))));
                self.tell_of_distribution(step, present, &import.merged);
            }
            Derived::Ours(object) if object.meta.terminating => {}
            Derived::Ours(object) => {
                let old = Object::Service(Arc::clone(object));
                let is_headless = import.merged.kind == ImportType::Headless;
                let lacks = usable.iter().any(|f| !object.families.contains(f));
                // A Service cannot get or lose its address while it lives, nor a family beside
                // one that the network does not have.
                let network = self.families.as_deref().unwrap_or_default();
                let is_stuck = lacks && object.families.iter().any(|f| !network.contains(f));
                if usable.is_empty() || object.headless != is_headless || is_stuck {
                    self.write(step, Effect::Delete(old));
                    return;
                }
                let mut new = import::derived(&input, Some(object));
                if !lacks {
                    self.any_address.remove(service);
                } else if self.any_address.contains(service) {
                    new.cluster_ips.clone_from(&object.cluster_ips);
                }
                let new = Object::Service(Arc::new(new));
                let target = Target::Object(old.reference(), Part::Body);
                if !self.writes.is_settled(&target, &new, &old) {
                    self.write(step, Effect::Update { old, new });
                }
            }
        }
    }

    /// Whether a Service of ours under another name still has one of these addresses: it is about
    /// to go, and gives them back.
    fn is_held_by_stray(&self, service: &ServiceKey, addresses: &[IpAddr]) -> bool {
        self.world
            .marked(service)
            .filter_map(|name| self.world.services.get(&service.sibling(name)))
            .any(|stray| addresses.iter().any(|ip| stray.cluster_ips.contains(ip)))
    }

    /// Deletes Services that carry our marks for this import but are not its derived one, such as
    /// those of another naming.
    fn remove_strays(&mut self, step: &mut Step<'_>, wanted: Option<&ObjectName>) {
        let service = step.service;
        let strays: Vec<Arc<ServiceObject>> = self
            .world
            .marked(service)
            .filter(|name| Some(*name) != wanted)
            .filter_map(|name| self.world.services.get(&service.sibling(name)))
            .filter(|object| !object.meta.terminating)
            .map(Arc::clone)
            .collect();
        for object in strays {
            self.write(step, Effect::Delete(Object::Service(object)));
        }
    }

    /// Removes everything of ours that an import brought.
    fn remove_import(&mut self, step: &mut Step<'_>, present: Option<&Arc<ImportObject>>) {
        let service = step.service;
        self.no_trouble(service);
        self.delete_slices(step);
        self.remove_strays(step, None);
        if let Some(import) =
            present.filter(|import| is_managed(import) && !import.meta.terminating)
        {
            // A derived Service that was adopted by its owner has no mark yet.
            let derived = self.config.naming.name(service).ok();
            let owned = derived
                .and_then(|derived| self.world.services.get(&service.sibling(&derived)))
                .filter(|object| import::is_ours(object, import) && !object.meta.terminating)
                .filter(|object| object.meta.label(LABEL_SERVICE_NAME).is_none())
                .map(Arc::clone);
            if let Some(object) = owned {
                self.write(step, Effect::Delete(Object::Service(object)));
            }
            let object = Object::ServiceImport(Arc::clone(import));
            self.write(step, Effect::Delete(object));
        }
    }
}

/// Whether an import is ours: made or adopted by us.
pub(super) fn is_managed(import: &ImportObject) -> bool {
    import.meta.label(LABEL_MANAGED_BY) == Some(MANAGED_BY)
}

/// The addresses to remember: those that the derived Service has, and for families in which it
/// has none the last ones.
fn addresses(derived: Option<&ServiceObject>, remembered: &[IpAddr]) -> Vec<IpAddr> {
    let mut addresses: Vec<IpAddr> = derived.map(|d| d.cluster_ips.clone()).unwrap_or_default();
    for old in remembered {
        if !addresses
            .iter()
            .any(|ip| IpFamily::of(*ip) == IpFamily::of(*old))
        {
            addresses.push(*old);
        }
    }
    addresses.sort();
    addresses
}
