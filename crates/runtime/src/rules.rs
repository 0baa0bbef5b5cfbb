//! What takes part in the clusterset and how: the same arguments wherever an engine runs.

use std::sync::Arc;

use clap::{Args, ValueEnum};
use tombolo_model::config::{Config, SliceMode};
use tombolo_model::names::{ClusterName, DerivedNaming};
use tombolo_model::selector::Selector;

use crate::controller::settings::{HoldArgs, NetworkArgs};

/// What takes part and how.
#[derive(Debug, Args)]
pub(crate) struct RuleArgs {
    /// The namespaces that may take part, as a label selector. Default: all.
    #[arg(long, value_name = "SELECTOR", env = "TOMBOLO_NAMESPACES")]
    pub(crate) namespaces: Option<String>,

    /// Whether a namespace without the annotation tombolo.dev/global takes part.
    #[arg(
        long,
        value_name = "BOOL",
        env = "TOMBOLO_GLOBAL_BY_DEFAULT",
        default_value_t = true,
        action = clap::ArgAction::Set
    )]
    pub(crate) global_by_default: bool,

    /// For which imports EndpointSlices are made.
    #[arg(
        long,
        value_enum,
        env = "TOMBOLO_ENDPOINT_SLICES",
        default_value_t = SlicesArg::All
    )]
    pub(crate) endpoint_slices: SlicesArg,

    /// How derived Services are named.
    #[arg(long, value_enum, env = "TOMBOLO_DERIVED_NAMES", default_value_t = NamesArg::Hash)]
    pub(crate) derived_names: NamesArg,

    /// Managers whose EndpointSlices stand for pods elsewhere, beside the known ones.
    #[arg(
        long,
        value_name = "MANAGER",
        env = "TOMBOLO_FOREIGN_SLICES",
        value_delimiter = ','
    )]
    pub(crate) foreign_slices: Vec<String>,
}

/// For which imports slices are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SlicesArg {
    /// For all.
    All,
    /// For headless ones: where something else routes clusterset IPs.
    Headless,
    /// For none.
    None,
}

/// How derived Services are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum NamesArg {
    /// `derived-` and ten characters of a hash.
    Hash,
    /// `<name>-clusterset`.
    Suffix,
}

/// The rules, checked: everything of an engine's configuration but the cluster's name.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    namespaces: Selector,
    global_by_default: bool,
    slices: SliceMode,
    naming: DerivedNaming,
    foreign_slice_managers: Vec<Arc<str>>,
    /// What becomes of clusters that are not heard of, where there can be any.
    hold: Option<HoldArgs>,
    /// The networks of the own Pods, where the cluster has any.
    pods: NetworkArgs,
}

impl TryFrom<&RuleArgs> for Rules {
    type Error = String;

    fn try_from(args: &RuleArgs) -> Result<Self, String> {
        let RuleArgs {
            namespaces,
            global_by_default,
            endpoint_slices,
            derived_names,
            foreign_slices,
        } = args;
        let namespaces = match namespaces.as_deref() {
            None => Selector::default(),
            Some(text) => text
                .parse()
                .map_err(|error| format!("--namespaces {text}: {error}"))?,
        };
        Ok(Self {
            namespaces,
            global_by_default: *global_by_default,
            slices: match endpoint_slices {
                SlicesArg::All => SliceMode::All,
                SlicesArg::Headless => SliceMode::Headless,
                SlicesArg::None => SliceMode::None,
            },
            naming: match derived_names {
                NamesArg::Hash => DerivedNaming::Hash,
                NamesArg::Suffix => DerivedNaming::Suffix,
            },
            foreign_slice_managers: foreign_slices.iter().map(|m| m.as_str().into()).collect(),
            hold: None,
            pods: NetworkArgs::default(),
        })
    }
}

impl Rules {
    /// The same where clusters may be not heard of.
    #[must_use]
    pub(crate) fn with_hold(self, hold: HoldArgs) -> Self {
        let hold = Some(hold);
        Self { hold, ..self }
    }

    /// The same for a cluster whose Pods are in these networks.
    #[must_use]
    pub(crate) fn with_networks(self, pods: &NetworkArgs) -> Self {
        let pods = pods.clone();
        Self { pods, ..self }
    }

    /// The configuration of a cluster's engine.
    pub(crate) fn config(&self, cluster: ClusterName) -> Config {
        let Self {
            namespaces,
            global_by_default,
            slices,
            naming,
            foreign_slice_managers,
            hold,
            pods,
        } = self.clone();
        let mut config = Config::new(cluster);
        if let Some(HoldArgs { hold, keep_last }) = hold {
            (config.hold, config.keep_last) = (hold, keep_last);
        }
        Config {
            namespaces,
            global_by_default,
            slices,
            naming,
            foreign_slice_managers,
            pod_cidrs: pods.pod_cidr,
            shared_cidrs: pods.shared_cidr,
            ..config
        }
    }
}
