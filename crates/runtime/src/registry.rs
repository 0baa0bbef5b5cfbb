//! The command `tombolo registry`, and the arguments by which every command finds a registry.

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use tombolo_model::names::{ClusterName, Region};
use tombolo_model::record::{Origin, Settings};
use tombolo_registry::etcd::{EtcdConfig, EtcdRegistry, Operator, Password, TlsFiles, User};
use tombolo_registry::key::{Layout, ROOT_DEFAULT};
use tombolo_registry::registry::REGION_DEFAULT;

use crate::exit::Exit;
use crate::input::{Refusal, chain};
use crate::print;

mod check;
mod document;
mod grant;
pub(crate) mod metrics;
mod show;

pub(crate) use self::check::CheckArgs;
pub(crate) use self::grant::GrantArgs;
pub(crate) use self::show::ShowArgs;

/// Where the registry is, and who is asking.
#[derive(Clone, Debug, Args)]
pub(crate) struct RegistryArgs {
    /// The client URLs of the etcd through which clusters meet: https://HOST:PORT, one for each
    /// member.
    #[arg(
        long,
        value_name = "URL",
        env = "TOMBOLO_REGISTRY",
        value_delimiter = ','
    )]
    pub(crate) registry: Vec<String>,

    /// What all keys begin with.
    #[arg(long, value_name = "KEY", env = "TOMBOLO_REGISTRY_ROOT", default_value = ROOT_DEFAULT)]
    pub(crate) registry_root: String,

    /// The certificate of who signed those of the etcd servers. Default: the system's authorities.
    #[arg(long, value_name = "FILE", env = "TOMBOLO_REGISTRY_CA")]
    pub(crate) registry_ca: Option<PathBuf>,

    /// The own certificate. Read again when it changes.
    #[arg(
        long,
        value_name = "FILE",
        env = "TOMBOLO_REGISTRY_CERT",
        requires = "registry_key"
    )]
    pub(crate) registry_cert: Option<PathBuf>,

    /// The key of the own certificate.
    #[arg(
        long,
        value_name = "FILE",
        env = "TOMBOLO_REGISTRY_KEY",
        requires = "registry_cert"
    )]
    pub(crate) registry_key: Option<PathBuf>,

    /// The name that the servers' certificates are for, if not that of their URLs.
    #[arg(long, value_name = "NAME", env = "TOMBOLO_REGISTRY_SERVER_NAME")]
    pub(crate) registry_server_name: Option<String>,

    /// The user of etcd, where certificates do not say who it is.
    #[arg(
        long,
        value_name = "NAME",
        env = "TOMBOLO_REGISTRY_USER",
        requires = "registry_password_file"
    )]
    pub(crate) registry_user: Option<String>,

    /// A file whose first line is the user's password. Read again when it changes.
    #[arg(
        long,
        value_name = "FILE",
        env = "TOMBOLO_REGISTRY_PASSWORD_FILE",
        requires = "registry_user"
    )]
    pub(crate) registry_password_file: Option<PathBuf>,

    /// The region of this etcd.
    #[arg(long, value_name = "REGION", env = "TOMBOLO_REGION", default_value = REGION_DEFAULT)]
    pub(crate) region: String,
}

/// Looks into the registry, and changes it as an operator.
#[derive(Debug, Args)]
pub(crate) struct RegistryCommandArgs {
    #[command(subcommand)]
    pub(crate) command: RegistryCommand,
}

/// What is done.
#[derive(Debug, Subcommand)]
pub(crate) enum RegistryCommand {
    Get(ShowArgs),
    /// Shows what changes, until Ctrl-C.
    Watch(ShowArgs),
    /// Finds what should not be there, and says what to do. Exit code 2 if there is anything.
    Check(CheckArgs),
    Grant(GrantArgs),
    SetConfig(SetConfigArgs),
    RemoveCluster(ClusterArgs),
}

/// Sets what holds for the whole registry.
#[derive(Debug, Args)]
pub(crate) struct SetConfigArgs {
    /// Whether an export counts as created no earlier than its cluster joined.
    #[arg(long, value_name = "BOOL", action = clap::ArgAction::Set)]
    pub(crate) precedence_from_join: bool,

    #[command(flatten)]
    pub(crate) registry: RegistryArgs,
}

/// Takes a cluster out for good: everything of it is deleted in every cluster at once.
///
/// For one that does not exist any more. It publishes nothing until it is started with --take-over.
#[derive(Debug, Args)]
pub(crate) struct ClusterArgs {
    /// The cluster.
    #[arg(value_name = "CLUSTER")]
    pub(crate) cluster: String,

    #[command(flatten)]
    pub(crate) registry: RegistryArgs,
}

/// Who is asking at an etcd, and whom it trusts. A half of a pair counts as neither.
#[derive(Clone, Debug, Default)]
pub(crate) struct Credentials {
    /// Who signed the servers' certificates.
    pub(crate) ca: Option<PathBuf>,
    pub(crate) cert: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
    /// The name that the servers' certificates are for.
    pub(crate) server_name: Option<String>,
    pub(crate) user: Option<String>,
    pub(crate) password_file: Option<PathBuf>,
}

impl Credentials {
    /// Makes them those of an etcd, instead of the ones it has.
    pub(crate) fn set(self, config: &mut EtcdConfig) {
        let Self {
            ca,
            cert,
            key,
            server_name,
            user,
            password_file,
        } = self;
        let user = user.zip(password_file);
        config.user = user.map(|(name, file)| User {
            name,
            password: Password::File(file),
        });
        config.tls = TlsFiles {
            authority: ca,
            identity: cert.zip(key),
            server_name,
        };
    }
}

// === impl RegistryArgs ===

impl RegistryArgs {
    /// The etcd that they name.
    pub(crate) fn config(&self) -> Result<EtcdConfig, Refusal> {
        let mut wrong = Vec::new();
        if self.registry.is_empty() {
            wrong.push("--registry is needed: the URL of an etcd".to_owned());
        }
        let layout = Layout::try_new(&self.registry_root)
            .inspect_err(|error| wrong.push(format!("--registry-root: {error}")))
            .unwrap_or_default();
        let mut config = EtcdConfig::new(self.registry.iter().map(String::as_str));
        config.layout = layout;
        self.credentials().set(&mut config);
        if wrong.is_empty()
            && let Err(error) = config.check()
        {
            wrong.push(format!("--registry: {error}"));
        }
        if wrong.is_empty() {
            Ok(config)
        } else {
            Err(Refusal::usage(wrong))
        }
    }

    fn credentials(&self) -> Credentials {
        Credentials {
            ca: self.registry_ca.clone(),
            cert: self.registry_cert.clone(),
            key: self.registry_key.clone(),
            server_name: self.registry_server_name.clone(),
            user: self.registry_user.clone(),
            password_file: self.registry_password_file.clone(),
        }
    }

    /// The region that they name.
    pub(crate) fn region(&self) -> Result<Region, Refusal> {
        Region::try_new(&self.region)
            .map_err(|error| Refusal::usage(vec![format!("--region: {error}")]))
    }

    /// A cluster of this region.
    pub(crate) fn origin(&self, cluster: &str) -> Result<Origin, Refusal> {
        let region = self.region()?;
        let cluster = ClusterName::try_new(cluster)
            .map_err(|error| Refusal::usage(vec![error.to_string()]))?;
        Ok(Origin { region, cluster })
    }

    pub(crate) fn operator(&self) -> Result<Operator, Refusal> {
        let operator = Operator::try_new(self.config()?);
        operator.map_err(|error| Refusal::usage(vec![error.to_string()]))
    }

    /// For reading; nothing is written through it.
    pub(crate) fn reader(&self) -> Result<EtcdRegistry, Refusal> {
        let origin = self.origin("reader")?;
        let reader = EtcdRegistry::try_new(self.config()?, origin);
        reader.map_err(|error| Refusal::usage(vec![error.to_string()]))
    }
}

/// Runs the command.
pub(crate) async fn run(args: RegistryCommandArgs) -> Result<Exit, Refusal> {
    match args.command {
        RegistryCommand::Get(args) => show::get(args).await,
        RegistryCommand::Watch(args) => show::watch(args).await,
        RegistryCommand::Check(args) => check::run(args).await,
        RegistryCommand::Grant(args) => Box::pin(grant::run(args)).await,
        RegistryCommand::SetConfig(args) => set_config(args).await,
        RegistryCommand::RemoveCluster(args) => remove_cluster(args).await,
    }
}

async fn set_config(args: SetConfigArgs) -> Result<Exit, Refusal> {
    let region = args.registry.region()?;
    let settings = Settings {
        precedence_from_join: args.precedence_from_join,
    };
    let operator = args.registry.operator()?;
    failed(operator.set_settings(&region, &settings).await)?;
    say(&format!("settings of region {region} are set\n"))
}

async fn remove_cluster(args: ClusterArgs) -> Result<Exit, Refusal> {
    let origin = args.registry.origin(&args.cluster)?;
    let cluster = &origin.cluster;
    let operator = args.registry.operator()?;
    if failed(operator.remove_cluster(&origin).await)? {
        return say(&format!(
            "cluster {cluster} is removed: it publishes nothing more unless it is started with \
             --take-over\n"
        ));
    }
    let region = &origin.region;
    Err(Refusal::failed(format!(
        "there is no cluster {cluster} in region {region} of this registry"
    )))
}

pub(crate) fn failed<T, E: std::error::Error>(result: Result<T, E>) -> Result<T, Refusal> {
    result.map_err(|error| Refusal::failed(chain(&error)))
}

fn say(text: &str) -> Result<Exit, Refusal> {
    failed(print::out(text))?;
    Ok(Exit::Well)
}

/// What is asked for below the root: clusters, namespaces, services; everything if none.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    clusters: BTreeSet<String>,
    namespaces: BTreeSet<String>,
}

// === impl Filter ===

impl Filter {
    fn takes(&self, cluster: Option<&str>, namespace: Option<&str>) -> bool {
        let one = |wanted: &BTreeSet<String>, found: Option<&str>| {
            wanted.is_empty() || found.is_some_and(|found| wanted.contains(found))
        };
        one(&self.clusters, cluster) && one(&self.namespaces, namespace)
    }
}
