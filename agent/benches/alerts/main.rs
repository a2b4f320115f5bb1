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
use crate::synthetic::{Chance, SERIES, Spike, with_spikes};

const STEPS: usize = 20_000;
/// Others than those the rule was chosen on (1 to 20).
const SEED: u64 = 101;
const SEEDS: u64 = 5;
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
    println!("## Synthetic norms, {STEPS} steps, two-step spikes every ~450 steps, {SEEDS} seeds from {SEED} on\n");
    println!(
        "Of false alarms: the mean per 10,000 steps and the most of any seed. Of spikes: the share that is hit, in %.\n"
    );
    println!("| series | rule | false | most | 1.5x | 2x | 3x | 5x | 10x | 3x and more after a NaN |");
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for (name, series) in SERIES {
        let mut tallies: Vec<Tally> = RULES.iter().map(|_| Tally::default()).collect();
        for seed in SEED..SEED + SEEDS {
            let mut chance = Chance::new(seed);
            let clean = series(&mut chance, STEPS);
            let (spiked, known) = with_spikes(&mut chance, &clean, &FACTORS);
            for (rule, tally) in RULES.iter().zip(&mut tallies) {
                tally.take(rule, &clean, &spiked, &known);
            }
        }
        for (rule, tally) in RULES.iter().zip(&tallies) {
            println!("| {name} | {} | {} |", rule.0, tally.row());
        }
    }
    println!();
}

/// What a rule did on the seeds of a kind of series.
#[derive(Default)]
struct Tally {
    false_alarms: Vec<usize>,
    /// Hits and spikes, by factor; last those of 3x and more behind a NaN.
    hits: [(usize, usize); FACTORS.len() + 1],
}

impl Tally {
    fn take(&mut self, rule: &Named, clean: &[f64], spiked: &[f64], known: &[Spike]) {
        self.false_alarms.push(spikes(rule, AlertSignal::Grad, clean).iter().filter(|found| **found).count());
        let nan = known[5].step - 50;
        let mut poisoned = spiked.to_vec();
        poisoned[nan] = f64::NAN;
        let (found, after) = (spikes(rule, AlertSignal::Grad, spiked), spikes(rule, AlertSignal::Grad, &poisoned));
        for spike in known {
            let factor = FACTORS.iter().position(|&factor| factor == spike.factor).unwrap();
            self.count(factor, is_hit(&found, spike.step));
            if spike.step > nan && spike.factor >= 3.0 {
                self.count(FACTORS.len(), is_hit(&after, spike.step));
            }
        }
    }

    fn count(&mut self, column: usize, is_hit: bool) {
        self.hits[column].0 += usize::from(is_hit);
        self.hits[column].1 += 1;
    }

    fn row(&self) -> String {
        let per_10k = |count: usize| 1e4 * count as f64 / STEPS as f64;
        let mean = per_10k(self.false_alarms.iter().sum()) / self.false_alarms.len() as f64;
        let most = per_10k(self.false_alarms.iter().copied().max().unwrap_or(0));
        let shares = self.hits.map(|(hits, of)| format!("{:.0}", 100.0 * hits as f64 / of as f64));
        format!("{mean:.1} | {most:.1} | {}", shares.join(" | "))
    }
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
