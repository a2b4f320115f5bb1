//! A copy of a parameter from before the step, and its change in the step.

use trainmon_core::{Dtype, Shape, Statistic, StatisticSet, TensorStats, TensorView};
use trainmon_stats::{Request, copy_contiguous, difference, measure};
use zerocopy::IntoBytes as _;

/// A copy of a parameter from before the step. Its memory is allocated at the first use and reused.
#[derive(Default)]
pub(super) struct Snapshot {
    /// 64-bit words, which are aligned for every dtype.
    words: Vec<u64>,
    /// Type and shape of the copied parameter; `None` if the copy is empty or of an earlier step.
    of: Option<(Dtype, Shape)>,
}

/// The change of a parameter in a step.
pub(super) struct Change {
    /// The statistics of the difference.
    pub(super) update: TensorStats,
    /// The norm of the difference, divided by that of the parameter before the step.
    pub(super) ratio: f64,
}

/// The reason why a parameter has no update.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(super) enum NoChange {
    /// There is no copy of this step.
    #[error("there is no copy of the parameter from before the step")]
    NoCopy,
    /// The type or shape changed. Both are given as before and after the step.
    #[error("the parameter was {was} before the step and is {is} now")]
    Reshaped { was: String, is: String },
    /// The dtype is an integer, bool or complex.
    #[error("updates are measured only for real floating-point parameters, not for {0}")]
    NotReal(Dtype),
}

impl Snapshot {
    /// Copies a parameter. Cost: one pass, and memory for the first copy.
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

    /// Discards the copy, so that it does not count as one of a later step.
    pub(super) fn discard(&mut self) {
        self.of = None;
    }

    /// The requested statistics of the change since the copy; the request must include the norm. Cost: one pass over both,
    /// one over the copy.
    ///
    /// # Errors
    /// The reason why there is no update.
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
