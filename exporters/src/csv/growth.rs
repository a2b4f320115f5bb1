//! The growth of the files, because a long run can fill a disk.

use trainmon_core::StepBatch;

/// The number of training steps for which the size is estimated.
const STEPS: u64 = 100_000;
/// The smallest estimate that is reported, in bytes.
const WORTH_TELLING: u64 = 5_000_000_000;

/// The size of a step's rows in bytes.
#[derive(Debug)]
pub(super) struct Growth {
    /// One step in this many is measured.
    interval: u64,
    /// The bytes written for the current step.
    pub(super) bytes: u64,
    measured: u32,
    told: Option<u64>,
    /// The bytes of a measured step, once known.
    of_a_step: Option<u64>,
}

impl Growth {
    pub(super) fn new(interval: u64) -> Self {
        Self { interval: interval.max(1), bytes: 0, measured: 0, told: None, of_a_step: None }
    }

    /// Ends a step. The first step has no moments yet, so the second one is used.
    pub(super) fn end_step(&mut self, batch: &StepBatch) {
        let bytes = std::mem::take(&mut self.bytes);
        if batch.collected && bytes > 0 && self.measured < 2 {
            self.measured += 1;
            self.told = (self.measured == 2).then_some(bytes);
            self.of_a_step = self.told;
        }
    }

    /// The bytes per training step, once known.
    pub(super) fn per_step(&self) -> Option<u64> {
        self.of_a_step.map(|bytes| bytes / self.interval)
    }

    /// The message about the size, once.
    pub(super) fn remark(&mut self) -> Option<String> {
        let bytes = self.told.take()?;
        let total = bytes.saturating_mul(STEPS) / self.interval;
        let [step, all] = [bytes as f64 / 1e3, total as f64 / 1e9];
        (total >= WORTH_TELLING).then(|| {
            format!(
                "csv: a measured step takes {step:.0} kB on disk, 100,000 training steps {all:.1} GB; set `step_interval`, \
                 `targets` or fewer signals to reduce it"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(interval: u64, bytes: &[u64]) -> Vec<String> {
        let mut growth = Growth::new(interval);
        let step = |bytes: &u64| {
            growth.bytes += bytes;
            growth.end_step(&StepBatch { collected: true, ..StepBatch::default() });
            growth.remark()
        };
        bytes.iter().filter_map(step).collect()
    }

    #[test]
    fn the_size_of_a_long_run_is_told_once_if_it_is_large() {
        let expected = "csv: a measured step takes 116 kB on disk, 100,000 training steps 11.6 GB; set `step_interval`, \
                        `targets` or fewer signals to reduce it";
        assert_eq!(said(1, &[60_000, 0, 116_000, 116_000]), [expected]);
        assert!(said(10, &[60_000, 116_000, 116_000]).is_empty(), "one step in ten is measured");
        assert!(said(1, &[900_000, 49_000, 900_000]).is_empty());
    }
}
