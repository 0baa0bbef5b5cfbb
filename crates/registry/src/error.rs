//! What can go wrong between a cluster and the registry, and what the caller may conclude.

use std::sync::Arc;

use tombolo_model::names::ClusterName;

use crate::key::KeyError;
use crate::value::ValueError;

/// Why an operation on the registry was not done, or may not have been.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The registry object was closed.
    #[error("the registry of this process is closed")]
    Closed,
    /// A write without a session.
    #[error("cluster {cluster} has no session open here: open one before writing")]
    NoSession {
        /// The cluster.
        cluster: ClusterName,
    },
    /// Another cluster has this name.
    #[error(
        "cluster name {cluster} belongs to the cluster whose kube-system namespace has the UID \
         {theirs:?}, this cluster's has {ours:?}: give this cluster another name, or start it once \
         with --take-over if it replaces the other for good"
    )]
    NameTaken {
        /// The name.
        cluster: ClusterName,
        /// Whose it is; `?` where that cannot be read.
        theirs: Arc<str>,
        /// Who wants it.
        ours: Arc<str>,
    },
    /// This very cluster has left the clusterset.
    #[error(
        "cluster {cluster} has left the clusterset for good and publishes nothing: start it once \
         with --take-over to let it join again"
    )]
    LeftForGood {
        /// The cluster.
        cluster: ClusterName,
    },
    /// Another process of this cluster writes.
    #[error("cluster {cluster} is written by {holder:?}, and only the leader may replace it")]
    SessionHeld {
        /// The cluster.
        cluster: ClusterName,
        /// The other process; `?` where that cannot be read.
        holder: Arc<str>,
    },
    /// Another process of this cluster has replaced this one.
    #[error("cluster {cluster} is now written by {holder:?}, which replaced this session")]
    SessionReplaced {
        /// The cluster.
        cluster: ClusterName,
        /// The other process; `?` where that cannot be read.
        holder: Arc<str>,
    },
    /// The session's lease ran out, or the registry was restored: open a new one.
    #[error("the session of cluster {cluster} is no longer in the registry")]
    SessionExpired {
        /// The cluster.
        cluster: ClusterName,
    },
    /// A record has a name that no key can hold.
    #[error("a record cannot be stored")]
    Key {
        /// Which, and why.
        source: KeyError,
    },
    /// A record that every reader would refuse.
    #[error("the record at {key:?} cannot be stored")]
    Value {
        /// Its key.
        key: String,
        /// Why.
        source: ValueError,
    },
    /// What stands there is not overwritten.
    #[error("what is recorded at {key:?} cannot be read")]
    Recorded {
        /// Its key.
        key: String,
        /// Why.
        source: ValueError,
    },
    /// A batch may not hold what belongs to the session.
    #[error("{key:?} is written by opening, amending and leaving only")]
    Reserved {
        /// The key.
        key: String,
    },
    /// `synced` would not be that of this session.
    #[error("session epoch {epoch} of cluster {cluster} is over: it cannot be marked as synced")]
    StaleEpoch {
        /// The cluster.
        cluster: ClusterName,
        /// The epoch in the batch.
        epoch: u64,
    },
    /// The registry could not be asked: nothing was changed.
    #[error("the registry is away: {reason}")]
    Unavailable {
        /// The backend's words.
        reason: Arc<str>,
    },
    /// The registry's access rules do not allow it: nothing was changed. Rules can be changed at
    /// any time, so that trying again is right.
    #[error("the registry does not allow it to this user or certificate: {reason}")]
    Denied {
        /// The backend's words.
        reason: Arc<str>,
    },
    /// The answer was lost: it may have been done.
    #[error("the registry did not answer, the write may have been done: {reason}")]
    OutcomeUnknown {
        /// The backend's words.
        reason: Arc<str>,
    },
    /// A batch of several transactions stopped in the middle.
    #[error("{written} of {total} writes were done")]
    Partial {
        /// How many writes were done, from the beginning.
        written: usize,
        /// How many there are.
        total: usize,
        /// What stopped the next.
        source: Box<Self>,
    },
}

impl Error {
    /// A word for metrics, Events and reports.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::NoSession { .. } => "no-session",
            Self::NameTaken { .. } => "name-taken",
            Self::LeftForGood { .. } => "left",
            Self::SessionHeld { .. } => "session-held",
            Self::SessionReplaced { .. } => "session-replaced",
            Self::SessionExpired { .. } => "session-expired",
            Self::Key { source } => source.kind(),
            Self::Value { source, .. } | Self::Recorded { source, .. } => source.kind(),
            Self::Reserved { .. } => "reserved",
            Self::StaleEpoch { .. } => "stale-epoch",
            Self::Unavailable { .. } => "unavailable",
            Self::Denied { .. } => "denied",
            Self::OutcomeUnknown { .. } => "outcome-unknown",
            Self::Partial { source, .. } => source.kind(),
        }
    }

    /// Whether the same call may succeed later, with nothing else changed.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Unavailable { .. } | Self::Denied { .. } | Self::OutcomeUnknown { .. } => true,
            Self::Partial { source, .. } => source.is_retryable(),
            Self::Closed
            | Self::NoSession { .. }
            | Self::NameTaken { .. }
            | Self::LeftForGood { .. }
            | Self::SessionHeld { .. }
            | Self::SessionReplaced { .. }
            | Self::SessionExpired { .. }
            | Self::Key { .. }
            | Self::Value { .. }
            | Self::Recorded { .. }
            | Self::Reserved { .. }
            | Self::StaleEpoch { .. } => false,
        }
    }

    /// Whether the session under which a write was tried is over.
    pub(crate) const fn ends_session(&self) -> bool {
        matches!(
            self,
            Self::NameTaken { .. }
                | Self::LeftForGood { .. }
                | Self::SessionReplaced { .. }
                | Self::SessionExpired { .. }
        )
    }

    /// Whether something may have been written. If not, the registry is as it was.
    pub const fn may_have_written(&self) -> bool {
        matches!(self, Self::OutcomeUnknown { .. } | Self::Partial { .. })
    }
}
