//! `tombolo registry grant`: roles and users of etcd.

use std::fs;
use std::path::PathBuf;

use clap::Args;
use ipnet::IpNet;
use tombolo_model::names::{Namespace, Region};
use tombolo_model::record::Member;
use tombolo_registry::etcd::{Grantee, Malformed, Proof, Role};

use super::{RegistryArgs, failed, say};
use crate::clock;
use crate::exit::Exit;
use crate::input::Refusal;

/// Gives a cluster or a replicator access to the registry: what it needs, and nothing else.
///
/// Makes the role and user of etcd, or makes them what they should be, and records the cluster as a
/// member. Needs etcd's root user. The rules are in force once authentication is on (`etcdctl auth
/// enable`).
#[derive(Debug, Args)]
pub(crate) struct GrantArgs {
    /// The cluster: it may write its own prefix and read the root.
    #[arg(long, value_name = "CLUSTER", required_unless_present = "replicator")]
    pub(crate) cluster: Option<String>,

    /// The region whose replicator it is: at a peer, it may write that region.
    #[arg(long, value_name = "REGION", conflicts_with = "cluster")]
    pub(crate) replicator: Option<String>,

    /// With --replicator: this is the region's own etcd, where the replicator only reads.
    #[arg(long, requires = "replicator")]
    pub(crate) source: bool,

    /// The name of the user. Default: that of the role.
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,

    /// A file whose first line is the new user's password. Without one, the user shows a client
    /// certificate with its name as common name.
    #[arg(long, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,

    /// The networks that the cluster's endpoints may be in. Default: any.
    #[arg(long, value_name = "CIDR", value_delimiter = ',', requires = "cluster")]
    pub(crate) cidr: Vec<IpNet>,

    /// The namespaces that the cluster may export. Default: any.
    #[arg(
        long,
        value_name = "NAMESPACE",
        value_delimiter = ',',
        requires = "cluster"
    )]
    pub(crate) namespaces: Vec<String>,

    /// Print the etcdctl commands and change nothing.
    #[arg(long)]
    pub(crate) print: bool,

    #[command(flatten)]
    pub(crate) registry: RegistryArgs,
}

// === impl GrantArgs ===

impl GrantArgs {
    fn grantee(&self) -> Result<Grantee, Refusal> {
        if let Some(cluster) = &self.cluster {
            return Ok(Grantee::Cluster(self.registry.origin(cluster)?));
        }
        let region = Region::try_new(self.replicator.as_deref().unwrap_or_default())
            .map_err(|error| Refusal::usage(vec![format!("--replicator: {error}")]))?;
        Ok(if self.source {
            Grantee::ReplicatorFrom(region)
        } else {
            Grantee::ReplicatorTo(region)
        })
    }

    fn proof(&self) -> Result<Proof, Refusal> {
        let Some(file) = &self.password_file else {
            return Ok(Proof::Certificate);
        };
        let read = fs::read_to_string(file);
        let text = read.map_err(|error| Refusal::failed(format!("{}: {error}", file.display())))?;
        match text.lines().next() {
            Some(line) if !line.is_empty() => Ok(Proof::Password(line.to_owned())),
            Some(_) | None => {
                let file = file.display();
                Err(Refusal::failed(format!("{file}: the first line is empty")))
            }
        }
    }
}

pub(super) async fn run(args: GrantArgs) -> Result<Exit, Refusal> {
    let grantee = args.grantee()?;
    let namespaces = args.namespaces.iter().map(|name| {
        Namespace::try_new(name)
            .map_err(|error| Refusal::usage(vec![format!("--namespaces: {error}")]))
    });
    let namespaces: Vec<_> = namespaces.collect::<Result<_, _>>()?;
    let config = args.registry.config()?;
    let role = Role::of(&config.layout, &grantee);
    let user = args.user.clone().unwrap_or_else(|| role.name.clone());
    if args.print {
        return say(&(role.commands(&user).join("\n") + "\n"));
    }
    let proof = args.proof()?;
    let operator = args.registry.operator()?;
    failed(operator.grant(&grantee, &user, &proof).await)?;
    if let Grantee::Cluster(origin) = &grantee {
        let now = clock::now();
        let recorded = operator.edit_member(origin, Malformed::Replaced, |known| Member {
            joined: known.as_ref().map_or(now, |known| known.joined),
            cidrs: args.cidr.clone(),
            namespaces: namespaces.clone(),
            drained: known.is_some_and(|known| known.drained),
        });
        failed(recorded.await)?;
    }
    let name = &role.name;
    say(&format!("user {user} has role {name}\n"))
}
