//! `tombolo dns`, the process: its API server is scripted, its resolvers too.
#![expect(clippy::unwrap_used, reason = "test crate")]

#[path = "dns_server/forward.rs"]
mod forward;
#[path = "dns_server/hostile.rs"]
mod hostile;
#[path = "dns_server/pages.rs"]
mod pages;
#[path = "dns_server/process.rs"]
mod process;
#[path = "dns_server/states.rs"]
mod states;
