//! The admin endpoint: /healthz, /readyz, /metrics and /debug/state.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tracing::error;

use crate::clock;
use crate::controller::status::{Status, StatusView};

const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What is told.
pub(crate) struct Admin {
    pub(crate) clusters: Vec<Arc<Status>>,
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
    let ill = admin.clusters.iter().filter_map(|c| c.health(now).err());
    answer(&ill.collect::<Vec<_>>())
}

async fn readyz(State(admin): State<Arc<Admin>>) -> Response {
    let missing = admin.clusters.iter().flat_map(|status| {
        let cluster = status.cluster.clone();
        let missing = status.not_ready().into_iter();
        missing.map(move |what| format!("cluster {cluster}: {what}"))
    });
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

async fn state(State(admin): State<Arc<Admin>>) -> Json<Vec<StatusView>> {
    Json(admin.clusters.iter().map(|status| status.view()).collect())
}
