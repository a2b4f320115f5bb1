//! `cargo xtask load` starts this: the pages of a large job, and a real Prometheus that scrapes them.

#![expect(clippy::print_stdout, reason = "this is a program")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use trainmon_integration_tests::Load;

/// Serves the pages of many ranks to one Prometheus server, and says what the server takes for them
///
/// Examples:
///   load --ranks 256 --directory /tmp/load
///   load --ranks 64 --layers 96 --scrape-seconds 30 --directory /tmp/load
#[derive(Debug, Parser)]
#[command(verbatim_doc_comment)]
struct Arguments {
    /// Ranks, each with a page of its own
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    ranks: u32,
    /// Layers of the model: each page has norm, largest magnitude, mean and share of zeros of each layer's groups, of
    /// gradients before and after reduction, both moments and parameters
    #[arg(long, default_value_t = 8)]
    layers: usize,
    /// Seconds from one step to the next
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    step_seconds: u64,
    /// Seconds from one scrape of a page to the next
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..))]
    scrape_seconds: u64,
    /// Scrapes of every page before the figures are read
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    scrapes: u32,
    /// Where the server keeps its data meanwhile; must not exist, removed at the end
    #[arg(long)]
    directory: PathBuf,
}

fn main() -> Result<()> {
    let Arguments { ranks, layers, step_seconds, scrape_seconds, scrapes, directory } = Arguments::parse();
    std::fs::create_dir(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
    let load = Load {
        ranks,
        layers,
        step: Duration::from_secs(step_seconds),
        scrape: Duration::from_secs(scrape_seconds),
        scrapes,
        rules: Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/alerting"),
    };
    println!("{ranks} ranks, {layers} layers, a step every {step_seconds} s, a scrape every {scrape_seconds} s");
    let borne = load.run(&directory);
    std::fs::remove_dir_all(&directory).with_context(|| format!("cannot remove {}", directory.display()))?;
    let Some(borne) = borne? else { bail!("no prometheus on PATH\n  hint: install it (Debian: prometheus)") };
    println!("{borne}");
    Ok(())
}
