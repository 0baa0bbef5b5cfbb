//! The replicator: copies the subtree of its own region, key for key, into the etcd of a peer
//! region (DESIGN §2.2, Regions).
//!
//! ```text
//! own region's etcd ─Watcher─► Mirror (what is to be done) ─transactions─► peer's etcd
//!                                                          compare the lock's lease
//! ```
//!
//! Each peer has a task and connections of its own, so that a slow or dead one delays no other.
//! One replicator at a time holds the lock at a peer; others wait. Its lease also holds the
//! sessions that it copied, and it gives signs of life only while it hears its own region: so a
//! region that is cut off is, at the peer, like clusters that are cut off.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, interval_at, sleep};
use tokio_util::sync::CancellationToken;
use tombolo_model::names::Region;

use self::mirror::Mirror;
use self::peer::{LockError, Peer};
use self::progress::Side;
use crate::etcd::raw::{Connection, Listings, Told, Watcher};
use crate::etcd::{ConfigError, Counts, EtcdConfig};
use crate::key::KeyRange;

mod mirror;
mod peer;
mod progress;

pub use self::progress::{Phase, Progress};

/// Between signs of life at the peer: two may be lost.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// How long the own region may be silent before its sessions are left to lapse at the peer.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Between attempts to take the lock, or to reach an etcd.
const RETRY: Duration = Duration::from_secs(1);

/// How many changes are taken together: a few transactions.
const TAKEN_MAX: usize = 1_024;

/// What a replicator copies from, to and as whom.
#[derive(Clone, Debug)]
pub struct Route {
    /// The region whose subtree is copied.
    pub region: Region,
    /// Its own etcd.
    pub from: EtcdConfig,
    /// The peer region.
    pub peer: Region,
    /// Its etcd.
    pub to: EtcdConfig,
    /// A name for this process that no other has.
    pub holder: Arc<str>,
}

/// The copying of one region to one peer.
#[derive(Debug)]
pub struct Replicator {
    route: Route,
    source: Connection,
    progress: watch::Sender<Progress>,
}

// === impl Replicator ===

impl Replicator {
    /// Connects when it runs.
    pub fn try_new(route: Route) -> Result<Self, ConfigError> {
        route.from.check()?;
        route.to.check()?;
        Ok(Self {
            source: Connection::of(route.from.clone()),
            progress: watch::Sender::default(),
            route,
        })
    }

    /// How far it is.
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    /// What happened so far at the own region's etcd: listings by their cause, watches.
    pub fn source_counts(&self) -> Counts {
        self.source.counts()
    }

    /// Copies until it is told to stop; then gives the lock back, and with it the sessions.
    pub async fn run(&self, stop: CancellationToken) {
        self.enter(Phase::Waiting);
        let range = KeyRange::of_prefix(&self.route.from.layout.region_prefix(&self.route.region));
        while !stop.is_cancelled() {
            match Box::pin(self.lock(&range)).await {
                Some(peer) => Box::pin(self.hold_and_copy(peer, &range, &stop)).await,
                None => pause(&stop).await,
            }
        }
    }

    /// Takes the lock, if it can be had.
    async fn lock(&self, range: &KeyRange) -> Option<Peer> {
        self.source.reload();
        // Only one who hears the own region may speak for it.
        match self.source.revision(range).await {
            Ok(revision) => self.heard(revision),
            Err(failure) => {
                self.enter(Phase::Waiting);
                self.failed(Side::Source, &failure.reason);
                return None;
            }
        }
        match Box::pin(Peer::lock(&self.route)).await {
            Ok(peer) => Some(peer),
            Err(LockError::Held) => {
                self.enter(Phase::Standby);
                None
            }
            Err(LockError::Failed(failure)) => {
                self.enter(Phase::Waiting);
                self.failed(Side::Peer, &failure.reason);
                None
            }
        }
    }

    async fn hold_and_copy(&self, peer: Peer, range: &KeyRange, stop: &CancellationToken) {
        let Route {
            region, peer: to, ..
        } = &self.route;
        self.enter(Phase::Comparing);
        let session = stop.child_token();
        let watcher = Watcher::new(
            self.source.sibling(),
            range.clone(),
            Listings::Full,
            session.clone(),
        );
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = Box::pin(self.keep(&peer, range)) => {
                tracing::warn!(%region, peer = %to, "the replicator's lock is lost");
            }
            () = Box::pin(self.copy(&peer, watcher)) => {}
        }
        session.cancel();
        peer.unlock().await;
        self.enter(Phase::Waiting);
    }

    /// Keeps the lock while the own region is heard. Returns when it is lost.
    async fn keep(&self, peer: &Peer, range: &KeyRange) {
        let mut heard = Instant::now();
        let mut ticks = interval_at(heard + KEEP_ALIVE_INTERVAL, KEEP_ALIVE_INTERVAL);
        loop {
            ticks.tick().await;
            self.source.reload();
            peer.reload();
            match self.source.revision(range).await {
                Ok(revision) => {
                    heard = Instant::now();
                    self.heard(revision);
                }
                Err(failure) => {
                    self.progress.send_modify(|progress| {
                        progress.unheard_since = Some(heard);
                    });
                    self.failed(Side::Source, &failure.reason);
                }
            }
            if heard.elapsed() >= SILENCE_MAX {
                let Route { region, peer, .. } = &self.route;
                tracing::warn!(
                    %region, %peer,
                    "the own region is not heard: its sessions at the peer end"
                );
                return;
            }
            match peer.keep_alive().await {
                Ok(true) => {}
                Ok(false) => return,
                Err(failure) => self.failed(Side::Peer, &failure.reason),
            }
        }
    }

    /// Copies until the lock is lost.
    async fn copy(&self, peer: &Peer, mut watcher: Watcher) {
        let mut mirror = Mirror::new(self.route.from.layout.clone(), self.route.region.clone());
        while let Some(told) = watcher.next().await {
            let mut taken = vec![told];
            while taken.len() < TAKEN_MAX
                && let Some(Some(told)) = futures::FutureExt::now_or_never(watcher.next())
            {
                taken.push(told);
            }
            for told in taken {
                if !self.take(peer, &mut mirror, told).await {
                    return;
                }
            }
            if !self.write(peer, &mut mirror).await {
                return;
            }
        }
    }

    /// Learns one thing. Returns whether the lock is still held.
    async fn take(&self, peer: &Peer, mirror: &mut Mirror, told: Told) -> bool {
        match told {
            Told::ListBegan(cause) => {
                self.enter(Phase::Comparing);
                let held = loop {
                    match peer.list().await {
                        Ok(held) => break held,
                        Err(failure) => self.failed(Side::Peer, &failure.reason),
                    }
                    sleep(RETRY).await;
                };
                mirror.begin(cause, held);
                true
            }
            Told::Key {
                key,
                value,
                revision,
            } => {
                mirror.learn(key, value, revision);
                // Nobody is woken for it.
                self.progress.send_if_modified(|progress| {
                    progress.is_behind(Instant::now());
                    false
                });
                true
            }
            Told::ListEnded { revision } => {
                mirror.end(revision);
                if !self.write(peer, mirror).await {
                    return false;
                }
                self.enter(Phase::Copying);
                let Route { region, peer, .. } = &self.route;
                tracing::info!(%region, %peer, revision, "the peer has everything: copying changes");
                true
            }
            Told::Progress { revision } => {
                mirror.reached(revision);
                true
            }
            Told::Believed => {
                mirror.believe();
                true
            }
            // Signs of life follow what is heard, not what is tried.
            Told::Heard(_) => true,
        }
    }

    /// Writes what is to be done, for as long as it takes. Returns whether the lock is still held.
    async fn write(&self, peer: &Peer, mirror: &mut Mirror) -> bool {
        for ops in mirror.take() {
            loop {
                match peer.write(&ops).await {
                    Ok(true) => break,
                    Ok(false) => return false,
                    Err(failure) => {
                        self.failed(Side::Peer, &failure.reason);
                        sleep(RETRY).await;
                    }
                }
            }
            let put = ops.iter().filter(|op| op.value.is_some()).count();
            self.progress.send_modify(|progress| {
                progress.put += put as u64;
                progress.deleted += (ops.len() - put) as u64;
            });
        }
        let (revision, kept) = (mirror.revision(), mirror.kept());
        self.progress.send_modify(|progress| {
            (progress.revision, progress.kept) = (revision, kept);
            progress.source_revision = progress.source_revision.max(revision);
            progress.error = None;
            if progress.phase == Phase::Copying {
                progress.behind_since = None;
            }
        });
        true
    }

    fn heard(&self, revision: u64) {
        self.progress.send_modify(|progress| {
            progress.source_revision = revision;
            progress.unheard_since = None;
        });
    }

    fn enter(&self, phase: Phase) {
        let now = Instant::now();
        self.progress
            .send_modify(|progress| progress.enter(phase, now));
    }

    /// Logged once while it is the same.
    fn failed(&self, side: Side, reason: &Arc<str>) {
        let mut news = false;
        self.progress
            .send_modify(|progress| news = progress.failed(side, reason));
        if news {
            let Route { region, peer, .. } = &self.route;
            tracing::warn!(%region, %peer, %reason, "replication waits");
        }
    }
}

async fn pause(stop: &CancellationToken) {
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        () = sleep(RETRY) => {}
    }
}
