//! What `plan` and `up` read before they begin: clusters, their families, where addresses come
//! from. Everything that is wrong is said at once.

use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use jiff::{SignedDuration, Timestamp};
use tombolo_cluster::families::default_families;
use tombolo_cluster::manifest::{Declared, Manifests, Problem, find_clusters};
use tombolo_cluster::store::VipRanges;
use tombolo_dns::{TTL_DEFAULT_SECS, Zones};
use tombolo_model::names::ClusterName;
use tombolo_model::service::IpFamily;

use crate::args::SourceArgs;
use crate::exit::Exit;
use crate::rules::Rules;
use crate::view::ErrorView;

/// Why a command cannot begin: what to tell and how to end.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) exit: Exit,
    pub(crate) messages: Vec<String>,
}

impl Refusal {
    /// The command line is wrong.
    pub(crate) fn usage(messages: Vec<String>) -> Self {
        Self {
            exit: Exit::Usage,
            messages,
        }
    }

    /// It cannot be done.
    pub(crate) fn failed(message: String) -> Self {
        Self {
            exit: Exit::Failed,
            messages: vec![message],
        }
    }

    /// It cannot be done, for each of these reasons.
    pub(crate) fn of<E: StdError>(errors: &[E]) -> Self {
        Self {
            exit: Exit::Failed,
            messages: errors.iter().map(|e| chain(e)).collect(),
        }
    }
}

/// An error with all its causes, on one line.
pub(crate) fn chain(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

/// What a source begins with that is a context of a kubeconfig.
const CONTEXT: &str = "context:";

/// The context that a source is, if it is one.
pub(crate) fn context_of(source: &Path) -> Option<String> {
    let name = source.to_str()?.strip_prefix(CONTEXT)?;
    Some(name.to_owned())
}

/// The checked arguments that `plan` and `up` share.
#[derive(Debug)]
pub(crate) struct Setup {
    /// The directories as they are given: clusters, or one that holds them.
    directories: Vec<PathBuf>,
    pub(crate) clusters: BTreeMap<ClusterName, PathBuf>,
    pub(crate) vips: VipRanges,
    pub(crate) zones: Zones,
    pub(crate) rules: Rules,
    families: BTreeMap<ClusterName, Vec<IpFamily>>,
}

impl TryFrom<&SourceArgs> for Setup {
    type Error = Refusal;

    fn try_from(args: &SourceArgs) -> Result<Self, Refusal> {
        let SourceArgs {
            sources,
            kubeconfig: _,
            out: _,
            families,
            vip_cidr,
            zones,
            rules,
        } = args;
        let mut wrong = Vec::new();
        let vips = vip_ranges(vip_cidr).unwrap_or_else(|message| {
            wrong.push(format!("--vip-cidr: {message}"));
            VipRanges::default()
        });
        let zones = zones.zones().unwrap_or_else(|mut messages| {
            wrong.append(&mut messages);
            Zones::new([], TTL_DEFAULT_SECS)
        });
        let rules = Rules::try_from(rules).map_err(|message| wrong.push(message));
        let given: Vec<_> = families
            .iter()
            .filter_map(|text| match cluster_families(text) {
                Ok(pair) => Some(pair),
                Err(message) => {
                    wrong.push(format!("--families {text}: {message}"));
                    None
                }
            })
            .collect();
        let rules = match rules {
            Ok(rules) if wrong.is_empty() => rules,
            Ok(_) | Err(()) => return Err(Refusal::usage(wrong)),
        };
        let directories = sources.iter().filter(|source| context_of(source).is_none());
        let directories: Vec<PathBuf> = directories.cloned().collect();
        let clusters = if directories.is_empty() {
            BTreeMap::new()
        } else {
            find_clusters(&directories).map_err(|errors| Refusal::of(&errors))?
        };
        let mut families = BTreeMap::new();
        for (cluster, list) in given {
            if !clusters.contains_key(&cluster) {
                let known: Vec<&str> = clusters.keys().map(ClusterName::as_str).collect();
                let known = known.join(", ");
                wrong.push(format!(
                    "--families: no cluster is named {cluster}, there are {known}"
                ));
            } else if families.insert(cluster.clone(), list).is_some() {
                wrong.push(format!("--families: {cluster} is there twice"));
            }
        }
        if wrong.is_empty() {
            Ok(Self {
                directories,
                clusters,
                vips,
                zones,
                rules,
                families,
            })
        } else {
            Err(Refusal::usage(wrong))
        }
    }
}

impl Setup {
    /// The directories that would be clusters now, and were not there at the start.
    pub(crate) fn newcomers(&self) -> Vec<PathBuf> {
        let found = find_clusters(&self.directories).unwrap_or_default();
        let new = found
            .into_iter()
            .filter(|(name, _)| !self.clusters.contains_key(name));
        new.map(|(_, directory)| directory).collect()
    }

    /// Adds what the networks of clusters say themselves, where the user does not.
    pub(crate) fn add_families(&mut self, cluster: ClusterName, families: Vec<IpFamily>) {
        self.families.entry(cluster).or_insert(families);
    }

    /// The families of each cluster's network: those given, else what the Services name.
    pub(crate) fn families<'a>(
        &self,
        manifests: impl IntoIterator<Item = (&'a ClusterName, &'a Manifests)>,
    ) -> BTreeMap<ClusterName, Vec<IpFamily>> {
        let named = manifests
            .into_iter()
            .map(|(cluster, manifests)| (cluster.clone(), manifests.families_named()))
            .collect();
        let mut families = default_families(&named);
        families.extend(self.families.clone());
        families
    }
}

fn vip_ranges(texts: &[String]) -> Result<VipRanges, String> {
    let parse = |text: &String| {
        text.trim()
            .parse::<IpNet>()
            .map_err(|_| format!("{text:?} is no network like 240.16.0.0/12"))
    };
    let cidrs = texts.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
    VipRanges::try_new(&cidrs).map_err(|error| error.to_string())
}

/// Reads `CLUSTER=IPv4,IPv6`.
fn cluster_families(text: &str) -> Result<(ClusterName, Vec<IpFamily>), String> {
    let (cluster, list) = text
        .split_once('=')
        .ok_or_else(|| "it has the form CLUSTER=IPv4,IPv6".to_owned())?;
    let cluster = ClusterName::try_new(cluster).map_err(|error| error.to_string())?;
    let mut families = Vec::new();
    for word in list.split(',') {
        let family = IpFamily::parse(word.trim())
            .ok_or_else(|| format!("{word:?} is no IP family: give IPv4, IPv6 or both"))?;
        if families.contains(&family) {
            return Err(format!("{family} is there twice"));
        }
        families.push(family);
    }
    Ok((cluster, families))
}

/// A problem of a cluster's files as it is shown.
pub(crate) fn error_view(cluster: &ClusterName, problem: &Problem) -> ErrorView {
    ErrorView {
        cluster: cluster.to_string(),
        file: Some(problem.file.display().to_string()),
        document: problem.place.map(|place| place.document),
        line: problem.place.map(|place| place.line),
        message: problem.reason.clone(),
    }
}

/// The newest creation time of any object, a second later: the time of a plan, so that two runs
/// of one input say the same, and an export without a time counts after all that have one.
pub(crate) fn plan_time<'a>(states: impl IntoIterator<Item = &'a Manifests>) -> Timestamp {
    let newest = states
        .into_iter()
        .flat_map(Manifests::objects)
        .filter_map(created)
        .max()
        .unwrap_or(Timestamp::UNIX_EPOCH);
    newest
        .checked_add(SignedDuration::from_secs(1))
        .unwrap_or(newest)
}

fn created(object: &Declared) -> Option<Timestamp> {
    match object {
        Declared::Namespace(_) => None,
        Declared::Service(o) => o
            .object
            .metadata
            .creation_timestamp
            .as_ref()
            .map(|time| time.0),
        Declared::EndpointSlice(o) => o.meta.created,
        Declared::ServiceExport(o) => o.object.meta.created,
        Declared::ServiceImport(o) => o.meta.created,
    }
}
