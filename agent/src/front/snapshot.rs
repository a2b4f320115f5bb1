//! A parameter as it was before the step, and what the step did to it.

use trainmon_core::{Dtype, Shape, Statistic, StatisticSet, TensorStats, TensorView};
use trainmon_stats::{Request, copy_contiguous, difference, measure};
use zerocopy::IntoBytes as _;

/// A copy of a parameter from before the step. Its memory is made at the first use and kept.
#[derive(Default)]
pub struct Snapshot {
    /// 64-bit words: aligned for every dtype.
    words: Vec<u64>,
    /// What the copy is of; `None` where it is of an earlier step.
    of: Option<(Dtype, Shape)>,
}

/// What a step did to a parameter.
pub struct Change {
    /// The difference.
    pub update: TensorStats,
    /// Its norm over the parameter's before the step.
    pub ratio: f64,
}

/// Why a parameter has no update.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NoChange {
    /// There is no copy of this step.
    NoCopy,
    /// Its type or sizes changed; what they were before the step.
    Reshaped(Dtype, Shape),
    /// Integers, bool, complex numbers.
    NotReal(Dtype),
}

impl Snapshot {
    /// Copies a parameter. Cost: one pass; memory for the copy the first time.
    pub fn fill(&mut self, view: &TensorView<'_>) {
        let bytes = view.size_in_bytes();
        self.words.resize(bytes.div_ceil(size_of::<u64>()), 0);
        copy_contiguous(view, &mut self.words.as_mut_bytes()[..bytes]);
        self.of = Some((view.dtype(), view.shape()));
    }

    /// Whether there is a copy of this step.
    pub fn is_filled(&self) -> bool {
        self.of.is_some()
    }

    /// Makes sure that the copy is not taken for that of another step.
    pub fn discard(&mut self) {
        self.of = None;
    }

    /// What changed since the copy was made, in the statistics asked for; the norm must be among them. Cost: one pass over
    /// both, one over the copy.
    ///
    /// # Errors
    /// There is no update, and why.
    pub fn change(&self, after: &TensorView<'_>, request: Request) -> Result<Change, NoChange> {
        let (was, is) = (self.of.ok_or(NoChange::NoCopy)?, (after.dtype(), after.shape()));
        if was != is {
            return Err(NoChange::Reshaped(was.0, was.1));
        }
        let (dtype, shape) = is;
        let bytes = shape.elements() * dtype.size();
        let before = self.words.as_bytes().get(..bytes).ok_or(NoChange::NoCopy)?;
        let Ok(before) = TensorView::from_bytes(dtype, shape.dims(), before) else {
            return Err(NoChange::NotReal(dtype));
        };
        let update = difference(&before, after, request).ok_or(NoChange::NotReal(dtype))?;
        let norm = Request { statistics: StatisticSet::EMPTY.with(Statistic::Norm), eps: 0.0 };
        let ratio = update.norm / measure(&before, norm).norm;
        Ok(Change { update, ratio })
    }
}
