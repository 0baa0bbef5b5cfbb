//! What a failed call means: the border at which the client's errors end.

use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::Error as ClientError;

use crate::error::Error;

/// gRPC status codes that decide something.
const NOT_FOUND: i32 = 5;
const PERMISSION_DENIED: i32 = 7;
const RESOURCE_EXHAUSTED: i32 = 8;
const OUT_OF_RANGE: i32 = 11;
const UNAVAILABLE: i32 = 14;
const UNAUTHENTICATED: i32 = 16;

/// A call that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) kind: FailureKind,
    pub(crate) reason: Arc<str>,
}

/// What may be concluded from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// It was not done: no connection, no leader, no space, too many requests.
    NotSent,
    /// It was not done: the token is not valid, and a new one may be.
    Token,
    /// It was not done, and this user or certificate may not do it.
    Denied,
    /// It was not done: the revision is no longer kept.
    Compacted,
    /// The answer is longer than this process takes; nothing was written.
    TooLarge,
    /// The lease is not there.
    LeaseGone,
    /// It may have been done.
    Unknown,
}

// === impl Failure ===

impl Failure {
    pub(crate) fn not_sent(reason: impl Into<Arc<str>>) -> Self {
        Self {
            kind: FailureKind::NotSent,
            reason: reason.into(),
        }
    }

    pub(super) fn deadline(what: &str, deadline: Duration) -> Self {
        Self {
            kind: FailureKind::Unknown,
            reason: format!("no answer to {what} within {} s", deadline.as_secs()).into(),
        }
    }

    /// Whether another connection may do better.
    pub(super) const fn is_of_connection(&self) -> bool {
        match self.kind {
            FailureKind::NotSent | FailureKind::Token | FailureKind::Unknown => true,
            FailureKind::Denied
            | FailureKind::Compacted
            | FailureKind::TooLarge
            | FailureKind::LeaseGone => false,
        }
    }

    /// As the error of a call that changes nothing.
    pub(super) fn of_read(self) -> Error {
        let Self { kind, reason } = self;
        match kind {
            FailureKind::Denied => Error::Denied { reason },
            FailureKind::NotSent
            | FailureKind::Token
            | FailureKind::Compacted
            | FailureKind::TooLarge
            | FailureKind::LeaseGone
            | FailureKind::Unknown => Error::Unavailable { reason },
        }
    }

    /// As the error of a call that writes.
    pub(super) fn of_write(self) -> Error {
        let Self { kind, reason } = self;
        match kind {
            FailureKind::Denied => Error::Denied { reason },
            FailureKind::Unknown => Error::OutcomeUnknown { reason },
            FailureKind::NotSent
            | FailureKind::Token
            | FailureKind::Compacted
            | FailureKind::TooLarge
            | FailureKind::LeaseGone => Error::Unavailable { reason },
        }
    }

    /// Of a watch that the server ended, by its words.
    pub(super) fn of_cancelled_watch(reason: &str) -> Self {
        let kind = if is_stale_token(reason) {
            FailureKind::Token
        } else if reason.contains("permission denied") {
            FailureKind::Denied
        } else if reason.contains("compacted") {
            FailureKind::Compacted
        } else {
            FailureKind::NotSent
        };
        let reason = reason.into();
        Self { kind, reason }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let kind = match &error {
            ClientError::GRpcStatus(status) => {
                of_status(i32::from(status.code()), status.message(), status)
            }
            ClientError::LeaseKeepAliveError(text) if text.contains("not found") => {
                FailureKind::LeaseGone
            }
            ClientError::TransportError(_)
            | ClientError::InvalidArgs(_)
            | ClientError::InvalidUri(_)
            | ClientError::InvalidMetadataValue(_)
            | ClientError::EndpointError(_)
            | ClientError::EndpointsNotManaged => FailureKind::NotSent,
            ClientError::IoError(_)
            | ClientError::WatchError(_)
            | ClientError::Utf8Error(_)
            | ClientError::LeaseKeepAliveError(_)
            | ClientError::ElectError(_)
            | ClientError::Internal(_) => FailureKind::Unknown,
        };
        let reason = match &error {
            ClientError::GRpcStatus(status) => chain(status.message(), status),
            ClientError::TransportError(transport) => chain(&transport.to_string(), transport),
            other => other.to_string(),
        };
        let reason = reason.into();
        Self { kind, reason }
    }
}

/// A status by its code, and where etcd uses one code for many things, by its words.
fn of_status(code: i32, message: &str, status: &dyn StdError) -> FailureKind {
    if is_stale_token(message) {
        return FailureKind::Token;
    }
    match code {
        UNAUTHENTICATED => FailureKind::Token,
        PERMISSION_DENIED => FailureKind::Denied,
        OUT_OF_RANGE if message.contains("message length too large") => FailureKind::TooLarge,
        OUT_OF_RANGE if message.contains("compacted") => FailureKind::Compacted,
        RESOURCE_EXHAUSTED => FailureKind::NotSent,
        NOT_FOUND if message.contains("lease not found") => FailureKind::LeaseGone,
        UNAVAILABLE if message.contains("no leader") => FailureKind::NotSent,
        UNAVAILABLE if never_connected(status) => FailureKind::NotSent,
        // Before the request left: authentication itself failed for want of user or password.
        _ if message.contains("authentication failed") => FailureKind::Denied,
        _ => FailureKind::Unknown,
    }
}

/// Tokens end with time, with their member's memory, and with a change of users or roles.
fn is_stale_token(message: &str) -> bool {
    [
        "invalid auth token",
        "revision of auth store is old",
        "auth store is old",
    ]
    .iter()
    .any(|text| message.contains(text))
}

/// Whether there was no connection, so that nothing can have arrived.
fn never_connected(status: &dyn StdError) -> bool {
    let mut source = status.source();
    while let Some(error) = source {
        let text = error.to_string();
        if text.contains("connect error") || text.contains("dns error") {
            return true;
        }
        source = error.source();
    }
    false
}

/// The words of an error and of what caused it, each once.
fn chain(first: &str, error: &dyn StdError) -> String {
    let mut text = first.to_owned();
    let mut source = error.source();
    while let Some(error) = source {
        let words = error.to_string();
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        source = error.source();
    }
    text
}
