//! The names of tensors, as a reader collects them.

use trainmon_core::TensorInfo;

/// The largest plausible tensor id: a larger one is forged, and a table of that size would exhaust the reader's memory.
pub(super) const MAX_TENSORS: u64 = 1 << 22;

/// Names by tensor id, some of which may be lost.
#[derive(Debug, Default)]
pub(super) struct Names(Vec<Option<TensorInfo>>);

impl Names {
    /// Sets the name of a tensor below [`MAX_TENSORS`].
    pub(super) fn set(&mut self, id: usize, info: TensorInfo) {
        if self.0.len() <= id {
            self.0.resize(id + 1, None);
        }
        self.0[id] = Some(info);
    }

    pub(super) fn has(&self, id: usize) -> bool {
        self.0.get(id).is_some_and(Option::is_some)
    }

    /// Returns at least `count` names, with placeholders for lost ones.
    pub(super) fn finish(&mut self, count: usize) -> Vec<TensorInfo> {
        if self.0.len() < count {
            self.0.resize(count, None);
        }
        let made_up = |id: usize| TensorInfo { name: format!("unnamed_tensor_{id}").into(), vpp_stage: 0 };
        self.0.drain(..).enumerate().map(|(id, info)| info.unwrap_or_else(|| made_up(id))).collect()
    }
}
