//! The graph of dependencies, from `cargo metadata`.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde::Deserialize;

/// The platform whose dependencies are looked at: the one that is shipped, on every machine.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";

/// What a dependency is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// By the crate itself.
    Normal,
    /// By its build script.
    Build,
    /// By its tests, examples and benchmarks.
    Dev,
}

/// Packages and what they depend on. Two versions of a crate are two packages.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    packages: BTreeMap<String, Package>,
}

#[derive(Debug, Default)]
struct Package {
    name: String,
    is_member: bool,
    /// Package id and kind of each dependency.
    dependencies: Vec<(String, Kind)>,
}

/// A dependency between two packages, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Edge<'a> {
    pub(crate) from: &'a str,
    pub(crate) to: &'a str,
    pub(crate) kind: Kind,
}

impl Graph {
    /// Asks cargo for the graph of this workspace.
    pub(crate) fn of_workspace(root: &Path) -> anyhow::Result<Self> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo)
            .args([
                "metadata",
                "--format-version=1",
                "--locked",
                "--filter-platform",
                PLATFORM,
            ])
            .current_dir(root)
            .output()
            .context("cannot run cargo metadata")?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "cargo metadata failed: {errors}");
        Self::parse(&output.stdout)
    }

    /// Reads what `cargo metadata` printed.
    fn parse(metadata: &[u8]) -> anyhow::Result<Self> {
        let metadata: Metadata =
            serde_json::from_slice(metadata).context("cannot read cargo's metadata")?;
        let mut graph = Self::default();
        for MetadataPackage { id, name } in metadata.packages {
            let is_member = metadata.workspace_members.contains(&id);
            graph.packages.insert(
                id,
                Package {
                    name,
                    is_member,
                    dependencies: Vec::new(),
                },
            );
        }
        for node in metadata.resolve.nodes {
            let package = graph
                .packages
                .get_mut(&node.id)
                .context("a node without a package")?;
            for dependency in node.deps {
                for DependencyKind { kind } in dependency.dep_kinds {
                    let kind = match kind.as_deref() {
                        None => Kind::Normal,
                        Some("build") => Kind::Build,
                        Some("dev") => Kind::Dev,
                        Some(other) => anyhow::bail!("cargo has a new kind of edge: {other}"),
                    };
                    package.dependencies.push((dependency.pkg.clone(), kind));
                }
            }
        }
        Ok(graph)
    }

    /// The crates of this workspace.
    pub(crate) fn members(&self) -> impl Iterator<Item = &str> {
        self.packages
            .values()
            .filter(|package| package.is_member)
            .map(|package| &*package.name)
    }

    /// The dependencies between crates of this workspace.
    pub(crate) fn member_edges(&self) -> impl Iterator<Item = Edge<'_>> {
        self.packages
            .values()
            .filter(|from| from.is_member)
            .flat_map(|from| {
                let edges = from.dependencies.iter().filter_map(|(to, kind)| {
                    let to = self.packages.get(to).filter(|to| to.is_member)?;
                    Some(Edge {
                        from: &from.name,
                        to: &to.name,
                        kind: *kind,
                    })
                });
                edges.collect::<Vec<_>>()
            })
    }

    /// The shortest way by which building the crate needs each package that is wanted, by name.
    pub(crate) fn ways_to<'a>(
        &'a self,
        from: &str,
        wanted: impl Fn(&str) -> bool,
    ) -> Vec<Vec<&'a str>> {
        let mut came_from: BTreeMap<&str, Option<&str>> = BTreeMap::new();
        let mut queue: VecDeque<&str> = VecDeque::new();
        for (id, package) in &self.packages {
            if package.is_member && package.name == from {
                came_from.insert(id, None);
                queue.push_back(id);
            }
        }
        let mut ways = Vec::new();
        while let Some(id) = queue.pop_front() {
            let Some(package) = self.packages.get(id) else {
                continue;
            };
            if wanted(&package.name) {
                ways.push(self.way_back(id, &came_from));
                continue;
            }
            for (to, kind) in &package.dependencies {
                if *kind != Kind::Dev && !came_from.contains_key(&**to) {
                    came_from.insert(to, Some(id));
                    queue.push_back(to);
                }
            }
        }
        ways
    }

    fn way_back<'a>(
        &'a self,
        to: &'a str,
        came_from: &BTreeMap<&'a str, Option<&'a str>>,
    ) -> Vec<&'a str> {
        let ids = std::iter::successors(Some(to), |id| came_from.get(id).copied().flatten());
        let mut names: Vec<_> = ids
            .filter_map(|id| self.packages.get(id))
            .map(|package| &*package.name)
            .collect();
        names.reverse();
        names
    }
}

#[cfg(test)]
impl Graph {
    /// A graph of these dependencies, in which these crates belong to the workspace.
    pub(crate) fn of(members: &[&str], edges: &[(&str, &str, Kind)]) -> Self {
        let mut graph = Self::default();
        let ends = edges.iter().flat_map(|&(from, to, _)| [from, to]);
        for name in members.iter().copied().chain(ends) {
            let package = graph.packages.entry(name.to_owned()).or_default();
            package.name = name.to_owned();
            package.is_member = members.contains(&name);
        }
        for &(from, to, kind) in edges {
            let package = graph.packages.entry(from.to_owned()).or_default();
            package.dependencies.push((to.to_owned(), kind));
        }
        graph
    }
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<MetadataPackage>,
    workspace_members: Vec<String>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct MetadataPackage {
    id: String,
    name: String,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Deserialize)]
struct DependencyKind {
    kind: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_becomes_a_graph() {
        let metadata = r#"{
          "packages": [
            {"id": "a#1", "name": "a", "version": "1.0.0"},
            {"id": "b#1", "name": "b"}, {"id": "c#1", "name": "c"}, {"id": "c#2", "name": "c"}
          ],
          "workspace_members": ["a#1", "b#1"],
          "resolve": {"nodes": [
            {"id": "a#1", "deps": [
              {"name": "b", "pkg": "b#1", "dep_kinds": [{"kind": null}, {"kind": "dev"}]},
              {"name": "c", "pkg": "c#1", "dep_kinds": [{"kind": "dev"}]}
            ]},
            {"id": "b#1", "deps": [{"pkg": "c#2", "dep_kinds": [{"kind": "build"}]}]}
          ]}
        }"#;
        let graph = Graph::parse(metadata.as_bytes()).unwrap();

        assert_eq!(graph.members().collect::<Vec<_>>(), ["a", "b"]);
        let edges: Vec<_> = graph.member_edges().collect();
        let edge = |kind| Edge {
            from: "a",
            to: "b",
            kind,
        };
        assert_eq!(edges, [edge(Kind::Normal), edge(Kind::Dev)]);
        assert_eq!(graph.ways_to("a", |name| name == "c"), [["a", "b", "c"]]);
    }

    #[test]
    fn what_only_tests_need_is_no_way() {
        let graph = Graph::of(&["a"], &[("a", "b", Kind::Dev), ("a", "d", Kind::Normal)]);
        assert!(graph.ways_to("a", |name| name == "b").is_empty());
    }
}
