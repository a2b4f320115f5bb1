//! What no compiler refuses: unsafe code outside of its modules, names that were given up, and examples that no test runs.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::workspace::tracked;

/// Where unsafe code may stand, by the beginning of the path: raw memory, foreign functions, mappings.
const UNSAFE_MODULES: &[&str] = &[
    "agent/record/src/view.rs",
    "formats/capture/src/write/tail.rs",
    "formats/journal/src/medium.rs",
    "formats/tensors/src/file_bytes.rs",
    "agent/python/src/exit.rs",
    "agent/python/src/discard_error.rs",
    "agent/device/src/driver.rs",
    "agent/device/src/kernels",
    "agent/python/src/device/exchange.rs",
    "agent/python/src/device/kernels.rs",
    "agent/python/src/pending_step.rs",
    "agent/python/src/reading_cache.rs",
    "agent/python/src/tensor.rs",
    "agent/python/src/termination.rs",
    "agent/service/src/fork.rs",
    "agent/stats/src/",
    "agent/tch/src/device/kernels.rs",
    "agent/tch/src/ffi/",
    "agent/tch/src/mpi/",
    "agent/tch/src/optimizer/checkpoint.rs",
    "integration-tests/src/bin/trainer/main.rs",
];

/// Where the walks of a gradient, a value, a call and a key are, file by file.
const ARCHITECTURE: &str = "docs/architecture.md";
/// Folders that a path on that page begins with.
const TOP_FOLDERS: [&str; 8] = ["agent", "configs", "dashboards", "docs", "exporters", "formats", "offline", "xtask"];
/// The page that defines the project's terms.
const GLOSSARY: &str = "docs/glossary.md";
/// A glossary of more is none.
const MOST_TERMS: usize = 40;
/// Types that had names of images: on each line a name and its replacement.
const RETIRED_NAMES: &str = include_str!("retired_names.txt");
const RETIRED_FILE: &str = "xtask/src/retired_names.txt";

/// Every broken rule in the files that git tracks.
///
/// # Errors
/// git does not list the files, or one cannot be read.
pub fn violations(root: &Path) -> Result<Vec<String>> {
    let sources = tracked(root, &["*.rs", "*.py", "*Cargo.toml"])?;
    let read = |file: &str| fs::read_to_string(root.join(file)).with_context(|| format!("cannot read {file}"));
    let mut found = broken(&sources, &read(GLOSSARY)?, RETIRED_NAMES);
    found.extend(gone(&read(ARCHITECTURE)?, |path| root.join(path).exists()));
    Ok(found)
}

fn broken(sources: &[(String, String)], glossary: &str, retired_names: &str) -> Vec<String> {
    let terms = count_terms(glossary);
    let retired: Vec<(&str, &str)> = retired_names.lines().filter_map(|line| line.split_once(": ")).collect();
    let mut found = Vec::new();
    if terms > MOST_TERMS {
        found.push(format!("{GLOSSARY} has {terms} terms, at most {MOST_TERMS} are allowed"));
    }
    let is_manifest = |file: &str| file.ends_with("Cargo.toml");
    let manifests = sources.iter().filter(|(file, text)| is_manifest(file) && text.contains("doctest = false"));
    let without_examples: Vec<&str> = manifests.filter_map(|(file, _)| file.strip_suffix("Cargo.toml")).collect();
    for (file, text) in sources.iter().filter(|(file, _)| !is_manifest(file)) {
        found.extend(unsafe_code(file, text));
        if without_examples.iter().any(|place| is_of_library(file, place)) {
            found.extend(examples(text).map(|line| {
                format!(
                    "{file}:{line}: no test runs this example: take `doctest = false` out of the crate's Cargo.toml"
                )
            }));
        }
        for (line, declared) in declarations(text) {
            let name = retired.iter().find(|(name, _)| *name == declared);
            found.extend(
                name.map(|(name, instead)| {
                    format!("{file}:{line}: `{name}` is retired ({RETIRED_FILE}): use {instead}")
                }),
            );
        }
    }
    found
}

/// What a page names in backticks as a path from the repository's root, and is not there.
fn gone(page: &str, exists: impl Fn(&str) -> bool) -> Vec<String> {
    let named = page.lines().enumerate().flat_map(|(index, line)| {
        line.split('`').skip(1).step_by(2).filter(|text| is_path(text)).map(move |text| (index + 1, text))
    });
    let missing = named.filter(|(_, path)| !exists(path));
    missing.map(|(line, path)| format!("{ARCHITECTURE}:{line}: there is no `{path}`")).collect()
}

/// `agent/src/worker.rs`, `offline/compare/src/first`.
fn is_path(text: &str) -> bool {
    let is_of_path = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '/' | '_' | '-' | '.');
    let first = text.split('/').next().unwrap_or_default();
    text.contains('/') && text.chars().all(is_of_path) && TOP_FOLDERS.contains(&first)
}

/// Tests may do what a library must not: they count allocations and fork.
fn unsafe_code(file: &str, text: &str) -> Option<String> {
    let (place, module) = file.strip_suffix(".rs")?.rsplit_once("/src/")?;
    let is_listed = |path: &str| UNSAFE_MODULES.iter().any(|listed| path.starts_with(listed));
    let allows = text.lines().map(str::trim).any(|line| {
        let names_it = line.starts_with('#') && line.contains("unsafe_code") || line == "unsafe_code,";
        names_it && !line.contains("forbid(")
    });
    if allows && !is_listed(file) {
        let why = "unsafe code stands in the modules that xtask/src/sources.rs lists; is there a safe way?";
        return Some(format!("{file}: {why}"));
    }
    let has_unsafe_modules = UNSAFE_MODULES.iter().any(|listed| listed.starts_with(&format!("{place}/src/")));
    let is_root = matches!(module, "lib" | "main");
    let is_unforbidden = is_root && !has_unsafe_modules && !text.contains("#![forbid(unsafe_code)]");
    is_unforbidden.then(|| format!("{file}: the crate has no unsafe code: add `#![forbid(unsafe_code)]`"))
}

fn is_of_library(file: &str, place: &str) -> bool {
    file.strip_prefix(place).is_some_and(|rest| rest.starts_with("src/"))
}

/// The lines at which an example of Rust begins in a documentation comment: its fence names no language, or only how it is
/// to be run.
fn examples(text: &str) -> impl Iterator<Item = usize> {
    let comments = text.lines().enumerate().filter_map(|(index, line)| {
        let line = line.trim_start();
        let comment = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))?;
        Some((index + 1, comment.trim_start().strip_prefix("```")?))
    });
    // Every second fence ends a block.
    let openings = comments.enumerate().filter(|(number, _)| number % 2 == 0).map(|(_, fence)| fence);
    openings.filter(|(_, words)| words.split([',', ' ']).all(is_of_rustdoc)).map(|(line, _)| line)
}

/// What may follow the fence of an example that rustdoc compiles.
fn is_of_rustdoc(word: &str) -> bool {
    matches!(word, "" | "rust" | "no_run" | "should_panic" | "compile_fail" | "ignore") || word.starts_with("edition")
}

/// How many terms the glossary has.
fn count_terms(glossary: &str) -> usize {
    let rows = glossary.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | "));
    rows.filter(|&(term, _)| term != "term").count()
}

/// The names of types and modules, each with its line.
fn declarations(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().filter_map(|(index, line)| {
        let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
        words.find(|word| matches!(*word, "struct" | "enum" | "trait" | "type" | "mod" | "class"))?;
        Some((index + 1, words.next()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: &str = "| term | meaning |\n|---|---|\n| rank | A process. |\n";
    const RETIRED: &str = "Basket: `Payload`\n";

    fn of(file: &str, text: &str) -> Vec<String> {
        broken(&[(file.to_owned(), text.to_owned())], WORDS, RETIRED)
    }

    #[test]
    fn a_retired_name_is_refused_where_it_is_declared() {
        let found = of("exporters/src/a.rs", "use x::Basket;\npub(crate) struct Basket<'a> {\n");
        assert_eq!(found, ["exporters/src/a.rs:2: `Basket` is retired (xtask/src/retired_names.txt): use `Payload`"]);
        assert_eq!(of("a.py", "class Baskets:\n    basket = 1\n"), [""; 0]);
        assert_eq!(of("a.py", "class Basket(Base):\n").len(), 1);
    }

    #[test]
    fn unsafe_code_is_refused_outside_of_its_modules() {
        let allowing = "#[expect(unsafe_code, reason = \"a system call\")]\nfn f() {}\n";
        assert_eq!(of("agent/record/src/view.rs", allowing), [""; 0]);
        for allowing in [allowing, "#![expect(unsafe_code, reason = \"all of it\")]", "#[expect(\n    unsafe_code,\n)]"]
        {
            assert!(of("agent/src/worker.rs", allowing)[0].contains("unsafe code stands in the modules"), "{allowing}");
        }
        assert_eq!(of("agent/tests/fork.rs", allowing), [""; 0]);
    }

    #[test]
    fn a_crate_without_unsafe_code_forbids_it() {
        assert!(of("exporters/src/lib.rs", "mod csv;\n")[0].contains("forbid"));
        assert_eq!(of("exporters/src/lib.rs", "#![forbid(unsafe_code)]\nmod csv;\n"), [""; 0]);
        assert_eq!(of("agent/record/src/lib.rs", "mod view;\n"), [""; 0]);
    }

    #[test]
    fn an_example_in_a_crate_whose_examples_are_not_run_is_refused() {
        let found = |manifest: &str, text: &str| {
            let lib = format!("#![forbid(unsafe_code)]\n{text}");
            let of = |file: &str, text: &str| (file.to_owned(), text.to_owned());
            broken(&[of("agent/core/Cargo.toml", manifest), of("agent/core/src/lib.rs", &lib)], WORDS, RETIRED)
        };
        let without = "[lib]\ndoctest = false\n";
        for example in ["/// ```\n/// f();\n/// ```\n", "//! ```no_run\n//! ```\n", "    /// ```rust,should_panic\n"] {
            let unrun = "agent/core/src/lib.rs:2: no test runs this example: take `doctest = false` out of the crate's Cargo.toml";
            assert_eq!(found(without, example), [unrun], "{example}");
            assert_eq!(found("", example), [""; 0], "{example}");
        }
        assert_eq!(found(without, "/// ```text\n/// a, b\n/// ```\n/// ```json\n/// ```\n"), [""; 0]);
        assert_eq!(found(without, "/// ```text\n/// ```\n/// ```\n").len(), 1, "the third fence begins a block");
    }

    #[test]
    fn a_path_that_is_not_there_is_refused() {
        let page = "1. `agent/src/a.rs`, `a::b/c`: a `f/x.rs`\n2. `docs/b.md` and `offline/c` ```agent/src/d.rs```\n";
        let found = gone(page, |path| path == "docs/b.md");
        let expected = ["1: there is no `agent/src/a.rs`", "2: there is no `offline/c`"];
        assert_eq!(found[..2], expected.map(|rest| format!("{ARCHITECTURE}:{rest}")), "{found:?}");
    }

    #[test]
    fn the_glossary_is_short() {
        let long = (0..=MOST_TERMS).fold(String::new(), |text, number| text + &format!("| term {number} | x |\n"));
        assert_eq!(
            broken(&[], &long, RETIRED),
            [format!("{GLOSSARY} has {} terms, at most {MOST_TERMS} are allowed", MOST_TERMS + 1)]
        );
    }

    #[test]
    fn each_retired_name_has_a_replacement() {
        assert_eq!(RETIRED_NAMES.lines().count(), 49);
        for line in RETIRED_NAMES.lines() {
            let (name, instead) = line.split_once(": ").unwrap();
            assert!(!name.is_empty() && !instead.is_empty(), "{line}");
        }
    }
}
