//! The mechanical part of the style guide (`docs/style.md`), over pages, help texts, messages and doc comments.

mod page;
mod rules;
mod strings;

use std::path::Path;

use anyhow::Result;

use crate::workspace::tracked;

/// Words of the documentation, at most: README and what docs/ has, without the proofs and the pages of [`LATER`].
const MOST_WORDS: usize = 45_000;
/// Pages of capabilities that are newer than the limit. The limit of a page applies to them.
const LATER: [&str; 1] = ["docs/graph.md"];
/// The folders whose pages count: documentation of the project's own.
const PAGES: [&str; 5] =
    ["*.md", ":!:*/node_modules/*", ":!:agent/python/tests/*", ":!:docs/device-results/*", ":!:fuzz/*"];

/// Every sentence, page and link that breaks a rule, as `file:line: what is wrong`.
///
/// # Errors
/// git does not list the files, one cannot be read, or Python does not parse its own.
pub fn violations(root: &Path) -> Result<Vec<String>> {
    let pages = tracked(root, &PAGES)?;
    let mut found = page::violations(root, &pages);
    let is_counted = |file: &str| is_documentation(file) && !LATER.contains(&file);
    let words: usize = pages.iter().filter(|(file, _)| is_counted(file)).map(|(_, text)| page::words(text)).sum();
    if words > MOST_WORDS {
        found.push(format!("the documentation has {words} words, at most {MOST_WORDS} are allowed"));
    }
    for (file, text) in tracked(root, &["*.rs"])?.iter().filter(|(file, _)| is_product(file)) {
        found.extend(strings::of_rust(text)?.iter().flat_map(|string| string.broken(file)));
    }
    found.extend(strings::of_python(root)?);
    Ok(found)
}

fn is_documentation(file: &str) -> bool {
    file == "README.md" || (file.starts_with("docs/") && !file.starts_with("docs/proof/"))
}

/// Whether what the file says is read by users or by users of the crates.
fn is_product(file: &str) -> bool {
    const NOT: [&str; 6] = ["/tests/", "/benches/", "xtask/", "fuzz/", "integration-tests/", "/examples/"];
    !NOT.iter().any(|part| file.contains(part)) && !file.ends_with("/tests.rs") && !file.ends_with("build.rs")
}
