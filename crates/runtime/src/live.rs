//! Clusters of a kubeconfig as sources of a plan: read once, never written.

use tombolo_cluster::api::{Access, IdentityError, Server, Snapshot, identify, snapshot};
use tombolo_cluster::convert::Strings;
use tombolo_cluster::manifest::Tree;
use tombolo_model::names::ClusterName;

use crate::args::SourceArgs;
use crate::exit::Exit;
use crate::input::{Refusal, Setup, chain, context_of};

/// Reads all contexts among the sources; what their networks are like goes into the setup.
pub(crate) async fn read(
    args: &SourceArgs,
    setup: &mut Setup,
    strings: &mut Strings,
) -> Result<Vec<(ClusterName, Tree)>, Refusal> {
    let mut read = Vec::new();
    let mut problems = Vec::new();
    for context in args.sources.iter().filter_map(|source| context_of(source)) {
        let access = Access::Kubeconfig {
            file: args.kubeconfig.clone(),
            context: Some(context.clone()),
        };
        match read_one(&access, &context).await {
            Err(problem) => problems.push(format!("context {context}: {problem}")),
            Ok((cluster, _)) if setup.clusters.contains_key(&cluster) || has(&read, &cluster) => {
                problems.push(format!(
                    "context {context}: cluster {cluster} is there already"
                ));
            }
            Ok((cluster, snapshot)) => {
                let Snapshot {
                    documents,
                    families,
                } = snapshot;
                let tree = Tree::of_documents(&format!("context:{context}"), documents, strings);
                setup.add_families(cluster.clone(), families);
                read.push((cluster, tree));
            }
        }
    }
    if problems.is_empty() {
        return Ok(read);
    }
    Err(Refusal {
        exit: Exit::Failed,
        messages: problems,
    })
}

fn has(read: &[(ClusterName, Tree)], cluster: &ClusterName) -> bool {
    read.iter().any(|(known, _)| known == cluster)
}

async fn read_one(access: &Access, context: &str) -> Result<(ClusterName, Snapshot), String> {
    let server = access.server().await.map_err(|error| chain(&error))?;
    let cluster = name(&server, context).await?;
    let snapshot = snapshot(&server).await.map_err(|error| chain(&error))?;
    Ok((cluster, snapshot))
}

/// The name of the cluster behind a context: its own, or else that of the context.
pub(crate) async fn name(server: &Server, context: &str) -> Result<ClusterName, String> {
    match identify(server).await {
        Ok(name) => Ok(name),
        Err(IdentityError::Missing) => ClusterName::try_new(context).map_err(|e| chain(&e)),
        Err(error) => Err(chain(&error)),
    }
}
