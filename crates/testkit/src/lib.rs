//! Development only: an oracle of the rules, a small API server, sites that put an engine between
//! them under faults, and the cases from the field.
//!
//! ```text
//! Op (random) ─► Site { Engine ◄─► ApiServer, Registry } ─► settle ─► oracle::differences
//! ```

#![expect(
    clippy::missing_panics_doc,
    reason = "a test crate: it panics where a test must fail"
)]

pub mod apiserver;
pub mod build;
pub mod cases;
pub mod command;
pub mod dns;
pub mod files;
pub mod judge;
pub mod manifest;
pub mod ops;
pub mod oracle;
pub mod play;
pub mod registry;
pub mod scripted_api;
pub mod seen;
pub mod shapes;
pub mod site;

use proptest::test_runner::{Config as ProptestConfig, FileFailurePersistence};

/// How often a property is tried: `by_default`, or as `TOMBOLO_PROPTEST_CASES` says. A
/// failure prints the steps it was reduced to, and its seed is kept beside the test.
pub fn tries(by_default: u32) -> ProptestConfig {
    let wanted = std::env::var("TOMBOLO_PROPTEST_CASES").ok();
    let tries = wanted.and_then(|text| text.parse().ok());
    let default = ProptestConfig::default();
    ProptestConfig {
        cases: tries.unwrap_or(by_default),
        // Enough to make a long sequence short, unless the environment says otherwise.
        max_shrink_iters: default.max_shrink_iters.min(20_000),
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..default
    }
}
