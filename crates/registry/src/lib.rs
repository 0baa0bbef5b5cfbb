//! The registry: the key space through which clusters meet (DESIGN §2.2).
//!
//! ```text
//!           Record ─► value (bytes) ─┐                       ┌─► event (decoded or rejected)
//! RecordWrite                        ├─► backend: memory, etcd┤
//!        RecordKey ─► key (text) ────┘                       └─► listing
//! ```
//!
//! A [`registry::Registry`] is one cluster's access: it writes that cluster's own partition under a
//! [`session`], and reads all partitions. Keys and values are the same in every backend.
//! What the records mean, and which of them count, is the model's.

pub mod any;
pub mod batch;
pub mod error;
pub mod etcd;
pub mod event;
pub mod key;
pub mod listing;
pub mod memory;
pub mod registry;
pub mod replicator;
pub mod session;
pub mod value;
