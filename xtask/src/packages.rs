//! The crates that a Rust user's program needs can be packaged: each has what a registry asks for, and depends on no crate that is not
//! published.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context as _, Result};
use cargo_metadata::{DependencyKind, MetadataCommand, Package};

use crate::{process, workspace};

/// What a program depends on.
const FACADE: &str = "trainmon";

/// What stands against packaging the crates that the facade needs.
///
/// # Errors
/// Cargo does not describe the workspace.
pub(crate) fn violations(root: &Path) -> Result<Vec<String>> {
    let members = members(root)?;
    Ok(needed(&members).into_iter().filter_map(|name| members.get(&name)).flat_map(faults).collect())
}

/// Packages them as a registry gets them, without compiling them once more. Asks the registry for their dependencies.
///
/// # Errors
/// One cannot be packaged.
pub(crate) fn package(root: &Path) -> Result<()> {
    let mut command = process::cargo();
    command.current_dir(root).args(["package", "--quiet", "--no-verify", "--allow-dirty", "--target-dir"]);
    command.arg(workspace::provisioned(root).join("packages"));
    command.args(needed(&members(root)?).into_iter().flat_map(|name| ["--package".to_owned(), name]));
    process::run_visibly(&mut command)
}

fn members(root: &Path) -> Result<BTreeMap<String, Package>> {
    let metadata = MetadataCommand::new()
        .cargo_path(process::cargo_path())
        .manifest_path(root.join("Cargo.toml"))
        .no_deps()
        .exec()
        .context("cargo metadata failed")?;
    Ok(metadata.packages.into_iter().map(|package| (package.name.to_string(), package)).collect())
}

/// The members that the facade needs, itself included.
fn needed(members: &BTreeMap<String, Package>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open = vec![FACADE.to_owned()];
    while let Some(name) = open.pop() {
        if let Some(package) = members.get(&name)
            && found.insert(name)
        {
            let needs = package.dependencies.iter().filter(|one| one.kind != DependencyKind::Development);
            open.extend(needs.map(|one| one.name.clone()));
        }
    }
    found
}

fn faults(package: &Package) -> Vec<String> {
    let name = &package.name;
    let mut found = Vec::new();
    if package.publish.as_ref().is_some_and(Vec::is_empty) {
        found.push(format!("{name}: the crate `{FACADE}` needs it, and `publish` is false"));
    }
    if package.description.as_deref().is_none_or(str::is_empty) {
        found.push(format!("{name}: a registry asks for a `description`"));
    }
    let beside =
        package.dependencies.iter().filter(|one| one.path.is_some() && one.kind != DependencyKind::Development);
    let any = beside.filter(|one| one.req.to_string() == "*");
    found.extend(any.map(|one| format!("{name}: the dependency `{}` needs a `version` beside its `path`", one.name)));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packages(manifests: &[(&str, &str)]) -> BTreeMap<String, Package> {
        let place = tempfile::tempdir().unwrap();
        let members: Vec<String> = manifests.iter().map(|(name, _)| format!("\"{name}\"")).collect();
        let workspace = format!("[workspace]\nresolver = \"3\"\nmembers = [{}]\n", members.join(", "));
        std::fs::write(place.path().join("Cargo.toml"), workspace).unwrap();
        for (name, rest) in manifests {
            std::fs::create_dir_all(place.path().join(name).join("src")).unwrap();
            std::fs::write(place.path().join(name).join("src/lib.rs"), "").unwrap();
            let manifest = format!("[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n{rest}");
            std::fs::write(place.path().join(name).join("Cargo.toml"), manifest).unwrap();
        }
        super::members(place.path()).unwrap()
    }

    #[test]
    fn what_a_program_needs_is_looked_at_and_nothing_else() {
        let described = "description = \"a\"\n[dependencies]\n";
        let members = packages(&[
            ("trainmon", &format!("{described}inner = {{ path = \"../inner\", version = \"0.1.0\" }}\n")),
            (
                "inner",
                "publish = false\n[dependencies]\nlow = { path = \"../low\" }\n[dev-dependencies]\ntool = { path = \"../tool\" }\n",
            ),
            ("low", described),
            ("tool", "publish = false\n"),
        ]);
        assert_eq!(needed(&members).into_iter().collect::<Vec<_>>(), ["inner", "low", "trainmon"]);
        let expected = [
            "inner: the crate `trainmon` needs it, and `publish` is false",
            "inner: a registry asks for a `description`",
            "inner: the dependency `low` needs a `version` beside its `path`",
        ];
        let looked_at = members.iter().filter(|(name, _)| *name != "tool");
        assert_eq!(looked_at.flat_map(|(_, package)| faults(package)).collect::<Vec<_>>(), expected);
    }
}
