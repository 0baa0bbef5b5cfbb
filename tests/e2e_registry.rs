//! Controllers of several clusters that meet in an etcd of three members: real API servers, each
//! controller with the rights that are shipped and the access that `registry grant` gives. No
//! nodes: endpoints are written by hand. One testbed for all tests, which run one after another,
//! and only with `--ignored` (`make e2e`), as they need minutes.

#[path = "e2e_registry/absence.rs"]
mod absence;
#[path = "e2e_registry/claims.rs"]
mod claims;
#[path = "e2e_registry/faults.rs"]
mod faults;
#[path = "e2e_registry/kit.rs"]
mod kit;
#[path = "e2e_registry/load.rs"]
mod load;
#[path = "e2e_registry/objects.rs"]
mod objects;
#[path = "e2e_registry/regions.rs"]
mod regions;
#[path = "e2e_registry/sites.rs"]
mod sites;
#[path = "e2e_registry/visitors.rs"]
mod visitors;

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use libtest_mimic::{Arguments, Failed, Trial};
use parking_lot::Mutex;

use crate::sites::Sites;

/// A test: its name, and what it does in a namespace of its own.
type Test = (&'static str, fn(&mut Sites, &str) -> Result<()>);

const TESTS: &[&[Test]] = &[
    objects::TESTS,
    claims::TESTS,
    absence::TESTS,
    visitors::TESTS,
    faults::TESTS,
    regions::TESTS,
    load::TESTS,
];

type Shared = Arc<Mutex<Option<Sites>>>;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Tests of failures would disturb others.
    arguments.test_threads = Some(1);
    let shared = Shared::default();
    let trials = TESTS.iter().flat_map(|tests| tests.iter());
    let trials = trials
        .map(|test| trial(*test, Arc::clone(&shared)))
        .collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    // Stops the testbed.
    drop(shared.lock().take());
    conclusion.exit_code()
}

fn trial((name, test): Test, shared: Shared) -> Trial {
    Trial::test(name, move || {
        let mut guard = shared.lock();
        let sites = match &mut *guard {
            Some(sites) => sites,
            none => none.insert(Sites::start().map_err(|error| failed(&error))?),
        };
        let result = sites.in_namespace(&name.replace('_', "-"), test);
        let result = result.with_context(|| sites.log_tails());
        result.map_err(|error| failed(&error))
    })
    .with_ignored_flag(true)
}

fn failed(error: &anyhow::Error) -> Failed {
    Failed::from(format!("{error:#}"))
}
