//! The pure model: what Tombolo decides, without I/O, clock or random numbers.
//!
//! ```text
//! registry records ─► fleet ─► FleetService ─┐
//!                                            ├─► engine ─► actions
//! objects of the cluster ─► inputs ──────────┘
//! ```
//!
//! `export` turns a cluster's own objects into records, `merge` the records of all clusters into
//! one import, `derived` and `packing` that import into a Service and EndpointSlices, and the
//! engine compares all of it with what is there. Rules are those of BEHAVIOUR §1–§3.

pub mod check;
mod compare;
pub mod config;
pub mod conflict;
mod contents;
pub mod endpoint;
pub mod engine;
mod export;
pub mod fleet;
mod guard;
mod import;
pub mod io;
pub mod merge;
mod mirror;
pub mod names;
pub mod object;
pub mod own;
pub mod packing;
pub mod presence;
pub mod record;
pub mod selector;
pub mod service;
mod status;
mod world;
mod writes;
