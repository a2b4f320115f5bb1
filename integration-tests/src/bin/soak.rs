//! `cargo xtask soak` starts this: a long run with every exporter, and a verdict.

#![expect(clippy::print_stdout, reason = "this is a program")]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Parser;
use trainmon_integration_tests::{Flaps, Soak};

/// The receiver has many ups and downs in a run of minutes; the exporter's pauses between attempts grow to 15 s.
const FLAPS: Flaps =
    Flaps { up: Duration::from_secs(6), down: Duration::from_secs(3), hanging: Duration::from_secs(3) };

/// Trains for long with every exporter on, and says whether memory, threads and file descriptors stay flat
#[derive(Debug, Parser)]
struct Arguments {
    /// Optimizer steps to make
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(100..))]
    steps: u64,
    /// Where the run's files go while it runs (some hundred megabytes; removed at the end)
    #[arg(long)]
    directory: PathBuf,
}

fn main() -> Result<ExitCode> {
    let Arguments { steps, directory } = Arguments::parse();
    let this = std::env::current_exe()?;
    let trainer = this.parent().context("no directory")?.join("trainer");
    std::fs::create_dir(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
    let soak = Soak { trainer, steps, every: Duration::from_secs(1), flaps: FLAPS };
    let soaked = soak.run(&directory);
    std::fs::remove_dir_all(&directory).with_context(|| format!("cannot remove {}", directory.display()))?;
    let soaked = soaked?;
    println!("{soaked}");
    let growth = soaked.tenths.growth();
    if growth.is_empty() {
        println!("flat: {steps} steps took no more memory, threads or descriptors in the end than at the beginning");
        return Ok(ExitCode::SUCCESS);
    }
    println!("not flat: {}", growth.join("; "));
    Ok(ExitCode::FAILURE)
}
