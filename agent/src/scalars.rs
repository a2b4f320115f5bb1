//! Custom scalars: numbers that the training script logs under its own names.

use std::sync::PoisonError;
use std::time::Instant;

use trainmon_core::{TensorId, TensorInfo};

use crate::monitor::Monitor;
use crate::recorder::Pushed;

/// The maximum number of names per run. It limits the memory, here and in every output, of names that contain a step number.
const MAX_NAMES: usize = 1000;
/// The maximum length of a name in bytes.
const MAX_NAME_BYTES: usize = 256;

impl Monitor {
    /// Records a custom scalar of the step in progress: a number under the caller's own name, such as `accuracy`. Every
    /// output receives it as a record of the kind `scalar`. The last value of a step counts. Scalars require no config key,
    /// and are also delivered in steps without measured tensors.
    ///
    /// A run has at most 1,000 names, each of at most 256 bytes and without control characters. Others are not delivered:
    /// the monitor warns once and counts them as not sampled. Cost: a lookup of the name and a lock held for nanoseconds.
    pub fn scalar(&self, name: &str, value: f64) {
        if self.inner().fork.is_child() {
            return;
        }
        let start = Instant::now();
        let Some(id) = self.scalar_id(name) else { return };
        let pushed = self.inner().recorder().set_scalar(id, value, start.elapsed());
        if let Some(pushed) = pushed {
            self.inner().count(pushed);
        }
    }

    /// The id of a custom scalar, for a value that arrives after its step as a record of the kind `scalar` in a
    /// [`PendingStep`](crate::PendingStep). `None` for a rejected name, which is reported and counted as in
    /// [`scalar`](Self::scalar).
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
            // A scalar belongs to no layer, so the overhead budget never skips it.
            let id = inner.tensors.register(TensorInfo { name: name.into(), vpp_stage: 0 });
            names.known.insert(name.into(), id);
            return Some(id);
        }
        let is_told = if is_unfit { &mut names.is_unfit_told } else { &mut names.is_full_told };
        let was_told = std::mem::replace(is_told, true);
        drop(names);
        inner.count(Pushed::TooLate);
        if !was_told {
            let shown: String = name.escape_debug().take(40).collect();
            let (why, hint) = if is_unfit {
                let hint = format!("use a name of 1 to {MAX_NAME_BYTES} bytes without control characters");
                ("its name is invalid".to_owned(), hint)
            } else {
                let hint = "do not use step numbers in the names".to_owned();
                (format!("a run has at most {MAX_NAMES} names"), hint)
            };
            let message = format!("scalar `{shown}` is discarded: {why}; later such scalars are only counted");
            inner.notices.warn(message, Some(hint));
        }
        None
    }
}
