//! `tombolo controller`: the controller of one cluster, and what `up` runs for each of its
//! contexts.
//!
//! ```text
//! watches ─┐                                     ┌─► writer ─► API server
//! network ─┼─► reports ─► shell (engine) ─► actions ─► registry
//! hub ─────┘                 ▲                       └─► events
//!   ▲                        └── standing ◄── lease
//!   └── registry
//! ```
//!
//! A process that does not lead keeps everything up to date and does nothing, so that it can go on
//! at once.

mod hub;
pub(crate) mod instance;
mod run;
pub(crate) mod session;
pub(crate) mod settings;
mod shell;
pub(crate) mod status;
mod up;

pub(crate) use run::{identity, run, serve, take_over, told_to_stop};
pub(crate) use up::run as run_up;
