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
use crate::etcd::raw::{Connection, Listings, Told, Watcher};
use crate::etcd::{ConfigError, EtcdConfig};
use crate::key::KeyRange;

mod mirror;
mod peer;

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
    /// The peer region's etcd.
    pub to: EtcdConfig,
    /// A name for this process that no other has.
    pub holder: Arc<str>,
}

/// How far a replicator is at a peer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// What it does.
    pub phase: Phase,
    /// The revision of the own region's etcd up to which everything is copied.
    pub revision: u64,
    /// Keys written and deleted so far.
    pub written: u64,
    /// Keys at the peer that are not in the own region, and whose cluster has not said that they
    /// were withdrawn.
    pub kept: usize,
    /// Listings so far.
    pub lists: u64,
    /// What failed last, if anything since.
    pub error: Option<Arc<str>>,
}

/// What a replicator does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Another one holds the lock, or an etcd is not reached.
    #[default]
    Waiting,
    /// It compares both.
    Comparing,
    /// It copies what changes.
    Copying,
}

/// The copying of one region to one peer.
#[derive(Debug)]
pub struct Replicator {
    route: Route,
    progress: watch::Sender<Progress>,
}

// === impl Replicator ===

impl Replicator {
    /// Connects when it runs.
    pub fn try_new(route: Route) -> Result<Self, ConfigError> {
        route.from.check()?;
        route.to.check()?;
        let progress = watch::Sender::default();
        Ok(Self { route, progress })
    }

    /// How far it is.
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    /// Copies until it is told to stop; then gives the lock back, and with it the sessions.
    pub async fn run(&self, stop: CancellationToken) {
        Box::pin(self.hold_and_copy(&stop)).await;
    }

    async fn hold_and_copy(&self, stop: &CancellationToken) {
        let source = Connection::of(self.route.from.clone());
        let range = KeyRange::of_prefix(&self.route.from.layout.region_prefix(&self.route.region));
        while !stop.is_cancelled() {
            self.progress
                .send_modify(|progress| progress.phase = Phase::Waiting);
            // Only one who hears the own region may speak for it.
            if let Err(failure) = source.revision(&range).await {
                self.failed(&failure.reason);
                pause(stop).await;
                continue;
            }
            let peer = match Box::pin(Peer::lock(&self.route)).await {
                Ok(peer) => peer,
                Err(LockError::Held) => {
                    pause(stop).await;
                    continue;
                }
                Err(LockError::Failed(failure)) => {
                    self.failed(&failure.reason);
                    pause(stop).await;
                    continue;
                }
            };
            tracing::info!(region = %self.route.region, "replicating to a peer");
            let session = stop.child_token();
            let watcher = Watcher::new(
                source.sibling(),
                range.clone(),
                Listings::Full,
                session.clone(),
            );
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = Box::pin(self.keep(&peer, &source, &range)) => {
                    tracing::warn!(region = %self.route.region, "the replicator's lock is lost");
                }
                () = Box::pin(self.copy(&peer, watcher)) => {}
            }
            session.cancel();
            peer.unlock().await;
        }
    }

    /// Keeps the lock while the own region is heard. Returns when it is lost.
    async fn keep(&self, peer: &Peer, source: &Connection, range: &KeyRange) {
        let mut heard = Instant::now();
        let mut ticks = interval_at(heard + KEEP_ALIVE_INTERVAL, KEEP_ALIVE_INTERVAL);
        loop {
            ticks.tick().await;
            match source.revision(range).await {
                Ok(_) => heard = Instant::now(),
                Err(failure) => self.failed(&failure.reason),
            }
            if heard.elapsed() >= SILENCE_MAX {
                tracing::warn!("the own region is not heard: its sessions at the peer end");
                return;
            }
            match peer.keep_alive().await {
                Ok(true) => {}
                Ok(false) => return,
                Err(failure) => self.failed(&failure.reason),
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
                self.progress.send_modify(|progress| {
                    progress.phase = Phase::Comparing;
                    progress.lists += 1;
                });
                let held = loop {
                    match peer.list().await {
                        Ok(held) => break held,
                        Err(failure) => self.failed(&failure.reason),
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
                true
            }
            Told::ListEnded { revision } => {
                mirror.end(revision);
                if !self.write(peer, mirror).await {
                    return false;
                }
                self.progress
                    .send_modify(|progress| progress.phase = Phase::Copying);
                true
            }
            Told::Progress { revision } => {
                mirror.reached(revision);
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
                        self.failed(&failure.reason);
                        sleep(RETRY).await;
                    }
                }
            }
            self.progress
                .send_modify(|progress| progress.written += ops.len() as u64);
        }
        let (revision, kept) = (mirror.revision(), mirror.kept());
        self.progress.send_if_modified(|progress| {
            let changed = (progress.revision, progress.kept) != (revision, kept);
            (progress.revision, progress.kept) = (revision, kept);
            let failed = progress.error.take().is_some();
            changed || failed
        });
        true
    }

    /// Logged once while it is the same.
    fn failed(&self, reason: &Arc<str>) {
        let news = self.progress.send_if_modified(|progress| {
            let news = progress.error.as_ref() != Some(reason);
            progress.error = Some(Arc::clone(reason));
            news
        });
        if news {
            tracing::warn!(region = %self.route.region, %reason, "replication waits");
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
