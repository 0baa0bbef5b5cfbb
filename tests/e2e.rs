//! Tombolo on real clusters: real API servers, real pods, plain kube-proxy. Only with `--ignored`
//! (`make e2e`), as they need root and minutes.
//!
//! Three testbeds serve all tests, each started for the first test that needs it:
//!
//! | testbed | clusters | its tests |
//! |---|---|---|
//! | [`world`] | three with a node each, joined by one `tombolo up` | some at a time, each in a namespace of its own; those that stop something alone |
//! | [`plain`] | of all families, without nodes | one after another, each with a `tombolo up` of its own |
//! | [`fragile`] | two without nodes that are broken in every way | one after another |
//!
//! The three go on side by side.

#[path = "e2e/access.rs"]
mod access;
#[path = "e2e/cases.rs"]
mod cases;
#[path = "e2e/crds.rs"]
mod crds;
#[path = "e2e/dns.rs"]
mod dns;
#[path = "e2e/families.rs"]
mod families;
#[path = "e2e/faults.rs"]
mod faults;
#[path = "e2e/fragile.rs"]
mod fragile;
#[path = "e2e/gvr.rs"]
mod gvr;
#[path = "e2e/headless.rs"]
mod headless;
#[path = "e2e/kit.rs"]
mod kit;
#[path = "e2e/lane.rs"]
mod lane;
#[path = "e2e/leader.rs"]
mod leader;
#[path = "e2e/loops.rs"]
mod loops;
#[path = "e2e/mixed.rs"]
mod mixed;
#[path = "e2e/namespaces.rs"]
mod namespaces;
#[path = "e2e/objects.rs"]
mod objects;
#[path = "e2e/plain.rs"]
mod plain;
#[path = "e2e/pod.rs"]
mod pod;
#[path = "e2e/ports.rs"]
mod ports;
#[path = "e2e/process.rs"]
mod process;
#[path = "e2e/registry.rs"]
mod registry;
#[path = "e2e/traffic.rs"]
mod traffic;
#[path = "e2e/world.rs"]
mod world;

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use libtest_mimic::{Arguments, Failed, Trial};
use parking_lot::Mutex;
use tombolo_testbed::Progress;

use crate::fragile::Fragile;
use crate::lane::Lane;
use crate::plain::Plain;
use crate::world::World;

/// A test: its name, and what it does in a namespace of its own.
type Test = (&'static str, fn(&World, &str) -> Result<()>);
/// The same for one that stops what others need.
type Alone = (&'static str, fn(&mut World, &str) -> Result<()>);
/// A test on clusters that may be broken.
type Breaking = (&'static str, fn(&Fragile) -> Result<()>);

const BESIDE: &[&[Test]] = &[
    traffic::TESTS,
    ports::TESTS,
    headless::TESTS,
    namespaces::TESTS,
    objects::TESTS,
    access::TESTS,
];
const ALONE: &[&[Alone]] = &[pod::TESTS, loops::ALONE];
/// One at a time, as there is one DNS in a cluster; beside the others.
const IN_TURN: &[Test] = dns::TESTS;
const BREAKING: &[&[Breaking]] = &[
    crds::TESTS,
    faults::TESTS,
    gvr::TESTS,
    leader::TESTS,
    loops::TESTS,
    mixed::TESTS,
];

/// Tests beside each other on the joined clusters: two cores do, as they mostly wait.
const BESIDE_MAX: usize = 4;

/// The testbeds.
struct Lanes {
    world: Lane<World>,
    plain: Lane<Plain>,
    fragile: Lane<Fragile>,
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    let lanes = Arc::new(Lanes {
        world: Lane::new(BESIDE_MAX, World::start),
        plain: Lane::new(1, Plain::start),
        fragile: Lane::new(1, Fragile::start),
    });
    let trials = trials(&lanes)
        .unwrap_or_else(|error| vec![Trial::test("read", move || Err(failed(&error)))]);
    // A thread for each, most of which wait for their turn.
    arguments.test_threads = Some(trials.len());
    let conclusion = libtest_mimic::run(&arguments, trials);
    // Stops the testbeds.
    drop(lanes);
    conclusion.exit_code()
}

fn trials(lanes: &Arc<Lanes>) -> Result<Vec<Trial>> {
    let mut trials = of_world(lanes);
    // The others join nothing through etcd, so there is nothing new in them.
    if world::is_over_etcd() {
        return Ok(trials);
    }
    for case in cases::all()? {
        let name = format!("e2e_case_{}", case.name());
        trials.push(trial(&name, lanes, move |lanes| {
            lanes.plain.alone(|plain| cases::run(plain, &case))
        }));
    }
    trials.push(trial(families::NAME, lanes, |lanes| {
        lanes.plain.alone(|plain| families::run(plain))
    }));
    for (name, test) in BREAKING.iter().copied().flatten().copied() {
        trials.push(trial(name, lanes, move |lanes| {
            lanes.fragile.alone(|fragile| fragile.run(test))
        }));
    }
    let turn = Arc::new(Mutex::new(()));
    for (name, test) in IN_TURN.iter().copied() {
        let turn = Arc::clone(&turn);
        trials.push(trial(name, lanes, move |lanes| {
            let _turn = turn.lock();
            beside(lanes, name, test)
        }));
    }
    Ok(trials)
}

/// The tests of what joins the clusters.
fn of_world(lanes: &Arc<Lanes>) -> Vec<Trial> {
    let mut trials = Vec::new();
    for (name, test) in ALONE.iter().copied().flatten().copied() {
        trials.push(trial(name, lanes, move |lanes| {
            lanes.world.alone(|world| {
                let namespace = name.replace('_', "-");
                world.wait_tidy()?;
                for cluster in world.testbed.clusters() {
                    cluster.create_namespace(&namespace)?;
                }
                let result = test(world, &namespace);
                result.with_context(|| world.log_tail())
            })
        }));
    }
    for (name, test) in BESIDE.iter().copied().flatten().copied() {
        trials.push(trial(name, lanes, move |lanes| beside(lanes, name, test)));
    }
    trials
}

/// Runs a test in a namespace of its own, on the joined clusters.
fn beside(lanes: &Lanes, name: &str, test: fn(&World, &str) -> Result<()>) -> Result<()> {
    lanes.world.beside(|world| {
        let result = world.in_namespace(&name.replace('_', "-"), |ns| test(world, ns));
        result.with_context(|| world.log_tail())
    })
}

fn trial(
    name: &str,
    lanes: &Arc<Lanes>,
    run: impl FnOnce(&Lanes) -> Result<()> + Send + 'static,
) -> Trial {
    let lanes = Arc::clone(lanes);
    let named = name.to_owned();
    let run = move || {
        run(&lanes).map_err(|error| {
            // At once, as the whole takes minutes.
            Progress::stderr().say(format!("{named}: {error:#}"));
            failed(&error)
        })
    };
    Trial::test(name, run).with_ignored_flag(true)
}

fn failed(error: &anyhow::Error) -> Failed {
    Failed::from(format!("{error:#}"))
}
