//! Circles of the Python package's modules: rooms none of which can be read without the others.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;

use crate::circles::{Circle, Module, among};
use crate::workspace::tracked;

/// Where the package's modules are.
const PLACE: &str = "agent/python/python/trainmon";
const PACKAGE: &str = "trainmon";

/// Every circle in the sources that git tracks. Imports for types, and those inside of functions, count.
///
/// # Errors
/// git does not list the files, or one cannot be read.
pub(crate) fn violations(root: &Path) -> Result<Vec<Circle>> {
    let files = tracked(root, &[&format!("{PLACE}/*.py")])?;
    let modules: Vec<(Module, String)> =
        files.into_iter().filter_map(|(file, text)| Some((module_of(&file)?, text))).collect();
    Ok(circles(&modules))
}

/// The module a file is, from the package's root.
fn module_of(file: &str) -> Option<Module> {
    let inside = file.strip_prefix(PLACE)?.strip_prefix('/')?.strip_suffix(".py")?;
    let mut module: Module = inside.split('/').map(str::to_owned).collect();
    if module.last()? == "__init__" {
        module.pop();
    }
    Some(module)
}

fn circles(files: &[(Module, String)]) -> Vec<Circle> {
    let modules: BTreeSet<Module> = files.iter().map(|(module, _)| module.clone()).collect();
    let edges: Vec<(Module, Module)> = files
        .iter()
        .flat_map(|(from, text)| imports(text).into_iter().map(move |path| (from.clone(), path)))
        .map(|(from, path)| (from, longest(&modules, path)))
        .filter(|(from, to)| !to.is_empty() && from != to)
        .collect();
    among(PLACE, &modules, &edges)
}

/// The module that a path of names leads into: what is behind it is a name of that module.
fn longest(modules: &BTreeSet<Module>, mut path: Module) -> Module {
    while !modules.contains(&path) && path.pop().is_some() {}
    path
}

/// The paths below the package that a module imports.
fn imports(text: &str) -> Vec<Module> {
    let mut found = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let mut statement = line.trim().to_owned();
        if !statement.starts_with("from ") && !statement.starts_with("import ") {
            continue;
        }
        while statement.contains('(') && !statement.contains(')') {
            let Some(more) = lines.next() else { break };
            statement.push_str(more.trim());
        }
        if let Some((module, names)) = statement.strip_prefix("from ").and_then(|rest| rest.split_once(" import ")) {
            let names = names.trim_matches(['(', ')']).split(',').map(first_word).filter(|name| !name.is_empty());
            found.extend(names.filter_map(|name| below(&format!("{module}.{name}"))));
        } else if let Some(names) = statement.strip_prefix("import ") {
            found.extend(names.split(',').filter_map(|name| below(first_word(name))));
        }
    }
    found
}

/// `a` of `a as b`.
fn first_word(text: &str) -> &str {
    text.split_whitespace().next().unwrap_or_default()
}

/// A dotted path without the package; `None` for what is not in it.
fn below(path: &str) -> Option<Module> {
    let mut parts = path.split('.').map(str::to_owned);
    (parts.next().as_deref() == Some(PACKAGE)).then(|| parts.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<(Module, String)> = files
            .iter()
            .map(|(file, text)| (module_of(&format!("{PLACE}/{file}")).unwrap(), (*text).to_owned()))
            .collect();
        circles(&files).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn modules_that_import_each_other_are_found_however_they_do_it() {
        for back in [
            "from trainmon.a import one\n",
            "from trainmon import a\n",
            "import os, trainmon.a as b\n",
            "def late():\n    from trainmon.a import (\n        one,\n        two,\n    )\n",
            "if TYPE_CHECKING:\n    from trainmon.a import One\n",
        ] {
            let files = [("__init__.py", ""), ("a.py", "from trainmon.b.inner import x\n"), ("b/inner.py", back)];
            let expected = format!(
                "{PLACE}: the modules `a`, `b` name each other in a circle: move what they share into one of its own"
            );
            assert_eq!(found(&files), [expected], "{back}");
        }
    }

    #[test]
    fn the_package_itself_other_packages_and_one_way_make_none() {
        let files = [
            ("__init__.py", "from trainmon.a import one\n"),
            ("a.py", "from trainmon import __version__\nfrom trainmonitor.b import x\nimport torch\n"),
            ("b.py", "from trainmon.a import one\n"),
        ];
        assert_eq!(found(&files), [""; 0]);
    }
}
