//! One call to the API server: a deadline on each, and errors that say what may be concluded.

use std::sync::Arc;
use std::time::Duration;

use futures::AsyncBufRead;
use http::{Method, Request};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use kube::core::Status;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::resource::Versions;

/// Longer than an API server works on one request before it gives up by itself (60 s by default,
/// mostly milliseconds): past it the connection is dead.
pub(super) const CALL_DEADLINE: Duration = Duration::from_secs(30);

/// JSON, as most bodies are.
pub(super) const JSON: &str = "application/json";

/// An API server.
#[derive(Clone)]
pub struct Server {
    client: Client,
    versions: Arc<Versions>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}

/// Why a call brought no result.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// It was answered with an error.
    #[error("the API server refused it: {}", describe(.0))]
    Refused(Box<Status>),
    /// There was no answer in time: it may have been done.
    #[error("the API server did not answer within {} s", .0.as_secs())]
    Deadline(Duration),
    /// It could not be sent, or its answer was lost.
    #[error("cannot reach the API server")]
    Transport {
        /// Why.
        source: Box<kube::Error>,
    },
    /// The answer is not what the API promises.
    #[error("cannot read the API server's answer")]
    Answer {
        /// Why.
        source: serde_json::Error,
    },
    /// The request is not even well formed.
    #[error("cannot form the request")]
    Request {
        /// Why.
        source: http::Error,
    },
}

/// A refusal in words: the message mostly says it all.
fn describe(status: &Status) -> String {
    match (status.message.is_empty(), status.reason.is_empty()) {
        (false, _) => status.message.clone(),
        (true, false) => status.reason.clone(),
        (true, true) => format!("status {}", status.code),
    }
}

impl CallError {
    /// A word for metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Refused(status) => match status.code {
                401 => "unauthorized",
                403 => "forbidden",
                404 => "not-found",
                409 => "conflict",
                410 => "gone",
                422 => "invalid",
                429 => "too-many-requests",
                500.. => "server-error",
                _ => "refused",
            },
            Self::Deadline(_) => "deadline",
            Self::Transport { .. } => "transport",
            Self::Answer { .. } => "answer",
            Self::Request { .. } => "request",
        }
    }

    /// Whether the same call may succeed later, with nothing else changed.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Refused(status) => matches!(status.code, 401 | 403 | 429 | 500..),
            Self::Deadline(_) | Self::Transport { .. } | Self::Answer { .. } => true,
            Self::Request { .. } => false,
        }
    }

    /// The status code, if it was answered.
    pub(super) fn code(&self) -> Option<u16> {
        match self {
            Self::Refused(status) => Some(status.code),
            Self::Deadline(_)
            | Self::Transport { .. }
            | Self::Answer { .. }
            | Self::Request { .. } => None,
        }
    }
}

impl From<kube::Error> for CallError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::Refused(status),
            source => Self::Transport {
                source: Box::new(source),
            },
        }
    }
}

/// What is sent.
pub(super) struct Call<'a> {
    pub(super) method: Method,
    pub(super) path: &'a str,
    pub(super) content_type: &'static str,
    pub(super) body: Vec<u8>,
}

impl<'a> Call<'a> {
    pub(super) const fn get(path: &'a str) -> Self {
        Self {
            method: Method::GET,
            path,
            content_type: JSON,
            body: Vec::new(),
        }
    }

    pub(super) fn with_body(method: Method, path: &'a str, body: &serde_json::Value) -> Self {
        Self {
            method,
            path,
            content_type: JSON,
            body: body.to_string().into_bytes(),
        }
    }

    fn request(self) -> Result<Request<Vec<u8>>, CallError> {
        Request::builder()
            .method(self.method)
            .uri(self.path)
            .header(http::header::CONTENT_TYPE, self.content_type)
            .header(http::header::ACCEPT, JSON)
            .body(self.body)
            .map_err(|source| CallError::Request { source })
    }
}

impl Server {
    /// The server behind a client, which must not retry by itself.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            versions: Arc::default(),
        }
    }

    /// Which versions of the Multi-Cluster Services API it serves, as far as known.
    pub(super) fn versions(&self) -> &Versions {
        &self.versions
    }

    /// The body of a successful answer.
    pub(super) async fn call(&self, call: Call<'_>) -> Result<Vec<u8>, CallError> {
        self.call_within(call, CALL_DEADLINE).await
    }

    /// The same with a deadline of the caller's.
    pub(super) async fn call_within(
        &self,
        call: Call<'_>,
        deadline: Duration,
    ) -> Result<Vec<u8>, CallError> {
        let request = call.request()?.map(Body::from);
        let answered = async {
            let response = self.client.send(request).await?;
            let code = response.status();
            let body = response.into_body().collect().await?.to_bytes();
            Ok::<_, kube::Error>((code, body))
        };
        let (code, body) = timeout(deadline, answered)
            .await
            .map_err(|_| CallError::Deadline(deadline))??;
        if code.is_success() {
            return Ok(body.to_vec());
        }
        let mut status: Status = serde_json::from_slice(&body).unwrap_or_else(|_| {
            // Not from the API server itself: a proxy, or its load balancer.
            let text: String = String::from_utf8_lossy(&body).chars().take(200).collect();
            Status::failure(&text, code.canonical_reason().unwrap_or_default())
        });
        status.code = code.as_u16();
        Err(CallError::Refused(Box::new(status)))
    }

    /// The same, read.
    pub(super) async fn read<T: DeserializeOwned>(&self, call: Call<'_>) -> Result<T, CallError> {
        let body = self.call(call).await?;
        serde_json::from_slice(&body).map_err(|source| CallError::Answer { source })
    }

    /// Opens a stream: the deadline is for its beginning.
    pub(super) async fn stream(&self, path: &str) -> Result<impl AsyncBufRead + use<>, CallError> {
        let request = Call::get(path).request()?;
        timeout(CALL_DEADLINE, self.client.request_stream(request))
            .await
            .map_err(|_| CallError::Deadline(CALL_DEADLINE))?
            .map_err(CallError::from)
    }
}
