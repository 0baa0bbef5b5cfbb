//! What the API server's refusals mean for the engine.

use kube::core::Status;
use tombolo_model::io::{Outcome, Refusal, RefusalKind};

use super::call::CallError;
use super::watch::chain;

/// What to conclude of a failed write.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The object is not what the engine thought: see how it stands.
    Look,
    /// It is decided.
    Is(Outcome),
}

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Write {
    Create {
        /// Whether it asked for addresses.
        asks_addresses: bool,
    },
    Change,
    Delete,
}

/// What a failed write means.
pub(super) fn judge(write: Write, error: &CallError) -> Verdict {
    let CallError::Refused(status) = error else {
        return Verdict::Is(Outcome::Unknown(chain(error).into()));
    };
    let refused = |kind| {
        Verdict::Is(Outcome::Refused(Refusal {
            kind,
            message: chain(error).into(),
        }))
    };
    match (status.code, write) {
        (403 | 409, _) if has_cause(status, "NamespaceTerminating") => {
            refused(RefusalKind::NamespaceTerminating)
        }
        (409, _) | (404, Write::Change | Write::Delete) => Verdict::Look,
        (401 | 403, _) => refused(RefusalKind::Forbidden),
        (
            422,
            Write::Create {
                asks_addresses: true,
            },
        ) if is_about_addresses(status) => refused(RefusalKind::AddressTaken),
        (400 | 413 | 422, _) => refused(RefusalKind::Invalid),
        // The server failed in the middle: etcd may have it.
        (500.., _) => Verdict::Is(Outcome::Unknown(chain(error).into())),
        (_, _) => refused(RefusalKind::Other),
    }
}

/// Whether a Service was refused because an address that it asked for is taken.
pub(super) fn is_address_taken(write: Write, error: &CallError) -> bool {
    match judge(write, error) {
        Verdict::Is(Outcome::Refused(refusal)) => refusal.kind == RefusalKind::AddressTaken,
        Verdict::Is(_) | Verdict::Look => false,
    }
}

fn has_cause(status: &Status, reason: &str) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes.into_iter().any(|cause| cause.reason == reason)
}

/// Whether a Service was refused for the addresses that it asked for.
fn is_about_addresses(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes
        .into_iter()
        .any(|cause| cause.field.starts_with("spec.clusterIP"))
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use serde_json::json;

    use super::*;

    const CREATE: Write = Write::Create {
        asks_addresses: true,
    };

    fn refusal(code: u16, causes: &serde_json::Value) -> CallError {
        let status = json!({"code": code, "message": "m", "details": {"causes": causes}});
        CallError::Refused(Box::new(serde_json::from_value::<Status>(status).unwrap()))
    }

    fn kind(write: Write, error: &CallError) -> Option<RefusalKind> {
        match judge(write, error) {
            Verdict::Is(Outcome::Refused(refusal)) => Some(refusal.kind),
            Verdict::Is(_) | Verdict::Look => None,
        }
    }

    #[test]
    fn each_refusal_means_what_it_says() {
        let none = json!([]);
        let ending = json!([{"reason": "NamespaceTerminating", "message": "", "field": ""}]);
        let taken = json!([{"reason": "FieldValueInvalid", "field": "spec.clusterIPs",
            "message": "failed to allocate IP 10.0.0.1: provided IP is already allocated"}]);
        let port = json!([{"reason": "FieldValueInvalid", "field": "spec.ports[0].port"}]);
        for (write, code, causes, expected) in [
            (CREATE, 403, &ending, RefusalKind::NamespaceTerminating),
            (CREATE, 403, &none, RefusalKind::Forbidden),
            (CREATE, 422, &taken, RefusalKind::AddressTaken),
            (Write::Change, 422, &taken, RefusalKind::Invalid),
            (CREATE, 422, &port, RefusalKind::Invalid),
            (CREATE, 404, &none, RefusalKind::Other),
            (Write::Change, 429, &none, RefusalKind::Other),
        ] {
            assert_eq!(
                kind(write, &refusal(code, causes)),
                Some(expected),
                "{code} {causes}"
            );
        }
    }

    #[test]
    fn another_state_is_looked_at_and_a_broken_server_is_unsure() {
        let none = json!([]);
        for (write, code) in [(CREATE, 409), (Write::Change, 409), (Write::Delete, 404)] {
            assert_eq!(judge(write, &refusal(code, &none)), Verdict::Look);
        }
        assert!(matches!(
            judge(CREATE, &refusal(500, &none)),
            Verdict::Is(Outcome::Unknown(_))
        ));
        let deadline = CallError::Deadline(std::time::Duration::from_secs(1));
        assert!(matches!(
            judge(CREATE, &deadline),
            Verdict::Is(Outcome::Unknown(_))
        ));
    }
}
