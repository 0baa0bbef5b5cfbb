//! The command `tombolo controller`.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::registry::Registry as Metrics;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;
use tombolo_cluster::api::{BootClock, Clock as _, IdentityError, LeaseConfig, Server, identify};
use tombolo_model::names::ClusterName;
use tombolo_registry::registry::Registry as _;
use tombolo_registry::session::TakeOver;
use tracing::{info, warn};

use super::hub::{self, Refusals};
use super::instance::{self, Instance};
use super::settings::{ControllerArgs, Settings};
use crate::admin::{self, Admin};
use crate::exit::Exit;
use crate::input::{Refusal, chain};
use crate::logging;
use crate::registry::metrics as registry_metrics;
use crate::shared::Shared;
use crate::supervisor::Supervisor;

/// How long tasks have to end: longer than the deadline of a call, so that none is cut off.
const GRACE: Duration = Duration::from_secs(40);
/// Between attempts to learn the cluster's name.
const RETRY: Duration = Duration::from_secs(2);

/// Runs the command.
pub(crate) async fn run(args: ControllerArgs) -> Result<Exit, Refusal> {
    let settings = Settings::try_from(&args)?;
    let level = logging::init(&args.admin)?;
    info!(
        version = env!("CARGO_PKG_VERSION"),
        ?settings,
        "tombolo controller"
    );
    let told = told_to_stop()?;
    let mut told = std::pin::pin!(told);
    let server = settings.access.server().await;
    let server = server.map_err(|error| Refusal::failed(chain(&error)))?;
    let cluster = if let Some(cluster) = settings.cluster.clone() {
        cluster
    } else {
        tokio::select! {
            biased;
            () = &mut told => return Ok(Exit::Well),
            named = name_of(&server) => named?,
        }
    };
    let registry = Shared::of(&args.registry)?.registry(cluster.clone())?;
    let registry = Arc::new(registry);
    let identity = identity();
    let lease = LeaseConfig::new(
        &args.lease.lease_namespace,
        &args.lease.lease_name,
        &identity,
    );
    let (keeper, fence) = instance::lease(&server, lease);
    let mut supervisor = Supervisor::default();
    let mut metrics = Metrics::default();
    let instance = Instance {
        config: settings.config(cluster.clone()),
        exports: settings.resources.exports.clone(),
        imports: settings.resources.imports.clone(),
        registry: Arc::clone(&registry),
        server,
        keeper,
        fence,
        identity,
        publishes: Some(take_over(args.take_over)),
    };
    registry_metrics::register(&mut metrics, &registry);
    let running = instance::start(instance, &mut supervisor, &mut metrics);
    let refusals = Refusals::register(&mut metrics);
    let hub = hub::run(registry.subscribe(), vec![running.listener], refusals);
    supervisor.spawn_endless("registry events", hub);
    if let Some(address) = settings.admin {
        let admin = Admin {
            parts: vec![running.status],
            metrics,
            level,
        };
        serve(address, admin, &mut supervisor).await?;
    }
    let ended = supervisor.run(told, GRACE).await;
    ended.map_err(|error| Refusal::failed(chain(&error)))?;
    Ok(Exit::Well)
}

/// What `--take-over` says.
pub(crate) fn take_over(is_given: bool) -> TakeOver {
    if is_given {
        TakeOver::Allow
    } else {
        TakeOver::Refuse
    }
}

/// Starts the admin endpoint.
pub(crate) async fn serve(
    address: std::net::SocketAddr,
    admin: Admin,
    supervisor: &mut Supervisor,
) -> Result<(), Refusal> {
    let listener = admin::bind(address)
        .await
        .map_err(|error| Refusal::failed(format!("--admin {address}: {error}")))?;
    let address = listener.local_addr();
    info!(?address, "admin endpoint");
    supervisor.spawn_endless("admin", admin::serve(listener, admin));
    Ok(())
}

/// The cluster's name by its ClusterProperty; a server that is away is waited for.
async fn name_of(server: &Server) -> Result<ClusterName, Refusal> {
    loop {
        match identify(server).await {
            Ok(name) => return Ok(name),
            Err(error @ (IdentityError::Missing | IdentityError::Name { .. })) => {
                return Err(Refusal::failed(chain(&error)));
            }
            Err(error @ IdentityError::Call { .. }) => {
                warn!(
                    error = &error as &dyn std::error::Error,
                    "the cluster's name is not known yet"
                );
                sleep(RETRY).await;
            }
        }
    }
}

/// A name for this process that no other has: the machine's, its process id and when it began.
pub(crate) fn identity() -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let (host, pid) = (host.trim(), std::process::id());
    format!("{host}_{pid}_{:x}", BootClock.since_boot().as_nanos())
}

/// Completes when the process is told to stop.
pub(crate) fn told_to_stop() -> Result<impl Future<Output = ()>, Refusal> {
    let listen = |kind| signal(kind).map_err(|error| Refusal::failed(chain(&error)));
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut terminate = listen(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}
