//! Trains one model in several processes that average their gradients over MPI. trainmon watches each process:
//!
//! ```text
//! mpirun -n 2 cargo run -p trainmon-tch --features mpi --example data_parallel -- --out run
//! ```
//!
//! Every rank has the same model and a part of each batch. After the backward pass, the ranks average their gradients
//! (`average`), so that all make the same optimizer step. trainmon measures each gradient before and after that, and
//! times the all-reduce. With `control` in the config, the ranks agree over MPI on the step at which a change takes
//! effect.

#![expect(clippy::print_stdout, reason = "this program prints its progress")]

mod average;
mod model;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use mpi::Threading;
use mpi::traits::Communicator as _;
use trainmon_agent::core::Rank;
use trainmon_agent::core::config::Config;
use trainmon_agent::{Monitor, Options, Ranks, SharedRankStore};
use trainmon_tch::mpi::MpiRankStore;
use trainmon_tch::{Optimizer, Watch};

use average::Averager;
use model::Model;

/// The default config.
const CONFIG: &str = r#"{"wg_distribution": true, "param_distribution": true, "format": ["csv"],
    "cc_distribution": {"enable": true, "cc_pre_hook": true}, "ops": ["norm", "min", "max", "nans"]}"#;

/// Train a small network on several processes, watched by trainmon
#[derive(Parser)]
struct Arguments {
    /// Optimizer steps
    #[arg(long, default_value_t = 20)]
    steps: u64,
    /// Examples per step, over all ranks
    #[arg(long, default_value_t = 64)]
    batch: i64,
    /// Config file [default: gradients, parameters and collective operations, as CSV]
    #[arg(long)]
    config: Option<PathBuf>,
    /// Directory of the CSV files
    #[arg(long, default_value = "monitor_output")]
    out: PathBuf,
    /// Pause after every step
    #[arg(long, default_value_t = 0, value_name = "MILLISECONDS")]
    pause: u64,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let (universe, threading) =
        mpi::initialize_with_threading(Threading::Multiple).context("MPI is already initialised")?;
    ensure!(threading == Threading::Multiple, "this MPI library does not support several threads: `{threading:?}`");
    let world = universe.world();
    let (rank, ranks) = (world.rank(), world.size());
    ensure!(arguments.batch % i64::from(ranks) == 0, "`--batch {}` is not divisible by {ranks} ranks", arguments.batch);

    let monitor = start_monitor(&arguments, rank, ranks, MpiRankStore::new(&world)?)?;
    let averager = Averager::new(&world, &monitor);
    let model = Model::new(i64::from(rank));
    // Each rank starts with different weights.
    averager.broadcast(&model.parameters());
    let mut optimizer = Optimizer::new(&tch::nn::adam(0.9, 0.99, 0.0), model.variables(), 1e-2)?;
    let mut watch = Watch::builder(monitor.clone()).model(model.variables()).build()?;

    let mut last_loss = f64::NAN;
    for step in 0..arguments.steps {
        optimizer.zero_grad()?;
        let loss = model.loss(step, arguments.batch, i64::from(rank), i64::from(ranks));
        loss.backward();
        averager.average_gradients(&model.parameters());
        watch.step(&mut optimizer)?;
        last_loss = loss.double_value(&[]);
        std::thread::sleep(Duration::from_millis(arguments.pause));
    }

    let report = watch.finish();
    println!("rank {rank} of {ranks}: loss {last_loss:.6}, parameters {:016x}", model.hash());
    println!("rank {rank}: {report}");
    // Dropped before MPI is finalized, because the store uses MPI.
    drop(monitor);
    Ok(())
}

fn start_monitor(arguments: &Arguments, rank: i32, ranks: i32, rank_store: MpiRankStore) -> Result<Monitor> {
    let (text, name) = match &arguments.config {
        Some(file) => (
            std::fs::read_to_string(file).with_context(|| format!("cannot read `{}`", file.display()))?,
            file.display().to_string(),
        ),
        None => (CONFIG.to_owned(), "data_parallel".to_owned()),
    };
    let parsed = Config::parse_for_training(&text, &name, &|name| std::env::var(name).ok())?;
    for warning in &parsed.warnings {
        println!("{warning}");
    }
    let own = Rank(u32::try_from(rank)?);
    let options = Options {
        ranks: Some(Ranks { rank: own, local_rank: own, world_size: u32::try_from(ranks)? }),
        run: Some("data-parallel".to_owned()),
        output_dir: Some(arguments.out.clone()),
        rank_store: Some(SharedRankStore::new(rank_store)),
        // Every rank prints its own report.
        quiet: true,
        ..Options::default()
    };
    Ok(Monitor::start(parsed.config, options)?)
}
