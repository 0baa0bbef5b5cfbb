//! `tombolo plan`: what each cluster would hold.

use std::collections::BTreeMap;

use jiff::Timestamp;
use tombolo_cluster::convert::Strings;
use tombolo_cluster::manifest::{Manifests, Tree};
use tombolo_cluster::output::Output;
use tombolo_cluster::steps::{Step, read_step};
use tombolo_dns::Zones;
use tombolo_model::names::ClusterName;

use crate::args::PlanArgs;
use crate::clusterset::{Clusterset, ClustersetError};
use crate::exit::Exit;
use crate::input::{Refusal, Setup, chain, error_view, plan_time};
use crate::live;
use crate::print;
use crate::question::Question;
use crate::view::ErrorView;

/// The states of all clusters: at first, and after each step.
type States = Vec<BTreeMap<ClusterName, Manifests>>;

/// Runs the command.
pub(crate) async fn run(args: PlanArgs) -> Result<Exit, Refusal> {
    let questions = Question::parse_all(&args.query).map_err(Refusal::usage);
    let (mut setup, questions) = both(Setup::try_from(&args.sources), questions)?;
    let mut strings = Strings::default();
    let live = live::read(&args.sources, &mut setup, &mut strings).await?;
    let (states, mut errors) = read_states(&setup, &args, live, &mut strings)?;
    // Only now, as an input that cannot be read leaves no trace.
    let output = args.sources.out.as_deref().map(Output::open).transpose();
    let output = output.map_err(|error| Refusal::failed(chain(&error)))?;
    let now = plan_time(states.iter().flat_map(BTreeMap::values));
    // Without a question, nobody needs the names of a whole fleet.
    let zones = (!questions.is_empty()).then_some(&setup.zones);
    let clusterset = settled(&setup, zones, &states, now).await?;
    if let Some(mut output) = output {
        let stores: Vec<_> = clusterset.stores().collect();
        output
            .write(&stores)
            .map_err(|error| Refusal::failed(chain(&error)))?;
    }
    let mut view = clusterset.view();
    errors.append(&mut view.errors);
    view.errors = errors;
    view.queries = clusterset.ask(&questions);
    for error in &view.errors {
        print::complain(&error.to_string());
    }
    print::view(&view, args.output).map_err(|error| Refusal::failed(chain(&error)))?;
    Ok(if view.is_well() {
        Exit::Well
    } else {
        Exit::NotWell
    })
}

/// Both, or all that is wrong with the command line.
fn both<A, B>(a: Result<A, Refusal>, b: Result<B, Refusal>) -> Result<(A, B), Refusal> {
    match (a, b) {
        (Ok(a), Ok(b)) => Ok((a, b)),
        (Err(mut a), Err(mut b)) if a.exit == b.exit => {
            a.messages.append(&mut b.messages);
            Err(a)
        }
        // A line that cannot be understood is told before anything that it leads to.
        (_, Err(b)) => Err(b),
        (Err(a), Ok(_)) => Err(a),
    }
}

/// Reads all directories, and applies the steps to what they and the live clusters declare.
fn read_states(
    setup: &Setup,
    args: &PlanArgs,
    live: Vec<(ClusterName, Tree)>,
    strings: &mut Strings,
) -> Result<(States, Vec<ErrorView>), Refusal> {
    let mut errors = Vec::new();
    let mut refused = Vec::new();
    let mut base = BTreeMap::new();
    let mut trees = live;
    for (cluster, directory) in &setup.clusters {
        match Tree::read(directory, Timestamp::MAX, strings) {
            Err(error) => refused.push(error),
            Ok(tree) => trees.push((cluster.clone(), tree)),
        }
    }
    for (cluster, tree) in trees {
        let (manifests, problems) = Manifests::of(&tree);
        errors.extend(problems.iter().map(|problem| error_view(&cluster, problem)));
        base.insert(cluster, manifests);
    }
    if !refused.is_empty() {
        return Err(Refusal::of(&refused));
    }
    let known: Vec<ClusterName> = base.keys().cloned().collect();
    let mut states = vec![base];
    for directory in &args.then {
        let step = read_step(directory, &known, strings).map_err(|e| Refusal::of(&e))?;
        let Some(last) = states.last() else { break };
        let next = after(last, &step, &mut errors);
        states.push(next);
    }
    Ok((states, errors))
}

fn after(
    state: &BTreeMap<ClusterName, Manifests>,
    step: &Step,
    errors: &mut Vec<ErrorView>,
) -> BTreeMap<ClusterName, Manifests> {
    errors.extend(step.problems.iter().map(|problem| ErrorView {
        cluster: "--then".to_owned(),
        file: Some(problem.file.display().to_string()),
        document: problem.place.map(|place| place.document),
        line: problem.place.map(|place| place.line),
        message: problem.reason.clone(),
    }));
    let mut next = state.clone();
    for (cluster, change) in &step.clusters {
        let Some(manifests) = next.get_mut(cluster) else {
            continue;
        };
        let (changed, problems) = manifests.after(change);
        errors.extend(problems.iter().map(|problem| error_view(cluster, problem)));
        *manifests = changed;
    }
    next
}

/// The clusterset after all states, each settled before the next comes.
async fn settled(
    setup: &Setup,
    zones: Option<&Zones>,
    states: &States,
    now: Timestamp,
) -> Result<Clusterset, Refusal> {
    let failed = |error: ClustersetError| Refusal::failed(chain(&error));
    let first = states.first().cloned().unwrap_or_default();
    let mut clusterset = Clusterset::new(setup, &setup.families(&first), zones, now).await?;
    for state in states {
        for (cluster, manifests) in state {
            clusterset.set_manifests(cluster, manifests, now);
        }
        clusterset.settle(now).map_err(failed)?;
    }
    Ok(clusterset)
}
