//! The API adapter against a scripted API server: the exact calls that are expected, in order.
#![expect(clippy::unwrap_used, reason = "test crate")]

#[path = "api/events.rs"]
mod events;
#[path = "api/fake.rs"]
mod fake;
#[path = "api/lease.rs"]
mod lease;
#[path = "api/network.rs"]
mod network;
#[path = "api/watch.rs"]
mod watch;
#[path = "api/writer.rs"]
mod writer;
