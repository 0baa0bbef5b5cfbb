//! `tombolo dns`: the names of the clusterset, answered from the ServiceImports and EndpointSlices
//! of the local API server, whoever made them.
//!
//! ```text
//! watches ─reports─► feed ─► names ─► snapshot ◄─ server ◄─ clients
//!                      └──► status ◄─ admin endpoint
//! ```
//!
//! It answers from the start: SERVFAIL for its zones until both kinds were listed, then with the
//! last state, however long the API server is away.

mod descriptors;
mod feed;
mod metrics;
pub(crate) mod settings;
mod status;

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::registry::Registry;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tombolo_cluster::api::{Server as ApiServer, watch_selected};
use tombolo_dns::{Metrics, Server};
use tombolo_model::object::Kind;
use tracing::info;

use self::feed::Feed;
use self::settings::{DnsArgs, Settings};
use self::status::Status;
use crate::admin::Admin;
use crate::clock;
use crate::controller::{serve, told_to_stop};
use crate::exit::Exit;
use crate::input::{Refusal, chain};
use crate::logging;
use crate::names::Names;
use crate::supervisor::Supervisor;

/// Reports that wait: one page of a list each at most, so a few MiB.
const REPORTS_MAX: usize = 64;
/// Beyond the time that the listeners may take to drain.
const GRACE: Duration = Duration::from_secs(5);

/// What is watched: the slices of imports, and no others.
const WATCHED: [(Kind, &str); 2] = [
    (Kind::ServiceImport, ""),
    (Kind::EndpointSlice, mcs_api::well_known::LABEL_SERVICE_NAME),
];

/// Runs the command.
pub(crate) async fn run(args: DnsArgs) -> Result<Exit, Refusal> {
    let settings = Settings::try_from(&args)?;
    let level = logging::init(&args.admin)?;
    info!(
        version = env!("CARGO_PKG_VERSION"),
        ?settings,
        "tombolo dns"
    );
    let told = told_to_stop()?;
    let server = settings.access.server().await;
    let api = server.map_err(|error| Refusal::failed(chain(&error)))?;

    let names = Names::new(settings.zones.clone(), clock::now());
    let metrics = Arc::new(Metrics::new(&settings.zones, Instant::now()));
    let status = Arc::new(Status::new(names.live(), Arc::clone(&metrics)));
    let mut supervisor = Supervisor::default();
    listen(&settings, &names, &metrics, &mut supervisor)?;
    if let Some(address) = settings.admin {
        let mut registry = Registry::default();
        metrics::register(&mut registry, Arc::clone(&status));
        let admin = Admin {
            parts: vec![Arc::clone(&status) as _],
            metrics: registry,
            level,
        };
        serve(address, admin, &mut supervisor).await?;
    }
    observe(&api, names, &status, &mut supervisor);

    let lame_duck = settings.lame_duck;
    let grace = settings.limits.drain_max + GRACE;
    let told = async move {
        told.await;
        // Whoever balances load hears of it while queries are still answered.
        status.drain();
        info!(?lame_duck, "not ready any more");
        sleep(lame_duck).await;
    };
    let ended = supervisor.run(told, grace).await;
    ended.map_err(|error| Refusal::failed(chain(&error)))?;
    Ok(Exit::Well)
}

/// Opens the sockets and answers on them.
fn listen(
    settings: &Settings,
    names: &Names,
    metrics: &Arc<Metrics>,
    supervisor: &mut Supervisor,
) -> Result<(), Refusal> {
    descriptors::take_all(&settings.limits, settings.listen.len());
    let limits = settings.limits.clone();
    let server = Server::bind(&settings.listen, limits, names.live(), Arc::clone(metrics));
    let server = server.map_err(|error| Refusal::failed(format!("--listen: {}", chain(&error))))?;
    let server = match settings.forwarder() {
        Some(forwarder) => server.with_forwarder(forwarder),
        None => server,
    };
    for address in server.local_addresses() {
        info!(%address, "answering DNS");
    }
    for (name, task) in server.tasks(&supervisor.stop()) {
        supervisor.spawn(name, task);
    }
    Ok(())
}

/// Watches the API server.
fn observe(api: &ApiServer, names: Names, status: &Arc<Status>, supervisor: &mut Supervisor) {
    let (sender, reports) = mpsc::channel(REPORTS_MAX);
    for (kind, selector) in WATCHED {
        let (api, sender) = (api.clone(), sender.clone());
        let task = async move { watch_selected(api, kind, selector, sender).await };
        supervisor.spawn_endless(format!("watch {}", kind.as_str()), task);
    }
    let feed = Feed {
        reports,
        names,
        status: Arc::clone(status),
    };
    supervisor.spawn_endless("feed", feed.run());
}
