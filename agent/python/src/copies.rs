//! Copies of parameters from before the step, and the change since.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use trainmon_agent::Monitor;
use trainmon_agent::core::{Dtype, Kind, Phase, TensorId};
use trainmon_agent::front::{Change, NoChange, Snapshot};

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

/// All copies. The lock is only held while the interpreter is: a fork through Python never finds it taken.
#[derive(Default)]
pub(crate) struct Copies(Mutex<HashMap<TensorId, Snapshot>>);

impl Copies {
    /// Copies a parameter into its place, replacing an older copy.
    pub(crate) fn keep(&self, monitor: &Monitor, id: TensorId, tensor: &HostTensor<'_, '_>) -> Result<(), NoUpdate> {
        let start = Instant::now();
        let mut copy = self.lock().remove(&id).unwrap_or_default();
        let filled = tensor.read(|view| copy.fill(view));
        if filled.is_err() {
            copy.discard();
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
        let result = if copy.is_filled() { change_now(monitor, tensor, &copy) } else { Ok(None) };
        copy.discard();
        self.lock().insert(id, copy);
        result
    }

    /// Whether there is a copy that was not used yet.
    pub(crate) fn has(&self, id: TensorId) -> bool {
        self.lock().get(&id).is_some_and(Snapshot::is_filled)
    }

    /// Makes sure that an older copy is not taken for this step's.
    pub(crate) fn discard(&self, id: TensorId) {
        if let Some(copy) = self.lock().get_mut(&id) {
            copy.discard();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TensorId, Snapshot>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The change in the statistics asked for now; `None` if there are none.
///
/// They change only while the interpreter is held, as it is here before and after the reading: a reading of others would
/// stand under the wrong columns.
fn change_now(monitor: &Monitor, tensor: &HostTensor<'_, '_>, before: &Snapshot) -> Result<Option<Change>, NoUpdate> {
    loop {
        let Some(request) = monitor.request(Kind::Update) else { return Ok(None) };
        let change = match tensor.read(|after| before.change(after, request))? {
            Ok(change) => change,
            Err(NoChange::NoCopy) => return Ok(None),
            Err(NoChange::NotReal(dtype)) => return Err(NoUpdate::NotReal { dtype }),
            Err(NoChange::Reshaped(dtype, shape)) => {
                let (was, is) = (format!("{dtype} {shape}"), tensor.layout);
                return Err(NoUpdate::Changed { was, is: format!("{} {}", is.dtype, is.shape) });
            }
        };
        if monitor.request(Kind::Update) == Some(request) {
            return Ok(Some(change));
        }
    }
}
