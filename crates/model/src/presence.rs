//! Which clusters are heard of, and whose endpoints are used (BEHAVIOUR §6).
//!
//! ```text
//! session there ─► live, or blind ──gone──► stale: the hold runs ──ended──► over
//!        ▲                                          │                        │
//!        └──────────────────── back ◄───────────────┴────────────────────────┘
//! ```
//!
//! The hold runs only while the own watch of the registry is live, and what an earlier process of
//! this cluster counted goes on: both make a silence that nobody could hear no silence at all. It
//! is measured by the time of steps, which goes on evenly ([`Input::TimeOfDay`]).
//!
//! [`Input::TimeOfDay`]: crate::io::Input::TimeOfDay

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::names::ClusterName;
use crate::record::{Report, ReportedCluster};

#[cfg(test)]
mod tests;

/// What the registry says of a cluster's session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerSession {
    /// It is there.
    Live,
    /// It is there, but its writer cannot list what it publishes from, since then.
    Blind(Timestamp),
    /// There is none.
    Missing,
}

/// One cluster as a reader of the registry knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its session.
    pub session: PeerSession,
    /// Whether the operator took its endpoints out.
    pub drained: bool,
}

/// All clusters that have anything in the registry, this one included.
pub type Peers = BTreeMap<ClusterName, Peer>;

/// What follows for a cluster's endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// They are used.
    Live,
    /// They are used; they are as they were at this time.
    Blind(Timestamp),
    /// They are used while the hold runs.
    Stale,
    /// The hold has ended: they are used only where they are the last.
    Over,
    /// They are not used.
    Drained,
}

impl Standing {
    /// A word for metrics and status.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Blind(_) => "blind",
            Self::Stale => "stale",
            Self::Over => "withdrawn",
            Self::Drained => "drained",
        }
    }

    /// Whether this cluster's ready endpoints let those of others go.
    pub(crate) const fn is_live(self) -> bool {
        matches!(self, Self::Live | Self::Blind(_))
    }
}

/// All clusters, and how long which of them have been missing.
#[derive(Debug)]
pub(crate) struct Presence {
    hold: SignedDuration,
    peers: Arc<Peers>,
    holds: BTreeMap<ClusterName, Hold>,
    /// What an earlier process counted, until it is known whether it counted anything.
    reported: Option<Reported>,
    /// Whether the own watch of the registry is live.
    is_heard: bool,
    /// Whether anything is to be shown anew.
    is_changed: bool,
}

/// What an earlier process counted, from its report in the own partition.
#[derive(Debug, Default)]
struct Reported {
    held: BTreeMap<ClusterName, SignedDuration>,
    /// Whether the own partition is known, and whether the clusters are: what comes first waits
    /// for the other.
    own_is_listed: bool,
    are_peers_told: bool,
}

/// How long a cluster has been missing.
#[derive(Clone, Copy, Debug)]
struct Hold {
    /// Up to `running_since`.
    counted: SignedDuration,
    /// `None` while the own watch is not live, and once the hold has ended.
    running_since: Option<Timestamp>,
    is_over: bool,
}

impl Hold {
    fn counted(&self, now: Timestamp) -> SignedDuration {
        let running = self.running_since.map(|since| now.duration_since(since));
        // A clock that was set back takes nothing away.
        self.counted + running.unwrap_or_default().max(SignedDuration::ZERO)
    }

    fn pause(&mut self, now: Timestamp) {
        self.counted = self.counted(now);
        self.running_since = None;
    }
}

impl Presence {
    pub(crate) fn new(hold: SignedDuration) -> Self {
        Self {
            hold,
            peers: Arc::default(),
            holds: BTreeMap::new(),
            reported: Some(Reported::default()),
            is_heard: true,
            is_changed: true,
        }
    }

    /// Takes the clusters in; says which of them changed.
    pub(crate) fn peers(&mut self, now: Timestamp, peers: Arc<Peers>) -> BTreeSet<ClusterName> {
        self.is_changed = true;
        let old = std::mem::replace(&mut self.peers, peers);
        let names: BTreeSet<&ClusterName> = old.keys().chain(self.peers.keys()).collect();
        let changed = names
            .into_iter()
            .filter(|name| old.get(*name) != self.peers.get(*name))
            .cloned()
            .collect();
        let is_missing = |name: &ClusterName| {
            let peer = self.peers.get(name);
            peer.is_some_and(|peer| peer.session == PeerSession::Missing)
        };
        self.holds.retain(|name, _| is_missing(name));
        for (name, peer) in self.peers.iter() {
            if peer.session == PeerSession::Missing && !self.holds.contains_key(name) {
                let reported = self.reported.as_ref().and_then(|r| r.held.get(name));
                let hold = Hold {
                    counted: reported.copied().unwrap_or_default(),
                    running_since: self.is_heard.then_some(now),
                    is_over: false,
                };
                self.holds.insert(name.clone(), hold);
            }
        }
        self.forget_reported(|reported| reported.are_peers_told = true);
        self.expire(now);
        changed
    }

    /// The own watch of the registry is live, or is not.
    pub(crate) fn heard(&mut self, now: Timestamp, is_heard: bool) {
        if std::mem::replace(&mut self.is_heard, is_heard) == is_heard {
            return;
        }
        for hold in self.holds.values_mut().filter(|hold| !hold.is_over) {
            if is_heard {
                hold.running_since = Some(now);
            } else {
                hold.pause(now);
            }
        }
    }

    /// What an earlier process of this cluster counted goes on.
    pub(crate) fn reported(&mut self, report: &Report) {
        let Some(reported) = &mut self.reported else {
            return;
        };
        for ReportedCluster { cluster, held_secs } in &report.missing {
            let held = SignedDuration::from_secs(i64::try_from(*held_secs).unwrap_or(i64::MAX));
            if let Some(hold) = self.holds.get_mut(cluster) {
                hold.counted = hold.counted.max(held);
            }
            reported.held.insert(cluster.clone(), held);
        }
    }

    /// The own partition is known: from now on only this process counts.
    pub(crate) fn own_listed(&mut self) {
        self.forget_reported(|reported| reported.own_is_listed = true);
    }

    /// Notes what is known now; once all is, the report has been taken in.
    fn forget_reported(&mut self, note: impl FnOnce(&mut Reported)) {
        if let Some(reported) = &mut self.reported {
            note(reported);
            if reported.own_is_listed && reported.are_peers_told {
                self.reported = None;
            }
        }
    }

    /// Ends the holds that are to end; says of which clusters.
    pub(crate) fn expire(&mut self, now: Timestamp) -> Vec<ClusterName> {
        let mut over = Vec::new();
        for (name, hold) in &mut self.holds {
            if !hold.is_over && hold.counted(now) >= self.hold {
                hold.pause(now);
                hold.is_over = true;
                self.is_changed = true;
                over.push(name.clone());
            }
        }
        over
    }

    /// When the next hold ends.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        let ends = self.holds.values().filter_map(|hold| {
            let left = self.hold - hold.counted;
            hold.running_since?.checked_add(left).ok()
        });
        ends.min()
    }

    /// How a cluster stands; one that the registry has nothing of is as good as live.
    pub(crate) fn standing(&self, cluster: &ClusterName) -> Standing {
        let Some(peer) = self.peers.get(cluster) else {
            return Standing::Live;
        };
        match peer.session {
            _ if peer.drained => Standing::Drained,
            PeerSession::Live => Standing::Live,
            PeerSession::Blind(since) => Standing::Blind(since),
            PeerSession::Missing if self.holds.get(cluster).is_some_and(|h| h.is_over) => {
                Standing::Over
            }
            PeerSession::Missing => Standing::Stale,
        }
    }

    /// All clusters as they stand, and the seconds that are counted, if any is counting or has
    /// changed since the last call.
    pub(crate) fn news(&mut self, now: Timestamp) -> Option<Vec<(ClusterName, Standing, u64)>> {
        let is_counting = self.holds.values().any(|hold| hold.running_since.is_some());
        if !std::mem::take(&mut self.is_changed) && !is_counting {
            return None;
        }
        let counted = |name| {
            let hold = self.holds.get(name).map(|hold| hold.counted(now));
            let secs = hold.map_or(0, |held| held.min(self.hold).as_secs());
            u64::try_from(secs).unwrap_or(0)
        };
        let names = self.peers.keys();
        let news = names.map(|name| (name.clone(), self.standing(name), counted(name)));
        Some(news.collect())
    }

    /// The clusters that are missing and how much of the hold is counted, for the report.
    pub(crate) fn missing(&self, now: Timestamp, own: &ClusterName) -> Vec<ReportedCluster> {
        let peers = self.holds.iter().filter(|(name, _)| *name != own);
        peers
            .map(|(cluster, hold)| {
                let held = hold.counted(now).min(self.hold).as_secs();
                ReportedCluster {
                    cluster: cluster.clone(),
                    held_secs: u64::try_from(held).unwrap_or(0),
                }
            })
            .collect()
    }

    /// Whether any hold runs.
    pub(crate) fn is_counting(&self, own: &ClusterName) -> bool {
        let mut peers = self.holds.iter().filter(|(name, _)| *name != own);
        peers.any(|(_, hold)| hold.running_since.is_some())
    }
}
