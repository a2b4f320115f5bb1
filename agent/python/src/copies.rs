//! Copies of parameters from before the step, and the change since.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use trainmon_agent::Monitor;
use trainmon_agent::core::{Dtype, Kind, Phase, Reading, Shape, Statistic, StatisticSet, TensorId, TensorView};
use trainmon_agent::stats::{Request, copy_contiguous, difference, measure};

use crate::tensor::{HostTensor, Unreadable};

/// Why a parameter has no update.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoUpdate {
    /// The parameter cannot be read.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// The copy is of another shape or type.
    #[error("the parameter was {was} before the step and is {is} now")]
    Changed {
        /// Its type and sizes before the step.
        was: String,
        /// Its type and sizes now.
        is: String,
    },
    /// Integers, bool, complex numbers.
    #[error("only real floats have an update, this parameter is {dtype}")]
    NotReal {
        /// Its type.
        dtype: Dtype,
    },
}

/// What a step did to a parameter.
pub(crate) struct Change {
    /// The difference.
    pub(crate) update: Reading,
    /// Its norm over the parameter's before the step.
    pub(crate) ratio: f64,
}

/// A parameter as it was before the step. Its memory is made at the first use and kept.
#[derive(Default)]
struct Kept {
    /// 64-bit words: aligned for every dtype.
    words: Vec<u64>,
    /// What the copy is of; `None` once it was used.
    of: Option<(Dtype, Shape)>,
}

impl Kept {
    fn fill(&mut self, view: &TensorView<'_>) {
        let bytes = view.size_in_bytes();
        self.words.resize(bytes.div_ceil(size_of::<u64>()), 0);
        copy_contiguous(view, &mut as_bytes_mut(&mut self.words)[..bytes]);
        self.of = Some((view.dtype(), view.shape()));
    }

    fn view(&self, dtype: Dtype, shape: Shape) -> Option<TensorView<'_>> {
        let bytes = shape.elements() * dtype.size();
        TensorView::from_bytes(dtype, shape.dims(), as_bytes(&self.words).get(..bytes)?).ok()
    }
}

#[expect(unsafe_code, reason = "whole words seen as bytes")]
fn as_bytes_mut(words: &mut [u64]) -> &mut [u8] {
    // SAFETY: every byte of a u64 may be read and written as a u8, the length is the slice's own.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), size_of_val(words)) }
}

#[expect(unsafe_code, reason = "whole words seen as bytes")]
fn as_bytes(words: &[u64]) -> &[u8] {
    // SAFETY: as above, shared.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
}

/// All copies. The lock is only held while the interpreter is: a fork through Python never finds it taken.
#[derive(Default)]
pub(crate) struct Copies(Mutex<HashMap<TensorId, Kept>>);

impl Copies {
    /// Copies a parameter into its place, replacing an older copy.
    pub(crate) fn keep(&self, monitor: &Monitor, id: TensorId, tensor: &HostTensor<'_, '_>) -> Result<(), NoUpdate> {
        let start = Instant::now();
        let mut copy = self.lock().remove(&id).unwrap_or_default();
        let filled = tensor.read(|view| copy.fill(view));
        if filled.is_err() {
            copy.of = None;
        }
        self.lock().insert(id, copy);
        monitor.add_cost(Phase::Measure, start.elapsed());
        Ok(filled?)
    }

    /// The change since the copy was made, and its norm over the parameter's. Uses the copy up; `None` if there is none:
    /// that was told when it was to be made.
    pub(crate) fn measure_change(
        &self,
        monitor: &Monitor,
        id: TensorId,
        tensor: &HostTensor<'_, '_>,
    ) -> Result<Option<Change>, NoUpdate> {
        let Some(mut copy) = self.lock().remove(&id) else { return Ok(None) };
        let made_of = copy.of.take();
        let result = made_of.and_then(|of| change_now(monitor, tensor, (&copy, of)).transpose()).transpose();
        self.lock().insert(id, copy);
        result
    }

    /// Whether there is a copy that was not used yet.
    pub(crate) fn has(&self, id: TensorId) -> bool {
        self.lock().get(&id).is_some_and(|copy| copy.of.is_some())
    }

    /// Makes sure that an older copy is not taken for this step's.
    pub(crate) fn discard(&self, id: TensorId) {
        if let Some(copy) = self.lock().get_mut(&id) {
            copy.of = None;
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TensorId, Kept>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The change in the statistics asked for now; `None` if there are none.
///
/// They change only while the interpreter is held, as it is here before and after the reading: a reading of others would
/// stand under the wrong columns.
fn change_now(
    monitor: &Monitor,
    tensor: &HostTensor<'_, '_>,
    before: (&Kept, (Dtype, Shape)),
) -> Result<Option<Change>, NoUpdate> {
    loop {
        let Some(request) = monitor.request(Kind::Update) else { return Ok(None) };
        let change = change(tensor, before, request)?;
        if monitor.request(Kind::Update) == Some(request) {
            return Ok(Some(change));
        }
    }
}

fn change(
    tensor: &HostTensor<'_, '_>,
    (copy, was): (&Kept, (Dtype, Shape)),
    request: Request,
) -> Result<Change, NoUpdate> {
    let is = (tensor.layout.dtype, tensor.layout.shape);
    if was != is {
        let [was, is] = [was, is].map(|(dtype, shape)| format!("{dtype} {shape}"));
        return Err(NoUpdate::Changed { was, is });
    }
    let norm = Request { statistics: StatisticSet::EMPTY.with(Statistic::Norm), eps: 0.0 };
    let found = tensor.read(|after| {
        let before = copy.view(was.0, was.1)?;
        Some((difference(&before, after, request)?, measure(&before, norm).norm))
    })?;
    let Some((update, norm_before)) = found else { return Err(NoUpdate::NotReal { dtype: is.0 }) };
    Ok(Change { update, ratio: update.norm / norm_before })
}
