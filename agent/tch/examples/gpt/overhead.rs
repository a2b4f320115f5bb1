//! What watching costs: the same training with and without it, in alternating blocks of one process.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use trainmon_agent::core::{Phase, TensorView};
use trainmon_agent::stats::read_only_pass;
use trainmon_tch::Monitor;

use crate::data::Corpus;
use crate::faults::Faults;
use crate::trainer::Trainer;

/// Short enough that both kinds of block meet the same weather on a shared machine.
const STEPS_PER_BLOCK: u64 = 5;
/// Page faults, thread pools, first allocations.
const WARM_UP_BLOCKS: u64 = 2;

/// Trains twice, `steps` steps each, in alternating blocks, and prints the comparison.
pub(crate) fn measure(corpus: &Corpus, steps: u64, monitor: &Monitor) -> Result<()> {
    let mut plain = Trainer::new(corpus, steps, Faults::default(), None)?;
    let mut watched = Trainer::new(corpus, steps, Faults::default(), Some(monitor.clone()))?;
    let blocks = (steps / STEPS_PER_BLOCK).max(2);
    println!("{blocks} pairs of blocks of {STEPS_PER_BLOCK} steps, with and without trainmon, in turn");
    let (mut without, mut with, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for block in 0..WARM_UP_BLOCKS + blocks {
        let is_watched_first = block % 2 == 1;
        let first = if is_watched_first { time_block(&mut watched)? } else { time_block(&mut plain)? };
        let second = if is_watched_first { time_block(&mut plain)? } else { time_block(&mut watched)? };
        if block < WARM_UP_BLOCKS {
            continue;
        }
        let (plain, watched) = if is_watched_first { (second, first) } else { (first, second) };
        ratios.push(median(&watched).as_secs_f64() / median(&plain).as_secs_f64());
        without.extend(plain);
        with.extend(watched);
    }
    let sizes = watched.parameter_sizes();
    let watch = watched.into_watch().context("the watched training has a watch")?;
    show(&without, &with, &mut ratios, monitor, &sizes)?;
    println!("\n{}", watch.finish());
    Ok(())
}

fn time_block(trainer: &mut Trainer<'_>) -> Result<Vec<Duration>> {
    let step = |_| {
        let start = Instant::now();
        trainer.step()?;
        Ok(start.elapsed())
    };
    (0..STEPS_PER_BLOCK).map(step).collect()
}

fn show(without: &[Duration], with: &[Duration], ratios: &mut [f64], monitor: &Monitor, sizes: &[usize]) -> Result<()> {
    let milliseconds = |time: Duration| 1e3 * time.as_secs_f64();
    let (plain, watched) = (median(without), median(with));
    ratios.sort_by(f64::total_cmp);
    let percent = |ratio: f64| 100.0 * (ratio - 1.0);
    let quantile = |share: f64| ratios[(share * (ratios.len() - 1) as f64).round() as usize];
    println!("median step without trainmon  {:8.2} ms", milliseconds(plain));
    println!("median step with trainmon     {:8.2} ms", milliseconds(watched));
    println!("overhead of the medians       {:+8.2} %", percent(watched.as_secs_f64() / plain.as_secs_f64()));
    println!(
        "overhead per pair of blocks   {:+8.2} % median, {:+.2} to {:+.2} % from the 10th to the 90th percentile",
        percent(quantile(0.5)),
        percent(quantile(0.1)),
        percent(quantile(0.9))
    );
    let cost = monitor.cost();
    let measure = cost.phases.iter().find(|(phase, ..)| *phase == Phase::Measure);
    let measure = measure.map_or(Duration::ZERO, |(_, median, _)| *median);
    let share = 100.0 * measure.as_secs_f64() / watched.as_secs_f64();
    println!("trainmon's own measuring      {:8.3} ms, {share:.2} % of the step", milliseconds(measure));
    let bytes = cost.bytes_read / (cost.steps + 1).max(1);
    let floor = read_floor(sizes, bytes)?;
    println!(
        "reading the same {:6.1} MiB     {:8.3} ms read-only: measuring takes {:.2} times that",
        bytes as f64 / f64::from(1 << 20),
        milliseconds(floor),
        measure.as_secs_f64() / floor.as_secs_f64()
    );
    Ok(())
}

/// The median time of reading `bytes` bytes once, from tensors of the model's sizes, without doing anything with them.
fn read_floor(sizes: &[usize], bytes: u64) -> Result<Duration> {
    const REPETITIONS: usize = 51;
    let tensors: Vec<Vec<f32>> = sizes.iter().map(|&size| vec![1.0; size]).collect();
    let mut times = Vec::with_capacity(REPETITIONS);
    for _repetition in 0..REPETITIONS {
        let start = Instant::now();
        let mut left = bytes;
        for tensor in tensors.iter().cycle() {
            let elements = tensor.len().min(left as usize / size_of::<f32>());
            if elements == 0 {
                break;
            }
            let view = TensorView::from_slice(&tensor[..elements], &[elements as i64])?;
            std::hint::black_box(read_only_pass(&view));
            left -= (elements * size_of::<f32>()) as u64;
        }
        times.push(start.elapsed());
    }
    Ok(median(&times))
}

fn median(times: &[Duration]) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort();
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}
