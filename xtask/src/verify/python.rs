//! The checks of the Python front, in its own environment.

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write as _;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context as _, Result};

use super::results::Tests;
use super::{Check, Failure, SKIP_LOG, both, judged};
use crate::provision::{Environment, Matrix};
use crate::{hint, process, provision, workspace};

/// Where the package, its tests and the settings of the tools are.
const PACKAGE: &str = "agent/python";

/// Tests with a real Prometheus and Alertmanager, from there.
const LIVE_SERVERS: &str = "tests/on_call/test_real_servers.py";

/// What is tried with the newest torch and frameworks, from there: all that hooks into them.
const ON_NEWEST: [&str; 11] = [
    "tests/capture/test_compiled.py",
    "tests/capture/test_every_function.py",
    "tests/capture/test_levels.py",
    "tests/collectives",
    "tests/frameworks",
    "tests/hooks",
    "tests/integrations",
    "tests/measurement",
    "tests/replay",
    "tests/replicas",
    "tests/signals",
];

/// The fault laboratory, from there.
const FAULTS: &str = "../../integration-tests/faults";

/// The device kit, from there.
const DEVICE_KIT: &str = "../../integration-tests/device_kit";
/// The kernels of the GPU.
const KERNELS: &str = "../device/kernels";

/// The generator of the Grafana dashboards, from there.
const DASHBOARDS: &str = "../../dashboards/grafana";

/// The Pythons with other versions of torch, separated like PATH: `tests/package/test_versions.py` reads it.
const TORCH_PYTHONS: &str = "TRAINMON_TORCH_PYTHONS";

/// The Python that has vLLM: `tests/capture/test_vllm.py` reads it.
const VLLM_PYTHON: &str = "TRAINMON_VLLM_PYTHON";

/// Tests that are too much for every run ask it.
const MATRIX: &str = "TRAINMON_TEST_MATRIX";

/// The `trainmon` program that the tests convert runs with.
const PROGRAM: &str = "TRAINMON_PROGRAM";

/// Makes the environments of these checks, so that they find them made. What goes wrong they find again, and say.
pub(super) fn prepare(root: &Path, checks: &[Check], matrix: Matrix) {
    if checks.iter().any(|&check| check != Check::Workflows) {
        let _main = provision::python(root);
    }
    if checks.contains(&Check::PythonTests) {
        let _others = provision::other_torches(root, matrix);
        if matrix == Matrix::Full {
            let _vllm = provision::vllm(root);
            let _newest = provision::newest(root);
        }
    }
    if checks.contains(&Check::Workflows) {
        let _linters = provision::workflow_linters(root);
    }
}

/// Format, lints, types, and whether the extension is what its stub says. Every tool runs, whatever the others found.
pub(super) fn lint(root: &Path) -> Result<Tests, Failure> {
    let environment = ready(root)?;
    let tools: [(&str, &[&str]); 7] = [
        ("ruff", &["check", ".", FAULTS, DEVICE_KIT, DASHBOARDS, KERNELS]),
        ("ruff", &["format", "--check", ".", FAULTS, DEVICE_KIT, DASHBOARDS, KERNELS]),
        ("mypy", &[]),
        ("mypy", &["--config-file", "../../integration-tests/faults/pyproject.toml", FAULTS]),
        ("mypy", &["--config-file", "../../integration-tests/device_kit/pyproject.toml", DEVICE_KIT]),
        ("mypy", &["--config-file", "../../dashboards/grafana/pyproject.toml", DASHBOARDS]),
        ("stubtest", &["trainmon._trainmon"]),
    ];
    let found: Vec<Failure> =
        tools.into_iter().filter_map(|(tool, arguments)| run(root, &environment, tool, arguments).err()).collect();
    if found.is_empty() {
        return Ok(Tests::default());
    }
    let text: Vec<String> = found.into_iter().map(|failure| failure.text).collect();
    Err(Failure { tests: Tests::default(), text: text.join("\n") })
}

/// The tests of the package.
pub(super) fn tests(root: &Path, wheel: &Path, skip_log: &Path, matrix: Matrix) -> Result<Tests, Failure> {
    let environment = ready(root)?;
    let pythons = torch_pythons(root, wheel, skip_log, matrix)?;
    let vllm = if matrix == Matrix::Full { vllm_python(root, wheel, skip_log)? } else { None };
    let package = elsewhere(root)?.join(PACKAGE);
    let run = |environment: &Environment, options: &[&OsStr], tests: &[&str]| {
        let mut command = bytecode_kept(root, environment.command("pytest"));
        command.args(["-q", "--no-header", "--color=no", "--durations=10"]).args(options);
        // Whole paths: the directory it runs in has lost the link by the time it looks.
        command.arg("--rootdir").arg(&package).arg("--config-file").arg(package.join("pyproject.toml"));
        command.args(tests.iter().map(|tests| package.join(tests))).current_dir(&package).env(SKIP_LOG, skip_log);
        // Threads of several processes that wait for each other by spinning would take each other's cores.
        command.env("OMP_NUM_THREADS", "1");
        // Code that torch compiled for these instructions; beside other checkouts' it may be for others.
        command.env("TORCHINDUCTOR_CACHE_DIR", workspace::provisioned(root).join("python/inductor"));
        if matrix == Matrix::Full {
            command.env(MATRIX, "full");
        }
        if let Some(vllm) = &vllm {
            command.env(VLLM_PYTHON, vllm);
        }
        command.env(TORCH_PYTHONS, &pythons).env(PROGRAM, workspace::cargo_target(root).join("debug/trainmon"));
        let line = process::shown(&command);
        let captured = process::capture(command)?;
        let tests = Tests::of_pytest(&captured.text);
        judged(&line, &captured, tests)
    };
    // Most tests wait for processes of their own: one more than there are cores keeps these busy. What a file makes for all
    // its tests is made once: a file stays together.
    let processes = thread::available_parallelism().map_or(2, NonZero::get) + 1;
    let processes = format!("--numprocesses={processes}");
    let mut ignored = OsString::from("--ignore=");
    ignored.push(package.join(LIVE_SERVERS));
    let side_by_side: [&OsStr; 3] = ["--dist=loadfile".as_ref(), processes.as_ref(), &ignored];
    let beside_others = run(&environment, &side_by_side, &["tests"]);
    // Nine trainings and two servers, in fast motion: others would take the time they need from them.
    let alone = run(&environment, &[], &[LIVE_SERVERS]);
    let outcome = both(beside_others, alone);
    if matrix == Matrix::Short {
        return outcome;
    }
    match provision::newest(root) {
        Ok(newest) => {
            import_checkout(root, &newest)?;
            both(outcome, run(&newest, &side_by_side, &ON_NEWEST))
        }
        Err(error) => {
            note_skip(skip_log, "tests on the newest torch", &hint::render(&error))?;
            outcome
        }
    }
}

/// The Pythons with other versions of torch, all with the same wheel. What cannot be made is skipped by name.
fn torch_pythons(root: &Path, wheel: &Path, skip_log: &Path, matrix: Matrix) -> Result<OsString, Failure> {
    let mut pythons = Vec::new();
    for other in provision::other_torches(root, matrix) {
        match other.environment {
            Ok(environment) => {
                provision::install_wheel(&environment, wheel)?;
                pythons.push(environment.program("python"));
            }
            Err(error) => note_skip(skip_log, &format!("test_versions[{}]", other.name), &hint::render(&error))?,
        }
    }
    Ok(std::env::join_paths(pythons).context("a colon in the path of this checkout")?)
}

/// The Python that has vLLM, with the same wheel, whose plugin vLLM finds. If it cannot be made its tests are skipped.
fn vllm_python(root: &Path, wheel: &Path, skip_log: &Path) -> Result<Option<PathBuf>, Failure> {
    match provision::vllm(root) {
        Ok(environment) => {
            provision::install_wheel(&environment, wheel)?;
            Ok(Some(environment.program("python")))
        }
        Err(error) => {
            note_skip(skip_log, "test_vllm", &hint::render(&error))?;
            Ok(None)
        }
    }
}

/// Builds a wheel without optimisation, which takes a quarter of the time; with these variables, of what is compiled already.
pub(super) fn wheel(root: &Path, as_compiled: &[(String, OsString)]) -> Result<PathBuf, Failure> {
    let environment = provision::python(root)?;
    let place = workspace::provisioned(root).join("python/wheels");
    // Older ones may have another name.
    if place.exists() {
        fs::remove_dir_all(&place).with_context(|| format!("cannot remove {}", place.display()))?;
    }
    let mut command = environment.command("maturin");
    command.args(["build", "--profile", "dev", "--manifest-path"]).arg(root.join(PACKAGE).join("Cargo.toml"));
    command.arg("--out").arg(&place).current_dir(root);
    process::with_environment(&mut command, as_compiled);
    finish(command)?;
    let made = fs::read_dir(&place).with_context(|| format!("cannot read {}", place.display()))?;
    let mut wheels = made.flatten().map(|entry| entry.path());
    Ok(wheels.next().with_context(|| format!("maturin left no wheel in {}", place.display()))?)
}

/// A skip that no test can tell of itself.
pub(super) fn note_skip(skip_log: &Path, name: &str, reason: &str) -> Result<()> {
    let reason: Vec<&str> = reason.lines().map(|line| line.trim_start_matches("error: ")).collect();
    let mut log =
        fs::OpenOptions::new().append(true).create(true).open(skip_log).context("cannot open the skip log")?;
    writeln!(log, "{name}: {}", reason.join("; ")).context("cannot write the skip log")
}

/// The checkout as the tests of Python see it: through a link, below a directory whose name has a space, and called as the
/// package is. A test that holds there holds in every checkout.
#[cfg(unix)]
fn elsewhere(root: &Path) -> Result<PathBuf> {
    let link = workspace::provisioned(root).join("python/a place/trainmon");
    if fs::read_link(&link).is_ok_and(|target| target == root) {
        return Ok(link);
    }
    let place = link.parent().context("no parent directory")?;
    fs::create_dir_all(place).with_context(|| format!("cannot make {}", place.display()))?;
    if link.symlink_metadata().is_ok() {
        fs::remove_file(&link).with_context(|| format!("cannot remove {}", link.display()))?;
    }
    let made = std::os::unix::fs::symlink(root, &link);
    made.with_context(|| format!("cannot make the link {}", link.display()))?;
    Ok(link)
}

/// Links are for administrators there.
#[cfg(not(unix))]
fn elsewhere(root: &Path) -> Result<PathBuf> {
    Ok(root.to_path_buf())
}

/// The environment, made to import this checkout's package with the extension that the other checks compiled: an editable
/// installation, as maturin would make it with a build of its own.
fn ready(root: &Path) -> Result<Environment, Failure> {
    let environment = provision::python(root)?;
    let package = root.join(PACKAGE).join("python");
    let built = workspace::cargo_target(root).join("debug").join(format!("{DLL_PREFIX}_trainmon{DLL_SUFFIX}"));
    let place = package.join("trainmon/_trainmon.abi3.so");
    // In one step: a process that has the old one open keeps it.
    let beside = place.with_extension("partial");
    fs::copy(&built, &beside).with_context(|| format!("cannot copy {}", built.display()))?;
    fs::rename(&beside, &place).with_context(|| format!("cannot replace {}", place.display()))?;
    import_checkout(root, &environment)?;
    Ok(environment)
}

fn import_checkout(root: &Path, environment: &Environment) -> Result<()> {
    let listing = environment.packages()?.join("trainmon.pth");
    let found = elsewhere(root)?.join(PACKAGE).join("python");
    fs::write(&listing, format!("{}\n", found.display())).with_context(|| format!("cannot write {}", listing.display()))
}

fn run(root: &Path, environment: &Environment, tool: &str, arguments: &[&str]) -> Result<Tests, Failure> {
    let mut command = bytecode_kept(root, environment.command(tool));
    command.args(arguments).current_dir(root.join(PACKAGE));
    finish(command)
}

/// Python keeps what it compiles, below `target`: uv compiles nothing, and torch is imported by more than a hundred processes.
pub(super) fn bytecode_kept(root: &Path, mut command: Command) -> Command {
    command.env_remove("PYTHONDONTWRITEBYTECODE");
    command.env("PYTHONPYCACHEPREFIX", workspace::provisioned(root).join("python/bytecode"));
    command
}

pub(super) fn finish(command: Command) -> Result<Tests, Failure> {
    let line = process::shown(&command);
    judged(&line, &process::capture(command)?, Tests::default())
}
