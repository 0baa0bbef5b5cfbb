//! `tombolo up context:NAME…`: clusters of a kubeconfig joined in one process, without a registry
//! of their own; directories of manifests may be among them.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::registry::Registry as Metrics;
use tombolo_cluster::api::{
    Access, Fence, LeaseConfig, LeaseKeeper, Server, ensure_namespace, remove_managed,
};
use tombolo_model::names::ClusterName;
use tombolo_registry::any::AnyRegistry;
use tracing::info;

use super::hub::{self, Refusals};
use super::instance::{self, Instance};
use super::run::{identity, serve, told_to_stop};
use super::settings::{Resources, admin_address};
use crate::admin::{Admin, Told};
use crate::args::UpArgs;
use crate::clusterset::Joining;
use crate::exit::Exit;
use crate::input::{Refusal, Setup, chain, context_of};
use crate::live;
use crate::logging;
use crate::print;
use crate::rules::Rules;
use crate::supervisor::Supervisor;
use crate::up::Directories;

/// How long tasks have to end.
const GRACE: Duration = Duration::from_secs(40);

/// A cluster whose Lease this process holds.
struct Joined {
    context: String,
    cluster: ClusterName,
    server: Server,
    keeper: LeaseKeeper,
    fence: Arc<Fence>,
}

/// Runs the command for contexts, and for the directories beside them.
pub(crate) async fn run(args: UpArgs) -> Result<Exit, Refusal> {
    let (resources, admin) = checked(&args)?;
    let level = logging::init(&args.admin)?;
    let told = told_to_stop()?;
    let joining = args.join.joining()?;
    let mut setup = Setup::try_from(&args.sources)?;
    setup.rules = setup.rules.with_hold(args.join.hold);
    let named: BTreeSet<ClusterName> = setup.clusters.keys().cloned().collect();
    let rules = setup.rules.clone();
    let directories = if named.is_empty() {
        None
    } else {
        Some(Directories::open(&args, setup, &joining).await?)
    };
    let identity = identity();
    let joined = join(&args, &identity, &named).await?;
    let mut supervisor = Supervisor::default();
    let mut metrics = Metrics::default();
    let (mut listeners, mut servers) = (Vec::new(), Vec::new());
    let mut parts: Vec<Arc<dyn Told>> = Vec::new();
    for joined in joined {
        let (context, cluster) = (&joined.context, joined.cluster.clone());
        print::say(&format!("context {context}: joined as cluster {cluster}"));
        servers.push((cluster, joined.server.clone()));
        let instance = joined.instance(&rules, &resources, &identity, &joining)?;
        let running = instance::start(instance, &mut supervisor, &mut metrics);
        listeners.push(running.listener);
        parts.push(running.status);
    }
    let refusals = Refusals::register(&mut metrics);
    let hub = hub::run(joining.shared.subscribe()?, listeners, refusals);
    supervisor.spawn_endless("registry events", hub);
    if let Some(address) = admin {
        let admin = Admin {
            parts,
            metrics,
            level,
        };
        serve(address, admin, &mut supervisor).await?;
    }
    let mut followed = Ok(Exit::Well);
    let told = async {
        match directories {
            // They end when the process is told to, or when they cannot go on.
            Some(directories) => followed = directories.run(&args).await,
            None => told.await,
        }
    };
    let ended = supervisor.run(told, GRACE).await;
    leave(servers, args.clean).await?;
    ended.map_err(|error| Refusal::failed(chain(&error)))?;
    followed
}

/// The arguments, checked.
fn checked(args: &UpArgs) -> Result<(Resources, Option<SocketAddr>), Refusal> {
    let mut wrong = Vec::new();
    if args.once {
        let text = "--once: only with directories; tombolo plan shows contexts as well";
        wrong.push(text.to_owned());
    }
    let resources = Resources::try_from(&args.resources).map_err(|message| wrong.push(message));
    let admin = admin_address(&args.admin.admin).map_err(|message| wrong.push(message));
    match (resources, admin) {
        (Ok(resources), Ok(admin)) if wrong.is_empty() => Ok((resources, admin)),
        (_, _) => Err(Refusal::usage(wrong)),
    }
}

impl Joined {
    fn instance(
        self,
        rules: &Rules,
        resources: &Resources,
        identity: &str,
        joining: &Joining,
    ) -> Result<Instance<AnyRegistry>, Refusal> {
        let Self {
            context: _,
            cluster,
            server,
            keeper,
            fence,
        } = self;
        Ok(Instance {
            config: rules.config(cluster.clone()),
            exports: resources.exports.clone(),
            imports: resources.imports.clone(),
            registry: Arc::new(joining.shared.registry(cluster)?),
            server,
            keeper,
            fence,
            identity: identity.to_owned(),
            publishes: joining.publishes,
        })
    }
}

/// Takes the Lease in every cluster; where one is held, all are given back.
async fn join(
    args: &UpArgs,
    identity: &str,
    directories: &BTreeSet<ClusterName>,
) -> Result<Vec<Joined>, Refusal> {
    let mut joined: Vec<Joined> = Vec::new();
    let mut problems = Vec::new();
    let sources = args.sources.sources.iter();
    for context in sources.filter_map(|source| context_of(source)) {
        match join_one(args, &context, identity).await {
            Ok(one) => {
                let cluster = &one.cluster;
                if let Some(other) = joined.iter().find(|other| other.cluster == *cluster) {
                    problems.push(format!(
                        "contexts {} and {context} are both cluster {cluster}: give one of them \
                         another name by a ClusterProperty",
                        other.context
                    ));
                } else if directories.contains(cluster) {
                    problems.push(format!(
                        "context {context} and a directory are both cluster {cluster}"
                    ));
                }
                joined.push(one);
            }
            Err(problem) => problems.push(format!("context {context}: {problem}")),
        }
    }
    if problems.is_empty() {
        return Ok(joined);
    }
    for mut one in joined {
        one.keeper.release().await;
    }
    Err(Refusal {
        exit: Exit::Failed,
        messages: problems,
    })
}

async fn join_one(args: &UpArgs, context: &str, identity: &str) -> Result<Joined, String> {
    let access = Access::Kubeconfig {
        file: args.sources.kubeconfig.clone(),
        context: Some(context.to_owned()),
    };
    let server = access.server().await.map_err(|error| chain(&error))?;
    let cluster = live::name(&server, context).await?;
    let namespace = &args.lease.lease_namespace;
    ensure_namespace(&server, namespace)
        .await
        .map_err(|error| format!("namespace {namespace}: {}", chain(&error)))?;
    let lease = LeaseConfig::new(namespace, &args.lease.lease_name, identity);
    let (mut keeper, fence) = instance::lease(&server, lease);
    info!(context, %cluster, "taking the lease");
    match keeper.take_unless_held().await {
        Ok(None) => Ok(Joined {
            context: context.to_owned(),
            cluster,
            server,
            keeper,
            fence,
        }),
        Ok(Some(holder)) => Err(format!(
            "a controller runs there already: {holder} renews the Lease {namespace}/{}",
            args.lease.lease_name
        )),
        Err(error) => Err(format!("cannot take the Lease: {}", chain(&error))),
    }
}

/// Says what stays, or removes it.
async fn leave(servers: Vec<(ClusterName, Server)>, is_clean: bool) -> Result<(), Refusal> {
    for (cluster, server) in servers {
        if is_clean {
            let removed = remove_managed(&server).await.map_err(|error| {
                Refusal::failed(format!("cluster {cluster}: {}", chain(&error)))
            })?;
            print::say(&format!("cluster {cluster}: {removed} objects removed"));
        } else {
            print::say(&format!(
                "cluster {cluster}: the imports stay as they are, and no longer follow changes; \
                 --clean removes them"
            ));
        }
    }
    Ok(())
}
