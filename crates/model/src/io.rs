//! What goes into the engine and what comes out: inputs and actions. Shells turn watch events,
//! registry events and answers into inputs, and carry actions out.

use std::collections::BTreeSet;
use std::sync::Arc;

use ipnet::IpNet;
use jiff::SignedDuration;

use crate::fleet::{Claims, FleetService, Recorded};
use crate::names::{ClusterName, ServiceKey};
use crate::object::{Kind, Object, ObjectRef};
use crate::presence::Peers;
use crate::record::{Record, RecordKey, Report};
use crate::service::IpFamily;

/// Something that is listed in full and then watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Source {
    /// All objects of a kind in the local cluster.
    Objects(Kind),
    /// This cluster's own partition of the registry.
    OwnRecords,
}

/// One thing that the engine learns.
#[derive(Clone, Debug)]
pub enum Input {
    /// An object of the local cluster appeared or changed.
    Applied(Object),
    /// An object of the local cluster is gone.
    Deleted {
        /// Which one.
        object: ObjectRef,
        /// The resource version of its end; empty where it is not known.
        resource_version: Arc<str>,
    },
    /// A full listing begins: what is not seen until it ends is gone.
    ListBegan(Source),
    /// A full listing is complete.
    ListEnded {
        /// What was listed.
        source: Source,
        /// The resource version or revision that the listing shows; empty where not known. What
        /// was written after it is not gone because it is not in it.
        revision: Arc<str>,
    },
    /// The families that this cluster's network can use, in its order.
    Families(Vec<IpFamily>),
    /// The networks that the addresses of this cluster's Services are from; none: not known.
    ServiceCidrs(Vec<IpNet>),
    /// What the registry says of a service changed; `None`: no cluster exports it.
    Fleet {
        /// The service.
        service: ServiceKey,
        /// Everything about it.
        state: Option<Arc<FleetService>>,
    },
    /// The clusters whose missing records mean that they are withdrawn ("absence is not
    /// withdrawal", DESIGN §2.2); sent after the fleet changes that it stands for.
    Trusted(Arc<BTreeSet<ClusterName>>),
    /// All clusters that have anything in the registry; sent after the fleet changes that it
    /// stands for.
    Peers(Arc<Peers>),
    /// What operators recorded.
    Recorded(Arc<Recorded>),
    /// The index of all endpoints in the registry; sent once.
    Claims(Arc<Claims>),
    /// Whether the watch of the registry is live: what is not heard meanwhile is no silence of
    /// others. It is until this says otherwise.
    Heard(bool),
    /// Everything up to this revision of the registry was told.
    Revision(u64),
    /// A full listing of the own records begins, of a registry that is not the one that it was:
    /// restored, emptied or another (DESIGN §2.2, regress). Nothing that is known of the own
    /// partition holds, nor any revision.
    Regressed,
    /// A record of this cluster's own partition, as the registry holds it; `None`: not there.
    OwnRecord {
        /// Its place.
        key: RecordKey,
        /// Its value.
        record: Option<Record>,
        /// The registry revision of this state.
        revision: u64,
    },
    /// This process may write the own partition, under this session epoch; `None`: it may not.
    Session(Option<u64>),
    /// An action ended.
    Outcome {
        /// Which one.
        id: ActionId,
        /// How.
        outcome: Outcome,
    },
    /// How far the time of day is ahead of the time that steps are given; none until this says
    /// otherwise. What lasts is measured by the time of steps, which goes on evenly; the time of
    /// day, which anybody may set, is only told.
    TimeOfDay(SignedDuration),
    /// Time went on: due retries are made.
    Tick,
}

/// Tells an action from every other one of this engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ActionId(pub u64);

/// Something to do. Each but an [`Effect::Event`] is answered by one [`Input::Outcome`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// To be given back with the outcome.
    pub id: ActionId,
    /// What to do.
    pub effect: Effect,
}

/// The kinds of action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Create an object.
    Create(Object),
    /// Change an object but for its status. The write carries the resource version of `old` and
    /// changes nothing but the fields in which `new` differs.
    Update {
        /// As it was observed.
        old: Object,
        /// As it is wanted.
        new: Object,
    },
    /// Write an object's status, with the resource version of `old`.
    UpdateStatus {
        /// As it was observed.
        old: Object,
        /// As it is wanted.
        new: Object,
    },
    /// Delete an object, only if UID and resource version are still those of this one.
    Delete(Object),
    /// Write records of the own partition, in this order.
    Publish {
        /// The service that they are about.
        service: ServiceKey,
        /// The writes.
        writes: Vec<RecordWrite>,
    },
    /// Put `synced` with this session epoch: everything known is published.
    Synced(u64),
    /// Put `report`: how this cluster's imports are doing.
    Report(Arc<Report>),
    /// Tell the user of an object; best effort, has no outcome.
    Event(Event),
}

impl Effect {
    /// The records that it writes, if it is one on the registry.
    pub fn into_records(self) -> Option<Vec<RecordWrite>> {
        let one = |key, record| {
            let record = Some(record);
            Some(vec![RecordWrite { key, record }])
        };
        match self {
            Self::Publish { writes, .. } => Some(writes),
            Self::Synced(epoch) => one(RecordKey::Synced, Record::Synced(epoch)),
            Self::Report(report) => one(
                RecordKey::Report,
                Record::Report(Arc::unwrap_or_clone(report)),
            ),
            Self::Create(_)
            | Self::Update { .. }
            | Self::UpdateStatus { .. }
            | Self::Delete(_)
            | Self::Event(_) => None,
        }
    }
}

/// A write of one record of the own partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordWrite {
    /// Its place.
    pub key: RecordKey,
    /// The value to put; `None` deletes.
    pub record: Option<Record>,
}

/// The reason of the [`Event`] that says that an import lost its clusterset IP and has another.
pub const REASON_ADDRESS_CHANGED: &str = "AddressChanged";

/// A Kubernetes Event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The object it is about.
    pub about: ObjectRef,
    /// That object's UID.
    pub uid: Arc<str>,
    /// Whether something is wrong.
    pub warning: bool,
    /// A word for tools.
    pub reason: &'static str,
    /// A sentence for people.
    pub message: Arc<str>,
}

/// How an action ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The object is now so.
    Written(Object),
    /// The object is gone, or will be once its finalizers are done.
    Deleted,
    /// The records are written, at this registry revision.
    Published(u64),
    /// Not done, as the object is not what the engine thought (conflict, already exists, not
    /// found): this is how it stands, `None` where it is not there.
    Outdated(Option<Object>),
    /// The server refused it, or could not be reached: nothing was changed.
    Refused(Refusal),
    /// It may or may not have been done (deadline, connection lost while waiting).
    Unknown(Arc<str>),
}

/// Why a server refused a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What kind of refusal.
    pub kind: RefusalKind,
    /// The server's words.
    pub message: Arc<str>,
}

/// Kinds of refusal that need different answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// A cluster IP that was asked for is taken or out of range: ask for any.
    AddressTaken,
    /// The namespace is going away: no error, the object will not be needed.
    NamespaceTerminating,
    /// A field value is not allowed.
    Invalid,
    /// A permission is missing.
    Forbidden,
    /// Anything else, such as an admission webhook or a server that is away.
    Other,
}
