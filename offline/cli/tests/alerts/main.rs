//! `trainmon alerts` as a person and a program see it: over runs of ours and of msprobe, and over logs of other tools.

#[path = "../support/mod.rs"]
mod support;
#[path = "../support/transcript.rs"]
mod transcript;

#[path = "../support/golden.rs"]
mod golden;
#[path = "../support/run_files.rs"]
mod run_files;

mod columns;
mod damaged;
mod formats;
mod other_commands;
mod runs;
mod steps;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;

use support::{ProgramOutput, trainmon};

/// The logs that other tools wrote.
fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/logs").join(name)
}

/// A directory with logs.
struct Workspace {
    dir: TempDir,
}

impl Workspace {
    fn new() -> Self {
        Self { dir: TempDir::new().expect("a temporary directory") }
    }

    /// With one file.
    fn with(name: &str, content: impl AsRef<[u8]>) -> Self {
        let workspace = Self::new();
        workspace.write(name, content);
        workspace
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a directory")).expect("writable");
        fs::write(path, content).expect("writable");
    }

    fn run(&self, arguments: &[&str]) -> ProgramOutput {
        trainmon(self.dir.path(), arguments)
    }

    fn alerts(&self, arguments: &[&str]) -> ProgramOutput {
        self.run(&[&["alerts"], arguments].concat())
    }

    fn json(&self, arguments: &[&str]) -> (Value, Option<i32>) {
        let said = self.alerts(&[arguments, &["--json"]].concat());
        (serde_json::from_str(&said.out).unwrap_or_else(|_| panic!("JSON: {} {}", said.out, said.err)), said.code)
    }
}

/// A loss that falls and scatters a little; three times as large at step 150.
fn loss(step: u64) -> f64 {
    let usual = 2.0 + 3.0 * (-(step as f64) / 20.0).exp() + 0.02 * (step as f64 * 1.7).sin();
    if step == 150 { 3.0 * usual } else { usual }
}

/// A norm that scatters a little; forty times as large at step 170.
fn norm(step: u64) -> f64 {
    let usual = 1.0 + 0.1 * (step as f64 * 2.3).cos();
    if step == 170 { 40.0 * usual } else { usual }
}

/// A table of 200 steps.
fn table(header: &str, separator: &str) -> String {
    (1..=200).fold(format!("{header}\n"), |mut text, step| {
        let cells = [step.to_string(), loss(step).to_string(), norm(step).to_string()];
        writeln!(text, "{}", cells.join(separator)).expect("text");
        text
    })
}

/// Rules and steps of the alerts that begin.
fn begun(report: &Value) -> Vec<(String, u64)> {
    let alerts = report["alerts"].as_array().expect("a list");
    let begin = alerts.iter().filter(|alert| alert["phase"] == "begins");
    begin
        .map(|alert| (alert["rule"].as_str().expect("a rule").to_owned(), alert["step"].as_u64().expect("a step")))
        .collect()
}

fn pairs(expected: &[(&str, u64)]) -> Vec<(String, u64)> {
    expected.iter().map(|(rule, step)| ((*rule).to_owned(), *step)).collect()
}

/// The spikes planted in [`loss`] and [`norm`].
const PLANTED: [(&str, u64); 2] = [("Spike", 150), ("Spike", 170)];
