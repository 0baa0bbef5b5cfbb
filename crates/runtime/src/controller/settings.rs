//! The controller's arguments and what they mean.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use ipnet::IpNet;
use jiff::SignedDuration;
use tombolo_cluster::api::{Access, Resource, ResourceError};
use tombolo_model::config::Config;
use tombolo_model::names::ClusterName;

use crate::input::Refusal;
use crate::registry::RegistryArgs;
use crate::rules::{RuleArgs, Rules};

/// Runs the controller of a cluster.
///
/// Of several controllers of one cluster the holder of a Lease acts, the others stand by. SIGTERM
/// and Ctrl-C end it; the objects stay.
#[derive(Debug, Args)]
pub(crate) struct ControllerArgs {
    /// The cluster's name in the clusterset. Default: the value of its ClusterProperty
    /// cluster.clusterset.k8s.io.
    #[arg(long, value_name = "NAME", env = "TOMBOLO_CLUSTER")]
    pub(crate) cluster: Option<String>,

    #[command(flatten)]
    pub(crate) access: AccessArgs,

    #[command(flatten)]
    pub(crate) registry: RegistryArgs,

    /// Take the cluster's name in the registry from the cluster that has it, or come back after
    /// leaving for good. For a cluster that was rebuilt; give it once.
    #[arg(long, env = "TOMBOLO_TAKE_OVER", requires = "registry")]
    pub(crate) take_over: bool,

    #[command(flatten)]
    pub(crate) lease: LeaseArgs,

    #[command(flatten)]
    pub(crate) rules: RuleArgs,

    #[command(flatten)]
    pub(crate) resources: ResourceArgs,

    #[command(flatten)]
    pub(crate) networks: NetworkArgs,

    #[command(flatten)]
    pub(crate) hold: HoldArgs,

    #[command(flatten)]
    pub(crate) admin: AdminArgs,
}

/// How the API server is reached. Without any of these: by the service account of the pod, else by
/// the current context.
#[derive(Debug, Args)]
pub(crate) struct AccessArgs {
    /// The kubeconfig. Default: $KUBECONFIG, else ~/.kube/config.
    #[arg(long, value_name = "FILE", env = "TOMBOLO_KUBECONFIG")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig.
    #[arg(long, value_name = "NAME", env = "TOMBOLO_CONTEXT")]
    pub(crate) context: Option<String>,
}

/// The Lease that says which controller acts.
#[derive(Debug, Args)]
pub(crate) struct LeaseArgs {
    /// The namespace of the Lease.
    #[arg(
        long,
        value_name = "NAMESPACE",
        env = "TOMBOLO_LEASE_NAMESPACE",
        default_value = "tombolo-system"
    )]
    pub(crate) lease_namespace: String,

    /// The name of the Lease.
    #[arg(
        long,
        value_name = "NAME",
        env = "TOMBOLO_LEASE_NAME",
        default_value = "tombolo-controller"
    )]
    pub(crate) lease_name: String,
}

/// Other resources that stand for ServiceExports and ServiceImports.
#[derive(Debug, Args)]
pub(crate) struct ResourceArgs {
    /// Another resource that is read as ServiceExports, such as net.gke.io/v1/serviceexports. May
    /// be given several times; of two exports of one name the standard one counts.
    #[arg(
        long,
        value_name = "GROUP/VERSION/PLURAL",
        env = "TOMBOLO_EXPORT_GVR",
        value_delimiter = ','
    )]
    pub(crate) export_gvr: Vec<String>,

    /// Another resource that imports are written as too, such as net.gke.io/v1/serviceimports. May
    /// be given several times.
    #[arg(
        long,
        value_name = "GROUP/VERSION/PLURAL",
        env = "TOMBOLO_IMPORT_GVR",
        value_delimiter = ','
    )]
    pub(crate) import_gvr: Vec<String>,
}

/// The networks of this cluster's own Pods (BEHAVIOUR §7).
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct NetworkArgs {
    /// A network of this cluster's own Pods, such as 10.4.0.0/14: endpoints that other clusters
    /// claim to have in it are refused. May be given several times.
    #[arg(
        long,
        value_name = "CIDR",
        env = "TOMBOLO_POD_CIDR",
        value_delimiter = ','
    )]
    pub(crate) pod_cidr: Vec<IpNet>,

    /// A part of --pod-cidr in which other clusters have Pods too. May be given several times.
    #[arg(
        long,
        value_name = "CIDR",
        env = "TOMBOLO_SHARED_CIDR",
        value_delimiter = ',',
        requires = "pod_cidr"
    )]
    pub(crate) shared_cidr: Vec<IpNet>,
}

/// What becomes of clusters that are not heard of (BEHAVIOUR §6).
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct HoldArgs {
    /// How long the endpoints of a cluster that is not heard of stay in use, such as 90s, 10m or
    /// 1h.
    #[arg(
        long,
        value_name = "TIME",
        env = "TOMBOLO_HOLD",
        default_value = "10m",
        value_parser = parse_hold
    )]
    pub(crate) hold: SignedDuration,

    /// Whether they stay after that where no live cluster has any.
    #[arg(
        long,
        value_name = "BOOL",
        env = "TOMBOLO_KEEP_LAST",
        default_value_t = true,
        action = clap::ArgAction::Set
    )]
    pub(crate) keep_last: bool,
}

/// A length of time that is not negative.
fn parse_hold(text: &str) -> Result<SignedDuration, String> {
    let parsed: SignedDuration = text
        .parse()
        .map_err(|_| "give a time such as 90s, 10m or 1h".to_owned())?;
    if parsed.is_negative() {
        return Err("the time is negative".to_owned());
    }
    Ok(parsed)
}

/// What is told about the process.
#[derive(Debug, Args)]
pub(crate) struct AdminArgs {
    /// Where /healthz, /readyz, /metrics and /debug/state are served; `off`: nowhere.
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        env = "TOMBOLO_ADMIN",
        default_value = "127.0.0.1:9464"
    )]
    pub(crate) admin: String,

    /// What is logged: a level, or directives such as `info,tombolo_cluster=debug`.
    #[arg(
        long,
        value_name = "LEVEL",
        env = "TOMBOLO_LOG",
        default_value = "info"
    )]
    pub(crate) log: String,

    /// The form of the log.
    #[arg(long, value_enum, env = "TOMBOLO_LOG_FORMAT", default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,
}

/// Forms of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// For machines.
    Json,
}

/// The other resources, checked.
#[derive(Clone, Debug)]
pub(crate) struct Resources {
    /// Those that are read as ServiceExports.
    pub(crate) exports: Vec<Resource>,
    /// Those that imports are written as.
    pub(crate) imports: Vec<Resource>,
}

impl TryFrom<&ResourceArgs> for Resources {
    type Error = String;

    fn try_from(args: &ResourceArgs) -> Result<Self, String> {
        let ResourceArgs {
            export_gvr,
            import_gvr,
        } = args;
        Ok(Self {
            exports: resources("--export-gvr", export_gvr)?,
            imports: resources("--import-gvr", import_gvr)?,
        })
    }
}

fn resources(flag: &str, texts: &[String]) -> Result<Vec<Resource>, String> {
    let parsed = texts.iter().map(|text| text.parse());
    parsed
        .collect::<Result<_, ResourceError>>()
        .map_err(|error| format!("{flag}: {error}"))
}

/// The controller's arguments, checked.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) cluster: Option<ClusterName>,
    pub(crate) access: Access,
    rules: Rules,
    pub(crate) resources: Resources,
    /// Where the admin endpoint listens, if at all.
    pub(crate) admin: Option<SocketAddr>,
}

impl TryFrom<&ControllerArgs> for Settings {
    type Error = Refusal;

    fn try_from(args: &ControllerArgs) -> Result<Self, Refusal> {
        let mut wrong = Vec::new();
        let cluster = args.cluster.as_deref().and_then(|name| {
            ClusterName::try_new(name)
                .map_err(|error| wrong.push(format!("--cluster: {error}")))
                .ok()
        });
        if args.cluster.is_none() && !args.registry.registry.is_empty() {
            let text = "--registry: give the cluster's name by --cluster, so that no copied object decides it";
            wrong.push(text.to_owned());
        }
        let rules = Rules::try_from(&args.rules).map_err(|message| wrong.push(message));
        let resources = Resources::try_from(&args.resources).map_err(|message| wrong.push(message));
        let admin = admin_address(&args.admin.admin).map_err(|message| wrong.push(message));
        match (rules, resources, admin) {
            (Ok(rules), Ok(resources), Ok(admin)) if wrong.is_empty() => Ok(Self {
                cluster,
                access: Access::from(&args.access),
                rules: rules.with_hold(args.hold).with_networks(&args.networks),
                resources,
                admin,
            }),
            (_, _, _) => Err(Refusal::usage(wrong)),
        }
    }
}

impl Settings {
    /// The configuration of the cluster's engine.
    pub(crate) fn config(&self, cluster: ClusterName) -> Config {
        self.rules.config(cluster)
    }
}

/// Where the admin endpoint listens.
pub(crate) fn admin_address(text: &str) -> Result<Option<SocketAddr>, String> {
    if text == "off" {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| {
        format!("--admin {text}: give an address and a port, such as 127.0.0.1:9464, or off")
    })
}

impl From<&AccessArgs> for Access {
    fn from(args: &AccessArgs) -> Self {
        let AccessArgs {
            kubeconfig,
            context,
        } = args;
        let in_pod = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
        if kubeconfig.is_none() && context.is_none() && in_pod {
            return Self::InCluster;
        }
        Self::Kubeconfig {
            file: kubeconfig.clone(),
            context: context.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        controller: ControllerArgs,
    }

    fn settings(args: &[&str]) -> Result<Settings, Refusal> {
        let args = std::iter::once("tombolo").chain(args.iter().copied());
        Settings::try_from(&Cli::try_parse_from(args).unwrap().controller)
    }

    #[test]
    fn everything_wrong_is_said_at_once() {
        let args = [
            "--cluster",
            "East_1",
            "--namespaces",
            "a in",
            "--admin",
            "x",
        ];
        let messages = settings(&args).unwrap_err().messages;
        let begins = [
            "--cluster: cluster name",
            "--namespaces a in:",
            "--admin x:",
        ];
        assert_eq!(messages.len(), begins.len(), "{messages:?}");
        for (message, begin) in messages.iter().zip(begins) {
            assert!(message.starts_with(begin), "{message}");
        }
    }

    #[test]
    fn with_a_registry_the_cluster_has_to_be_named() {
        let registry = ["--registry", "http://etcd:2379"];
        let messages = settings(&registry).unwrap_err().messages;
        assert_eq!(messages.len(), 1, "{messages:?}");
        assert!(messages[0].contains("--cluster"), "{messages:?}");
        settings(&[&registry[..], &["--cluster", "east"]].concat()).unwrap();
    }

    #[test]
    fn a_hold_is_a_length_of_time() {
        let hold = |text| {
            let args = ["tombolo", "--hold", text];
            Cli::try_parse_from(args).map(|cli| cli.controller.hold.hold.as_secs())
        };
        assert_eq!(hold("90s").unwrap(), 90);
        assert_eq!(hold("1h").unwrap(), 3600);
        assert_eq!(hold("0s").unwrap(), 0);
        for wrong in ["10", "-5m", "soon"] {
            assert!(hold(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_networks_of_pods_are_given_singly_or_in_a_list() {
        let args =
            "--pod-cidr 10.4.0.0/14,fd00:4::/48 --pod-cidr 10.8.0.0/14 --shared-cidr 10.5.0.0/16";
        let args: Vec<&str> = args.split(' ').collect();
        let config = settings(&args).unwrap();
        let config = config.config(ClusterName::try_new("east").unwrap());
        let texts = |cidrs: &[IpNet]| cidrs.iter().map(ToString::to_string).collect::<Vec<_>>();
        let pods = ["10.4.0.0/14", "fd00:4::/48", "10.8.0.0/14"];
        assert_eq!(texts(&config.pod_cidrs), pods);
        assert_eq!(texts(&config.shared_cidrs), ["10.5.0.0/16"]);
        for wrong in [["--pod-cidr", "10.4.0.0"], ["--shared-cidr", "10.4.0.0/14"]] {
            let args = std::iter::once("tombolo").chain(wrong);
            assert!(Cli::try_parse_from(args).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_context_is_a_kubeconfigs() {
        let settings = settings(&["--context", "kind-a", "--admin", "off"]).unwrap();
        let access = Access::Kubeconfig {
            file: None,
            context: Some("kind-a".to_owned()),
        };
        assert_eq!((settings.access, settings.admin), (access, None));
    }
}
