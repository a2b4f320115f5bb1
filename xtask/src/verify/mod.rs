//! `cargo xtask test`: every check of the project. First what the others need, one after the other: above all, everything
//! is compiled, once. Then those of Rust and those of Python, side by side.

mod check;
mod compile;
mod device_kit;
mod install;
mod python;
pub mod report;
pub mod results;
mod workflows;

use std::fmt::Display;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow, bail};

use crate::graph::Graph;
use crate::provision::Matrix;
use crate::{
    arrows, circles, dependencies, dist, hint, packages, process, prose, provision, python_circles, sources, workspace,
};
pub use check::{Check, Selection};
use compile::Compiler;
use process::Captured;
use report::{Finished, Summary, Verdict};
use results::Tests;

/// The file to which a test that cannot run appends `name: reason`, one line.
pub const SKIP_LOG: &str = "TRAINMON_SKIP_LOG";

/// What the checks share.
struct CheckRun {
    root: PathBuf,
    skip_log: PathBuf,
    matrix: Matrix,
    /// Once provisioned. Until then only the default members can be compiled.
    compiler: OnceLock<Compiler>,
    /// Once everything has been compiled and linted: what is compiled later is compiled in the same way.
    is_linted: OnceLock<()>,
    /// Once built: the wheel that is tried on other versions of torch and in an environment of its own.
    wheel: OnceLock<PathBuf>,
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
    let matrix = if selection.full { Matrix::Full } else { Matrix::Short };
    let run = CheckRun {
        root,
        skip_log,
        matrix,
        compiler: OnceLock::new(),
        is_linted: OnceLock::new(),
        wheel: OnceLock::new(),
    };
    let finished = run.run_all(&selection.checks());
    let log = fs::read_to_string(&run.skip_log).unwrap_or_default();
    print!("\n{}", Summary { finished: &finished, skips: &results::skips(&log) });
    let failed: Vec<_> = finished.iter().filter(|check| check.verdict == Verdict::Failed).map(|c| c.name).collect();
    if failed.is_empty() { Ok(()) } else { bail!("failed: {}", failed.join(", ")) }
}

impl CheckRun {
    /// In the order of the checks, whichever ended first.
    fn run_all(&self, checks: &[Check]) -> Vec<Finished> {
        let (python, rust): (Vec<Check>, Vec<Check>) = checks.iter().partition(|check| check.is_python());
        let (first, rust): (Vec<Check>, Vec<Check>) = rust.iter().partition(|check| check.goes_first());
        let run = |checks: &[Check]| checks.iter().map(|&check| self.run(check)).collect::<Vec<Finished>>();
        thread::scope(|scope| {
            if !python.is_empty() {
                // The network is idle while the compiler works. What goes wrong here is said when it is needed.
                scope.spawn(|| python::prepare(&self.root, &python, self.matrix));
            }
            let mut finished = run(&first);
            let beside = scope.spawn(|| run(&python));
            finished.extend(run(&rust));
            finished.extend(beside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            finished
        })
    }

    fn run(&self, check: Check) -> Finished {
        let name = check.name();
        eprintln!("… {name}");
        let started = Instant::now();
        let outcome = match check {
            Check::Format => self.cargo(&["fmt", "--all", "--", "--check"], &[]),
            Check::Arrows => arrows(&self.root).map(|()| Tests::default()),
            Check::Dependencies => foreign_crates(&self.root, self.matrix).map(|()| Tests::default()),
            Check::Sources => check_sources(&self.root).map(|()| Tests::default()).map_err(Failure::from),
            Check::Prose => check_prose(&self.root).map(|()| Tests::default()).map_err(Failure::from),
            Check::Provision => self.provision().map(|()| Tests::default()),
            Check::Clippy => self.lint(),
            Check::Tests => self.compile(&["test", "--tests", "--no-fail-fast"], &[]),
            Check::Doctests => self.compile(&["test", "--doc", "--no-fail-fast"], &[]),
            Check::Docs => self.compile(&["doc", "--no-deps"], &[("RUSTDOCFLAGS", "-D warnings")]),
            Check::Features => self.features(),
            Check::Sanitizer => self.sanitizer(),
            Check::Interleavings => self.interleavings(),
            Check::Miri => self.miri(),
            Check::PythonLint => self.compile_python().and_then(|_| python::lint(&self.root)),
            Check::PythonTests => self.compile_python().and_then(|_| {
                let wheel = self.wheel()?;
                python::tests(&self.root, &wheel, &self.skip_log, self.matrix)
            }),
            Check::DeviceKit => device_kit::run(&self.root, || self.wheel(), &self.skip_log, self.matrix),
            Check::Install => self.wheel().and_then(|wheel| install::run(&self.root, &wheel)),
            Check::Workflows => workflows::run(&self.root),
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

    fn provision(&self) -> Result<(), Failure> {
        let (system, libtorch) = thread::scope(|scope| {
            let system = scope.spawn(provision::ensure_system_packages);
            // Without it the tests that need it are skipped by name.
            if let Err(error) = provision::otlp_receiver(&self.root) {
                eprintln!("  note: no receiver for the OTLP tests: {}", hint::render(&error));
            }
            if let Err(error) = provision::web(&self.root) {
                eprintln!(
                    "  note: nothing builds the live page or renders the dashboards, their tests are skipped: {}",
                    hint::render(&error)
                );
            }
            let libtorch = provision::libtorch(&self.root);
            (system.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), libtorch)
        });
        if let Err(error) = &system.mpi {
            self.skip("trainmon-tch::mpi", &hint::render(error))?;
        }
        let found = libtorch?;
        eprintln!("  libtorch: {} ({})", found.dir.display(), found.origin);
        let _compiler =
            self.compiler.set(Compiler { libtorch: provision::variables(&found), has_mpi: system.mpi.is_ok() });
        Ok(())
    }

    /// The wheel that is tried: of the release with `--full`, else with the extension as it is compiled for the tests.
    fn wheel(&self) -> Result<PathBuf, Failure> {
        if let Some(wheel) = self.wheel.get() {
            return Ok(wheel.clone());
        }
        let wheel = match self.matrix {
            Matrix::Short => python::wheel(&self.root, &self.as_compiled()?)?,
            Matrix::Full => {
                let made = dist::run(&self.root, &workspace::provisioned(&self.root).join("dist"), None)?;
                for (name, reason) in &made.skipped {
                    self.skip(name, reason)?;
                }
                made.wheel()?
            }
        };
        Ok(self.wheel.get_or_init(|| wheel).clone())
    }

    /// Notes what cannot run here, as a test would.
    fn skip(&self, name: &str, reason: &str) -> Result<()> {
        let reason = reason.split_whitespace().collect::<Vec<_>>().join(" ");
        let log = fs::OpenOptions::new().append(true).open(&self.skip_log);
        Ok(log.and_then(|mut log| writeln!(log, "{name}: {reason}"))?)
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

/// The tests of two programs, and what failed of either.
fn both(one: Result<Tests, Failure>, other: Result<Tests, Failure>) -> Result<Tests, Failure> {
    match (one, other) {
        (Ok(one), Ok(other)) => Ok(one.and(other)),
        (Err(one), Err(other)) => {
            Err(Failure { tests: one.tests.and(other.tests), text: format!("{}\n{}", one.text, other.text) })
        }
        (Err(failure), Ok(tests)) | (Ok(tests), Err(failure)) => {
            Err(Failure { tests: failure.tests.and(tests), text: failure.text })
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self { tests: Tests::default(), text: hint::render(&error) }
    }
}

fn arrows(root: &Path) -> Result<(), Failure> {
    Ok(check_arrows(root)?)
}

/// `cargo xtask check arrows`.
///
/// # Errors
/// A broken arrow, a circle of modules, or cargo does not give the graph.
pub fn check_arrows(root: &Path) -> Result<()> {
    refuse(&circles::violations(root)?)?;
    refuse(&python_circles::violations(root)?)?;
    refuse(&arrows::violations(&Graph::of_workspace(root)?))
}

fn foreign_crates(root: &Path, matrix: Matrix) -> Result<(), Failure> {
    check_dependencies(root)?;
    if matrix == Matrix::Full {
        packages::package(root)?;
    }
    Ok(())
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
    refuse(&dependencies::violations(&graph))?;
    refuse(&packages::violations(root)?)
}

/// `cargo xtask check sources`.
///
/// # Errors
/// A broken rule, or the sources cannot be read.
pub fn check_sources(root: &Path) -> Result<()> {
    refuse(&sources::violations(root)?)
}

/// `cargo xtask check prose`.
///
/// # Errors
/// A sentence, a page or a link that breaks a rule of docs/style.md, or the sources cannot be read.
pub fn check_prose(root: &Path) -> Result<()> {
    refuse(&prose::violations(root)?)
}

fn refuse(violations: &[impl Display]) -> Result<()> {
    if violations.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> = violations.iter().map(ToString::to_string).collect();
    Err(anyhow!("{}", lines.join("\n")))
}
