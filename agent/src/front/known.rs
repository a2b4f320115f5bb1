//! A cache of readings: a tensor that was not written since its last reading is not read again.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use trainmon_core::{Dtype, Kind, Step, TensorId, TensorStats, TensorView};
use trainmon_stats::{Request, sample};

/// A group of kinds that measure the same tensor at different moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Family {
    /// Reused within one step only, because the next backward pass writes the gradient again.
    Gradient,
    /// Reused until the parameter is written.
    Parameter,
}

impl Family {
    /// The family of a kind; `None` if its readings are never reused.
    pub(super) fn of(kind: Kind) -> Option<Self> {
        match kind {
            Kind::GradUnreduced | Kind::GradReduced => Some(Self::Gradient),
            Kind::ParamOrigin | Kind::ParamUpdated => Some(Self::Parameter),
            _ => None,
        }
    }
}

/// The properties that must be unchanged for a reading to be reused.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Contents {
    address: usize,
    dtype: Dtype,
    version: i64,
    /// A hash of sizes, strides and some elements, which detects writes that torch does not count.
    sample: u64,
    /// The step; `None` for a parameter.
    step: Option<Step>,
}

impl Contents {
    /// The current contents of a tensor. `None` if a write could go undetected: torch does not count writes, or nearly all
    /// samples are zero.
    pub(super) fn of(view: &TensorView<'_>, version: Option<i64>, family: Family, step: Step) -> Option<Self> {
        let (version, sample) = (version?, sample(view)?);
        let step = (family == Family::Gradient).then_some(step);
        Some(Self { address: view.data().addr(), dtype: view.dtype(), version, sample, step })
    }
}

type Readings = HashMap<(TensorId, Family), (Contents, Request, TensorStats), RandomState>;

/// The last reading of every tensor whose readings may be reused. The lock is held for nanoseconds. In Python, it is held
/// only together with the interpreter's lock, so that it is free during a fork.
#[derive(Debug, Default)]
pub(super) struct Known(Mutex<Readings>);

impl Known {
    /// Returns the reading if the tensor still has these contents and the request is the same.
    pub(super) fn recall(
        &self,
        tensor: TensorId,
        family: Family,
        contents: &Contents,
        request: Request,
    ) -> Option<TensorStats> {
        let readings = self.0.lock();
        let (then, asked, reading) = readings.get(&(tensor, family))?;
        (asked == &request && then == contents).then_some(*reading)
    }

    /// Stores a reading with the contents that it was taken from.
    pub(super) fn remember(
        &self,
        tensor: TensorId,
        family: Family,
        contents: Contents,
        request: Request,
        reading: TensorStats,
    ) {
        self.0.lock().insert((tensor, family), (contents, request, reading));
    }

    /// Removes the reading, so that the tensor is read again.
    pub(super) fn forget(&self, tensor: TensorId, family: Family) {
        self.0.lock().remove(&(tensor, family));
    }
}
