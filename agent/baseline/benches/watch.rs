//! What the rule `Baseline` costs per record: `cargo bench -p trainmon-baseline`. It prints medians; it asserts nothing about time.
//!
//! The golden run is one of CSV files, read along as in a training; reading it is part of the cost.
#![expect(clippy::print_stdout, reason = "a benchmark's output is its result")]

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use trainmon_baseline::BaselineWatch;
use trainmon_core::config::Config;
use trainmon_core::{Dtype, Kind, MicroStep, Record, Shape, Step, StepBatch, TensorId, TensorInfo, TensorStats};

const TENSORS: u32 = 500;
const STEPS: u64 = 400;
const CONFIG: &str = r#"{"wg_distribution": true, "ops": ["norm", "mean"]}"#;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let golden = tempfile::tempdir()?;
    write_golden(&golden.path().join("rank_0"))?;
    let config = Config::parse(CONFIG, "bench", &|_| None).map_err(|errors| errors.to_string())?.config;
    let names: Vec<TensorInfo> =
        (0..TENSORS).map(|index| TensorInfo { name: name(index).into(), vpp_stage: 0 }).collect();
    for (what, scatter) in [("equal up to rounding", 0.0), ("alike in their statistics", 0.05)] {
        let (mut watch, _) = BaselineWatch::open(&[golden.path().to_path_buf()], 0, None, config.clone())?;
        let mut times = Vec::new();
        for step in 0..STEPS {
            let batch = batch(step, scatter)?;
            let started = Instant::now();
            watch.look_at(&names, &batch)?;
            times.push(started.elapsed());
        }
        times.sort_unstable();
        let of = |time: Duration| time / TENSORS;
        let (middle, longest) = (times[times.len() / 2], times[times.len() - 1]);
        println!("{what:26} {:>10.1?} per record of 2 statistics; the longest step {longest:.1?}", of(middle));
    }
    Ok(())
}

fn name(index: u32) -> String {
    format!("model.layers.{}.mlp.{}.weight", index / 10, index % 10)
}

/// Smooth, and different from tensor to tensor.
fn norm(step: u64, index: u32) -> f64 {
    1.0 + f64::from(index) / 100.0 + 0.1 * (step as f64 / 7.0).sin()
}

fn write_golden(rank: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(rank)?;
    let mut rows = "vpp_stage,name,step,norm,mean,shape,dtype\n".to_owned();
    for step in 0..STEPS {
        for index in 0..TENSORS {
            let norm = norm(step, index);
            // Writing into a String does not fail.
            _ = writeln!(rows, "0,{},{step},{norm:?},{:?},\"[64, 64]\",torch.float32", name(index), norm / 64.0);
        }
    }
    std::fs::write(rank.join("grad_reduced_0-9999.csv"), rows)
}

fn batch(step: u64, scatter: f64) -> Result<StepBatch, Box<dyn std::error::Error>> {
    let shape = Shape::new(&[64, 64])?;
    let record = |index: u32| {
        let noise = (f64::from(index) * 12.9898 + step as f64 * 78.233).sin();
        let norm = norm(step, index) * (1.0 + scatter * noise);
        let stats = TensorStats { norm, mean: norm / 64.0, ..TensorStats::empty(Dtype::F32, shape) };
        let (tensor, kind, micro_step) = (TensorId(index), Kind::GradReduced, MicroStep(0));
        Record { tensor, kind, micro_step, reading: Some(stats.into()) }
    };
    let records = (0..TENSORS).map(record).collect();
    Ok(StepBatch { step: Step(step), collected: true, records, ..StepBatch::default() })
}
