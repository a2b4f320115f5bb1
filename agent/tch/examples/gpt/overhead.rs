//! The overhead of trainmon: the same training with and without it, in alternating blocks of one process.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use trainmon_agent::core::TensorView;
use trainmon_agent::stats::read_only_pass;
use trainmon_tch::Monitor;

use crate::data::Corpus;
use crate::faults::Faults;
use crate::trainer::Trainer;

/// Short blocks, so that both kinds run under the same load: on a shared machine it changes within a second.
const STEPS_PER_BLOCK: u64 = 1;
/// Blocks before the measurement, for page faults, thread pools and first allocations.
const WARM_UP_BLOCKS: u64 = 10;

/// Trains twice, `steps` steps each, in alternating blocks, and prints the comparison.
pub(crate) fn measure(corpus: &Corpus, steps: u64, monitor: &Monitor) -> Result<()> {
    let mut plain = Trainer::new(corpus, steps, Faults::default(), None)?;
    let mut watched = Trainer::new(corpus, steps, Faults::default(), Some(monitor.clone()))?;
    let blocks = (steps / STEPS_PER_BLOCK).max(2);
    println!("pairs of blocks with and without trainmon: {blocks}, steps per block: {STEPS_PER_BLOCK}");
    let mut found = Comparison::default();
    let mut floor = None;
    for block in 0..WARM_UP_BLOCKS + blocks {
        let is_watched_first = block % 2 == 1;
        let first = if is_watched_first { time_block(&mut watched)? } else { time_block(&mut plain)? };
        let second = if is_watched_first { time_block(&mut plain)? } else { time_block(&mut watched)? };
        if block < WARM_UP_BLOCKS {
            continue;
        }
        let (plain, with) = if is_watched_first { (second, first) } else { (first, second) };
        found.add(plain, with);
        let floor = floor.get_or_insert_with(|| Floor::new(&watched.parameter_sizes(), bytes_per_step(monitor)));
        found.floor.push(floor.time()?);
    }
    found.show(monitor);
    let equality = if plain.has_weights_of(&watched) { "bitwise equal" } else { "DIFFERENT" };
    println!("weights after both trainings  {equality}");
    let watch = watched.into_watch().context("the watched training has a watch")?;
    let report = watch.finish();
    println!("records lost                  {:8}", report.lost());
    Ok(())
}

fn bytes_per_step(monitor: &Monitor) -> u64 {
    let cost = monitor.cost();
    // The first step has no duration, so it is not counted.
    cost.bytes_read / (cost.steps + 1)
}

fn time_block(trainer: &mut Trainer<'_>) -> Result<Vec<Duration>> {
    let step = |_| {
        let start = Instant::now();
        trainer.step()?;
        Ok(start.elapsed())
    };
    (0..STEPS_PER_BLOCK).map(step).collect()
}

/// The step times of both trainings, and the times of reading alone.
#[derive(Default)]
struct Comparison {
    without: Vec<Duration>,
    with: Vec<Duration>,
    /// The ratios of the medians of each pair of blocks.
    ratios: Vec<f64>,
    floor: Vec<Duration>,
}

impl Comparison {
    fn add(&mut self, without: Vec<Duration>, with: Vec<Duration>) {
        self.ratios.push(median(&with).as_secs_f64() / median(&without).as_secs_f64());
        self.without.extend(without);
        self.with.extend(with);
    }

    fn show(&mut self, monitor: &Monitor) {
        let milliseconds = |time: Duration| 1e3 * time.as_secs_f64();
        let (plain, watched, floor) = (median(&self.without), median(&self.with), median(&self.floor));
        self.ratios.sort_by(f64::total_cmp);
        let percent = |ratio: f64| 100.0 * (ratio - 1.0);
        let quantile = |share: f64| percent(self.ratios[(share * (self.ratios.len() - 1) as f64).round() as usize]);
        println!("median step without trainmon  {:8.2} ms", milliseconds(plain));
        println!("median step with trainmon     {:8.2} ms", milliseconds(watched));
        println!("overhead of the medians       {:+8.2} %", percent(watched.as_secs_f64() / plain.as_secs_f64()));
        let (low, middle, high) = (quantile(0.1), quantile(0.5), quantile(0.9));
        println!(
            "overhead per pair of blocks   {middle:+8.2} % median, {low:+.2} to {high:+.2} % (10th to 90th percentile)"
        );
        let cost = monitor.cost();
        let in_step = cost.phases.iter().filter(|(phase, ..)| phase.is_in_step());
        let own: Duration = in_step.map(|(_, median, _)| *median).sum();
        let share = 100.0 * own.as_secs_f64() / watched.as_secs_f64();
        println!("trainmon's own work           {:8.3} ms, {share:.2} % of the step", milliseconds(own));
        let export = cost.phases.iter().filter(|(phase, ..)| !phase.is_in_step());
        let export: Duration = export.map(|(_, median, _)| *median).sum();
        println!("exporter's work               {:8.3} ms per step, in a separate thread", milliseconds(export));
        let mebibytes = bytes_per_step(monitor) as f64 / f64::from(1 << 20);
        let ratio = own.as_secs_f64() / floor.as_secs_f64();
        println!(
            "reading {mebibytes:6.1} MiB            {:8.3} ms, read-only, equally cold; trainmon takes {ratio:.2} times as long",
            milliseconds(floor)
        );
    }
}

/// Tensors of the model's sizes, with as many bytes as trainmon reads in a step. A training runs between two passes, so
/// they are as cold as the tensors that trainmon reads.
struct Floor(Vec<Vec<f32>>);

impl Floor {
    fn new(sizes: &[usize], bytes: u64) -> Self {
        let mut left = bytes as usize / size_of::<f32>();
        let tensors = sizes.iter().cycle().map_while(|&size| {
            let elements = size.min(left);
            left -= elements;
            (elements > 0).then(|| vec![1.0; elements])
        });
        Self(tensors.collect())
    }

    fn time(&self) -> Result<Duration> {
        let start = Instant::now();
        for tensor in &self.0 {
            std::hint::black_box(read_only_pass(&TensorView::from_slice(tensor, &[tensor.len() as i64])?));
        }
        Ok(start.elapsed())
    }
}

fn median(times: &[Duration]) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort();
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}
