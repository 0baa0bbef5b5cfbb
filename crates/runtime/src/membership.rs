//! `tombolo drain`, `undrain` and `leave`: a cluster's endpoints are taken out of all clusters and
//! back, or all of it for good.

use std::collections::BTreeMap;

use clap::Args;
use futures::StreamExt as _;
use tombolo_model::fleet::{ClusterService, Fleet, FleetInput};
use tombolo_model::io::Input;
use tombolo_model::names::{ClusterName, ServiceKey};
use tombolo_model::presence::{Peer, PeerSession, Peers};
use tombolo_model::record::{Member, Origin};
use tombolo_registry::error::Error;
use tombolo_registry::etcd::Malformed;
use tombolo_registry::event::{Event, State};
use tombolo_registry::key::KeyRange;
use tombolo_registry::registry::Registry as _;
use tombolo_registry::value::ValueError;

use crate::clock;
use crate::exit::Exit;
use crate::input::Refusal;
use crate::print;
use crate::registry::{RegistryArgs, failed};

/// Services that are named; more are counted.
const NAMED_MAX: usize = 20;

/// A cluster of a registry.
#[derive(Debug, Args)]
pub(crate) struct MemberArgs {
    /// The cluster.
    #[arg(value_name = "CLUSTER")]
    pub(crate) cluster: String,

    #[command(flatten)]
    pub(crate) registry: RegistryArgs,
}

/// The same, for what may leave services without endpoints.
#[derive(Debug, Args)]
pub(crate) struct OutArgs {
    #[command(flatten)]
    pub(crate) member: MemberArgs,

    /// Do it although services have no endpoint elsewhere.
    #[arg(long)]
    pub(crate) yes: bool,
}

/// Takes a cluster's endpoints out, in every cluster.
pub(crate) async fn drain(args: OutArgs) -> Result<Exit, Refusal> {
    let origin = args.member.registry.origin(&args.member.cluster)?;
    check_last(&args, &origin).await?;
    mark(&args.member, &origin, true).await?;
    say(&format!(
        "cluster {}: its endpoints are taken out in every cluster; tombolo undrain brings them \
         back\n",
        origin.cluster
    ))
}

/// Brings a cluster's endpoints back.
pub(crate) async fn undrain(args: MemberArgs) -> Result<Exit, Refusal> {
    let origin = args.registry.origin(&args.cluster)?;
    mark(&args, &origin, false).await?;
    let cluster = &origin.cluster;
    say(&format!("cluster {cluster}: its endpoints are used\n"))
}

/// Takes a cluster out for good.
pub(crate) async fn leave(args: OutArgs) -> Result<Exit, Refusal> {
    let origin = args.member.registry.origin(&args.member.cluster)?;
    check_last(&args, &origin).await?;
    let operator = args.member.registry.operator()?;
    let cluster = &origin.cluster;
    if !failed(operator.remove_cluster(&origin).await)? {
        return Err(unknown(&origin));
    }
    say(&format!(
        "cluster {cluster} has left: its controller publishes nothing more unless it is started \
         with --take-over\n"
    ))
}

fn unknown(origin: &Origin) -> Refusal {
    let Origin { region, cluster } = origin;
    Refusal::failed(format!(
        "there is no cluster {cluster} in region {region} of this registry"
    ))
}

fn say(text: &str) -> Result<Exit, Refusal> {
    failed(print::out(text))?;
    Ok(Exit::Well)
}

async fn mark(args: &MemberArgs, origin: &Origin, drained: bool) -> Result<(), Refusal> {
    let operator = args.registry.operator()?;
    let now = clock::now();
    let edited = operator.edit_member(origin, Malformed::Kept, |known| match known {
        Some(known) => Member { drained, ..known },
        None => Member {
            joined: now,
            cidrs: Vec::new(),
            namespaces: Vec::new(),
            drained,
        },
    });
    let edited = edited.await;
    let is_malformed = matches!(
        &edited,
        Err(Error::Recorded { source, .. }) if !matches!(source, ValueError::Schema { .. })
    );
    failed(edited).map(drop).map_err(|mut refusal| {
        if is_malformed {
            refusal.messages.push(format!(
                "with it the limits of cluster {} would be lost; tombolo registry grant records \
                 them anew",
                origin.cluster
            ));
        }
        refusal
    })
}

/// Refuses what would leave services without endpoints, unless it is wanted.
async fn check_last(args: &OutArgs, origin: &Origin) -> Result<(), Refusal> {
    let inputs = read(&args.member.registry).await?;
    if !peers(&inputs).contains_key(&origin.cluster) {
        return Err(unknown(origin));
    }
    let last = only_in(&inputs, &origin.cluster);
    if last.is_empty() || args.yes {
        return Ok(());
    }
    let mut messages = vec![format!(
        "without cluster {} no live cluster would have a ready endpoint of these services:",
        origin.cluster
    )];
    let named = last.iter().take(NAMED_MAX);
    messages.extend(named.map(|service| format!("  {service}")));
    if last.len() > NAMED_MAX {
        messages.push(format!("  and {} more", last.len() - NAMED_MAX));
    }
    messages.push("give --yes to do it all the same".to_owned());
    Err(Refusal {
        exit: Exit::Failed,
        messages,
    })
}

/// All that stands in the registry, as an engine would be told.
async fn read(args: &RegistryArgs) -> Result<Vec<Input>, Refusal> {
    let registry = args.reader()?;
    // Finds out at once whether it can be read; a subscription would wait.
    let root = KeyRange::of_prefix(&registry.layout().root_prefix());
    failed(registry.scan(root, 1).await)?;
    let mut fleet = Fleet::default();
    let mut events = registry.subscribe();
    while let Some(event) = events.next().await {
        match event {
            Event::ListBegan(_) => fleet.observe(FleetInput::ListBegan),
            Event::ListEnded { .. } => {
                fleet.observe(FleetInput::ListEnded);
                break;
            }
            Event::Record {
                origin,
                key,
                state: State::Present(record),
                ..
            } => {
                let record = Some(record);
                fleet.observe(FleetInput::Record {
                    origin,
                    key,
                    record,
                });
            }
            Event::Member {
                origin,
                state: State::Present(member),
                ..
            } => {
                let member = Some(member);
                fleet.observe(FleetInput::Member { origin, member });
            }
            Event::Record { .. }
            | Event::Member { .. }
            | Event::Settings { .. }
            | Event::Heard(_)
            | Event::Believed
            | Event::Stray { .. } => {}
        }
    }
    Ok(fleet.drain())
}

fn peers(inputs: &[Input]) -> Peers {
    let peers = inputs.iter().find_map(|input| match input {
        Input::Peers(peers) => Some((**peers).clone()),
        _ => None,
    });
    peers.unwrap_or_default()
}

/// The services of which no other live cluster has a ready endpoint, but this one has.
fn only_in(inputs: &[Input], cluster: &ClusterName) -> Vec<ServiceKey> {
    let peers: BTreeMap<ClusterName, Peer> = peers(inputs);
    let is_ready = |state: &ClusterService| state.endpoints.iter().any(|e| e.conditions.ready);
    let is_live = |name: &ClusterName| {
        let peer = peers.get(name);
        peer.is_some_and(|peer| peer.session != PeerSession::Missing && !peer.drained)
    };
    let services = inputs.iter().filter_map(|input| match input {
        Input::Fleet {
            service,
            state: Some(state),
        } => Some((service, state.clusters())),
        _ => None,
    });
    let last = services.filter(|(_, clusters)| {
        let elsewhere = |(name, state): (&ClusterName, &std::sync::Arc<ClusterService>)| {
            name != cluster && is_live(name) && is_ready(state)
        };
        clusters.get(cluster).is_some_and(|own| is_ready(own)) && !clusters.iter().any(elsewhere)
    });
    last.map(|(service, _)| service.clone()).collect()
}
