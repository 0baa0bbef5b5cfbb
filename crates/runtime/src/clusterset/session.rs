//! The right of a directory's cluster to write the registry: opened once where it is in memory,
//! kept as a controller keeps it where it is an etcd.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::Timestamp;
use tokio::sync::{mpsc, watch};
use tombolo_cluster::api::{Report, Standing};
use tombolo_cluster::store::Store;
use tombolo_model::io::Input;
use tombolo_model::record::Owner;
use tombolo_registry::any::AnyRegistry;
use tombolo_registry::registry::Registry as _;
use tombolo_registry::session::{Claim, NewSession, Opening, TakeOver};

use crate::controller::identity;
use crate::controller::instance::drive;
use crate::controller::session::{Network, Seen, Writer, keep};
use crate::controller::status::Status;
use crate::input::{Refusal, chain};
use crate::shared::Shared;

/// Epochs that wait to be heard of: there is hardly ever one.
const REPORTS_MAX: usize = 8;

/// The registry that a clusterset meets in, and what its clusters do there.
pub(crate) struct Joining {
    pub(crate) shared: Shared,
    /// Whether they write, and may take their names from others then.
    pub(crate) publishes: Option<TakeOver>,
}

/// The session of one cluster.
pub(super) struct Session(Kind);

enum Kind {
    /// It cannot be lost.
    Given(u64),
    /// It may be refused, or lost.
    Kept(Box<Kept>),
    /// There is none.
    None,
}

struct Kept {
    reports: mpsc::Receiver<Report>,
    network: watch::Sender<Network>,
    status: Arc<Status>,
    /// Of a cluster whose process runs, it leads.
    _standing: watch::Sender<Standing>,
}

impl Joining {
    /// Nobody else is there.
    pub(crate) fn alone() -> Self {
        Self {
            shared: Shared::memory(),
            publishes: Some(TakeOver::Refuse),
        }
    }

    /// A cluster's session, and the work that keeps it.
    pub(super) async fn session(
        &self,
        registry: &Arc<AnyRegistry>,
        store: &Store,
        directory: Option<&Path>,
        now: Timestamp,
    ) -> Result<(Session, Vec<BoxFuture<'static, ()>>), Refusal> {
        let Some(take_over) = self.publishes else {
            return Ok((Session(Kind::None), Vec::new()));
        };
        if !self.shared.is_of_others() {
            let opened = registry.open(opening(store, now)).await;
            let epoch = opened.map_err(|error| {
                let cluster = store.cluster();
                let error = chain(&error);
                Refusal::failed(format!(
                    "cluster {cluster} cannot write the registry: {error}"
                ))
            })?;
            return Ok((Session(Kind::Given(epoch)), Vec::new()));
        }
        let (reports, inbox) = mpsc::channel(REPORTS_MAX);
        let (network, network_seen) = watch::channel(network_of(store));
        let (standing, leading) = watch::channel(Standing::Leading);
        let status = Status::new(store.cluster().clone(), now);
        let writer = Writer {
            holder: identity().into(),
            owner: owner(store, directory).into(),
            started: now,
            take_over,
            // Nothing else sees to it that there is one process of it.
            claim: Claim::Vacant,
        };
        let seen = Seen {
            standing: leading,
            network: network_seen,
            reports,
            status: Arc::clone(&status),
        };
        let work = vec![
            keep(Arc::clone(registry), writer, seen).boxed(),
            drive(Arc::clone(registry)).boxed(),
        ];
        let kept = Kept {
            reports: inbox,
            network,
            status,
            _standing: standing,
        };
        Ok((Session(Kind::Kept(Box::new(kept))), work))
    }
}

impl Session {
    /// The epoch that it has from the start.
    pub(super) fn epoch(&self) -> Option<u64> {
        match &self.0 {
            Kind::Given(epoch) => Some(*epoch),
            Kind::Kept(_) | Kind::None => None,
        }
    }

    /// What has become of it.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Vec<Input> {
        let Kind::Kept(kept) = &mut self.0 else {
            return Vec::new();
        };
        let mut inputs = Vec::new();
        while let Poll::Ready(Some(report)) = kept.reports.poll_recv(cx) {
            if let Report::Inputs(told) = report {
                inputs.extend(told);
            }
        }
        inputs
    }

    /// It says what the network is like.
    pub(super) fn network_changed(&self, store: &Store) {
        if let Kind::Kept(kept) = &self.0 {
            kept.network.send_replace(network_of(store));
        }
    }

    /// Why there is none.
    pub(super) fn problem(&self) -> Option<String> {
        match &self.0 {
            Kind::Kept(kept) => kept.status.session_problem(),
            Kind::Given(_) | Kind::None => None,
        }
    }
}

fn network_of(store: &Store) -> Network {
    Network {
        families: store.families().to_vec(),
        cidrs: store.service_cidrs(),
        blind_since: None,
    }
}

/// Who a directory is to clusters elsewhere: two of one name on two machines are two clusters.
fn owner(store: &Store, directory: Option<&Path>) -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let directory = directory.unwrap_or_else(|| Path::new(store.cluster().as_str()));
    let directory = fs::canonicalize(directory).unwrap_or_else(|_| directory.to_owned());
    format!("directory {} of {}", directory.display(), host.trim())
}

/// The session of a cluster that has no other process.
fn opening(store: &Store, now: Timestamp) -> Opening {
    let Network {
        families, cidrs, ..
    } = network_of(store);
    Opening {
        owner: Owner {
            uid: store.cluster().as_str().into(),
        },
        session: NewSession {
            holder: "tombolo".into(),
            started: now,
            software: env!("CARGO_PKG_VERSION").into(),
            families,
            service_cidrs: cidrs,
            blind_since: None,
        },
        claim: Claim::Leader,
        take_over: TakeOver::Refuse,
    }
}
