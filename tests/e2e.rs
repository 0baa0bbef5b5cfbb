//! Tombolo on real clusters: real API servers, real pods, plain kube-proxy. One testbed and one
//! `tombolo up` for all tests, each of which has a namespace of its own. They run one after
//! another, and only with `--ignored` (`make e2e`), as they need root and minutes.

#[path = "e2e/faults.rs"]
mod faults;
#[path = "e2e/objects.rs"]
mod objects;
#[path = "e2e/traffic.rs"]
mod traffic;
#[path = "e2e/world.rs"]
mod world;

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use libtest_mimic::{Arguments, Failed, Trial};
use parking_lot::Mutex;

use crate::world::World;

/// A test: its name, and what it does in a namespace of its own.
type Test = (&'static str, fn(&mut World, &str) -> Result<()>);

const TESTS: &[&[Test]] = &[traffic::TESTS, objects::TESTS, faults::TESTS];

type Shared = Arc<Mutex<Option<World>>>;

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
        let world = match &mut *guard {
            Some(world) => world,
            none => none.insert(World::start().map_err(|error| failed(&error))?),
        };
        let namespace = name.replace('_', "-");
        let result = world.in_namespace(&namespace, test);
        let result = result.with_context(|| world.log_tail());
        result.map_err(|error| failed(&error))
    })
    .with_ignored_flag(true)
}

fn failed(error: &anyhow::Error) -> Failed {
    Failed::from(format!("{error:#}"))
}
