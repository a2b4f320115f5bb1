//! What is in a release: a `CycloneDX` document of the crates that are linked into the wheel and the program.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package, PackageId, TargetKind};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::archive::time_of_commit;
use crate::process;

/// What is published: everything below these is in it.
const PUBLISHED: [&str; 2] = ["trainmon-python", "trainmon-cli"];

/// Writes the document. The crates are those of Linux on `x86_64`; the other architecture has no more.
///
/// # Errors
/// Cargo gives no graph, or the file cannot be written.
pub fn write(root: &Path, place: &Path) -> Result<()> {
    let text = serde_json::to_string_pretty(&document(root)?).context("cannot write JSON")? + "\n";
    fs::write(place, text).with_context(|| format!("cannot write {}", place.display()))
}

fn document(root: &Path) -> Result<Value> {
    let metadata = MetadataCommand::new()
        .cargo_path(process::cargo_path())
        .manifest_path(root.join("Cargo.toml"))
        .other_options(["--locked", "--filter-platform", "x86_64-unknown-linux-gnu"].map(str::to_owned).to_vec())
        .exec()
        .context("cargo metadata failed")?;
    let lock = fs::read_to_string(root.join("Cargo.lock")).context("cannot read Cargo.lock")?;
    let linked = linked(&metadata).context("cargo metadata gave no dependency graph")?;
    let checksums = checksums(&lock);
    let version = env!("CARGO_PKG_VERSION");
    let time = Timestamp::from_second(time_of_commit(root)).context("a time beyond the calendar")?;
    let product = format!("pkg:pypi/trainmon@{version}");
    let components: Vec<Value> = linked.keys().map(|id| component(&metadata[*id], &checksums)).collect();
    let reference = |id: &PackageId| purl(&metadata[id]);
    let mut dependencies: Vec<Value> = linked
        .iter()
        .map(|(id, on)| json!({"ref": reference(id), "dependsOn": on.iter().map(|id| reference(id)).collect::<Vec<_>>()}))
        .collect();
    let tops = linked.keys().filter(|id| PUBLISHED.contains(&metadata[**id].name.as_str())).map(|id| reference(id));
    dependencies.push(json!({"ref": product, "dependsOn": tops.collect::<Vec<_>>()}));
    Ok(json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": time.to_string(),
            "tools": {"components": [{"type": "application", "name": "cargo xtask dist", "version": version}]},
            "component": {
                "type": "application",
                "bom-ref": product,
                "name": "trainmon",
                "version": version,
                "purl": product,
                "licenses": [{"expression": "Apache-2.0"}],
            },
        },
        "components": components,
        "dependencies": dependencies,
    }))
}

/// What is linked, each with what it is linked with: no build scripts' crates, no procedural macros, no tests'.
fn linked(metadata: &Metadata) -> Option<BTreeMap<&PackageId, BTreeSet<&PackageId>>> {
    let nodes: BTreeMap<&PackageId, _> =
        metadata.resolve.as_ref()?.nodes.iter().map(|node| (&node.id, &node.deps)).collect();
    let is_linked = |id: &PackageId| !metadata[id].targets.iter().any(|target| target.is_kind(TargetKind::ProcMacro));
    let is_top = |id: &PackageId| PUBLISHED.contains(&metadata[id].name.as_str());
    let mut found = BTreeMap::new();
    let mut waiting: Vec<&PackageId> = metadata.workspace_members.iter().filter(|id| is_top(id)).collect();
    while let Some(id) = waiting.pop() {
        if found.contains_key(id) {
            continue;
        }
        let normal = nodes.get(id)?.iter().filter(|dependency| {
            dependency.dep_kinds.iter().any(|info| info.kind == DependencyKind::Normal) && is_linked(&dependency.pkg)
        });
        let on: BTreeSet<&PackageId> = normal.map(|dependency| &dependency.pkg).collect();
        waiting.extend(&on);
        found.insert(id, on);
    }
    Some(found)
}

fn component(package: &Package, checksums: &BTreeMap<(&str, &str), &str>) -> Value {
    let version = package.version.to_string();
    let mut component = json!({
        "type": "library",
        "bom-ref": purl(package),
        "name": package.name.as_str(),
        "version": version,
        "purl": purl(package),
        "scope": "required",
    });
    if let Some(licence) = &package.license {
        // Older crates write `MIT/Apache-2.0`.
        component["licenses"] = json!([{"expression": licence.replace('/', " OR ")}]);
    }
    if let Some(checksum) = checksums.get(&(package.name.as_str(), version.as_str())) {
        component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
    }
    if let Some(repository) = &package.repository {
        component["externalReferences"] = json!([{"type": "vcs", "url": repository}]);
    }
    component
}

fn purl(package: &Package) -> String {
    // A `+` of a version stands for a space where it is not escaped.
    format!("pkg:cargo/{}@{}", package.name, package.version.to_string().replace('+', "%2B"))
}

/// The checksums of Cargo.lock, by name and version.
fn checksums(lock: &str) -> BTreeMap<(&str, &str), &str> {
    let value = |block: &'_ str, key: &str| -> Option<(usize, usize)> {
        let start = block.find(&format!("\n{key} = \""))? + key.len() + 5;
        Some((start, start + block[start..].find('"')?))
    };
    let entries = lock.split("[[package]]").filter_map(|block| {
        let text = |key| value(block, key).map(|(start, end)| &block[start..end]);
        Some(((text("name")?, text("version")?), text("checksum")?))
    });
    entries.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    fn texts<'a>(values: &'a Value, key: &str) -> Vec<&'a str> {
        values.as_array().unwrap().iter().map(|value| value[key].as_str().unwrap()).collect()
    }

    #[test]
    fn the_document_has_what_the_format_requires() {
        let document = document(&workspace::root()).unwrap();
        assert_eq!(document["bomFormat"], "CycloneDX");
        assert_eq!(document["specVersion"], "1.6");
        assert_eq!(document["version"], 1);
        let main = document["metadata"]["component"]["bom-ref"].as_str().unwrap();
        let components = document["components"].as_array().unwrap();
        let mut references: BTreeSet<&str> = texts(&document["components"], "bom-ref").into_iter().collect();
        assert_eq!(references.len(), components.len(), "references are unique");
        for component in components {
            assert_eq!(component["type"], "library");
            let own = component["name"].as_str().unwrap().starts_with("trainmon-");
            for key in ["name", "version", "purl"] {
                assert!(component[key].as_str().is_some_and(|text| !text.is_empty()), "{key}: {component}");
            }
            let expression = component["licenses"][0]["expression"].as_str().unwrap();
            spdx::Expression::parse(expression).unwrap();
            let hash = component["hashes"][0]["content"].as_str();
            assert_eq!(hash.map(str::len), (!own).then_some(64), "{component}");
        }
        references.insert(main);
        for entry in document["dependencies"].as_array().unwrap() {
            assert!(references.contains(entry["ref"].as_str().unwrap()), "{entry}");
            let on = entry["dependsOn"].as_array().unwrap();
            assert!(on.iter().all(|one| references.contains(one.as_str().unwrap())), "{entry}");
        }
    }

    #[test]
    fn what_is_linked_is_listed_and_nothing_else() {
        let document = document(&workspace::root()).unwrap();
        let names: BTreeSet<&str> = texts(&document["components"], "name").into_iter().collect();
        for there in ["trainmon-stats", "trainmon-cli", "pyo3", "tokio", "rustls", "clap", "zstd-sys"] {
            assert!(names.contains(there), "{there}");
        }
        // Tests', build scripts', macros', and what only other members need.
        for not_there in ["proptest", "cc", "syn", "serde_derive", "tch", "spdx", "xtask"] {
            assert!(!names.contains(not_there), "{not_there}");
        }
    }

    #[test]
    fn checksums_are_those_of_the_lock_file() {
        let lock = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nchecksum = \"ab\"\n\n[[package]]\n\
                    name = \"own\"\nversion = \"0.1.0\"\ndependencies = [\n \"a\",\n]\n";
        assert_eq!(checksums(lock), BTreeMap::from([(("a", "1.0.0"), "ab")]));
    }
}
