//! Custom scalars: numbers that the training's script tells under names of its own.

use std::sync::PoisonError;
use std::time::Instant;

use trainmon_core::{TensorId, TensorInfo};

use crate::monitor::Monitor;
use crate::recorder::Pushed;

/// Different names of one run: a step's number in a name must not eat the memory, nor every output's.
const MAX_NAMES: usize = 1000;
/// The longest name, in bytes.
const MAX_NAME_BYTES: usize = 256;

impl Monitor {
    /// Tells a number of the step in progress under a name of the caller's own (`accuracy`): a custom scalar, which goes
    /// to every output as a record of the kind `scalar`. Told twice in a step, the last one counts. It needs no config
    /// key, and is delivered in steps, too, that no tensor is measured in.
    ///
    /// A run has 1,000 different names at most, of 256 bytes at most and without control characters: what is beyond is
    /// warned of once, counted as not sampled, and not delivered. Cost: a lookup of the name and a lock held for
    /// nanoseconds.
    pub fn scalar(&self, name: &str, value: f64) {
        if self.inner().fork.is_child() {
            return;
        }
        let start = Instant::now();
        let Some(id) = self.scalar_id(name) else { return };
        let pushed = self.inner().recorder().set_scalar(id, value, start.elapsed());
        if let Some(pushed) = pushed {
            self.inner().book(pushed);
        }
    }

    /// The id of a custom scalar, for a value that arrives after its step: a [`PendingStep`](crate::PendingStep) takes it as a record of
    /// the kind `scalar`. `None` for a name that is not taken, which is said and counted as by [`scalar`](Self::scalar).
    pub fn scalar_id(&self, name: &str) -> Option<TensorId> {
        let inner = self.inner();
        if inner.fork.is_child() {
            return None;
        }
        let mut names = inner.so_far.scalars.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&id) = names.known.get(name) {
            return Some(id);
        }
        let is_unfit = name.is_empty() || name.len() > MAX_NAME_BYTES || name.contains(char::is_control);
        if !is_unfit && names.known.len() < MAX_NAMES {
            // No layer's: the overhead budget's turns are not for it.
            let id = inner.tensors.register(TensorInfo { name: name.into(), vpp_stage: 0 });
            names.known.insert(name.into(), id);
            return Some(id);
        }
        let is_told = if is_unfit { &mut names.is_unfit_told } else { &mut names.is_full_told };
        let was_told = std::mem::replace(is_told, true);
        drop(names);
        inner.book(Pushed::TooLate);
        if !was_told {
            let shown: String = name.escape_debug().take(40).collect();
            let (why, hint) = if is_unfit {
                ("is no name for it", format!("give it 1 to {MAX_NAME_BYTES} bytes without control characters"))
            } else {
                ("is one name too many", format!("a run has {MAX_NAMES} names at most: leave step numbers out of them"))
            };
            let message =
                format!("the scalar `{shown}` is left out and counted, and so are others like it: that {why}");
            inner.notices.warn(message, Some(hint));
        }
        None
    }
}
