//! `cargo xtask demo`, `cargo xtask bench` and `cargo xtask develop`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use clap::ValueEnum;

use crate::provision::Environment;
use crate::{dist, process, provision, workspace};

/// A benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Bench {
    /// The reductions over tensor memory, against a read-only pass
    Stats,
    /// Rendering /metrics
    Scrape,
    /// The worker's side: 2,000 tensors through CSV and /metrics
    Pipeline,
    /// Appending a step to the crash-safe journal, against a copy of the same bytes
    Journal,
    /// What capturing a call costs the training thread, beside a pass over the tensor and a write of it
    Capture,
    /// What the alert rules find in norms of known and recorded trainings, and what looking at a step costs
    Alerts,
    /// What OTLP export costs a step, its receiver good, silent or absent
    Otlp,
    /// What monitoring costs a training step: of tch, then of PyTorch, there beside msprobe
    Overhead,
    /// `trainmon compare` beside the real `msprobe compare`: time, memory, and a bare pass over the tensors
    Compare,
    /// What a capture adds to each operator of PyTorch, beside msprobe
    Dump,
    /// What measuring adds to each collective operation of PyTorch, beside msprobe
    Collectives,
    /// All of them
    All,
}

/// Builds the demo training with optimisation and runs it in place of this process.
///
/// # Errors
/// It cannot be provisioned, built or started.
pub fn demo(arguments: &[OsString]) -> Result<()> {
    let root = workspace::root();
    let mut command = demo_command(&root)?;
    command.args(arguments);
    replace_with(command)
}

/// Runs benchmarks, their output visible.
///
/// # Errors
/// One cannot be built or fails.
pub fn bench(which: Bench) -> Result<()> {
    let root = workspace::root();
    let wanted = |bench| which == bench || which == Bench::All;
    // With libtorch at hand the benchmark of the statistics shows torch's own operators too.
    let variables = provision::variables(&provision::libtorch(&root)?);
    for (bench, package, name) in [
        (Bench::Stats, "trainmon-stats", "*"),
        (Bench::Scrape, "trainmon-exporters", "scrape"),
        (Bench::Pipeline, "trainmon-agent", "pipeline"),
        (Bench::Alerts, "trainmon-agent", "alerts"),
        (Bench::Otlp, "trainmon-agent", "otlp"),
        (Bench::Journal, "trainmon-journal", "*"),
        (Bench::Capture, "trainmon-capture", "*"),
    ] {
        if wanted(bench) {
            run_bench(&root, package, name, &variables)?;
        }
    }
    if wanted(Bench::Overhead) {
        process::run_visibly(demo_command(&root)?.arg("--measure-overhead"))?;
        process::run_visibly(&mut python_bench_command(&root, "overhead.py")?)?;
    }
    if wanted(Bench::Dump) {
        process::run_visibly(&mut python_bench_command(&root, "dump.py")?)?;
        process::run_visibly(&mut python_bench_command(&root, "captured_step.py")?)?;
        process::run_visibly(&mut python_bench_command(&root, "replay.py")?)?;
    }
    if wanted(Bench::Collectives) {
        process::run_visibly(&mut python_bench_command(&root, "collectives.py")?)?;
    }
    if wanted(Bench::Compare) {
        process::run_visibly(&mut compare_command(&root)?)?;
    }
    Ok(())
}

/// Builds the programs of `integration-tests`, and runs one with these arguments and a directory of its own below `target`.
///
/// # Errors
/// They cannot be built, or it fails.
pub(crate) fn run_test_program(root: &Path, name: &str, arguments: &[String]) -> Result<()> {
    let variables = provision::variables(&provision::libtorch(root)?);
    process::build(root, &["--package", "trainmon-integration-tests", "--bins"], &variables)?;
    let target = workspace::cargo_target(root);
    let mut program = Command::new(target.join("debug").join(name));
    program.arg("--directory").arg(target.join(format!("{name}-{}", std::process::id()))).args(arguments);
    process::with_environment(&mut program, &variables);
    process::run_visibly(&mut program)
}

/// Builds the Python extension with optimisation and makes the environment of the checks import this checkout.
///
/// # Errors
/// The environment cannot be made, or the extension not built.
pub fn develop(root: &Path) -> Result<()> {
    let environment = provision::python(root)?;
    process::run_visibly(&mut develop_command(root, &environment, "release"))?;
    println!("python: {}", environment.program("python").display());
    Ok(())
}

/// Builds the extension in place.
fn develop_command(root: &Path, environment: &Environment, profile: &str) -> Command {
    let mut command = environment.command("maturin");
    command.args(["develop", "--profile", profile, "--manifest-path"]).arg(root.join("agent/python/Cargo.toml"));
    command.current_dir(root);
    command
}

fn run_bench(root: &Path, package: &str, name: &str, variables: &[(String, OsString)]) -> Result<()> {
    // Named benches only: the unit tests' own programs have no benchmark to run.
    let arguments = ["bench", "--package", package, "--bench", name];
    let mut command = process::cargo();
    command.args(arguments).current_dir(root);
    process::with_environment(&mut command, variables);
    process::run_visibly(&mut command)
}

/// A benchmark of the PyTorch front, with the extension that users install.
fn python_bench_command(root: &Path, name: &str) -> Result<Command> {
    let environment = provision::python(root)?;
    process::run_visibly(&mut develop_command(root, &environment, dist::PROFILE))?;
    let mut command = environment.command("python");
    command.arg(root.join("agent/python/benches").join(name));
    Ok(command)
}

/// The race of the two `compare`, trainmon built.
fn compare_command(root: &Path) -> Result<Command> {
    let environment = provision::python(root)?;
    process::build(root, &["--release", "--package", "trainmon-cli", "--bin", "trainmon"], &[])?;
    let program = workspace::cargo_target(root).join("release/trainmon");
    let mut command = environment.command("python");
    command.arg(root.join("agent/python/benches/compare.py")).arg("--trainmon").arg(program);
    Ok(command)
}

/// The built demo, ready to take arguments.
fn demo_command(root: &Path) -> Result<Command> {
    let found = provision::libtorch(root)?;
    let variables = provision::variables(&found);
    process::build(root, &["--release", "--package", "trainmon-tch", "--example", "gpt"], &variables)?;
    let mut demo = Command::new(demo_path(root));
    process::with_environment(&mut demo, &variables);
    Ok(demo)
}

fn demo_path(root: &Path) -> PathBuf {
    workspace::cargo_target(root).join("release/examples/gpt")
}

/// Becomes the program, so that Ctrl-C reaches it alone and the shell waits for its orderly end.
fn replace_with(mut command: Command) -> Result<()> {
    use std::os::unix::process::CommandExt as _;
    let line = process::shown(&command);
    eprintln!("$ {line}");
    Err(command.exec()).with_context(|| format!("cannot start `{line}`"))
}
