//! What a step's records come to, put together over all tensors.

use crate::{Kind, MicroStep, Reading, StepBatch};

/// The norm over two sets of elements, to the last digit or so. Finite as long as the result is; NaN if either is.
#[inline]
pub fn combine_norms(a: f64, b: f64) -> f64 {
    // IEEE's hypot gives infinity for (infinity, NaN).
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.hypot(b) }
}

/// The larger; NaN if either is.
#[inline]
pub fn largest(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) }
}

impl StepBatch {
    /// By kind: the last micro-batch there is a record of. Gradients accumulate, so their last reading is the step's.
    #[inline]
    pub fn last_micro_steps(&self) -> [MicroStep; Kind::ALL.len()] {
        let mut last = [MicroStep(0); Kind::ALL.len()];
        for record in &self.records {
            let of_kind = &mut last[record.kind as usize];
            *of_kind = record.micro_step.max(*of_kind);
        }
        last
    }

    /// The L2 norm over the step's updates of all parameters; `None` where none or only a part was measured.
    #[inline]
    pub fn update_norm(&self) -> Option<f64> {
        if self.sampling_stride > 1 {
            return None;
        }
        let norms = self.readings_of(Kind::Update).filter_map(|reading| Some(reading.tensor()?.norm));
        norms.reduce(combine_norms)
    }

    /// Largest and median update ratio over the parameters; `None` where none or only a part was measured. NaN counts as
    /// largest in both. `scratch` is overwritten.
    #[inline]
    pub fn update_ratios(&self, scratch: &mut Vec<f64>) -> Option<(f64, f64)> {
        scratch.clear();
        if self.sampling_stride > 1 {
            return None;
        }
        scratch.extend(self.readings_of(Kind::UpdateRatio).filter_map(|reading| reading.values().first()));
        let max = scratch.iter().copied().reduce(largest)?;
        let middle = scratch.len() / 2;
        let is_even = scratch.len().is_multiple_of(2);
        let (below, &mut upper, _) = scratch.select_nth_unstable_by(middle, f64::total_cmp);
        let lower = below.iter().copied().max_by(f64::total_cmp).filter(|_| is_even).unwrap_or(upper);
        Some((max, f64::midpoint(lower, upper)))
    }

    #[inline]
    fn readings_of(&self, kind: Kind) -> impl Iterator<Item = &Reading> {
        self.records.iter().filter(move |record| record.kind == kind).filter_map(|record| record.reading.as_ref())
    }
}
