//! Readings that can be used twice: a tensor nobody wrote to since need not be read again.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use trainmon_core::{Dtype, Kind, Step, TensorId, TensorStats, TensorView};
use trainmon_stats::{Request, sample};

/// Kinds that show one tensor at different moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Family {
    /// Within one step only: the next backward pass writes the gradient anew.
    Gradient,
    /// For as long as nobody writes.
    Parameter,
}

impl Family {
    /// The family of a kind; `None` where every reading is of its own.
    pub(super) fn of(kind: Kind) -> Option<Self> {
        match kind {
            Kind::GradUnreduced | Kind::GradReduced => Some(Self::Gradient),
            Kind::ParamOrigin | Kind::ParamUpdated => Some(Self::Parameter),
            _ => None,
        }
    }
}

/// What must be the same for a reading to hold still.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Contents {
    address: usize,
    dtype: Dtype,
    version: i64,
    /// Of sizes, strides and some elements: what is written behind torch's back shows there.
    sample: u64,
    /// Of a gradient.
    step: Option<Step>,
}

impl Contents {
    /// The contents of a tensor now. `None` where a write could go unnoticed: torch does not count, or the samples are
    /// nearly all zero.
    pub(super) fn of(view: &TensorView<'_>, version: Option<i64>, family: Family, step: Step) -> Option<Self> {
        let (version, sample) = (version?, sample(view)?);
        let step = (family == Family::Gradient).then_some(step);
        Some(Self { address: view.data().addr(), dtype: view.dtype(), version, sample, step })
    }
}

type Readings = HashMap<(TensorId, Family), (Contents, Request, TensorStats), RandomState>;

/// The last reading of every tensor that may be known. The lock is held for nanoseconds, and in Python only while the
/// interpreter is: a fork finds it free.
#[derive(Debug, Default)]
pub(super) struct Known(Mutex<Readings>);

impl Known {
    /// The reading, if the tensor still has these contents and the request is the same.
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

    /// The contents are those of the reading from now on.
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

    /// The next reading is taken anew.
    pub(super) fn forget(&self, tensor: TensorId, family: Family) {
        self.0.lock().remove(&(tensor, family));
    }
}
