//! `cargo xtask test`: every check of the project, one after the other.

mod python;
pub mod report;
pub mod results;

use std::ffi::OsString;
use std::fmt::Display;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow, bail};
use clap::ValueEnum;

use crate::graph::Graph;
use crate::{arrows, dependencies, hint, process, provision, workspace};
use process::Captured;
use report::{Finished, Summary, Verdict};
use results::Tests;

/// The file to which a test that cannot run appends `name: reason`, one line.
pub const SKIP_LOG: &str = "TRAINMON_SKIP_LOG";

/// A check, in the order they run: the quick ones first, then those that share what they compile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Check {
    /// rustfmt changes nothing
    Format,
    /// Crates depend on each other as docs/architecture.md draws it
    Arrows,
    /// Foreign crates: licences, sources, banned names
    Dependencies,
    /// libtorch and a C++ compiler are there; installs libtorch if not
    Provision,
    /// No lint, in any target
    Clippy,
    /// Crates with features compile without any, and with each alone
    Features,
    /// Unit, property, golden and integration tests
    Tests,
    /// The examples in doc comments
    Doctests,
    /// The documentation builds without a warning
    Docs,
    /// Python: no lint, no type error, formatted, and the extension is what its stub says
    PythonLint,
    /// Python: the tests of the front, in the environment of the checks
    PythonTests,
}

impl Check {
    fn name(self) -> &'static str {
        match self {
            Self::Format => "format",
            Self::Arrows => "arrows",
            Self::Dependencies => "dependencies",
            Self::Provision => "provision",
            Self::Clippy => "clippy",
            Self::Features => "features",
            Self::Tests => "tests",
            Self::Doctests => "doctests",
            Self::Docs => "docs",
            Self::PythonLint => "python-lint",
            Self::PythonTests => "python-tests",
        }
    }

    /// Whether it compiles the workspace, and so needs libtorch.
    fn compiles(self) -> bool {
        matches!(self, Self::Clippy | Self::Tests | Self::Doctests | Self::Docs)
    }

    /// Whether it needs the Python environment, which it makes itself.
    fn is_python(self) -> bool {
        matches!(self, Self::PythonLint | Self::PythonTests)
    }
}

/// What to check.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Leave out what needs libtorch or Python.
    pub quick: bool,
    /// These checks only; all if empty.
    pub only: Vec<Check>,
}

impl Selection {
    /// The checks to run, in order. Provisioning comes with whatever compiles.
    fn checks(&self) -> Vec<Check> {
        let chosen = |check: Check| self.only.is_empty() || self.only.contains(&check);
        let compiles = Check::value_variants().iter().any(|&check| chosen(check) && check.compiles());
        let wanted = |check: Check| match check {
            Check::Provision => !self.quick && (chosen(check) || compiles),
            _ => chosen(check) && !(self.quick && check.is_python()),
        };
        Check::value_variants().iter().copied().filter(|&check| wanted(check)).collect()
    }
}

/// What the checks share.
struct CheckRun {
    root: PathBuf,
    skip_log: PathBuf,
    /// Once provisioned: the variables that lead to libtorch. Until then only the default members can be compiled.
    libtorch: Option<Vec<(String, OsString)>>,
    /// Whether there is an MPI library: what is built for it is left out otherwise.
    has_mpi: bool,
}

/// Runs the checks, prints each one's outcome, all output of those that fail, and the summary.
///
/// # Errors
/// A check failed, or nothing could be started at all.
pub fn run(selection: &Selection) -> Result<()> {
    let root = workspace::root();
    let skip_log = workspace::provisioned(&root).join("skipped-tests.log");
    fs::create_dir_all(workspace::provisioned(&root)).context("cannot make the target directory")?;
    fs::write(&skip_log, "").with_context(|| format!("cannot write {}", skip_log.display()))?;
    let mut run = CheckRun { root, skip_log, libtorch: None, has_mpi: false };
    let finished: Vec<Finished> = selection.checks().into_iter().map(|check| run.run(check)).collect();
    let log = fs::read_to_string(&run.skip_log).unwrap_or_default();
    print!("\n{}", Summary { finished: &finished, skips: &results::skips(&log) });
    let failed: Vec<_> = finished.iter().filter(|check| check.verdict == Verdict::Failed).map(|c| c.name).collect();
    if failed.is_empty() { Ok(()) } else { bail!("failed: {}", failed.join(", ")) }
}

impl CheckRun {
    fn run(&mut self, check: Check) -> Finished {
        let name = check.name();
        eprintln!("… {name}");
        let started = Instant::now();
        let outcome = match check {
            Check::Format => self.cargo(&["fmt", "--all", "--", "--check"], &[]),
            Check::Arrows => arrows(&self.root).map(|()| Tests::default()),
            Check::Dependencies => foreign_crates(&self.root).map(|()| Tests::default()),
            Check::Provision => self.provision().map(|()| Tests::default()),
            Check::Clippy => self.compile(&["clippy", "--all-targets"], &["--", "-D", "warnings"], &[]),
            Check::Features => self.features(),
            Check::Tests => self.tests(),
            Check::Doctests => self.compile(&["test", "--doc", "--no-fail-fast"], &[], &[]),
            Check::Docs => self.compile(&["doc", "--no-deps"], &[], &[("RUSTDOCFLAGS", "-D warnings")]),
            Check::PythonLint => python::lint(&self.root),
            Check::PythonTests => self.python_tests(),
        };
        let took = started.elapsed();
        let (verdict, tests) = match outcome {
            Ok(tests) => (Verdict::Passed, tests),
            Err(Failure { tests, text }) => {
                println!("---- {name} ----\n{}\n----", text.trim_end());
                (Verdict::Failed, tests)
            }
        };
        println!("{name}: {verdict} in {:.1} s", took.as_secs_f64());
        Finished { name, verdict, took, tests }
    }

    fn provision(&mut self) -> Result<(), Failure> {
        provision::try_prometheus();
        provision::try_chromium();
        // Without it the tests that need it are skipped by name.
        if let Err(error) = provision::otlp_receiver(&self.root) {
            eprintln!("  note: no receiver for the OTLP tests: {}", hint::render(&error));
        }
        match provision::ensure_mpi() {
            Ok(()) => self.has_mpi = true,
            Err(error) => self.skip("trainmon-tch::mpi", &hint::render(&error))?,
        }
        let found = provision::libtorch(&self.root)?;
        eprintln!("  libtorch: {} ({})", found.dir.display(), found.origin);
        self.libtorch = Some(provision::variables(&found));
        Ok(())
    }

    /// Notes what cannot run here, as a test would.
    fn skip(&self, name: &str, reason: &str) -> Result<()> {
        let reason = reason.split_whitespace().collect::<Vec<_>>().join(" ");
        let log = fs::OpenOptions::new().append(true).open(&self.skip_log);
        Ok(log.and_then(|mut log| writeln!(log, "{name}: {reason}"))?)
    }

    fn features(&self) -> Result<Tests, Failure> {
        for (package, feature) in feature_sets(&Graph::of_workspace(&self.root)?) {
            let lint = ["clippy", "--package", &package, "--no-default-features", "--features", &feature];
            self.cargo(&[&lint[..], &["--", "-D", "warnings"]].concat(), &[])?;
        }
        Ok(Tests::default())
    }

    fn python_tests(&self) -> Result<Tests, Failure> {
        // They ask the program about their runs; the check of the Rust tests has built it already.
        self.compile(&["build", "--bins"], &[], &[])?;
        python::tests(&self.root, &self.skip_log)
    }

    fn tests(&self) -> Result<Tests, Failure> {
        // End-to-end tests start programs and examples of other members, which `cargo test --tests` does not build.
        self.compile(&["build", "--bins", "--examples"], &[], &[])?;
        self.compile(&["test", "--tests", "--no-fail-fast"], &[], &[])
    }

    /// Runs cargo on every member that can be compiled here: one set of features for all checks, so that what one has
    /// compiled serves the next.
    fn compile(&self, before: &[&str], after: &[&str], variables: &[(&str, &str)]) -> Result<Tests, Failure> {
        let scope: &[&str] = match (&self.libtorch, self.has_mpi) {
            (None, _) => &[],
            (Some(_), false) => &["--workspace"],
            (Some(_), true) => &["--workspace", "--features", "trainmon-tch/mpi"],
        };
        self.cargo(&[before, scope, after].concat(), variables)
    }

    fn cargo(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Result<Tests, Failure> {
        let mut command = process::cargo();
        command.args(arguments).current_dir(&self.root).env(SKIP_LOG, &self.skip_log);
        command.envs(variables.iter().copied());
        process::with_environment(&mut command, self.libtorch.as_deref().unwrap_or_default());
        let line = process::shown(&command);
        let captured = process::capture(command)?;
        let tests = Tests::of_output(&captured.text);
        judged(&line, &captured, tests)
    }
}

/// The outcome of a program that was run for a check.
fn judged(line: &str, captured: &Captured, tests: Tests) -> Result<Tests, Failure> {
    if captured.status.success() {
        return Ok(tests);
    }
    Err(Failure { tests, text: format!("$ {line}\n{}{}", captured.text, captured.status) })
}

/// Why a check failed.
#[derive(Debug)]
struct Failure {
    tests: Tests,
    text: String,
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self { tests: Tests::default(), text: hint::render(&error) }
    }
}

/// The sets of features to try: none, and each one, for every default member that has some.
fn feature_sets(graph: &Graph) -> Vec<(String, String)> {
    let with_features = graph.members().filter(|(_, member)| member.default_member && !member.features.is_empty());
    with_features
        .flat_map(|(_, member)| {
            let each = std::iter::once("").chain(member.features.iter().map(String::as_str));
            each.map(|feature| (member.name.clone(), feature.to_owned()))
        })
        .collect()
}

fn arrows(root: &Path) -> Result<(), Failure> {
    Ok(check_arrows(root)?)
}

/// `cargo xtask check arrows`.
///
/// # Errors
/// A broken arrow, or cargo does not give the graph.
pub fn check_arrows(root: &Path) -> Result<()> {
    refuse(&arrows::violations(&Graph::of_workspace(root)?))
}

fn foreign_crates(root: &Path) -> Result<(), Failure> {
    Ok(check_dependencies(root)?)
}

/// `cargo xtask check dependencies`.
///
/// # Errors
/// A crate that breaks a rule, or cargo does not give the graph.
pub fn check_dependencies(root: &Path) -> Result<()> {
    let graph = Graph::of_workspace(root)?;
    for duplicate in dependencies::duplicates(&graph) {
        eprintln!("  note: compiled more than once: {duplicate}");
    }
    refuse(&dependencies::violations(&graph))
}

fn refuse(violations: &[impl Display]) -> Result<()> {
    if violations.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> = violations.iter().map(ToString::to_string).collect();
    Err(anyhow!("{}", lines.join("\n")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::made_up;

    #[test]
    fn a_full_run_has_every_check_in_order() {
        assert_eq!(Selection::default().checks(), Check::value_variants());
    }

    #[test]
    fn a_quick_run_provisions_nothing() {
        let checks = Selection { quick: true, only: Vec::new() }.checks();
        assert!(!checks.contains(&Check::Provision));
        assert!(!checks.iter().any(|check| check.is_python()));
        assert_eq!(checks.len(), Check::value_variants().len() - 3);
    }

    #[test]
    fn features_are_tried_one_by_one_and_none_at_all() {
        let mut graph = made_up::graph("**trainmon-exporters\n*trainmon-tch\n**trainmon-core\nserde");
        for (place, features) in [(0, &["csv", "otlp"][..]), (1, &["cuda"]), (3, &["derive"])] {
            graph.packages[place].features = features.iter().map(|&name| name.to_owned()).collect();
        }
        let exporters = |feature: &str| ("trainmon-exporters".to_owned(), feature.to_owned());
        assert_eq!(feature_sets(&graph), [exporters(""), exporters("csv"), exporters("otlp")]);
    }

    #[test]
    fn what_compiles_is_provisioned_first_and_what_does_not_is_not() {
        let only = |check| Selection { quick: false, only: vec![check] }.checks();
        assert_eq!(only(Check::Docs), [Check::Provision, Check::Docs]);
        assert_eq!(only(Check::Arrows), [Check::Arrows]);
        assert_eq!(only(Check::PythonTests), [Check::PythonTests], "no libtorch is needed, torch comes with Python's");
    }
}
