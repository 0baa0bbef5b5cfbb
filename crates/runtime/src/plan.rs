//! `tombolo plan`: what each cluster would hold.

use std::collections::BTreeMap;

use jiff::Timestamp;
use tombolo_cluster::convert::Strings;
use tombolo_cluster::manifest::{Manifests, Tree};
use tombolo_cluster::steps::{Step, read_step};
use tombolo_model::names::{ClusterName, Region};

use crate::args::PlanArgs;
use crate::clusterset::Clusterset;
use crate::exit::Exit;
use crate::input::{Refusal, Setup, chain, error_view, plan_time};
use crate::print;
use crate::view::{ErrorView, View};

/// The states of all clusters: at first, and after each step.
type States = Vec<BTreeMap<ClusterName, Manifests>>;

/// Runs the command.
pub(crate) async fn run(args: PlanArgs) -> Result<Exit, Refusal> {
    let setup = Setup::try_from(&args.sources)?;
    let (states, mut errors) = read_states(&setup, &args)?;
    let now = plan_time(states.iter().flat_map(BTreeMap::values));
    let clusterset = settled(&setup, &states, now, &mut errors).await?;
    let view = View {
        errors,
        ..clusterset.view()
    };
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

/// Reads all directories, and applies the steps to what they declare.
fn read_states(setup: &Setup, args: &PlanArgs) -> Result<(States, Vec<ErrorView>), Refusal> {
    let mut strings = Strings::default();
    let mut errors = Vec::new();
    let mut refused = Vec::new();
    let mut base = BTreeMap::new();
    for (cluster, directory) in &setup.clusters {
        match Tree::read(directory, Timestamp::MAX, &mut strings) {
            Err(error) => refused.push(error),
            Ok(tree) => {
                let (manifests, problems) = Manifests::of(&tree);
                errors.extend(problems.iter().map(|problem| error_view(cluster, problem)));
                base.insert(cluster.clone(), manifests);
            }
        }
    }
    if !refused.is_empty() {
        return Err(Refusal::of(&refused));
    }
    let known: Vec<ClusterName> = base.keys().cloned().collect();
    let mut states = vec![base];
    for directory in &args.then {
        let step = read_step(directory, &known, &mut strings).map_err(|e| Refusal::of(&e))?;
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
    states: &States,
    now: Timestamp,
    errors: &mut Vec<ErrorView>,
) -> Result<Clusterset, Refusal> {
    let first = states.first().cloned().unwrap_or_default();
    let families = setup.families(&first);
    let region = Region::try_new(tombolo_registry::registry::REGION_DEFAULT)
        .map_err(|error| Refusal::failed(chain(&error)))?;
    let mut clusterset = Clusterset::new(&families, &setup.vips, &region, now)
        .await
        .map_err(|error| Refusal::failed(chain(&error)))?;
    for (index, state) in states.iter().enumerate() {
        let is_last = index + 1 == states.len();
        for (cluster, manifests) in state {
            let rejected = clusterset.set_manifests(cluster, manifests, now);
            // What an earlier state had wrong and the last one has not is no news.
            if is_last || index == 0 {
                errors.extend(rejected.into_iter().map(|rejected| ErrorView {
                    cluster: cluster.to_string(),
                    file: None,
                    document: None,
                    line: None,
                    message: rejected.to_string(),
                }));
            }
        }
        clusterset
            .settle(now)
            .await
            .map_err(|error| Refusal::failed(chain(&error)))?;
    }
    Ok(clusterset)
}
