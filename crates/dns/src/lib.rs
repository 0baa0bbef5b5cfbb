//! DNS for the clusterset: a pure answer over a snapshot, and bounded listeners.
//!
//! ```text
//! SnapshotBuilder ─► Live ─► Snapshot ─┬─► answer         (data: plan --query, tests)
//!                                      └─► handle_packet  (wire: the listeners)
//! ```
//!
//! `find` looks a question up in a snapshot; `answer` and `wire` turn what it found into data or
//! into a packet. Nothing below the listeners reads a clock, waits or locks. The rules are those
//! of BEHAVIOUR §5 and of the DNS specification 1.0.0 of KEP-1645.

mod answer;
mod corefile;
mod find;
mod forward;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod metrics;
mod name;
mod packet;
mod record;
mod server;
mod snapshot;
mod wire;
mod zone;

pub use answer::{Answer, Query, answer};
pub use corefile::{CorefileError, Stub, remove_stub};
pub use forward::{FORWARD_TIMEOUT_DEFAULT, FORWARDS_DEFAULT, Forwarder};
pub use metrics::{LATENCY_BUCKETS_MICROS, Metrics, MetricsSnapshot, QueryCount};
pub use name::{DomainNameError, WireName};
pub use record::{Rcode, Record, RecordData, RecordType, RecordTypeError};
pub use server::{BindError, Limits, Server};
pub use snapshot::{Change, Listing, Live, Snapshot, SnapshotBuilder};
pub use wire::{Answered, Outcome, PacketContext, Transport, UDP_LEN_DEFAULT, handle_packet};
pub use zone::{TTL_DEFAULT_SECS, Zones};

#[cfg(test)]
mod tests;
