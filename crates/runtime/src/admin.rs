//! The admin endpoint: /healthz, /readyz, /metrics, /debug/state and /log-level.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::extract::{ConnectInfo, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use jiff::Timestamp;
use prometheus_client::registry::Registry;
use serde_json::Value;
use tokio::net::TcpListener;
use tracing::{error, info};

use crate::clock;
use crate::logging::Level;
use crate::metrics;

const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A part of the process that there is something to tell of.
pub(crate) trait Told: Send + Sync {
    /// Whether it hangs.
    fn health(&self, now: Timestamp) -> Result<(), String>;
    /// What is missing until it is ready, in whole sentences.
    fn not_ready(&self) -> Vec<String>;
    /// Its state.
    fn state(&self) -> Value;
}

/// What is told.
pub(crate) struct Admin {
    pub(crate) parts: Vec<Arc<dyn Told>>,
    pub(crate) metrics: Registry,
    pub(crate) level: Level,
}

/// Binds the endpoint's address. `[::]` takes IPv4 too, and takes it alone on a host without IPv6,
/// so that one manifest is for clusters of every family.
///
/// # Errors
/// When the address cannot be bound.
pub(crate) async fn bind(address: SocketAddr) -> Result<TcpListener, std::io::Error> {
    match TcpListener::bind(address).await {
        Err(_no_ipv6) if address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
        }
        bound => bound,
    }
}

/// Serves until it is dropped.
pub(crate) async fn serve(listener: TcpListener, admin: Admin) {
    let service = router(admin).into_make_service_with_connect_info::<SocketAddr>();
    if let Err(error) = axum::serve(listener, service).await {
        error!(%error, "admin endpoint ended");
    }
}

fn router(admin: Admin) -> Router {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(exposition))
        .route("/debug/state", get(state))
        .route("/log-level", get(level).put(set_level))
        .with_state(Arc::new(admin))
}

async fn healthz(State(admin): State<Arc<Admin>>) -> Response {
    let now = clock::now();
    let ill = admin.parts.iter().filter_map(|part| part.health(now).err());
    answer(&ill.collect::<Vec<_>>())
}

async fn readyz(State(admin): State<Arc<Admin>>) -> Response {
    let missing = admin.parts.iter().flat_map(|part| part.not_ready());
    answer(&missing.collect::<Vec<_>>())
}

fn answer(problems: &[String]) -> Response {
    if problems.is_empty() {
        return "ok\n".into_response();
    }
    let text = problems.join("\n") + "\n";
    (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
}

async fn exposition(State(admin): State<Arc<Admin>>) -> Response {
    match metrics::text(&admin.metrics) {
        Ok(text) => ([(header::CONTENT_TYPE, METRICS_TYPE)], text).into_response(),
        Err(error) => {
            error!(%error, "metrics cannot be written");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

async fn level(State(admin): State<Arc<Admin>>) -> String {
    admin.level.get() + "\n"
}

/// Changes what is logged. Whoever may read metrics may not do that: only this machine, or who is
/// let through to it (`kubectl port-forward`).
async fn set_level(
    State(admin): State<Arc<Admin>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    text: String,
) -> Response {
    if !peer.ip().to_canonical().is_loopback() {
        let text = "only from this machine: kubectl port-forward, or exec\n";
        return (StatusCode::FORBIDDEN, text).into_response();
    }
    let text = text.trim();
    match admin.level.set(text) {
        Ok(()) => {
            info!(level = text, "log level changed");
            format!("{text}\n").into_response()
        }
        Err(error) => (StatusCode::BAD_REQUEST, format!("{text}: {error}\n")).into_response(),
    }
}

async fn state(State(admin): State<Arc<Admin>>) -> Json<Vec<Value>> {
    Json(admin.parts.iter().map(|part| part.state()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admin() -> State<Arc<Admin>> {
        State(Arc::new(Admin {
            parts: Vec::new(),
            metrics: Registry::default(),
            level: Level::of_nothing("info"),
        }))
    }

    async fn set(admin: &State<Arc<Admin>>, peer: &str, text: &str) -> StatusCode {
        let peer = ConnectInfo(peer.parse().unwrap());
        set_level(admin.clone(), peer, text.to_owned())
            .await
            .status()
    }

    #[tokio::test]
    async fn the_log_level_is_changed_from_this_machine_only() {
        let admin = admin();
        let levels = async || level(admin.clone()).await;
        assert_eq!(
            set(&admin, "192.0.2.1:7", "debug").await,
            StatusCode::FORBIDDEN
        );
        assert_eq!(levels().await, "info\n");
        for peer in ["127.0.0.1:7", "[::1]:7", "[::ffff:127.0.0.1]:7"] {
            assert_eq!(set(&admin, peer, "debug,h2=off\n").await, StatusCode::OK);
        }
        assert_eq!(levels().await, "debug,h2=off\n");
        assert_eq!(
            set(&admin, "127.0.0.1:7", "a=b=c").await,
            StatusCode::BAD_REQUEST
        );
        assert_eq!(levels().await, "debug,h2=off\n");
    }
}
