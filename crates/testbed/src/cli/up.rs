//! `testbed up`: options of clusters.

use anyhow::{Context as _, Result, ensure};
use clap::Args as ClapArgs;
use tombolo_testbed::{Cache, ClusterSpec, Families, Progress, Spec, Testbed};

use super::{Place, hold};
use crate::report;

/// Options with CLUSTER= in front count for that cluster alone
#[derive(Debug, ClapArgs)]
pub(crate) struct Up {
    /// Number of clusters
    #[arg(default_value_t = 2)]
    count: usize,
    /// Names of the clusters [default: c1, c2, …]
    #[arg(long, value_delimiter = ',')]
    names: Vec<String>,
    /// Nodes per cluster (1 if no number is given)
    #[arg(long, value_name = "[CLUSTER=]NUMBER", num_args = 0..=1, default_missing_value = "1", require_equals = true)]
    nodes: Vec<String>,
    /// Kubernetes version
    #[arg(long, value_name = "[CLUSTER=]VERSION")]
    kubernetes: Vec<String>,
    /// IP families, the primary one first
    #[arg(long, value_name = "[CLUSTER=]FAMILIES")]
    families: Vec<String>,
    /// Admission plugins beside the default ones
    #[arg(long, value_name = "[CLUSTER=]PLUGINS")]
    admission_plugins: Vec<String>,
    /// A further argument of the API server, such as --watch-cache=false
    #[arg(long, value_name = "[CLUSTER=]ARG", allow_hyphen_values = true)]
    apiserver_arg: Vec<String>,
    /// CoreDNS on the first node of each cluster
    #[arg(long)]
    dns: bool,
    #[command(flatten)]
    place: Place,
}

impl Up {
    /// Starts the clusters and holds them.
    pub(crate) fn run(self) -> Result<()> {
        let detach = self.place.detach;
        let testbed = Testbed::start_with(&self.spec()?, Cache::from_env()?, Progress::stderr())?;
        report::clusters(&testbed);
        hold(testbed, detach)
    }

    fn spec(self) -> Result<Spec> {
        let mut spec = Spec::clusters(self.count, |cluster| cluster);
        if !self.names.is_empty() {
            ensure!(
                self.names.len() == self.count,
                "--names: {} are needed",
                self.count
            );
            spec.clusters = self.names.into_iter().map(ClusterSpec::new).collect();
        }
        let clusters = &mut spec.clusters;
        set(clusters, "--nodes", &self.nodes, |cluster, value| {
            cluster.nodes = value.parse()?;
            Ok(())
        })?;
        set(
            clusters,
            "--kubernetes",
            &self.kubernetes,
            |cluster, value| {
                cluster.kubernetes = value.parse()?;
                Ok(())
            },
        )?;
        set(clusters, "--families", &self.families, |cluster, value| {
            cluster.families = value.parse::<Families>()?;
            Ok(())
        })?;
        set(
            clusters,
            "--admission-plugins",
            &self.admission_plugins,
            |cluster, value| {
                cluster
                    .admission_plugins
                    .extend(value.split(',').map(str::to_owned));
                Ok(())
            },
        )?;
        set(
            clusters,
            "--apiserver-arg",
            &self.apiserver_arg,
            |cluster, value| {
                cluster.apiserver_args.push(value.to_owned());
                Ok(())
            },
        )?;
        for cluster in clusters.iter_mut() {
            cluster.dns = self.dns && cluster.nodes > 0;
        }
        (spec.id, spec.state) = (self.place.id, self.place.state);
        Ok(spec)
    }
}

/// Sets an option of all clusters, or of the one that is named before `=`. Those for one come
/// last, so that they count whatever the order.
fn set(
    clusters: &mut [ClusterSpec],
    option: &str,
    values: &[String],
    apply: impl Fn(&mut ClusterSpec, &str) -> Result<()>,
) -> Result<()> {
    let split = |value: &'_ String| {
        let (name, rest) = value.split_once('=')?;
        let index = clusters.iter().position(|cluster| cluster.name == name);
        // An argument of the API server has a = of its own.
        (index.is_some() || !name.starts_with('-'))
            .then(|| (name.to_owned(), index, rest.to_owned()))
    };
    let (one, all): (Vec<_>, Vec<_>) = values
        .iter()
        .map(|value| (split(value), value))
        .partition(|(one, _)| one.is_some());
    for (_, value) in all {
        for cluster in clusters.iter_mut() {
            apply(cluster, value).with_context(|| format!("{option} {value}"))?;
        }
    }
    for (name, index, value) in one.into_iter().filter_map(|(one, _)| one) {
        let index = index.with_context(|| format!("{option}: there is no cluster {name}"))?;
        apply(&mut clusters[index], &value).with_context(|| format!("{option} {name}={value}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        up: Up,
    }

    fn spec(line: &str) -> Result<Spec> {
        Line::parse_from(line.split(' ')).up.spec()
    }

    #[test]
    fn options_for_all_and_for_one() {
        let spec = spec(
            "up 2 --families c2=IPv4 --families IPv6 --nodes --nodes=c1=3 --apiserver-arg \
             --watch-cache=false",
        );
        let clusters = spec.unwrap().clusters;
        let shown: Vec<_> = clusters
            .iter()
            .map(|cluster| (cluster.families.to_string(), cluster.nodes))
            .collect();
        assert_eq!(shown, [("IPv6".to_owned(), 3), ("IPv4".to_owned(), 1)]);
        assert_eq!(clusters[1].apiserver_args, ["--watch-cache=false"]);
    }

    #[test]
    fn mistakes_are_named() {
        let error = spec("up 1 --families c2=IPv4").unwrap_err();
        assert_eq!(error.to_string(), "--families: there is no cluster c2");
        let error = spec("up 1 --kubernetes new").unwrap_err();
        assert_eq!(error.to_string(), "--kubernetes new");
    }
}
