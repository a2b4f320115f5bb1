//! What the spike rules find and what they only believe to find, ours and published ones, on synthetic norms and on
//! recorded ones; and what looking at a step costs.
//!
//! `cargo xtask bench alerts`

#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot run may stop")]

mod cost;
mod published;
#[path = "../../tests/common/recorded.rs"]
mod recorded;
#[path = "../../tests/common/synthetic.rs"]
mod synthetic;

use trainmon_agent::core::AlertSignal;

use crate::published::{Named, RULES};
use crate::recorded::Recording;
use crate::synthetic::{Chance, norms, with_spikes};

const STEPS: usize = 20_000;
const FACTORS: [f64; 5] = [1.5, 2.0, 3.0, 5.0, 10.0];

fn main() {
    on_synthetic_norms();
    on_recorded_norms();
    cost::measure();
}

fn spikes(rule: &Named, signal: AlertSignal, series: &[f64]) -> Vec<bool> {
    let mut detector = rule.1(signal);
    series.iter().map(|&norm| detector.is_spike(norm)).collect()
}

/// A spike is hit in its own step or the next.
fn is_hit(found: &[bool], step: usize) -> bool {
    found[step..(step + 2).min(found.len())].contains(&true)
}

fn on_synthetic_norms() {
    println!("## Synthetic norms, {STEPS} steps, two-step spikes every ~450 steps\n");
    let header = "| series | rule | false per 10k | 1.5x | 2x | 3x | 5x | 10x | 3x and more after a NaN |";
    println!("{header}\n|---|---|---|---|---|---|---|---|---|");
    for (name, memory, scatter) in [("quiet", 0.0, 0.1), ("medium", 0.5, 0.2), ("rough", 0.8, 0.35)] {
        let mut chance = Chance::new(7);
        let clean = norms(&mut chance, STEPS, memory, scatter);
        let (spiked, known) = with_spikes(&mut chance, &clean, &FACTORS);
        let mut poisoned = spiked.clone();
        let nan = known[5].step - 50;
        poisoned[nan] = f64::NAN;
        for rule in &RULES {
            let false_alarms = spikes(rule, AlertSignal::Grad, &clean).iter().filter(|found| **found).count();
            let found = spikes(rule, AlertSignal::Grad, &spiked);
            let of_factor = |factor: f64| {
                let of: Vec<_> = known.iter().filter(|spike| spike.factor == factor).collect();
                format!("{}/{}", of.iter().filter(|spike| is_hit(&found, spike.step)).count(), of.len())
            };
            let hits: Vec<String> = FACTORS.iter().map(|&factor| of_factor(factor)).collect();
            let found = spikes(rule, AlertSignal::Grad, &poisoned);
            let after: Vec<_> = known.iter().filter(|spike| spike.step > nan && spike.factor >= 3.0).collect();
            let seen = after.iter().filter(|spike| is_hit(&found, spike.step)).count();
            println!(
                "| {name} | {} | {:.1} | {} | {seen}/{} |",
                rule.0,
                1e4 * false_alarms as f64 / STEPS as f64,
                hits.join(" | "),
                after.len()
            );
        }
    }
    println!();
}

fn on_recorded_norms() {
    println!("## Recorded trainings\n");
    println!("| training | steps | rule | grad norm: hits, false | update norm: hits, false | loss: hits, false |");
    println!("|---|---|---|---|---|---|");
    for recording in Recording::all() {
        let Recording { name, series, .. } = &recording;
        let steps = series[0].1.len();
        for rule in &RULES {
            let cells: Vec<String> =
                series.iter().map(|(signal, values)| judged(rule, *signal, values, &recording)).collect();
            println!("| {name} | {steps} | {} | {} |", rule.0, cells.join(" | "));
        }
    }
    println!();
}

/// `hits/spikes, false alarms`. What lies in the wake of a spike or a NaN is no false alarm.
fn judged(rule: &Named, signal: AlertSignal, values: &[f64], recording: &Recording) -> String {
    let found = spikes(rule, signal, values);
    let starts = recording.starts();
    let hits = starts.iter().filter(|&&step| is_hit(&found, step)).count();
    let false_alarms = found.iter().enumerate().filter(|&(step, found)| *found && !recording.is_in_wake(step)).count();
    format!("{hits}/{}, {false_alarms}", starts.len())
}
