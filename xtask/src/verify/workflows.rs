//! The workflows of a public forge. Nothing here runs them: they are read by what knows the forge's rules.

use std::path::Path;

use super::results::Tests;
use super::{Failure, python};
use crate::provision;

/// Where the forge looks for them.
const PLACE: &str = ".github/workflows";

/// Every workflow against the forge's schema, then against the rules of a linter: pinned actions, least rights, no text of
/// strangers in scripts.
pub(super) fn run(root: &Path) -> Result<Tests, Failure> {
    let linters = provision::workflow_linters(root)?;
    let mut schema = linters.command("check-jsonschema");
    schema.args(["--builtin-schema", "vendor.github-workflows"]);
    schema.args(["ci.yml", "release.yml"].map(|file| root.join(PLACE).join(file)));
    python::finish(schema)?;
    let mut rules = linters.command("zizmor");
    rules.args(["--offline", "--no-progress", "--strict-collection", "--quiet", PLACE]).current_dir(root);
    python::finish(rules)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::workspace;

    fn read(file: &str) -> String {
        fs::read_to_string(workspace::root().join(file)).unwrap()
    }

    #[test]
    fn every_workflow_is_read() {
        let mut files: Vec<String> = fs::read_dir(workspace::root().join(PLACE))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        files.sort();
        assert_eq!(files, ["ci.yml", "release.yml"]);
    }

    #[test]
    fn workflows_run_the_commands_of_the_documents() {
        let (tests, release) = (read(".github/workflows/ci.yml"), read(".github/workflows/release.yml"));
        assert!(tests.contains("run: cargo xtask test\n") && read("README.md").contains("cargo xtask test "));
        assert!(read(".ci/run").contains("exec cargo xtask test\n"), "here and there it is the same");
        assert!(release.contains("run: cargo xtask dist --out target/dist\n"));
        assert!(read("docs/releasing.md").contains("cargo xtask dist"));
    }

    #[test]
    fn a_release_needs_no_stored_secret() {
        let release = read(".github/workflows/release.yml");
        assert!(release.contains("id-token: write") && release.contains("pypa/gh-action-pypi-publish@"));
        assert!(!release.contains("secrets."), "the index trusts the workflow");
    }
}
