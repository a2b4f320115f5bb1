//! An axis of steps with a fixed number of bins: neighbours are merged when it is full.

use serde::{Deserialize, Serialize};

/// A range of steps that share one place on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bin {
    /// The first step.
    pub first: u64,
    /// The last step; equal to `first` while bins hold one step each.
    pub last: u64,
    /// Unix seconds at the end of the last step.
    pub time: f64,
    /// The number of steps: at most the axis' width.
    pub steps: u64,
}

/// The change that [`Axis::push`] made to the existing bins; every series on the axis applies it too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AxisChange {
    /// The number of remaining bins, if the step goes back before the others.
    pub(crate) truncated_to: Option<usize>,
    /// Whether neighbours were merged after that.
    pub(crate) merged: bool,
}

/// Bins in the order of their steps. A bin takes `width` steps. When `capacity` bins are full, neighbours are merged in
/// pairs and the width doubles. A run of any length fits, and at least half of the bins are in use.
#[derive(Clone, Debug)]
pub struct Axis {
    bins: Vec<Bin>,
    capacity: usize,
    width: u64,
    generation: u64,
}

impl Axis {
    /// An empty axis. The capacity is even and at least 2.
    pub(crate) fn new(capacity: usize) -> Self {
        Self { bins: Vec::new(), capacity: capacity.max(2).next_multiple_of(2), width: 1, generation: 0 }
    }

    /// The bins, oldest first.
    pub fn bins(&self) -> &[Bin] {
        &self.bins
    }

    /// The largest number of bins.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// The number of steps per bin: a power of two.
    pub fn width(&self) -> u64 {
        self.width
    }

    /// The number of times that bins changed their places: by merging, and by a step that went back. While it is
    /// unchanged, bins are only added, and only the last one changes.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The bin of a step; `None` for a step that was never added or was removed. Cost: a binary search, or nothing for
    /// the last bin.
    pub fn bin_of(&self, step: u64) -> Option<usize> {
        let last = self.bins.len().checked_sub(1)?;
        let index = if self.bins[last].first <= step {
            last
        } else {
            self.bins.partition_point(|bin| bin.first <= step).checked_sub(1)?
        };
        (step <= self.bins[index].last).then_some(index)
    }

    /// Adds a step. If it is not after the last one, removes the bins at and after it first; a bin that began before it
    /// stays unchanged.
    pub(crate) fn push(&mut self, step: u64, time: f64) -> AxisChange {
        let mut change = AxisChange { truncated_to: self.truncate(step), merged: false };
        if let Some(bin) = self.bins.last_mut().filter(|bin| bin.steps < self.width) {
            *bin = Bin { last: step, time, steps: bin.steps + 1, ..*bin };
            return change;
        }
        if self.bins.len() == self.capacity {
            self.merge();
            change.merged = true;
        }
        self.bins.push(Bin { first: step, last: step, time, steps: 1 });
        change
    }

    /// Removes the steps from `step` on, without adding it: the run was resumed there.
    pub(crate) fn go_back(&mut self, step: u64) -> AxisChange {
        AxisChange { truncated_to: self.truncate(step), merged: false }
    }

    fn truncate(&mut self, step: u64) -> Option<usize> {
        self.bins.last().filter(|bin| bin.last >= step)?;
        self.generation += 1;
        self.bins.truncate(self.bins.partition_point(|bin| bin.first < step));
        if let Some(bin) = self.bins.last_mut().filter(|bin| bin.last >= step) {
            let held = bin.last - bin.first + 1;
            bin.last = step - 1;
            // With skipped steps, the number of steps before is unknown: it is at most the previous number.
            bin.steps = bin.steps.min(held).min(bin.last - bin.first + 1);
        }
        Some(self.bins.len())
    }

    fn merge(&mut self) {
        let together = |a: Bin, b: Bin| Bin { first: a.first, last: b.last, time: b.time, steps: a.steps + b.steps };
        self.bins = self.bins.chunks(2).filter_map(|pair| pair.iter().copied().reduce(together)).collect();
        self.width *= 2;
        self.generation += 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn filled(capacity: usize, steps: u64) -> Axis {
        let mut axis = Axis::new(capacity);
        for step in 1..=steps {
            axis.push(step, step as f64);
        }
        axis
    }

    #[test]
    fn a_full_axis_merges_neighbours_and_doubles_its_width() {
        let axis = filled(4, 4);
        assert_eq!((axis.bins().len(), axis.width(), axis.generation()), (4, 1, 0));
        let axis = filled(4, 5);
        assert_eq!((axis.width(), axis.generation()), (2, 1));
        let ranges: Vec<(u64, u64, u64)> = axis.bins().iter().map(|bin| (bin.first, bin.last, bin.steps)).collect();
        assert_eq!(ranges, [(1, 2, 2), (3, 4, 2), (5, 5, 1)]);
        assert_eq!(axis.bins()[0].time, 2.0, "the time is that of the last step");
    }

    #[test]
    fn a_step_that_goes_back_removes_what_lies_at_and_after_it() {
        let mut axis = filled(16, 10);
        let change = axis.push(4, 100.0);
        assert_eq!(change, AxisChange { truncated_to: Some(3), merged: false });
        let steps: Vec<u64> = axis.bins().iter().map(|bin| bin.first).collect();
        assert_eq!((steps, axis.generation()), (vec![1, 2, 3, 4], 1));
        assert_eq!(axis.push(4, 100.0).truncated_to, Some(3), "the same step again replaces itself");
        assert_eq!(axis.push(0, 0.0).truncated_to, Some(0));
    }

    #[test]
    fn a_bin_of_several_steps_is_cut_where_the_run_resumed() {
        let mut axis = filled(4, 16);
        assert_eq!(axis.width(), 4);
        axis.push(7, 0.0);
        let ranges: Vec<(u64, u64, u64)> = axis.bins().iter().map(|bin| (bin.first, bin.last, bin.steps)).collect();
        assert_eq!(ranges, [(1, 4, 4), (5, 7, 3)]);
    }

    #[test]
    fn steps_that_were_left_out_have_no_bin() {
        let mut axis = Axis::new(8);
        for step in [10, 20, 30] {
            axis.push(step, 0.0);
        }
        assert_eq!([9, 10, 15, 30, 31].map(|step| axis.bin_of(step)), [None, Some(0), None, Some(2), None]);
        assert_eq!(Axis::new(8).bin_of(0), None);
    }

    proptest! {
        #[test]
        fn every_step_of_a_run_that_only_goes_on_has_its_bin(
            capacity in 2_usize..40,
            strides in proptest::collection::vec(1_u64..5, 1..600),
        ) {
            let mut axis = Axis::new(capacity);
            let mut step = 0;
            let mut steps = Vec::new();
            for stride in strides {
                step += stride;
                axis.push(step, step as f64);
                steps.push(step);
                prop_assert!(axis.bins().len() <= axis.capacity());
            }
            for &step in &steps {
                let bin = axis.bins()[axis.bin_of(step).unwrap()];
                prop_assert!((bin.first..=bin.last).contains(&step));
            }
            prop_assert_eq!(axis.bins().iter().map(|bin| bin.steps).sum::<u64>(), steps.len() as u64);
        }

        #[test]
        fn bins_stay_in_order_wherever_a_run_resumes(
            capacity in 2_usize..20,
            steps in proptest::collection::vec(0_u64..200, 1..300),
        ) {
            let mut axis = Axis::new(capacity);
            for step in steps {
                axis.push(step, 0.0);
                prop_assert!(axis.bins().len() <= axis.capacity());
                prop_assert_eq!(axis.bin_of(step), Some(axis.bins().len() - 1));
                for pair in axis.bins().windows(2) {
                    prop_assert!(pair[0].first <= pair[0].last && pair[0].last < pair[1].first);
                }
            }
        }
    }
}
