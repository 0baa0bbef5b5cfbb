//! One cluster of this process: its watches, its lease, its shell and its session, as tasks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::registry::Registry as Metrics;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;
use tombolo_cluster::api::{
    BootClock, Clock, Fence, LeaseConfig, LeaseKeeper, Report, Resource, Server, Writer,
    mirror_imports, recorder, system_uid, watch, watch_exports, watch_network,
};
use tombolo_cluster::store::KINDS;
use tombolo_model::config::Config;
use tombolo_model::engine::Engine;
use tombolo_model::names::ClusterName;
use tombolo_model::object::Kind;
use tombolo_model::record::Origin;
use tombolo_registry::registry::Registry;
use tombolo_registry::session::{Claim, SessionEnd, TakeOver};
use tracing::warn;

use super::hub::Listener;
use super::session::{self, Network, Seen};
use super::shell::{REPORTS_MAX, Shell};
use super::status::Status;
use crate::clock::{self, Steady};
use crate::metrics::{self, ActionMetrics};
use crate::supervisor::Supervisor;

/// Between attempts to learn who the cluster is.
const RETRY: Duration = Duration::from_secs(2);

/// A cluster that is about to run.
pub(crate) struct Instance<R> {
    pub(crate) server: Server,
    pub(crate) config: Config,
    /// Other resources that are read as ServiceExports.
    pub(crate) exports: Vec<Resource>,
    /// Other resources that imports are written as.
    pub(crate) imports: Vec<Resource>,
    pub(crate) registry: Arc<R>,
    pub(crate) keeper: LeaseKeeper,
    pub(crate) fence: Arc<Fence>,
    /// Who this process is.
    pub(crate) identity: String,
    /// Whether it writes the registry, and may take its name from another cluster then.
    pub(crate) publishes: Option<TakeOver>,
}

/// What others of the process need of it.
pub(crate) struct Running {
    pub(crate) status: Arc<Status>,
    pub(crate) listener: Listener,
}

/// A lease keeper and the fence that it holds up.
pub(crate) fn lease(server: &Server, config: LeaseConfig) -> (LeaseKeeper, Arc<Fence>) {
    let clock: Arc<dyn Clock> = Arc::new(BootClock);
    let fence = Arc::new(Fence::new(Arc::clone(&clock)));
    let keeper = LeaseKeeper::new(server.clone(), config, clock, Arc::clone(&fence));
    (keeper, fence)
}

/// Starts all tasks of a cluster.
pub(crate) fn start<R: Registry + 'static>(
    instance: Instance<R>,
    supervisor: &mut Supervisor,
    metrics: &mut Metrics,
) -> Running {
    let Instance {
        server,
        config,
        exports,
        imports,
        registry,
        keeper,
        fence,
        identity,
        publishes,
    } = instance;
    let name = config.cluster.clone();
    let origin: Origin = registry.origin().clone();
    let status = Status::new(name.clone(), clock::now());
    let (reports, inbox) = mpsc::channel::<Report>(REPORTS_MAX);
    start_watches(&server, &name, &exports, &reports, supervisor);
    start_copies(&server, &name, imports, &fence, supervisor);
    let clock: Arc<dyn Clock> = Arc::new(BootClock);
    let (events, recorder) = recorder(server.clone(), Arc::clone(&fence), clock, &identity);
    supervisor.spawn_endless(format!("{name}: events"), recorder.run());
    let actions = ActionMetrics::default();
    metrics::register(metrics, &status, &actions, events.dropped());
    let (network, network_seen) = watch::channel(Network::default());
    let standing = keeper.standing();
    if let Some(take_over) = publishes {
        let seen = Seen {
            standing: standing.clone(),
            network: network_seen,
            reports: reports.clone(),
            status: Arc::clone(&status),
        };
        let task = keep_session(
            Arc::clone(&registry),
            server.clone(),
            (identity.into(), take_over),
            seen,
        );
        supervisor.spawn_endless(format!("{name}: session"), task);
        supervisor.spawn_endless(format!("{name}: registry"), drive(Arc::clone(&registry)));
    } else {
        status.reads_only();
    }
    let shell = Shell {
        engine: Engine::new(config),
        clock: Steady::new(clock::now()),
        unseen: BTreeMap::new(),
        writer: Writer::new(server, fence),
        events,
        registry: Arc::clone(&registry),
        reports: inbox,
        standing,
        network,
        status: Arc::clone(&status),
        metrics: actions,
    };
    let stop = supervisor.stop();
    supervisor.spawn(
        format!("{name}: shell"),
        lead(shell, keeper, registry, stop),
    );
    Running {
        listener: Listener {
            origin,
            reports,
            status: Arc::clone(&status),
        },
        status,
    }
}

/// Starts what writes the imports as other resources too.
fn start_copies(
    server: &Server,
    name: &ClusterName,
    imports: Vec<Resource>,
    fence: &Arc<Fence>,
    supervisor: &mut Supervisor,
) {
    for resource in imports {
        let task_name = format!("{name}: copies as {resource}");
        let task = mirror_imports(server.clone(), resource, Arc::clone(fence));
        supervisor.spawn_endless(task_name, task);
    }
}

/// The registry's own work.
pub(crate) async fn drive<R: Registry>(registry: Arc<R>) {
    if let Err(error) = registry.drive().await {
        let error: &dyn std::error::Error = &error;
        warn!(error, "the registry has ended");
    }
}

/// Starts everything that reports of the cluster.
fn start_watches(
    server: &Server,
    name: &ClusterName,
    exports: &[Resource],
    reports: &mpsc::Sender<Report>,
    supervisor: &mut Supervisor,
) {
    for kind in KINDS {
        let task_name = format!("{name}: watch {}", kind.as_str());
        let (server, reports) = (server.clone(), reports.clone());
        if kind == Kind::ServiceExport {
            let task = watch_exports(server, exports.to_vec(), reports);
            supervisor.spawn_endless(task_name, task);
        } else {
            supervisor.spawn_endless(task_name, watch(server, kind, reports));
        }
    }
    let task = watch_network(server.clone(), reports.clone());
    supervisor.spawn_endless(format!("{name}: network"), task);
}

/// Runs the shell and keeps the lease; at the end the lease is given back after the last write.
async fn lead<R: Registry + 'static>(
    shell: Shell<R>,
    mut keeper: LeaseKeeper,
    registry: Arc<R>,
    stop: tokio_util::sync::CancellationToken,
) {
    {
        let shell = std::pin::pin!(shell.run(stop));
        let keep = std::pin::pin!(keeper.keep());
        futures::future::select(shell, keep).await;
    }
    // The successor replaces the session unnoticed.
    if let Err(error) = registry.close(SessionEnd::Lapse).await {
        warn!(
            error = &error as &dyn std::error::Error,
            "registry not closed"
        );
    }
    keeper.release().await;
}

async fn keep_session<R: Registry>(
    registry: Arc<R>,
    server: Server,
    (holder, take_over): (Arc<str>, TakeOver),
    seen: Seen,
) {
    let owner = loop {
        match system_uid(&server).await {
            Ok(uid) => break uid,
            Err(error) => {
                warn!(
                    error = &error as &dyn std::error::Error,
                    "cannot read namespace kube-system"
                );
                sleep(RETRY).await;
            }
        }
    };
    let writer = session::Writer {
        holder,
        owner,
        started: clock::now(),
        take_over,
        claim: Claim::Leader,
    };
    session::keep(registry, writer, seen).await;
}
