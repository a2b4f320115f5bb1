//! The checks that are calls of cargo.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use anyhow::{Context as _, Result};

use super::results::Tests;
use super::{CheckRun, Failure, SKIP_LOG, both, judged};
use crate::graph::Graph;
use crate::{process, workspace};

/// What there is to compile with.
#[derive(Debug)]
pub(super) struct Compiler {
    /// The variables that lead to libtorch.
    pub(super) libtorch: Vec<(String, OsString)>,
    /// Whether there is an MPI library: what is built for it is left out otherwise.
    pub(super) has_mpi: bool,
}

impl Compiler {
    fn features(&self) -> &'static [&'static str] {
        if self.has_mpi { &["--features", "trainmon-tch/mpi"] } else { &[] }
    }
}

/// As `cargo clippy` has them: clippy's program stands in for the compiler of the members, and is told to lint. Calling it
/// so compiles as well as lints: `cargo clippy` itself compiles nothing that a test could run, and the tests would have to
/// compile it all once more.
const LINTS: [(&str, &str); 2] =
    [("RUSTC_WORKSPACE_WRAPPER", "clippy-driver"), ("CLIPPY_ARGS", "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__")];

/// What has unsafe code and no foreign library: kernels over raw memory, mapped files. libtorch and Python would need to be
/// built with the sanitizer, too.
const SANITIZED: [&str; 5] =
    ["trainmon-stats", "trainmon-record", "trainmon-capture-files", "trainmon-journal", "trainmon-tensor-files"];

/// What Miri can run: neither files that are mapped nor instructions of one processor.
const UNDER_MIRI: [&str; 1] = ["trainmon-record"];

/// What a build without `otlp` and `webhook` must not contain, by the beginning of the crate's name.
const NOT_WITHOUT_TLS: [&str; 4] = ["rustls", "hyper-rustls", "ring ", "tonic"];

impl CheckRun {
    /// Compiles every target and lints it. The tests then find everything compiled.
    pub(super) fn lint(&self) -> Result<Tests, Failure> {
        let outcome = self.compile(&["build", "--all-targets"], &LINTS);
        if outcome.is_ok() {
            let _first = self.is_linted.set(());
        }
        outcome
    }

    pub(super) fn features(&self) -> Result<Tests, Failure> {
        for (package, feature) in feature_sets(&Graph::of_workspace(&self.root)?) {
            let lint = ["clippy", "--package", &package, "--no-default-features", "--features", &feature];
            self.cargo(&[&lint[..], &["--", "-D", "warnings"]].concat(), &[])?;
        }
        self.tls_stays_out()
    }

    /// Whatever the sanitizer's runtime is shipped for. Leaks are looked for too.
    pub(super) fn sanitizer(&self) -> Result<Tests, Failure> {
        let arch = std::env::consts::ARCH;
        if !(cfg!(target_os = "linux") && matches!(arch, "x86_64" | "aarch64")) {
            self.skip("sanitizer", "the toolchain has no address sanitizer for this platform")?;
            return Ok(Tests::default());
        }
        // A target of its own name keeps the flags from build scripts and macros, a folder of its own the other builds whole.
        let target = format!("{arch}-unknown-linux-gnu");
        let packages = SANITIZED.iter().flat_map(|package| ["--package", package]);
        let arguments: Vec<&str> =
            ["test", "--lib", "--no-fail-fast", "--target", &target, "--target-dir", "target/sanitizer"]
                .into_iter()
                .chain(packages)
                .collect();
        // The sanitizer comes with the stable toolchain, the flag that asks for it does not.
        self.cargo(&arguments, &[("RUSTC_BOOTSTRAP", "1"), ("RUSTFLAGS", "-Zsanitizer=address")])
    }

    /// With shuttle's locks and atomics in place of the standard library's.
    pub(super) fn interleavings(&self) -> Result<Tests, Failure> {
        let test = ["test", "--lib", "--package", "trainmon-stats", "--target-dir", "target/interleavings"];
        self.cargo(&[&test[..], &["interleavings"]].concat(), &[("RUSTFLAGS", "--cfg trainmon_shuttle")])
    }

    /// Where rustup has a nightly toolchain with Miri; skipped by name elsewhere.
    pub(super) fn miri(&self) -> Result<Tests, Failure> {
        let nightly = || {
            let mut command = Command::new("rustup");
            // Cargo tells its own toolchain to those it starts.
            command.args(["run", "nightly", "cargo", "miri"]).current_dir(&self.root).env_remove("RUSTUP_TOOLCHAIN");
            command
        };
        let mut probe = nightly();
        probe.arg("--version");
        if !process::capture(probe).is_ok_and(|answer| answer.status.success()) {
            self.skip("miri", "no nightly toolchain with Miri: `rustup toolchain install nightly --component miri`")?;
            return Ok(Tests::default());
        }
        let mut command = nightly();
        command.args(["test", "--lib", "--no-fail-fast", "--target-dir", "target/miri"]);
        command.args(UNDER_MIRI.iter().flat_map(|package| ["--package", package]));
        let line = process::shown(&command);
        let captured = process::capture(command)?;
        let tests = Tests::of_output(&captured.text);
        judged(&line, &captured, tests)
    }

    /// A build with the CSV files alone has neither TLS nor gRPC in it.
    fn tls_stays_out(&self) -> Result<Tests, Failure> {
        let mut command = process::cargo();
        command.args(["tree", "--package", "trainmon-agent", "--no-default-features", "--features", "csv"]);
        command.args(["--edges", "normal", "--prefix", "none"]).current_dir(&self.root);
        let line = process::shown(&command);
        let captured = process::capture(command)?;
        let found = captured.text.lines().find(|line| NOT_WITHOUT_TLS.iter().any(|name| line.starts_with(name)));
        let tests = judged(&line, &captured, Tests::default())?;
        match found {
            Some(found) => Err(Failure { tests, text: format!("$ {line}\n{found}: is in a build with `csv` alone") }),
            None => Ok(tests),
        }
    }

    /// The extension, and the program that the tests of Python ask about their runs: nothing to do where all was linted. Of
    /// all targets, for without those of tests cargo would give some crates fewer features, and compile what depends on them
    /// once more.
    pub(super) fn compile_python(&self) -> Result<Tests, Failure> {
        match self.compiler.get() {
            Some(_) => self.compile(&["build", "--all-targets"], &[]),
            None => self.cargo(&["build", "--package", "trainmon-python", "--package", "trainmon-cli"], &[]),
        }
    }

    /// Runs cargo on every member that can be compiled here: one set of features for all checks, so that what one has
    /// compiled serves the next.
    pub(super) fn compile(&self, before: &[&str], variables: &[(&str, &str)]) -> Result<Tests, Failure> {
        let as_linted: &[_] = if self.is_linted.get().is_some() { &LINTS } else { &[] };
        let variables = [variables, as_linted].concat();
        let Some(scope) = self.members() else { return self.cargo(before, &variables) };
        let members = self.cargo(&[before, &scope[..]].concat(), &variables);
        // Alone: it runs, so what it depends on is compiled already, and what it wants of that is nothing to the others.
        both(members, self.cargo(&[before, &["--package", "xtask"]].concat(), &variables))
    }

    /// What selects every member but this program, once there is what to compile them with.
    fn members(&self) -> Option<Vec<&'static str>> {
        Some([&["--workspace", "--exclude", "xtask"], self.compiler.get()?.features()].concat())
    }

    /// Once everything is compiled: what has maturin take the extension as it is, and how. Its own call of cargo would give
    /// some crates other features, and compile half of them once more. Before that nothing.
    pub(super) fn as_compiled(&self) -> Result<Vec<(String, OsString)>> {
        let (Some(compiler), Some(members), Some(())) = (self.compiler.get(), self.members(), self.is_linted.get())
        else {
            return Ok(Vec::new());
        };
        let cargo = process::cargo_path();
        let cargo = cargo.to_str().context("cargo's path is not UTF-8")?;
        // The examples are no wish of maturin's: with them cargo gives every crate the features it has for tests. Tests
        // themselves must stay away, for of what cargo names maturin may take the extension's own tests for the extension.
        let build = ["build", "--lib", "--bins", "--examples", "--message-format", "json-render-diagnostics"];
        // What maturin tells pyo3 it knows without.
        let unset = ["PYO3_CONFIG_FILE", "PYO3_ENVIRONMENT_SIGNATURE", "PYO3_PYTHON"].map(|name| format!("-u {name}"));
        let script = format!(
            "#!/bin/sh\n[ \"$1\" = rustc ] && exec env {} '{cargo}' {}\nexec '{cargo}' \"$@\"\n",
            unset.join(" "),
            [&build[..], &members].concat().join(" "),
        );
        let place = workspace::provisioned(&self.root).join("cargo-for-maturin");
        fs::write(&place, script).with_context(|| format!("cannot write {}", place.display()))?;
        fs::set_permissions(&place, fs::Permissions::from_mode(0o755))
            .with_context(|| format!("cannot make {} a program", place.display()))?;
        let settings = LINTS.into_iter().chain(process::settings_of_one_build());
        let settings = settings.map(|(name, value)| (name.to_owned(), value.into()));
        let cargo = ("CARGO".to_owned(), place.into_os_string());
        Ok(settings.chain(compiler.libtorch.iter().cloned()).chain([cargo]).collect())
    }

    pub(super) fn cargo(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Result<Tests, Failure> {
        let mut command = process::cargo();
        command.args(arguments).current_dir(&self.root).env(SKIP_LOG, &self.skip_log);
        command.envs(variables.iter().copied());
        // A snapshot that differs fails, whatever the environment says, and nothing is written into the checkout.
        command.env("INSTA_UPDATE", "no").env_remove("INSTA_FORCE_PASS").env_remove("INSTA_FORCE_UPDATE");
        process::with_environment(&mut command, self.compiler.get().map(|c| &c.libtorch[..]).unwrap_or_default());
        let line = process::shown(&command);
        let captured = process::capture(command)?;
        let tests = Tests::of_output(&captured.text);
        judged(&line, &captured, tests)
    }
}

/// The sets of features to try: none, and each one, for every default member that has some. A member that another of
/// them depends on is compiled with its features already: they are passed on to it.
fn feature_sets(graph: &Graph) -> Vec<(String, String)> {
    let with_features = || graph.members().filter(|(_, member)| member.default_member && !member.features.is_empty());
    let is_passed_on = |place: usize| with_features().any(|(_, other)| other.edges.iter().any(|edge| edge.to == place));
    with_features()
        .filter(|&(place, _)| !is_passed_on(place))
        .flat_map(|(_, member)| {
            let each = std::iter::once("").chain(member.features.iter().map(String::as_str));
            each.map(|feature| (member.name.clone(), feature.to_owned()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::made_up;

    #[test]
    fn features_are_tried_one_by_one_and_none_at_all() {
        let mut graph = made_up::graph("**trainmon-exporters\n*trainmon-tch\n**trainmon-core\nserde");
        for (place, features) in [(0, &["csv", "otlp"][..]), (1, &["cuda"]), (3, &["derive"])] {
            graph.packages[place].features = features.iter().map(|&name| name.to_owned()).collect();
        }
        let exporters = |feature: &str| ("trainmon-exporters".to_owned(), feature.to_owned());
        assert_eq!(feature_sets(&graph), [exporters(""), exporters("csv"), exporters("otlp")]);
    }
}
