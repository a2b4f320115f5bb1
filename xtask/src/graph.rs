//! The dependency graph of the workspace, reduced to what the checks ask about.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;

use anyhow::{Context as _, Result};
use cargo_metadata::{CargoOpt, Dependency, DependencyKind, Metadata, MetadataCommand, Node, NodeDep, PackageId};

use crate::process;

/// A dependency of one package on another.
#[derive(Clone, Copy, Debug)]
pub struct Edge {
    /// The place of the package depended on in [`Graph::packages`].
    pub to: usize,
    /// Whether only tests, examples and benches need it.
    pub dev_only: bool,
}

/// One package.
#[derive(Clone, Debug)]
pub struct Package {
    /// The crate's name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its SPDX expression, if it states one.
    pub licence: Option<String>,
    /// Where it came from; `None` for a path dependency.
    pub source: Option<String>,
    /// Whether it belongs to the workspace.
    pub member: bool,
    /// Whether a plain `cargo build` builds it.
    pub default_member: bool,
    /// Its features without `default`, in order of name.
    pub features: Vec<String>,
    /// What it depends on, with all features on.
    pub edges: Vec<Edge>,
}

/// Every package the workspace needs on this machine's platform.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// The packages, in no special order.
    pub packages: Vec<Package>,
}

impl Graph {
    /// Asks cargo about the workspace at `root`, all features on, for the platform this runs on.
    ///
    /// # Errors
    /// Cargo cannot be started, or refuses a manifest.
    pub fn of_workspace(root: &Path) -> Result<Self> {
        let metadata = MetadataCommand::new()
            .cargo_path(process::cargo_path())
            .manifest_path(root.join("Cargo.toml"))
            .features(CargoOpt::AllFeatures)
            // Other platforms' packages would be downloaded only to be looked at.
            .other_options(vec!["--filter-platform".to_owned(), process::host_triple()?])
            .exec()
            .context("cargo metadata failed")?;
        Self::of_metadata(&metadata)
    }

    fn of_metadata(metadata: &Metadata) -> Result<Self> {
        let resolve = metadata.resolve.as_ref().context("cargo metadata gave no dependency graph")?;
        let places: BTreeMap<&PackageId, usize> =
            resolve.nodes.iter().enumerate().map(|(place, node)| (&node.id, place)).collect();
        let packages = resolve.nodes.iter().map(|node| {
            let package = &metadata[&node.id];
            let edges = node.deps.iter().filter(|dependency| is_switched_on(package, node, dependency));
            let edges = edges.filter_map(|dependency| {
                let dev_only = dependency.dep_kinds.iter().all(|info| info.kind == DependencyKind::Development);
                Some(Edge { to: *places.get(&dependency.pkg)?, dev_only })
            });
            Package {
                name: package.name.to_string(),
                version: package.version.to_string(),
                licence: package.license.clone(),
                source: package.source.as_ref().map(|source| source.repr.clone()),
                member: metadata.workspace_members.contains(&node.id),
                default_member: metadata.workspace_default_members.contains(&node.id),
                features: package.features.keys().filter(|name| *name != "default").cloned().collect(),
                edges: edges.collect(),
            }
        });
        Ok(Self { packages: packages.collect() })
    }

    /// The members of the workspace.
    pub fn members(&self) -> impl Iterator<Item = (usize, &Package)> {
        self.packages.iter().enumerate().filter(|(_, package)| package.member)
    }

    /// The shortest way from a package to one of that name, both ends included. A package's own dev-dependencies count,
    /// those of the packages on the way do not: they are not built for it.
    pub fn way_to(&self, start: usize, name: &str) -> Option<Vec<&str>> {
        let mut came_from = vec![None; self.packages.len()];
        let mut queue = VecDeque::from([start]);
        while let Some(place) = queue.pop_front() {
            if self.packages[place].name == name {
                let way = std::iter::successors(Some(place), |&at| came_from[at].filter(|_| at != start));
                let mut names: Vec<_> = way.map(|at| self.packages[at].name.as_str()).collect();
                names.reverse();
                return Some(names);
            }
            for edge in &self.packages[place].edges {
                if (!edge.dev_only || place == start) && edge.to != start && came_from[edge.to].is_none() {
                    came_from[edge.to] = Some(place);
                    queue.push_back(edge.to);
                }
            }
        }
        None
    }
}

/// Whether a dependency is compiled. Cargo also lists one that a feature only adds to where it is there anyway (`pyo3?/…`).
fn is_switched_on(package: &cargo_metadata::Package, node: &Node, dependency: &NodeDep) -> bool {
    let declared: Vec<&Dependency> = package
        .dependencies
        .iter()
        .filter(|declared| dependency.dep_kinds.iter().any(|info| info.kind == declared.kind))
        .filter(|declared| declared.rename.as_ref().unwrap_or(&declared.name).replace('-', "_") == dependency.name)
        .collect();
    declared.is_empty()
        || declared.iter().any(|declared| {
            let name = declared.rename.as_ref().unwrap_or(&declared.name);
            let ways = [name.clone(), format!("dep:{name}")];
            let switches = |word: &String| ways.contains(word) || word.starts_with(&format!("{name}/"));
            let on = node.features.iter().filter_map(|feature| package.features.get(&**feature));
            !declared.optional || on.flatten().any(switches)
        })
}

/// Builds made-up graphs for tests.
#[cfg(test)]
pub(crate) mod made_up {
    use super::{Edge, Graph, Package};

    /// `text` has one line per package: `name -> dependency, dependency`; a dependency in parentheses is dev-only, `*`
    /// before a name marks a member, `**` a default member.
    pub(crate) fn graph(text: &str) -> Graph {
        let lines: Vec<(&str, &str)> = text
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .map(|line| line.split_once("->").unwrap_or((line, "")))
            .map(|(left, right)| (left.trim(), right.trim()))
            .collect();
        let place = |name: &str| {
            lines.iter().position(|(left, _)| left.trim_start_matches('*') == name).expect("a line for every package")
        };
        let packages = lines.iter().map(|(left, right)| Package {
            name: left.trim_start_matches('*').to_owned(),
            version: "1.0.0".to_owned(),
            licence: Some("MIT".to_owned()),
            source: (!left.starts_with('*')).then(|| crate::dependencies::CRATES_IO.to_owned()),
            member: left.starts_with('*'),
            default_member: left.starts_with("**"),
            features: Vec::new(),
            edges: right
                .split(',')
                .map(str::trim)
                .filter(|name| !name.is_empty())
                .map(|name| Edge { to: place(name.trim_matches(['(', ')'])), dev_only: name.starts_with('(') })
                .collect(),
        });
        Graph { packages: packages.collect() }
    }

    #[test]
    fn the_way_skips_the_dev_dependencies_of_others() {
        let graph = graph("*a -> b, (d)\nb -> (c)\nc\nd");
        assert_eq!(graph.way_to(0, "d"), Some(vec!["a", "d"]));
        assert_eq!(graph.way_to(0, "c"), None);
        assert_eq!(graph.way_to(0, "a"), Some(vec!["a"]));
    }

    #[test]
    fn a_circle_through_dev_dependencies_ends() {
        let graph = graph("*a -> (b)\n*b -> a, c\nc");
        assert_eq!(graph.way_to(0, "c"), Some(vec!["a", "b", "c"]));
        assert_eq!(graph.way_to(0, "nothing"), None);
    }
}
