//! A registry that remembers every change, so that each reader may be at its own place.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use tombolo_model::fleet::FleetInput;
use tombolo_model::io::RecordWrite;
use tombolo_model::names::{ClusterName, Region, ServiceKey};
use tombolo_model::presence::PeerSession;
use tombolo_model::record::{Member, Origin, Record, RecordKey, Session, Settings};
use tombolo_model::service::IpFamily;

use crate::oracle::Stated;

/// One change.
#[derive(Clone, Debug)]
pub struct Change {
    /// In whose partition.
    pub origin: Origin,
    /// At which key.
    pub key: RecordKey,
    /// The new value; `None`: deleted.
    pub record: Option<Record>,
    /// The revision after it.
    pub revision: u64,
}

impl Change {
    /// As a reader of the whole registry learns it.
    pub fn to_fleet(&self) -> FleetInput {
        FleetInput::Record {
            origin: self.origin.clone(),
            key: self.key.clone(),
            record: self.record.clone(),
        }
    }
}

/// The registry.
#[derive(Debug, Default)]
pub struct Registry {
    partitions: BTreeMap<Origin, BTreeMap<RecordKey, Record>>,
    /// Every change since the beginning.
    pub log: Vec<Change>,
    /// Every change of what the operator recorded, the last of which counts.
    pub members: Vec<(Origin, Member)>,
    /// Every change of the settings of the only region, the last of which counts.
    pub settings: Vec<Settings>,
    /// Epochs are never given twice, not even after a restore.
    epochs: u64,
}

/// The origin of a cluster of the only region.
pub fn origin(cluster: &ClusterName) -> Origin {
    Origin {
        region: Region::try_new("local").expect("local is a label"),
        cluster: cluster.clone(),
    }
}

impl Registry {
    /// The revision of the last change.
    pub fn revision(&self) -> u64 {
        self.log.last().map_or(1, |change| change.revision)
    }

    /// Puts or deletes a record.
    pub fn put(&mut self, origin: &Origin, key: RecordKey, record: Option<Record>) -> u64 {
        let revision = self.revision() + 1;
        let partition = self.partitions.entry(origin.clone()).or_default();
        match record.clone() {
            Some(record) => partition.insert(key.clone(), record),
            None => partition.remove(&key),
        };
        self.log.push(Change {
            origin: origin.clone(),
            key,
            record,
            revision,
        });
        revision
    }

    /// Makes several writes at once.
    pub fn publish(&mut self, origin: &Origin, writes: &[RecordWrite]) -> u64 {
        for write in writes {
            self.put(origin, write.key.clone(), write.record.clone());
        }
        self.revision()
    }

    /// The operator takes a cluster's endpoints out, or back.
    pub fn drain(&mut self, origin: &Origin, drained: bool) {
        self.edit_member(origin, |member| member.drained = drained);
    }

    /// The operator changes what is recorded for a cluster.
    pub fn edit_member(&mut self, origin: &Origin, edit: impl FnOnce(&mut Member)) {
        let known = self.recorded().remove(&origin.cluster);
        let mut member = known.unwrap_or(Member {
            joined: Timestamp::UNIX_EPOCH,
            cidrs: Vec::new(),
            namespaces: Vec::new(),
            drained: false,
        });
        edit(&mut member);
        self.members.push((origin.clone(), member));
    }

    /// What is recorded for each cluster.
    pub fn recorded(&self) -> BTreeMap<ClusterName, Member> {
        let members = self.members.iter();
        members
            .map(|(origin, member)| (origin.cluster.clone(), member.clone()))
            .collect()
    }

    /// The clusters whose endpoints are out.
    pub fn drained(&self) -> BTreeSet<ClusterName> {
        let members = self.recorded().into_iter();
        let out = members.filter(|(_, member)| member.drained);
        out.map(|(cluster, _)| cluster).collect()
    }

    /// The settings that count.
    pub fn settings_now(&self) -> Settings {
        self.settings.last().copied().unwrap_or_default()
    }

    /// The clusters that have anything here but no session.
    pub fn missing(&self) -> BTreeSet<ClusterName> {
        let missing = self.partitions.iter().filter(|(_, partition)| {
            !partition.is_empty() && !partition.contains_key(&RecordKey::Session)
        });
        missing.map(|(origin, _)| origin.cluster.clone()).collect()
    }

    /// Sets it back to what it was so many changes ago, as from a backup; or empties it.
    pub fn restore(&mut self, changes: usize) {
        self.log.truncate(self.log.len().saturating_sub(changes));
        self.partitions.clear();
        for change in &self.log {
            let partition = self.partitions.entry(change.origin.clone()).or_default();
            match change.record.clone() {
                Some(record) => partition.insert(change.key.clone(), record),
                None => partition.remove(&change.key),
            };
        }
    }

    /// The epoch of a new session.
    pub const fn next_epoch(&mut self) -> u64 {
        self.epochs += 1;
        self.epochs
    }

    /// Opens a session of a cluster.
    pub fn open_session(&mut self, origin: &Origin, epoch: u64) {
        self.open(origin, epoch, PeerSession::Live);
    }

    /// Opens a session of a cluster, whose writer may see nothing any more.
    pub fn open(&mut self, origin: &Origin, epoch: u64, state: PeerSession) {
        let session = Session {
            holder: "holder".into(),
            epoch,
            started: Timestamp::UNIX_EPOCH,
            software: "test".into(),
            schema: 1,
            families: vec![IpFamily::V4, IpFamily::V6],
            service_cidrs: Vec::new(),
            blind_since: match state {
                PeerSession::Blind(since) => Some(since),
                PeerSession::Live | PeerSession::Missing => None,
            },
        };
        self.put(origin, RecordKey::Session, Some(Record::Session(session)));
    }

    /// One partition.
    pub fn partition(&self, origin: &Origin) -> BTreeMap<RecordKey, Record> {
        self.partitions.get(origin).cloned().unwrap_or_default()
    }

    /// Everything that is there, as a listing shows it.
    pub fn listing(&self) -> Vec<FleetInput> {
        let mut inputs = vec![FleetInput::ListBegan];
        for (origin, partition) in &self.partitions {
            inputs.extend(partition.iter().map(|(key, record)| FleetInput::Record {
                origin: origin.clone(),
                key: key.clone(),
                record: Some(record.clone()),
            }));
        }
        for (origin, member) in &self.members {
            inputs.push(FleetInput::Member {
                origin: origin.clone(),
                member: Some(member.clone()),
            });
        }
        inputs.extend(
            self.settings
                .iter()
                .map(|settings| settings_input(*settings)),
        );
        inputs.push(FleetInput::ListEnded);
        inputs
    }

    /// What each cluster states: the services with an export record.
    pub fn stated(&self) -> BTreeMap<ClusterName, BTreeMap<ServiceKey, Stated>> {
        let clusters = self.partitions.iter();
        clusters
            .map(|(origin, partition)| (origin.cluster.clone(), stated(partition)))
            .collect()
    }
}

/// As a reader learns of settings.
pub fn settings_input(settings: Settings) -> FleetInput {
    FleetInput::Settings {
        region: Region::try_new("local").expect("local is a label"),
        settings: Some(settings),
    }
}

/// The services that a partition states.
pub fn stated(partition: &BTreeMap<RecordKey, Record>) -> BTreeMap<ServiceKey, Stated> {
    let mut services = BTreeMap::new();
    for (key, record) in partition {
        if let (RecordKey::Export(service), Record::Export(export)) = (key, record) {
            let mut entries = BTreeMap::new();
            for (key, record) in partition {
                if let RecordKey::Endpoint {
                    service: of,
                    protocol,
                    address,
                } = key
                    && of == service
                    && let Record::Endpoint(list) = record
                {
                    let mut list = list.to_vec();
                    list.sort();
                    entries.insert((*address, *protocol), list.into());
                }
            }
            let export = std::sync::Arc::clone(export);
            services.insert(service.clone(), Stated { export, entries });
        }
    }
    services
}
