//! What a cluster's watches report to the shell.

use std::sync::Arc;

use tombolo_model::io::Input;
use tombolo_model::object::Kind;

use crate::convert::Rejected;

/// One thing that a shell learns of its cluster.
#[derive(Clone, Debug)]
pub enum Report {
    /// For the engine: in this order, with nothing decided in between.
    Inputs(Vec<Input>),
    /// An object cannot be used: it counts as not there.
    Rejected {
        /// Its kind.
        kind: Kind,
        /// Why.
        rejected: Rejected,
    },
    /// How the watch of a kind is doing.
    Watch {
        /// The kind.
        kind: Kind,
        /// Its state.
        state: WatchState,
    },
}

/// How the watch of a kind is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchState {
    /// It is being listed.
    Listing,
    /// It was listed, and changes arrive as they happen.
    Live,
    /// The cluster does not know the kind: its CRD is missing.
    Missing,
    /// A permission is missing; the server's words.
    Forbidden(Arc<str>),
    /// The server cannot be reached or does not answer as it should; why.
    Away(Arc<str>),
}

impl WatchState {
    /// A word for metrics.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Listing => "listing",
            Self::Live => "live",
            Self::Missing => "missing",
            Self::Forbidden(_) => "forbidden",
            Self::Away(_) => "away",
        }
    }
}
