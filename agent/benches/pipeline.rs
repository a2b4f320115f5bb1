//! What a step costs behind the training thread: 2,000 tensors with ten statistics each through the CSV files and the
//! scrape page, on one thread, with the page scraped as it goes. Prints steps per second; the promise is 20.
//!
//! `cargo bench -p trainmon-agent --bench pipeline`

#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot run may stop")]

use std::time::{Duration, Instant};

use trainmon_agent::core::config::{Config, Pipeline};
use trainmon_agent::core::{Dtype, Kind, MicroStep, Record, Scalar, Shape, TensorId, TensorStats};
use trainmon_agent::{Monitor, Notices, Options, Ranks, StepFacts};

const TENSORS: usize = 2_000;
const STEPS: usize = 60;
const REPETITIONS: usize = 5;

fn main() {
    let config = r#"{
        "wg_distribution": true, "format": ["csv", "prometheus"], "step_count_per_record": 100,
        "ops": ["min", "max", "mean", "norm", "absmax", "std", "nans", "infs", "zeros", "count"],
        "prometheus": {"port": 0}
    }"#;
    let config = Config::parse(config, "bench", &|_| None).unwrap().config;
    println!("{TENSORS} tensors x 10 statistics, CSV and scrape page, {STEPS} steps, {REPETITIONS} repetitions");
    let mut csv_only = measure(&Config { prometheus: None, ..config.clone() });
    let mut page_only = measure(&Config { csv: None, ..config.clone() });
    let mut both = measure(&config);
    for (name, rates) in [("csv", &mut csv_only), ("page", &mut page_only), ("csv and page", &mut both)] {
        rates.sort_by(f64::total_cmp);
        println!(
            "{name:<13} {:>7.0} steps/s (min {:.0}, max {:.0})  {:.2} ms per step",
            rates[REPETITIONS / 2],
            rates[0],
            rates[REPETITIONS - 1],
            1e3 / rates[REPETITIONS / 2]
        );
    }
}

/// Steps per second from the first batch offered to the last one delivered, once per repetition.
fn measure(config: &Config) -> Vec<f64> {
    (0..REPETITIONS)
        .map(|repetition| {
            let output = tempfile::tempdir().unwrap();
            let pipeline = Pipeline { queue_steps: STEPS + 1, shutdown_timeout_ms: 600_000 };
            let options = Options {
                ranks: Some(Ranks::SINGLE),
                output_dir: Some(output.path().to_path_buf()),
                notices: Notices::new(|notice| println!("{notice}")),
                ..Options::default()
            };
            let monitor = Monitor::start(Config { pipeline, ..config.clone() }, options).unwrap();
            let tensors: Vec<TensorId> =
                (0..TENSORS).map(|i| monitor.register(&format!("blocks.{}.fc{}.weight", i / 40, i % 40), 0)).collect();
            let start = Instant::now();
            for step in 0..STEPS {
                for (index, &tensor) in tensors.iter().enumerate() {
                    monitor.record(record(tensor, repetition + step * index), Duration::ZERO, 0);
                }
                monitor.end_step(StepFacts::default());
            }
            let report = monitor.shutdown();
            assert!(report.balances() && report.lost() == 0, "{report}");
            STEPS as f64 / start.elapsed().as_secs_f64()
        })
        .collect()
}

/// A reading whose numbers have as many digits as real ones.
fn record(tensor: TensorId, seed: usize) -> Record {
    let noise = (seed as f64 + 1.0).sqrt().fract() + 1e-3;
    let reading = TensorStats {
        min: Scalar::Float(-noise),
        max: Scalar::Float(noise * 1.1),
        mean: noise * 1e-6,
        norm: noise * 3.0,
        abs_max: noise * 1.1,
        std: noise / 7.0,
        zeros: 3,
        count: 65_536,
        ..TensorStats::empty(Dtype::F32, Shape::new(&[256, 256]).unwrap())
    };
    Record { tensor, kind: Kind::GradReduced, micro_step: MicroStep(0), reading: Some(reading.into()) }
}
