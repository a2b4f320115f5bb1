//! Summaries of a step's records over all tensors.

use crate::{Kind, MicroStep, Reading, StepBatch};

/// The norm over two sets of elements, to about the last digit. Finite if the result is; NaN if either is.
#[inline]
pub fn combine_norms(a: f64, b: f64) -> f64 {
    // IEEE's hypot gives infinity for (infinity, NaN).
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.hypot(b) }
}

/// The larger value; NaN if either is.
#[inline]
pub fn largest(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) }
}

/// The median; 0 for no values. Reorders the values.
#[inline]
pub fn median_of(values: &mut [f64]) -> f64 {
    let (middle, is_odd) = (values.len() / 2, values.len() % 2 == 1);
    if values.is_empty() {
        return 0.0;
    }
    let (lower, &mut upper, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
    let below = lower.iter().copied().max_by(f64::total_cmp).filter(|_| !is_odd);
    below.map_or(upper, |below| f64::midpoint(below, upper))
}

impl StepBatch {
    /// The last recorded micro-batch of each kind. Gradients accumulate, so their last reading is the step's.
    #[inline]
    pub fn last_micro_steps(&self) -> [MicroStep; Kind::ALL.len()] {
        let mut last = [MicroStep(0); Kind::ALL.len()];
        for record in &self.records {
            let of_kind = &mut last[record.kind as usize];
            *of_kind = record.micro_step.max(*of_kind);
        }
        last
    }

    /// The L2 norm over the step's updates of all parameters; `None` if not all were measured.
    #[inline]
    pub fn update_norm(&self) -> Option<f64> {
        if self.sampling_stride > 1 {
            return None;
        }
        let norms = self.readings_of(Kind::Update).filter_map(|reading| Some(reading.tensor()?.norm));
        norms.reduce(combine_norms)
    }

    /// The largest and the median update ratio over the parameters; `None` if not all were measured. NaN counts as largest in
    /// both. Overwrites `scratch`.
    #[inline]
    pub fn update_ratios(&self, scratch: &mut Vec<f64>) -> Option<(f64, f64)> {
        scratch.clear();
        if self.sampling_stride > 1 {
            return None;
        }
        scratch.extend(self.readings_of(Kind::UpdateRatio).filter_map(|reading| reading.values().first()));
        let max = scratch.iter().copied().reduce(largest)?;
        Some((max, median_of(scratch)))
    }

    #[inline]
    fn readings_of(&self, kind: Kind) -> impl Iterator<Item = &Reading> {
        self.records.iter().filter(move |record| record.kind == kind).filter_map(|record| record.reading.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median_of(&mut []), 0.0);
        assert_eq!(median_of(&mut [3.0]), 3.0);
        assert_eq!(median_of(&mut [3.0, 1.0]), 2.0);
        assert_eq!(median_of(&mut [9.0, 1.0, 5.0]), 5.0);
        assert_eq!(median_of(&mut [4.0, 1.0, 9.0, 5.0]), 4.5);
    }
}
