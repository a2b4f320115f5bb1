//! Which foreign crates may come in: licences, sources, banned names.
//!
//! cargo-deny checks the same and more, but every fresh clone would compile it first (over three minutes of processor
//! time), and what it has beyond this, the advisory database, needs a git checkout. `spdx`, the licence parser it uses,
//! is all that is needed here, and the check then also runs as a plain test.

use std::collections::BTreeMap;

use spdx::{Expression, ParseMode};

use crate::graph::{Graph, Package};

/// The only place foreign crates may come from.
pub const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Licences that ask for no more than attribution.
const ALLOWED_LICENCES: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Crates that must not come in, each with the reason.
const BANNED: &[(&str, &str)] = &[
    ("openssl-sys", "a build must not need system libraries beyond libtorch; use rustls"),
    ("native-tls", "a build must not need system libraries beyond libtorch; use rustls"),
    ("chrono", "times are jiff's"),
    ("serde_yaml", "unmaintained"),
    ("atty", "unmaintained; std::io::IsTerminal"),
];

/// Every crate that breaks a rule.
pub fn violations(graph: &Graph) -> Vec<String> {
    let mut found: Vec<String> = graph.packages.iter().filter(|package| !package.member).flat_map(judge).collect();
    found.extend(two_versions(graph));
    found
}

/// Foreign crates present in more than one version: a cost, not a violation, since others' requirements decide it.
pub fn duplicates(graph: &Graph) -> Vec<String> {
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in &graph.packages {
        versions.entry(&package.name).or_default().push(&package.version);
    }
    versions
        .into_iter()
        .filter(|(_, versions)| versions.len() > 1)
        .map(|(name, versions)| format!("{name} {}", versions.join(" ")))
        .collect()
}

fn judge(package: &Package) -> Vec<String> {
    let mut found = Vec::new();
    match package.licence.as_deref().map(|text| (text, licence_is_allowed(text))) {
        Some((_, Some(true))) => {}
        Some((text, Some(false))) => found.push(format!("licence `{text}` is not in the allowed list")),
        Some((_, None)) | None => found.push("no readable licence expression".to_owned()),
    }
    if package.source.as_deref() != Some(CRATES_IO) {
        let origin = package.source.as_deref().unwrap_or("a path outside the workspace");
        found.push(format!("comes from {origin}, only crates.io is allowed"));
    }
    if let Some((_, why)) = BANNED.iter().find(|(name, _)| *name == package.name) {
        found.push(format!("banned: {why}"));
    }
    found.into_iter().map(|what| format!("{} {}: {what}", package.name, package.version)).collect()
}

/// Whether one way to satisfy the expression uses allowed licences only; `None` if it cannot be read.
fn licence_is_allowed(expression: &str) -> Option<bool> {
    // Lax: older crates write `MIT/Apache-2.0`.
    let parsed = Expression::parse_mode(expression, ParseMode::LAX).ok()?;
    Some(parsed.evaluate(|requirement| {
        // An exception only adds permissions.
        requirement.license.id().is_some_and(|id| ALLOWED_LICENCES.contains(&id.name))
    }))
}

/// Crates that members of this workspace ask for in two versions.
fn two_versions(graph: &Graph) -> impl Iterator<Item = String> {
    let mut asked: BTreeMap<&str, BTreeMap<&str, &str>> = BTreeMap::new();
    for (_, member) in graph.members() {
        for edge in &member.edges {
            let to = &graph.packages[edge.to];
            asked.entry(&to.name).or_default().entry(&to.version).or_insert(&member.name);
        }
    }
    asked.into_iter().filter(|(_, versions)| versions.len() > 1).map(|(name, versions)| {
        let versions: Vec<String> = versions.into_iter().map(|(version, who)| format!("{version} by {who}")).collect();
        format!("{name}: asked for as {}", versions.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::made_up::graph;
    use crate::workspace;

    fn with(change: impl FnOnce(&mut Package)) -> Vec<String> {
        let mut graph = graph("*trainmon-core -> serde\nserde");
        change(&mut graph.packages[1]);
        violations(&graph)
    }

    #[test]
    fn a_permissive_crate_from_crates_io_passes() {
        assert_eq!(with(|_| ()), [""; 0]);
        assert_eq!(with(|p| p.licence = Some("MIT/Apache-2.0".to_owned())), [""; 0]);
        assert_eq!(with(|p| p.licence = Some("GPL-3.0-only OR MIT".to_owned())), [""; 0]);
        assert_eq!(with(|p| p.licence = Some("Apache-2.0 WITH LLVM-exception".to_owned())), [""; 0]);
    }

    #[test]
    fn a_licence_outside_the_list_is_refused() {
        let copyleft = with(|p| p.licence = Some("MIT AND GPL-3.0-only".to_owned()));
        assert_eq!(copyleft, ["serde 1.0.0: licence `MIT AND GPL-3.0-only` is not in the allowed list"]);
        let private = with(|p| p.licence = Some("LicenseRef-own".to_owned()));
        assert_eq!(private, ["serde 1.0.0: licence `LicenseRef-own` is not in the allowed list"]);
    }

    #[test]
    fn a_crate_without_a_readable_licence_is_refused() {
        assert_eq!(with(|p| p.licence = None), ["serde 1.0.0: no readable licence expression"]);
        assert_eq!(with(|p| p.licence = Some("see file".into())), ["serde 1.0.0: no readable licence expression"]);
    }

    #[test]
    fn only_crates_io_is_a_source() {
        let git = with(|p| p.source = Some("git+https://example.org/serde".to_owned()));
        assert_eq!(git, ["serde 1.0.0: comes from git+https://example.org/serde, only crates.io is allowed"]);
        let path = with(|p| p.source = None);
        assert_eq!(path, ["serde 1.0.0: comes from a path outside the workspace, only crates.io is allowed"]);
    }

    #[test]
    fn a_banned_crate_is_refused_with_the_reason() {
        assert_eq!(with(|p| p.name = "chrono".to_owned()), ["chrono 1.0.0: banned: times are jiff's"]);
    }

    #[test]
    fn members_agree_on_one_version_of_a_crate() {
        let mut graph = graph("*trainmon-core -> serde\n*trainmon-stats -> serde2\nserde\nserde2 -> other\nother");
        graph.packages[3].name = "serde".to_owned();
        graph.packages[3].version = "2.0.0".to_owned();
        assert_eq!(violations(&graph), ["serde: asked for as 1.0.0 by trainmon-core, 2.0.0 by trainmon-stats"]);
        assert_eq!(duplicates(&graph), ["serde 1.0.0 2.0.0"]);
    }

    #[test]
    fn this_workspace_uses_allowed_crates_only() {
        let graph = Graph::of_workspace(&workspace::root()).unwrap();
        assert!(graph.packages.iter().any(|package| !package.member), "there are foreign crates to judge");
        let found = violations(&graph);
        assert!(found.is_empty(), "{}", found.join("\n"));
    }
}
