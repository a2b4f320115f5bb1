//! What a user sees in the first minute: the wheel in an environment with nothing else, its command, the README's example.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, anyhow};

use super::results::Tests;
use super::{Failure, python};
use crate::provision::Environment;
use crate::{process, provision, workspace};

/// Installs the wheel twice: where there is nothing, and where there is torch besides.
pub(super) fn run(root: &Path, wheel: &Path) -> Result<Tests, Failure> {
    let place = workspace::provisioned(root).join("python");
    let alone = provision::empty_environment(&place.join("install-alone"), None)?;
    provision::install_wheel(&alone, wheel)?;
    let directory = tempfile::tempdir().context("cannot make a temporary directory")?;
    commands(root, &alone, directory.path())?;
    // Torch is 5 GB: the one of the checks is imported from where it lies.
    let beside = provision::python(root)?.packages()?;
    let with_torch = provision::empty_environment(&place.join("install-torch"), Some(&beside))?;
    provision::install_wheel(&with_torch, wheel)?;
    example(root, &with_torch, directory.path())?;
    Ok(Tests::default())
}

/// Every way to the command leads to it, without torch.
fn commands(root: &Path, environment: &Environment, directory: &Path) -> Result<(), Failure> {
    let version = format!("trainmon {}", env!("CARGO_PKG_VERSION"));
    let config = root.join("configs/minimal.json").display().to_string();
    let mut module = environment.command("python");
    module.args(["-m", "trainmon", "check-config", "--full", &config]);
    let mut import = environment.command("python");
    import.args(["-c", "import importlib.util; print(importlib.util.find_spec('torch'))"]);
    let mut plugin = environment.command("python");
    plugin.args(["-c", "import importlib.metadata as m; print(m.entry_points(group='vllm.general_plugins'))"]);
    for (mut command, arguments, expected) in [
        (environment.command("trainmon"), &["--version"][..], &[&version[..]][..]),
        (environment.command("trainmon"), &["--help"], &["Usage: trainmon <COMMAND>", "\n  run ", "\n  compare "]),
        (environment.command("trainmon"), &["completions", "bash"], &["complete -F _trainmon"]),
        (module, &[], &["\"queue_steps\": "]),
        (import, &[], &["None"]),
        (plugin, &[], &["'trainmon.vllm:register'"]),
    ] {
        command.args(arguments).current_dir(directory);
        said(command, expected)?;
    }
    Ok(())
}

/// Runs the first Python of the README as it stands, and looks for what it is to leave.
fn example(root: &Path, environment: &Environment, directory: &Path) -> Result<(), Failure> {
    let readme = fs::read_to_string(root.join("README.md")).context("cannot read README.md")?;
    let script = first_block(&readme, "python").context("README.md has no block of Python")?;
    fs::write(directory.join("train.py"), script).context("cannot write the example")?;
    let mut command = python::bytecode_kept(root, environment.command("python"));
    command.arg("train.py").current_dir(directory).env("OMP_NUM_THREADS", "1");
    said(command, &[])?;
    // Ten steps of four parameters, and the header.
    for (file, lines) in [("steps.csv", 11), ("grad_reduced_0-9999.csv", 41)] {
        let file = directory.join("monitor_output/latest/rank_0").join(file);
        let text = fs::read_to_string(&file).with_context(|| format!("the example left no {}", file.display()))?;
        if text.lines().count() < lines {
            return Err(anyhow!("{} has less than {lines} lines:\n{text}", file.display()).into());
        }
    }
    Ok(())
}

/// Runs a command and looks for words in what it says.
fn said(command: Command, expected: &[&str]) -> Result<(), Failure> {
    let line = process::shown(&command);
    let captured = process::capture(command)?;
    let missing: Vec<_> = expected.iter().filter(|words| !captured.text.contains(**words)).collect();
    if captured.status.success() && missing.is_empty() {
        return Ok(());
    }
    Err(anyhow!("$ {line}\n{}{}; missing: {missing:?}", captured.text, captured.status).into())
}

/// The first fenced block of a language.
fn first_block<'a>(text: &'a str, language: &str) -> Option<&'a str> {
    let start = format!("\n```{language}\n");
    let (_, rest) = text.split_once(&start)?;
    rest.split_once("\n```").map(|(block, _)| block)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_block_of_a_language_is_found() {
        let text = "a\n```sh\nls\n```\n```python\nimport this\nthis\n```\n```python\nother\n```\n";
        assert_eq!(first_block(text, "python"), Some("import this\nthis"));
        assert_eq!(first_block(text, "rust"), None);
    }
}
