//! The run's own numbers: what `steps.csv` has beside the tensors' files.

use trainmon_core::{DropReason, Phase, StepBatch};

/// A column of `steps.csv` and its tag.
#[derive(Clone, Copy, Debug)]
pub struct Fact {
    /// The column.
    pub column: &'static str,
    /// The tag: `run/…` about the training, `monitor/…` about the monitor.
    pub tag: &'static str,
    value: fn(&StepBatch) -> Option<f64>,
}

/// Every fact, in the columns' order. `unix_seconds` is not among them: it is the points' own time.
pub const FACTS: [Fact; 16] = [
    Fact { column: "step_seconds", tag: "run/step_seconds", value: |b| Some(b.duration?.as_secs_f64()) },
    Fact { column: "loss", tag: "run/loss", value: |b| b.loss },
    Fact { column: "learning_rate", tag: "run/learning_rate", value: |b| b.learning_rate },
    Fact { column: "grad_norm", tag: "run/grad_norm", value: StepBatch::grad_norm },
    Fact { column: "framework_grad_norm", tag: "run/framework_grad_norm", value: |b| b.framework_grad_norm },
    Fact { column: "grad_norm_ratio", tag: "run/grad_norm_ratio", value: |b| Some(b.grad_norm_check()?.ratio()) },
    Fact { column: "measure_seconds", tag: "monitor/measure_seconds", value: |b| Some(seconds(b, Phase::Measure)) },
    Fact { column: "launch_seconds", tag: "monitor/launch_seconds", value: |b| Some(seconds(b, Phase::Launch)) },
    Fact { column: "offer_seconds", tag: "monitor/offer_seconds", value: |b| Some(seconds(b, Phase::Offer)) },
    Fact { column: "bytes_read", tag: "monitor/bytes_read", value: |b| Some(b.bytes_read as f64) },
    Fact { column: "records", tag: "monitor/records", value: |b| Some(b.records.len() as f64) },
    Fact { column: "observed_total", tag: "monitor/observed_total", value: |b| Some(b.books.observed as f64) },
    Fact { column: "not_sampled_total", tag: "monitor/not_sampled_total", value: |b| Some(b.books.not_sampled as f64) },
    Fact { column: "dropped_total", tag: "monitor/dropped_total", value: |b| Some(dropped(b) as f64) },
    Fact { column: "skipped_steps", tag: "monitor/skipped_steps", value: |b| Some(b.skipped_steps as f64) },
    Fact { column: "sampling_ratio", tag: "monitor/sampling_ratio", value: |b| Some(b.sampling_ratio()) },
];

impl Fact {
    /// The step's value; `None` if nobody told it.
    pub(super) fn of(&self, batch: &StepBatch) -> Option<f64> {
        (self.value)(batch)
    }
}

fn seconds(batch: &StepBatch, phase: Phase) -> f64 {
    batch.cost.get(phase).as_secs_f64()
}

fn dropped(batch: &StepBatch) -> u64 {
    DropReason::ALL.into_iter().map(|reason| batch.books.dropped[reason as usize]).sum()
}

#[cfg(all(test, feature = "csv"))]
mod tests {
    use super::*;

    #[test]
    fn every_column_of_the_steps_file_has_a_tag() {
        let columns: Vec<&str> = FACTS.iter().map(|fact| fact.column).collect();
        assert_eq!(format!("step,unix_seconds,{}", columns.join(",")), crate::csv::STEPS_HEADER.trim_end());
    }
}
