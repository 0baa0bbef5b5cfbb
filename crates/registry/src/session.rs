//! Who may write a partition: opening a session, and what a refused writer is told (DESIGN §2.2).
//!
//! A partition belongs to an *owner*, a cluster known by the UID of its `kube-system` namespace.
//! Of the owner's processes one writes, the one whose *session* stands there. Every write compares
//! both. The decisions here are pure; a backend reads the [`Standing`], asks, and writes the answer
//! in a transaction that fails if the standing has changed.

use std::sync::Arc;

use ipnet::IpNet;
use jiff::Timestamp;
use tombolo_model::io::RecordWrite;
use tombolo_model::record::{Origin, Owner, Record, RecordKey, Session};
use tombolo_model::service::IpFamily;

use crate::error::Error;
use crate::value::SCHEMA;

/// A session as its writer describes it. Epoch and schema version are the registry's to add.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSession {
    /// The identity of the process, as in its Kubernetes Lease.
    pub holder: Arc<str>,
    /// When it began.
    pub started: Timestamp,
    /// The release that writes.
    pub software: Arc<str>,
    /// The families of the cluster's network, in its order.
    pub families: Vec<IpFamily>,
    /// The cluster's service CIDRs.
    pub service_cidrs: Vec<IpNet>,
    /// Since when the writer cannot list what it publishes from, if it cannot.
    pub blind_since: Option<Timestamp>,
}

/// With what right a session is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// As the holder of the Kubernetes Lease: replaces any session of the same owner.
    Leader,
    /// As any other process of the owner: only where no session stands.
    Vacant,
}

/// Whether the name may be taken from another owner, or from a cluster that left for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeOver {
    /// No: the operator did not say so.
    Refuse,
    /// Yes (`--take-over`): what stands there is replaced.
    Allow,
}

/// A wish to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opening {
    /// Who this cluster is.
    pub owner: Owner,
    /// The session to be put.
    pub session: NewSession,
    /// With what right.
    pub claim: Claim,
    /// Whether against another owner too.
    pub take_over: TakeOver,
}

/// What happens to a session when its registry object is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionEnd {
    /// It goes at once: other clusters see this one as not heard of.
    Revoke,
    /// It stays until its lease runs out, so that a successor can replace it unnoticed.
    Lapse,
}

/// One key of a partition as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Held<T> {
    /// Nothing stands there.
    Vacant,
    /// Something that this release cannot read: it counts as someone else's.
    Unreadable,
    /// This.
    Known(T),
}

/// What decides who may write a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// `owner`.
    pub owner: Held<Owner>,
    /// `session`.
    pub session: Held<Session>,
    /// `left`.
    pub left: Held<Owner>,
}

impl NewSession {
    /// The session under this epoch.
    pub fn at(self, epoch: u64) -> Session {
        let Self {
            holder,
            started,
            software,
            families,
            service_cidrs,
            blind_since,
        } = self;
        Session {
            holder,
            epoch,
            started,
            software,
            schema: SCHEMA,
            families,
            service_cidrs,
            blind_since,
        }
    }
}

impl Standing {
    /// The writes that open the session under `epoch`, or why it may not be opened.
    pub fn admit(
        &self,
        origin: &Origin,
        opening: Opening,
        epoch: u64,
    ) -> Result<Vec<RecordWrite>, Error> {
        let Opening {
            owner,
            session,
            claim,
            take_over,
        } = opening;
        if take_over == TakeOver::Refuse {
            self.check_name(origin, &owner)?;
        }
        if claim == Claim::Vacant && self.session != Held::Vacant {
            let (cluster, holder) = (origin.cluster.clone(), self.holder());
            return Err(Error::SessionHeld { cluster, holder });
        }
        let mut writes = Vec::new();
        if self.left != Held::Vacant {
            writes.push(write(RecordKey::Left, None));
        }
        if self.owner != Held::Known(owner.clone()) {
            writes.push(write(RecordKey::Owner, Some(Record::Owner(owner))));
        }
        writes.push(write(
            RecordKey::Session,
            Some(Record::Session(session.at(epoch))),
        ));
        Ok(writes)
    }

    /// Why a writer whose compare failed may not write.
    pub fn refusal(&self, origin: &Origin, writer: &Owner) -> Error {
        let cluster = origin.cluster.clone();
        if let Err(taken) = self.check_name(origin, writer) {
            return taken;
        }
        match &self.session {
            Held::Vacant => Error::SessionExpired { cluster },
            Held::Unreadable | Held::Known(_) => {
                let holder = self.holder();
                Error::SessionReplaced { cluster, holder }
            }
        }
    }

    fn check_name(&self, origin: &Origin, owner: &Owner) -> Result<(), Error> {
        let taken = |theirs: &str| Error::NameTaken {
            cluster: origin.cluster.clone(),
            theirs: theirs.into(),
            ours: Arc::clone(&owner.uid),
        };
        match &self.owner {
            Held::Known(theirs) if theirs != owner => return Err(taken(&theirs.uid)),
            Held::Unreadable => return Err(taken("?")),
            Held::Known(_) | Held::Vacant => {}
        }
        match &self.left {
            // Another cluster of this name has left: the name is free.
            Held::Known(theirs) if theirs != owner => Ok(()),
            Held::Vacant => Ok(()),
            Held::Known(_) | Held::Unreadable => {
                let cluster = origin.cluster.clone();
                Err(Error::LeftForGood { cluster })
            }
        }
    }

    fn holder(&self) -> Arc<str> {
        match &self.session {
            Held::Known(session) => Arc::clone(&session.holder),
            Held::Vacant | Held::Unreadable => "?".into(),
        }
    }
}

fn write(key: RecordKey, record: Option<Record>) -> RecordWrite {
    RecordWrite { key, record }
}
