//! The admin endpoint: /healthz, /readyz, /metrics and /debug/state.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use jiff::Timestamp;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serde_json::Value;
use tokio::net::TcpListener;
use tracing::error;

use crate::clock;

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
}

/// Binds the endpoint's address.
///
/// # Errors
/// When the address cannot be bound.
pub(crate) async fn bind(address: SocketAddr) -> Result<TcpListener, std::io::Error> {
    TcpListener::bind(address).await
}

/// Serves until it is dropped.
pub(crate) async fn serve(listener: TcpListener, admin: Admin) {
    if let Err(error) = axum::serve(listener, router(admin)).await {
        error!(%error, "admin endpoint ended");
    }
}

fn router(admin: Admin) -> Router {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/debug/state", get(state))
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

async fn metrics(State(admin): State<Arc<Admin>>) -> Response {
    let mut text = String::new();
    match encode(&mut text, &admin.metrics) {
        Ok(()) => ([(header::CONTENT_TYPE, METRICS_TYPE)], text).into_response(),
        Err(error) => {
            error!(%error, "metrics cannot be written");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

async fn state(State(admin): State<Arc<Admin>>) -> Json<Vec<Value>> {
    Json(admin.parts.iter().map(|part| part.state()).collect())
}
