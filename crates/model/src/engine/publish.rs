//! Publication: the own partition of the registry, as it is and as it should be.
//!
//! A restart lists the own prefix and writes only the difference. Endpoints are published before
//! their export, an export is withdrawn before its endpoints, so that no reader ever sees an
//! export whose endpoints are still to come.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use jiff::Timestamp;

use crate::engine::{Engine, Step};
use crate::export::{OwnService, Verdict};
use crate::io::{Action, ActionId, Effect, RecordWrite, Source};
use crate::names::ServiceKey;
use crate::record::{ExportRecord, Record, RecordKey};
use crate::status::Publication;
use crate::writes::Target;

/// What the registry holds of this cluster, by service.
#[derive(Debug, Default)]
pub(super) struct Published {
    services: HashMap<ServiceKey, BTreeMap<RecordKey, OwnRecord>>,
    /// Services whose records are not yet as they should be.
    unpublished: BTreeSet<ServiceKey>,
    session: Option<u64>,
    /// The epoch for which `synced` stands.
    synced: Option<u64>,
    in_listing: bool,
    /// Writes up to this one were made in a registry that is not the one of now.
    of_another: Option<ActionId>,
}

/// One own record, as far as it is known.
#[derive(Debug)]
struct OwnRecord {
    /// The revision of this knowledge: later events of earlier revisions say nothing new.
    revision: u64,
    state: State,
    seen: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    Here(Record),
    Gone,
    /// A write of it may or may not have been done.
    Unsure,
}

impl Published {
    /// Takes a record in; says which service it is about.
    pub(super) fn observe(
        &mut self,
        key: RecordKey,
        record: Option<Record>,
        revision: u64,
    ) -> Option<ServiceKey> {
        let service = match &key {
            RecordKey::Export(service) | RecordKey::Endpoint { service, .. } => service.clone(),
            RecordKey::Synced => {
                self.synced = match record {
                    Some(Record::Synced(epoch)) => Some(epoch),
                    _ => None,
                };
                return None;
            }
            RecordKey::Owner
            | RecordKey::Session
            | RecordKey::Left
            | RecordKey::Report
            | RecordKey::Config { .. } => return None,
        };
        let records = self.services.entry(service.clone()).or_default();
        if let Some(old) = records.get_mut(&key)
            && old.revision > revision
        {
            old.seen = true;
            return None;
        }
        let state = record.map_or(State::Gone, State::Here);
        records.insert(
            key,
            OwnRecord {
                revision,
                state,
                seen: true,
            },
        );
        Some(service)
    }

    pub(super) fn list_began(&mut self) {
        self.in_listing = true;
        for record in self.services.values_mut().flat_map(BTreeMap::values_mut) {
            record.seen = false;
        }
    }

    /// Of another registry's records and revisions nothing follows for this one. `last` is the
    /// write that began last.
    pub(super) fn regressed(&mut self, last: ActionId) {
        self.of_another = Some(last);
        self.synced = None;
        for record in self.services.values_mut().flat_map(BTreeMap::values_mut) {
            record.revision = 0;
            record.state = State::Unsure;
        }
    }

    /// Whether a write was made in another registry than the one of now.
    pub(super) fn is_of_another(&self, id: ActionId) -> bool {
        self.of_another.is_some_and(|last| id <= last)
    }

    /// What the listing did not show is gone, save what was written after it.
    pub(super) fn list_ended(&mut self, revision: &str, dirty: &mut BTreeSet<ServiceKey>) {
        if !std::mem::take(&mut self.in_listing) {
            return;
        }
        let revision: u64 = revision.parse().unwrap_or(u64::MAX);
        for (service, records) in &mut self.services {
            for record in records.values_mut() {
                if !record.seen && record.revision <= revision {
                    record.state = State::Gone;
                }
            }
            dirty.insert(service.clone());
        }
    }

    /// Under which epoch this process writes.
    pub(super) const fn session(&self) -> Option<u64> {
        self.session
    }

    pub(super) fn set_session(&mut self, epoch: Option<u64>) {
        self.session = epoch;
    }

    /// The services that wait to be published.
    pub(super) fn unpublished(&self) -> impl Iterator<Item = &ServiceKey> {
        self.unpublished.iter()
    }

    /// What is to be published of a service is not known yet: not everything is.
    pub(super) fn wait_for(&mut self, service: &ServiceKey) {
        self.unpublished.insert(service.clone());
    }

    /// Whether anything of a service is, or may be, in the registry.
    pub(super) fn knows(&self, service: &ServiceKey) -> bool {
        self.services.contains_key(service)
    }

    pub(super) fn acknowledged(&mut self, writes: Vec<RecordWrite>, revision: u64) {
        for write in writes {
            self.observe(write.key, write.record, revision);
        }
    }

    pub(super) fn unsure(&mut self, writes: Vec<RecordWrite>) {
        for write in writes {
            if let RecordKey::Export(service) | RecordKey::Endpoint { service, .. } = &write.key {
                let records = self.services.entry(service.clone()).or_default();
                let record = records.entry(write.key).or_insert(OwnRecord {
                    revision: 0,
                    state: State::Gone,
                    seen: true,
                });
                record.state = State::Unsure;
            }
        }
    }

    pub(super) fn synced(&mut self, epoch: u64) {
        self.synced = Some(epoch);
    }

    /// The export record that the registry has acknowledged.
    fn export(&self, service: &ServiceKey) -> Option<&Arc<ExportRecord>> {
        let record = self
            .services
            .get(service)?
            .get(&RecordKey::Export(service.clone()))?;
        match &record.state {
            State::Here(Record::Export(export)) => Some(export),
            State::Here(_) | State::Gone | State::Unsure => None,
        }
    }

    /// The writes that make the registry hold what is wanted, in a safe order.
    fn difference(&self, service: &ServiceKey, wanted: Option<&OwnService>) -> Vec<RecordWrite> {
        let empty = BTreeMap::new();
        let present = self.services.get(service).unwrap_or(&empty);
        let wanted = wanted.map(|own| records(service, own)).unwrap_or_default();
        let mut puts: Vec<RecordWrite> = Vec::new();
        let mut deletes: Vec<RecordWrite> = Vec::new();
        for (key, old) in present.iter().filter(|(key, _)| !wanted.contains_key(*key)) {
            if old.state != State::Gone {
                deletes.push(RecordWrite {
                    key: key.clone(),
                    record: None,
                });
            }
        }
        for (key, record) in wanted {
            let is_there = present.get(&key).is_some_and(|old| match &old.state {
                State::Here(old) => *old == record,
                State::Gone | State::Unsure => false,
            });
            if !is_there {
                puts.push(RecordWrite {
                    key,
                    record: Some(record),
                });
            }
        }
        // An export comes last of what is put, first of what is deleted.
        puts.sort_by_key(|write| matches!(write.key, RecordKey::Export(_)));
        deletes.sort_by_key(|write| !matches!(write.key, RecordKey::Export(_)));
        puts.extend(deletes);
        puts
    }

    /// Drops what is known to be gone.
    fn tidy(&mut self, service: &ServiceKey) {
        if let Some(records) = self.services.get_mut(service) {
            records.retain(|_, record| record.state != State::Gone);
            if records.is_empty() {
                self.services.remove(service);
            }
        }
    }
}

/// All records of a service that is exported.
fn records(service: &ServiceKey, own: &OwnService) -> BTreeMap<RecordKey, Record> {
    let endpoints = own.entries.iter().map(|(&(address, protocol), entries)| {
        let key = RecordKey::Endpoint {
            service: service.clone(),
            protocol,
            address,
        };
        (key, Record::Endpoint(Arc::clone(entries)))
    });
    let export = Record::Export(Arc::clone(&own.stated.export));
    endpoints
        .chain([(RecordKey::Export(service.clone()), export)])
        .collect()
}

impl Engine {
    /// Publishes what is exported of a service, withdraws what is not any more.
    pub(super) fn plan_publication(&mut self, step: &mut Step<'_>) {
        let (now, service) = (step.now, step.service);
        let wanted = self
            .own
            .get(service)
            .and_then(|local| match &local.verdict {
                Verdict::Exported(own) => Some(Arc::clone(own)),
                Verdict::Invalid { .. } | Verdict::Refused { .. } => None,
            });
        let writes = self.published.difference(service, wanted.as_deref());
        // What is being written may have to be taken back: nothing is published until it is known.
        if writes.is_empty() && self.writes.on_records(service) {
            self.published.unpublished.insert(service.clone());
            return;
        }
        if writes.is_empty() {
            self.published.unpublished.remove(service);
            // A write whose outcome was unknown turned out to be done, or is not wanted any more.
            self.writes.succeeded(&Target::Records(service.clone()));
            // While a listing is under way, what is gone may have to be told apart from what was
            // never there.
            if !self.published.in_listing {
                self.published.tidy(service);
            }
            return;
        }
        self.published.unpublished.insert(service.clone());
        let target = Target::Records(service.clone());
        // Nothing is written, and above all nothing deleted, before the own partition is known.
        if self.published.session.is_none()
            || !self.listed.contains(&Source::OwnRecords)
            || self.published.in_listing
            || self.writes.on_records(service)
            || !self.writes.is_due(&target, now)
        {
            return;
        }
        let effect = Effect::Publish {
            service: service.clone(),
            writes,
        };
        let id = self
            .writes
            .begin(target, effect.clone(), Some(service.clone()));
        step.actions.push(Action { id, effect });
    }

    /// Puts `synced` once everything is published under this session.
    pub(super) fn plan_synced(&mut self, now: Timestamp, actions: &mut Vec<Action>) {
        let Some(epoch) = self.published.session else {
            return;
        };
        if self.published.synced == Some(epoch)
            || !self.listed.contains(&Source::OwnRecords)
            || self.published.in_listing
            || !self.published.unpublished.is_empty()
            || self.writes.on_synced()
            || !self.writes.is_due(&Target::Synced, now)
        {
            return;
        }
        let effect = Effect::Synced(epoch);
        let id = self.writes.begin(Target::Synced, effect.clone(), None);
        actions.push(Action { id, effect });
    }

    /// How far the publication of an export is.
    pub(super) fn publication(&self, service: &ServiceKey, own: &OwnService) -> Publication {
        if let Some(failure) = self.writes.failure(&Target::Records(service.clone())) {
            return Publication::Failed(Arc::clone(&failure.message));
        }
        match self.published.export(service) {
            // A change of an export that the registry has is no step back.
            Some(acknowledged) if acknowledged.uid == own.stated.export.uid => {
                Publication::Acknowledged
            }
            _ => Publication::Pending,
        }
    }
}
