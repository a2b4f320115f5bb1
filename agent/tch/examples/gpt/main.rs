//! Trains a small GPT on this project's documents, watched by trainmon.

#![expect(clippy::print_stdout, reason = "this program prints its progress")]

mod captures;
mod data;
mod faults;
mod model;
mod overhead;
mod report;
mod trainer;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::Parser;
use trainmon_agent::core::config::Config;
use trainmon_agent::{Monitor, Options};
use trainmon_tch::Watch;

use captures::Captures;
use data::Corpus;
use faults::{Fault, Faults};
use report::Progress;
use trainer::Trainer;

/// Train a character-level GPT on this project's documents, watched by trainmon
#[derive(Parser)]
struct Arguments {
    /// Optimizer steps
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..))]
    steps: u64,
    /// Inject a fault: spike@STEP, nan@STEP, dead@STEP or drift@STEP; may be repeated
    #[arg(long, value_name = "FAULT@STEP")]
    inject: Vec<Fault>,
    /// Config file [default: configs/demo.json]
    #[arg(long)]
    config: Option<PathBuf>,
    /// Directory of the CSV files [default: the config's, else `monitor_output`]
    #[arg(long)]
    out: Option<PathBuf>,
    /// Capture every operator of this step, forward and backward, into --capture-to
    #[arg(long, value_name = "STEP", conflicts_with = "measure_overhead")]
    capture: Vec<u64>,
    /// Directory of the captures, with a subdirectory per step
    #[arg(long, value_name = "DIR", default_value = "capture_output")]
    capture_to: PathBuf,
    /// Capture config, with a `task` key [default: statistics with checksums, operators and modules]
    #[arg(long, value_name = "FILE", requires = "capture")]
    capture_config: Option<PathBuf>,
    /// Train without trainmon
    #[arg(long, conflicts_with = "measure_overhead")]
    no_monitor: bool,
    /// Train alternately with and without trainmon, and print the overhead
    #[arg(long, conflicts_with = "inject")]
    measure_overhead: bool,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let root = repository_root()?;
    let corpus = Corpus::unpack()?;
    println!(
        "text: {} characters for training (alphabet of {}), {} for validation",
        corpus.training.len(),
        corpus.vocabulary,
        corpus.validation.len()
    );
    let monitor = if arguments.no_monitor { None } else { Some(start_monitor(&arguments, &root)?) };
    match monitor {
        Some(monitor) if arguments.measure_overhead => overhead::measure(&corpus, arguments.steps, &monitor),
        monitor => train(&corpus, arguments, monitor),
    }
}

/// Returns the repository from which this crate was built.
fn repository_root() -> Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().with_context(|| format!("cannot find the sources at `{}`", root.display()))
}

fn start_monitor(arguments: &Arguments, root: &Path) -> Result<Monitor> {
    let file = arguments.config.clone().unwrap_or_else(|| root.join("configs/demo.json"));
    let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read `{}`", file.display()))?;
    let parsed = Config::parse_for_training(&text, &file.display().to_string(), &|name| std::env::var(name).ok())?;
    for warning in &parsed.warnings {
        println!("{warning}");
    }
    let mut config = parsed.config;
    if let Some(out) = &arguments.out {
        config.csv.iter_mut().chain([&mut config.csv_layout]).for_each(|csv| csv.output_dir = Some(out.clone()));
    }
    // The example prints its own messages at the start and the end.
    let options = Options {
        program: Some("demo".to_owned()),
        quiet: true,
        // You can edit it while the demo runs to request captures.
        config_file: Some(file.into()),
        ..Options::default()
    };
    let monitor = Monitor::start(config, options)?;
    for (exporter, places) in monitor.locations() {
        for place in places {
            println!("{exporter}: {place}");
        }
    }
    Ok(monitor)
}

fn train(corpus: &Corpus, arguments: Arguments, monitor: Option<Monitor>) -> Result<()> {
    let captures = Captures::new(&arguments.capture, &arguments.capture_to, arguments.capture_config.as_deref())?;
    let progress = Progress::new(arguments.steps, monitor.clone());
    let mut trainer = Trainer::new(corpus, arguments.steps, Faults::new(arguments.inject), monitor)?;
    println!("model: {} parameters; loss before training {:.4}", trainer.parameters(), trainer.validation_loss()?);
    let mut made = Vec::new();
    for step in 0..arguments.steps {
        let capture = captures.begin(step)?;
        progress.show(&trainer.step()?);
        if let Some(capture) = capture {
            made.extend(captures::finish(capture, step)?);
        }
    }
    println!("validation loss {:.4}", trainer.validation_loss()?);
    let report = trainer.into_watch().map(Watch::finish);
    report::show_closing_words(report.as_ref(), &made);
    Ok(())
}
