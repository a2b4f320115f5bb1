//! A parameter as it was before the step, and what the step did to it.

use trainmon_core::{Dtype, Shape, Statistic, StatisticSet, TensorStats, TensorView};
use trainmon_stats::{Request, copy_contiguous, difference, measure};
use zerocopy::IntoBytes as _;

/// A copy of a parameter from before the step. Its memory is made at the first use and kept.
#[derive(Default)]
pub(super) struct Snapshot {
    /// 64-bit words: aligned for every dtype.
    words: Vec<u64>,
    /// What the copy is of; `None` where it is of an earlier step.
    of: Option<(Dtype, Shape)>,
}

/// What a step did to a parameter.
pub(super) struct Change {
    /// The difference.
    pub(super) update: TensorStats,
    /// Its norm over the parameter's before the step.
    pub(super) ratio: f64,
}

/// Why a parameter has no update.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(super) enum NoChange {
    /// There is no copy of this step.
    #[error("there is no copy of the parameter from before the step")]
    NoCopy,
    /// Its type or sizes changed; what they were before the step, and are now.
    #[error("the parameter was {was} before the step and is {is} now")]
    Reshaped { was: String, is: String },
    /// Integers, bool, complex numbers.
    #[error("only real floats have an update, this parameter is {0}")]
    NotReal(Dtype),
}

impl Snapshot {
    /// Copies a parameter. Cost: one pass; memory for the copy the first time.
    pub(super) fn fill(&mut self, view: &TensorView<'_>) {
        let bytes = view.size_in_bytes();
        self.words.resize(bytes.div_ceil(size_of::<u64>()), 0);
        copy_contiguous(view, &mut self.words.as_mut_bytes()[..bytes]);
        self.of = Some((view.dtype(), view.shape()));
    }

    /// Whether there is a copy of this step.
    pub(super) fn is_filled(&self) -> bool {
        self.of.is_some()
    }

    /// Makes sure that the copy is not taken for that of another step.
    pub(super) fn discard(&mut self) {
        self.of = None;
    }

    /// What changed since the copy was made, in the statistics asked for; the norm must be among them. Cost: one pass over
    /// both, one over the copy.
    ///
    /// # Errors
    /// There is no update, and why.
    pub(super) fn change(&self, after: &TensorView<'_>, request: Request) -> Result<Change, NoChange> {
        let (was, is) = (self.of.ok_or(NoChange::NoCopy)?, (after.dtype(), after.shape()));
        if was != is {
            let [was, is] = [was, is].map(|(dtype, shape)| format!("{dtype} {shape}"));
            return Err(NoChange::Reshaped { was, is });
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
