//! An API server that answers as it is told, and says what it was asked.

use std::collections::VecDeque;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use futures::{StreamExt as _, stream};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tombolo_cluster::api::Server;

/// An answer.
pub(crate) enum Answer {
    /// A status code and a body.
    Json(u16, Value),
    /// The lines of a watch, which then ends.
    Lines(Vec<Value>),
    /// The lines of a watch that goes on for ever.
    Open(Vec<Value>),
    /// None at all.
    Never,
}

/// What an API server was asked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Asked {
    pub(crate) call: String,
    pub(crate) body: Value,
}

/// A server that answers call after call, then no more.
#[derive(Clone, Default)]
pub(crate) struct Fake {
    answers: Arc<Mutex<VecDeque<Answer>>>,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Fake {
    pub(crate) fn new(answers: Vec<Answer>) -> Self {
        let fake = Self::default();
        fake.answers.lock().extend(answers);
        fake
    }

    pub(crate) fn server(&self) -> Server {
        let router = Router::new().fallback(answer).with_state(self.clone());
        Server::new(kube::Client::new(router, "default"))
    }

    /// Everything that was asked.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().clone()
    }

    /// Methods and paths of everything that was asked.
    pub(crate) fn calls(&self) -> Vec<String> {
        self.asked().into_iter().map(|asked| asked.call).collect()
    }
}

async fn answer(State(fake): State<Fake>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let bytes = to_bytes(body, usize::MAX).await.unwrap();
    let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    let call = format!("{} {}", parts.method, parts.uri);
    fake.asked.lock().push(Asked { call, body });
    let answer = fake.answers.lock().pop_front().unwrap_or(Answer::Never);
    let lines = |lines: Vec<Value>| {
        lines
            .into_iter()
            .map(|line| Ok::<_, String>(format!("{line}\n")))
    };
    match answer {
        Answer::Json(code, body) => {
            (StatusCode::from_u16(code).unwrap(), body.to_string()).into_response()
        }
        Answer::Lines(all) => Body::from_stream(stream::iter(lines(all))).into_response(),
        Answer::Open(all) => {
            Body::from_stream(stream::iter(lines(all)).chain(stream::pending())).into_response()
        }
        Answer::Never => std::future::pending().await,
    }
}

/// A refusal as an API server words it.
pub(crate) fn refusal(code: u16, reason: &str) -> Answer {
    Answer::Json(
        code,
        json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason,
               "message": format!("it is {reason}")}),
    )
}

/// A Service as an API server shows it.
pub(crate) fn service(name: &str, version: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name, "namespace": "shop", "uid": format!("uid-{name}"),
                     "resourceVersion": version},
        "spec": {"type": "ClusterIP", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"],
                 "ipFamilies": ["IPv4"], "ports": [{"name": "http", "port": 80}]},
    })
}
