//! Readings that can be used twice: a tensor nobody wrote to since need not be read again.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use trainmon_agent::core::{Kind, Step, TensorId, TensorStats, TensorView};
use trainmon_agent::front::CachedReading;
use trainmon_agent::stats::Request;

use crate::tensor::{HostTensor, Layout};

/// Elements looked at to see whether a tensor was written behind torch's back.
const SAMPLES: usize = 64;

/// With fewer nonzero samples than this a tensor is always read again: scaling zeros leaves them as they are, and the
/// gradient of a large embedding is nearly all zeros.
const ENOUGH_NONZERO: u32 = 8;

/// Kinds that show one tensor at different moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Family {
    /// Within one step only: the next backward pass writes the gradient anew.
    Gradient,
    /// For as long as nobody writes.
    Parameter,
}

impl Family {
    /// The family of a kind; `None` where every reading is of its own.
    pub(crate) fn of(kind: Kind) -> Option<Self> {
        match kind {
            Kind::GradUnreduced | Kind::GradReduced => Some(Self::Gradient),
            Kind::ParamOrigin | Kind::ParamUpdated => Some(Self::Parameter),
            _ => None,
        }
    }
}

/// What must be the same for a reading to hold still.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Contents {
    layout: Layout,
    version: i64,
    fingerprint: u64,
    /// Of a gradient.
    step: Option<Step>,
}

impl Contents {
    /// The contents of a tensor now. `None` where a write could go unnoticed: torch does not count, or the samples are
    /// nearly all zero.
    pub(crate) fn of(tensor: &HostTensor<'_, '_>, family: Family, step: Step) -> Option<Self> {
        let version = tensor.version?;
        let fingerprint = tensor.read_few(fingerprint).ok()??;
        let step = (family == Family::Gradient).then_some(step);
        Some(Self { layout: tensor.layout, version, fingerprint, step })
    }
}

/// The last reading of every tensor shown to `observe_once`.
///
/// The lock is only held while the interpreter is: a fork through Python never finds it taken.
#[derive(Debug, Default)]
pub(crate) struct Known(Mutex<HashMap<(TensorId, Family), CachedReading<Contents>>>);

impl Known {
    /// The reading, if the tensor still has these contents and the same is asked for.
    pub(crate) fn recall(
        &self,
        tensor: TensorId,
        family: Family,
        contents: Option<&Contents>,
        request: Request,
    ) -> Option<TensorStats> {
        self.lock().get(&(tensor, family))?.recall(contents, request)
    }

    /// The contents are those of the reading from now on.
    pub(crate) fn remember(
        &self,
        tensor: TensorId,
        family: Family,
        contents: Option<Contents>,
        request: Request,
        reading: TensorStats,
    ) {
        self.lock().entry((tensor, family)).or_default().remember(contents, request, reading);
    }

    pub(crate) fn forget(&self, tensor: TensorId, family: Family) {
        self.lock().remove(&(tensor, family));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(TensorId, Family), CachedReading<Contents>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A hash over a few elements spread over the tensor, over all of a small one. `None` if too few are nonzero.
fn fingerprint(view: &TensorView<'_>) -> Option<u64> {
    let elements = view.elements();
    let is_contiguous = view.is_contiguous();
    let places = elements.min(SAMPLES);
    let mut hash = elements as u64;
    let mut nonzero = 0;
    for sample in 0..places {
        let place = if elements <= SAMPLES { sample } else { spread(sample, elements) };
        let word = element_bits(view, if is_contiguous { place } else { offset_of(view, place) });
        nonzero += u32::from(word != 0);
        hash = (hash ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    }
    (elements <= SAMPLES || nonzero >= ENOUGH_NONZERO).then_some(hash)
}

/// The place of a sample: multiples of the golden ratio fall evenly and in no row's or column's rhythm.
fn spread(sample: usize, elements: usize) -> usize {
    let fraction = (sample as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    ((u128::from(fraction) * elements as u128) >> 64) as usize
}

/// How far from the first element one lies, of a logical place. In elements.
fn offset_of(view: &TensorView<'_>, place: usize) -> usize {
    let mut rest = place;
    let mut offset = 0;
    for (&size, &stride) in view.shape().dims().iter().zip(view.strides()).rev() {
        offset += (rest % size as usize) * stride as usize;
        rest /= size as usize;
    }
    offset
}

/// The bits of the element at an offset, those of wide types folded together.
#[expect(unsafe_code, reason = "single elements of a view")]
fn element_bits(view: &TensorView<'_>, offset: usize) -> u64 {
    let size = view.dtype().size();
    let mut bytes = [0u8; 16];
    // SAFETY: the offset is that of one of the view's elements, which the view's contract makes readable; no element
    // is wider than 16 bytes.
    unsafe { std::ptr::copy_nonoverlapping(view.data().add(offset * size), bytes.as_mut_ptr(), size) };
    let bits = u128::from_le_bytes(bytes);
    bits as u64 ^ ((bits >> 64) as u64).rotate_left(32)
}
