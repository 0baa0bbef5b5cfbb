//! The values of the registry: records to bytes and back. The schema, and how it may change, is
//! in `proto/tombolo/registry/v1/values.proto`.
//!
//! ```text
//! Record ──check──► message ──► bytes          Record ◄──check── message ◄── bytes
//! ```
//!
//! Values come from other clusters. Decoding refuses what the model cannot hold and names the
//! field; whether a Service could be so, and whether an address is acceptable here, is the model's
//! decision. Both directions pass the same checks, so nothing is written that readers refuse.
//! Equal records have equal bytes.

use std::collections::BTreeSet;

use tombolo_model::endpoint::{Entry, EntryPort, EntryProtocol};
use tombolo_model::names::{NameError, check_service_name};
use tombolo_model::record::{ExportRecord, Owner, Record, RecordKey, Report, Session};
use tombolo_model::service::{Affinity, IpFamily};

mod decode;
mod encode;
mod wire;

pub use self::decode::settings as decode_settings;
pub use self::decode::{member as decode_member, record as decode_record};
pub use self::encode::settings as encode_settings;
pub use self::encode::{member as encode_member, record as encode_record};

/// The version of the value schema that this release writes and understands.
pub const SCHEMA: u32 = 1;

/// The longest value (BEHAVIOUR §7): an export with all the annotations that Kubernetes allows
/// (256 KiB) fits, and one value fits into a transaction with room to spare.
pub const VALUE_LEN_MAX: usize = 512 * 1024;

/// The most services that a report names (DESIGN §2.2).
pub const REPORTED_SERVICES_MAX: usize = 1_000;

/// The most entries at one address and protocol: pods on one host network share an address, and a
/// node runs a few hundred pods.
pub const ENTRIES_MAX: usize = 1_024;

/// Why a value cannot be used or written. The text names the field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// Longer than any value may be.
    #[error("the value has {len} bytes, at most {VALUE_LEN_MAX} are allowed")]
    TooLong {
        /// Its length.
        len: usize,
    },
    /// Not protobuf, or of other field types.
    #[error("the value is not a message of the schema")]
    Malformed {
        /// Where it breaks.
        source: prost::DecodeError,
    },
    /// Written by a release whose meaning this one would miss.
    #[error(
        "the value needs a reader of schema version {needed}, this release has {SCHEMA}: upgrade it"
    )]
    Schema {
        /// The lowest version that understands it.
        needed: u32,
    },
    /// It says that it is from elsewhere: copied by hand, or forged.
    #[error("the value claims to be of {claimed:?}, its key is of {actual:?}")]
    Origin {
        /// `region/cluster` of the value.
        claimed: String,
        /// `region/cluster` of the key.
        actual: String,
    },
    /// A required field is not there or empty.
    #[error("{field} is missing")]
    Missing {
        /// The field's path.
        field: String,
    },
    /// A field has a value that the model cannot hold.
    #[error("{field} {problem}")]
    Field {
        /// The field's path.
        field: String,
        /// What is wrong.
        problem: String,
    },
    /// A field holds a name that cannot be used.
    #[error("{field} cannot be used")]
    Name {
        /// The field's path.
        field: String,
        /// Which name, and why.
        source: NameError,
    },
    /// The record is of another kind than its key; only a mistake of the caller.
    #[error("a record of another kind stands at this key")]
    Kind,
}

impl ValueError {
    /// A word for metrics and reports.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::TooLong { .. } => "value-too-long",
            Self::Malformed { .. } => "value-malformed",
            Self::Schema { .. } => "value-schema",
            Self::Origin { .. } => "value-origin",
            Self::Missing { .. } => "value-missing",
            Self::Field { .. } => "value-field",
            Self::Name { .. } => "value-name",
            Self::Kind => "value-kind",
        }
    }

    /// A value does not become right by waiting.
    pub const fn is_retryable(&self) -> bool {
        false
    }

    fn field(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Field {
            field: field.into(),
            problem: problem.into(),
        }
    }

    fn missing(field: impl Into<String>) -> Self {
        Self::Missing {
            field: field.into(),
        }
    }
}

fn check_len(len: usize) -> Result<(), ValueError> {
    if len > VALUE_LEN_MAX {
        return Err(ValueError::TooLong { len });
    }
    Ok(())
}

/// What neither a writer writes nor a reader takes, though the types could hold it.
fn check(key: &RecordKey, record: &Record) -> Result<(), ValueError> {
    match (key, record) {
        (RecordKey::Owner, Record::Owner(owner)) | (RecordKey::Left, Record::Left(owner)) => {
            check_owner(owner)
        }
        (RecordKey::Session, Record::Session(session)) => check_session(session),
        (RecordKey::Synced, Record::Synced(epoch)) => check_epoch(*epoch),
        (RecordKey::Report, Record::Report(report)) => check_report(report),
        (RecordKey::Export(_), Record::Export(export)) => check_export(export),
        (RecordKey::Endpoint { protocol, .. }, Record::Endpoint(entries)) => {
            check_entries(*protocol, entries)
        }
        (RecordKey::Config { .. }, Record::Config(_)) => Ok(()),
        (
            RecordKey::Owner
            | RecordKey::Session
            | RecordKey::Synced
            | RecordKey::Left
            | RecordKey::Report
            | RecordKey::Export(_)
            | RecordKey::Endpoint { .. }
            | RecordKey::Config { .. },
            _,
        ) => Err(ValueError::Kind),
    }
}

fn check_owner(owner: &Owner) -> Result<(), ValueError> {
    check_text("uid", &owner.uid)
}

fn check_session(session: &Session) -> Result<(), ValueError> {
    check_text("holder", &session.holder)?;
    check_text("software", &session.software)?;
    check_epoch(session.epoch)?;
    if session.schema == 0 {
        return Err(ValueError::missing("schema"));
    }
    check_families(&session.families)
}

fn check_epoch(epoch: u64) -> Result<(), ValueError> {
    if epoch == 0 {
        return Err(ValueError::missing("epoch"));
    }
    Ok(())
}

fn check_report(report: &Report) -> Result<(), ValueError> {
    let len = report.not_in_order.len();
    if len > REPORTED_SERVICES_MAX {
        let problem = format!("names {len} services, at most {REPORTED_SERVICES_MAX} are allowed");
        return Err(ValueError::field("not_in_order", problem));
    }
    for (i, reported) in report.not_in_order.iter().enumerate() {
        if let Err(source) = check_service_name(reported.service.name.as_str()) {
            let field = format!("not_in_order[{i}].name");
            return Err(ValueError::Name { field, source });
        }
        if reported.reason.is_empty() {
            return Err(ValueError::missing(format!("not_in_order[{i}].reason")));
        }
    }
    Ok(())
}

fn check_export(export: &ExportRecord) -> Result<(), ValueError> {
    check_text("uid", &export.uid)?;
    let mut names = BTreeSet::new();
    for (i, port) in export.ports.iter().enumerate() {
        check_port(|| format!("ports[{i}].port"), port.port)?;
        if !names.insert(&port.name) {
            let problem = format!("{:?} is the name of an earlier port too", port.name);
            return Err(ValueError::field(format!("ports[{i}].name"), problem));
        }
    }
    check_families(&export.families)?;
    if export.affinity == (Affinity::ClientIp { timeout_secs: 0 }) {
        return Err(ValueError::missing("affinity_timeout_secs"));
    }
    for (field, map) in [
        ("labels", &export.labels),
        ("annotations", &export.annotations),
    ] {
        if map.contains_key("") {
            return Err(ValueError::field(field, "has an empty key"));
        }
    }
    Ok(())
}

fn check_entries(protocol: EntryProtocol, entries: &[Entry]) -> Result<(), ValueError> {
    if entries.is_empty() {
        return Err(ValueError::missing("entries"));
    }
    let len = entries.len();
    if len > ENTRIES_MAX {
        let problem = format!("has {len} entries, at most {ENTRIES_MAX} are allowed");
        return Err(ValueError::field("entries", problem));
    }
    let mut seen = BTreeSet::new();
    for (i, entry) in entries.iter().enumerate() {
        check_entry_ports(i, protocol, &entry.ports)?;
        if !seen.insert((&entry.ports, &entry.hostname)) {
            let problem = "has the ports and hostname of an earlier one";
            return Err(ValueError::field(format!("entries[{i}]"), problem));
        }
    }
    Ok(())
}

fn check_entry_ports(
    entry: usize,
    protocol: EntryProtocol,
    ports: &[EntryPort],
) -> Result<(), ValueError> {
    let field = || format!("entries[{entry}].ports");
    match protocol {
        EntryProtocol::None if !ports.is_empty() => {
            return Err(ValueError::field(field(), "stands under the protocol NONE"));
        }
        EntryProtocol::Some(_) if ports.is_empty() => return Err(ValueError::missing(field())),
        EntryProtocol::None | EntryProtocol::Some(_) => {}
    }
    for (i, port) in ports.iter().enumerate() {
        check_port(|| format!("{}[{i}].port", field()), port.port)?;
    }
    if let Some(pair) = ports.windows(2).find(|pair| pair[0].name == pair[1].name) {
        let problem = format!("has two ports of the name {:?}", pair[0].name);
        return Err(ValueError::field(field(), problem));
    }
    Ok(())
}

fn check_port(field: impl FnOnce() -> String, port: u16) -> Result<(), ValueError> {
    if port == 0 {
        return Err(ValueError::field(field(), "is 0, which is no port number"));
    }
    Ok(())
}

fn check_families(families: &[IpFamily]) -> Result<(), ValueError> {
    match families {
        [] | [_] | [IpFamily::V4, IpFamily::V6] | [IpFamily::V6, IpFamily::V4] => Ok(()),
        _ => Err(ValueError::field("families", "names a family twice")),
    }
}

fn check_text(field: &'static str, text: &str) -> Result<(), ValueError> {
    if text.is_empty() {
        return Err(ValueError::missing(field));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
