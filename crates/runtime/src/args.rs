//! The command line as it is typed. What it means is checked by each command.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::clusterset::Joining;
use crate::controller::settings::{
    AccessArgs, AdminArgs, ControllerArgs, HoldArgs, LeaseArgs, ResourceArgs,
};
use crate::controller::take_over;
use crate::dns::settings::DnsArgs;
use crate::dns_stub::DnsStubArgs;
use crate::input::Refusal;
use crate::membership::{MemberArgs, OutArgs};
use crate::registry::{RegistryArgs, RegistryCommandArgs};
use crate::replicator::ReplicatorArgs;
use crate::rules::RuleArgs;
use crate::shared::Shared;
use crate::zones::ZoneArgs;

/// Joins Kubernetes clusters into one clusterset.
///
/// A ServiceExport in one cluster makes the Service reachable in every cluster that has the
/// namespace, as <service>.<namespace>.svc.clusterset.local (Multi-Cluster Services API, KEP-1645).
#[derive(Debug, Parser)]
#[command(name = "tombolo", version, disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Plan(Box<PlanArgs>),
    Up(Box<UpArgs>),
    Controller(Box<ControllerArgs>),
    Dns(Box<DnsArgs>),
    DnsStub(Box<DnsStubArgs>),
    Crds(CrdsArgs),
    Registry(Box<RegistryCommandArgs>),
    Replicator(Box<ReplicatorArgs>),
    /// Takes a cluster's endpoints out, in every cluster; its exports stay.
    ///
    /// Names the services of which no other live cluster has a ready endpoint, and wants --yes for
    /// them.
    Drain(Box<OutArgs>),
    /// Brings the endpoints of a drained cluster back.
    Undrain(Box<MemberArgs>),
    /// Takes a cluster out of the clusterset for good, with all that it exports.
    ///
    /// Its controller publishes nothing more until it is started with --take-over. Names the
    /// services of which no other live cluster has a ready endpoint, and wants --yes for them.
    Leave(Box<OutArgs>),
}

/// Shows what each cluster would hold; changes nothing.
///
/// Each SOURCE is a directory of Kubernetes manifests and stands for one cluster of the
/// directory's name; or a single SOURCE holds a directory for each cluster. Read are Namespaces,
/// Services, EndpointSlices, ServiceExports and ServiceImports from all *.yaml, *.yml and *.json
/// files; other objects are ignored.
///
/// Exit code: 0 all is well, 2 there are conflicts or invalid objects, 1 it cannot be done, 64 the
/// command line is wrong.
#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    pub(crate) sources: SourceArgs,

    /// Show the state after these changes: DIR holds apply/CLUSTER and delete/CLUSTER with
    /// manifests. May be given several times; applied in order.
    #[arg(long, value_name = "DIR")]
    pub(crate) then: Vec<PathBuf>,

    /// Ask the DNS server of each cluster, as in 'web.shop.svc.clusterset.local A'. May be given
    /// several times.
    #[arg(long, value_name = "NAME TYPE")]
    pub(crate) query: Vec<String>,

    /// What is printed.
    #[arg(short, long, value_enum, default_value_t = Format::Table, env = "TOMBOLO_OUTPUT")]
    pub(crate) output: Format,
}

/// Runs a whole clusterset in this process, from directories of manifests or clusters.
///
/// With directories: watches the files, shows what each cluster holds as they change, and answers
/// DNS queries for each cluster on a local port. With context:NAME of a kubeconfig: joins these
/// clusters as controllers of theirs would. With --registry, all of them join the clusterset that
/// meets there; with --read-only they only look on. Ctrl-C ends it.
#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    #[command(flatten)]
    pub(crate) sources: SourceArgs,

    /// Show the state once and end, with the exit code of `plan`.
    #[arg(long)]
    pub(crate) once: bool,

    /// Where the DNS server of the first cluster listens; the next cluster's has the next port.
    /// With port 0, the default, each gets any free port. The addresses are shown.
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "TOMBOLO_UP_DNS",
        default_value = "127.0.0.1:0"
    )]
    pub(crate) dns: SocketAddr,

    /// Answer no DNS queries.
    #[arg(long)]
    pub(crate) no_dns: bool,

    /// With contexts: remove at the end what was made. Otherwise the imports stay as they are.
    #[arg(long)]
    pub(crate) clean: bool,

    #[command(flatten)]
    pub(crate) join: JoinArgs,

    #[command(flatten)]
    pub(crate) lease: LeaseArgs,

    #[command(flatten)]
    pub(crate) resources: ResourceArgs,

    #[command(flatten)]
    pub(crate) admin: AdminArgs,
}

/// A real clusterset that the clusters of this process are a part of.
///
/// It has to be on the command line: a registry that only the environment names is not joined.
#[derive(Debug, Args)]
pub(crate) struct JoinArgs {
    /// With --registry: write nothing there. The clusters import what the clusterset has; what
    /// they export stays with each of them.
    #[arg(long)]
    pub(crate) read_only: bool,

    /// With --registry: take the names of the clusters from those that have them there, or come
    /// back after leaving for good.
    #[arg(long, conflicts_with = "read_only")]
    pub(crate) take_over: bool,

    #[command(flatten)]
    pub(crate) registry: RegistryArgs,

    #[command(flatten)]
    pub(crate) hold: HoldArgs,
}

/// The CRDs of the Multi-Cluster Services API.
#[derive(Debug, Args)]
pub(crate) struct CrdsArgs {
    #[command(subcommand)]
    pub(crate) command: CrdsCommand,
}

/// What is done with the CRDs.
#[derive(Debug, Subcommand)]
pub(crate) enum CrdsCommand {
    /// Prints them as YAML.
    Print,
    /// Installs or upgrades them, and waits until they are established. Newer ones are left alone.
    Apply(AccessArgs),
}

/// Where the clusters are, and what their networks are like.
#[derive(Debug, Args)]
pub(crate) struct SourceArgs {
    /// Directories of manifests: each a cluster, or one that holds a directory per cluster. Or
    /// context:NAME, a cluster of a kubeconfig.
    #[arg(required = true, value_name = "SOURCE")]
    pub(crate) sources: Vec<PathBuf>,

    /// With contexts: the kubeconfig. Default: $KUBECONFIG, else ~/.kube/config.
    #[arg(long, value_name = "FILE", env = "TOMBOLO_KUBECONFIG")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// Write the objects that Tombolo would write to DIR/CLUSTER/*.yaml. DIR must be new, empty or
    /// from an earlier run; what is no longer wanted is removed.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// The IP families of a cluster's network, in its order. Default: those that its own Services
    /// name; if none does, those that any Service names; else IPv4.
    #[arg(long, value_name = "CLUSTER=IPv4,IPv6")]
    pub(crate) families: Vec<String>,

    /// Where clusterset IPs are taken from: an IPv4 and an IPv6 network.
    #[arg(
        long,
        value_name = "CIDR",
        env = "TOMBOLO_VIP_CIDR",
        value_delimiter = ','
    )]
    pub(crate) vip_cidr: Vec<String>,

    #[command(flatten)]
    pub(crate) zones: ZoneArgs,

    #[command(flatten)]
    pub(crate) rules: RuleArgs,
}

impl JoinArgs {
    /// What the clusters join, and what they do there.
    pub(crate) fn joining(&self) -> Result<Joining, Refusal> {
        Ok(Joining {
            shared: Shared::of(&self.registry)?,
            publishes: (!self.read_only).then(|| take_over(self.take_over)),
        })
    }
}

/// Forms of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Table,
    /// For scripts.
    Json,
    /// For scripts and people.
    Yaml,
}
