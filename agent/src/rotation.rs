//! Selects the tensors to measure in a step, layer by layer in turn, if the overhead budget does not allow all.
//!
//! All signals of a layer and group are measured in the same step, so that values computed from several of them (a layer's
//! norm, the ratio of an update) are complete. With a stride of `k`, a power of two, each is measured in every `k`-th
//! measured step. The selection depends only on the names, their order and the step, so all ranks of the same model select
//! the same tensors. The selection of a larger stride is a subset of that of a smaller one.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::RwLock;
use trainmon_core::{Group, TensorId, TensorInfo, layer_of};

/// The flags publish no other memory.
const FLAG: Ordering = Ordering::Relaxed;

/// The selection of tensors for the step in progress.
#[derive(Debug, Default)]
pub(crate) struct Rotation {
    /// The stride minus 1; 0 measures everything.
    mask: AtomicU32,
    turn: AtomicU32,
    cells: RwLock<Cells>,
}

#[derive(Debug, Default)]
struct Cells {
    /// The number of each virtual-pipeline stage, layer and group.
    numbers: HashMap<(u32, String, Group), u32>,
    of_tensor: Vec<u32>,
}

impl Rotation {
    /// Registers a tensor with its layer and group.
    pub(crate) fn register(&self, tensor: TensorId, info: &TensorInfo) {
        let mut cells = self.cells.write();
        let next = cells.numbers.len() as u32;
        let cell = (info.vpp_stage, layer_of(&info.name).to_owned(), Group::of(&info.name));
        let number = *cells.numbers.entry(cell).or_insert(next);
        if cells.of_tensor.len() <= tensor.index() {
            cells.of_tensor.resize(tensor.index() + 1, 0);
        }
        cells.of_tensor[tensor.index()] = number;
    }

    /// Sets the selection of the step that begins: one cell in `stride`, a power of two, selected by `turn`.
    pub(crate) fn set(&self, stride: u32, turn: u64) {
        self.turn.store(turn as u32, FLAG);
        self.mask.store(stride.max(1) - 1, FLAG);
    }

    /// The stride: one cell in this many is measured.
    pub(crate) fn stride(&self) -> u32 {
        self.mask.load(FLAG).wrapping_add(1)
    }

    /// Whether this tensor is selected. Costs one load while everything is measured.
    pub(crate) fn admits(&self, tensor: TensorId) -> bool {
        let mask = self.mask.load(FLAG);
        mask == 0 || self.cell(tensor).wrapping_add(self.turn.load(FLAG)) & mask == 0
    }

    fn cell(&self, tensor: TensorId) -> u32 {
        let cells = self.cells.read();
        cells.of_tensor.get(tensor.index()).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rotation() -> (Rotation, Vec<TensorId>) {
        let rotation = Rotation::default();
        let names = ["h.0.attn.q.weight", "h.0.attn.k.weight", "h.0.mlp.fc.weight", "h.1.attn.q.weight", "head.weight"];
        let ids: Vec<TensorId> = (0..names.len() as u32).map(TensorId).collect();
        for (&id, name) in ids.iter().zip(names) {
            rotation.register(id, &TensorInfo { name: name.into(), vpp_stage: 0 });
        }
        (rotation, ids)
    }

    fn admitted(rotation: &Rotation, ids: &[TensorId], stride: u32, turn: u64) -> Vec<u32> {
        rotation.set(stride, turn);
        ids.iter().filter(|&&id| rotation.admits(id)).map(|id| id.0).collect()
    }

    #[test]
    fn everything_is_measured_without_a_stride() {
        let (rotation, ids) = rotation();
        assert_eq!(admitted(&rotation, &ids, 1, 3), [0, 1, 2, 3, 4]);
        assert_eq!(rotation.stride(), 1);
    }

    #[test]
    fn each_tensor_has_one_turn_in_a_stride_with_its_layer() {
        let (rotation, ids) = rotation();
        for first in [0, 17, u64::from(u32::MAX) - 1] {
            let mut seen: Vec<u32> = (first..first + 4).flat_map(|turn| admitted(&rotation, &ids, 4, turn)).collect();
            seen.sort_unstable();
            assert_eq!(seen, [0, 1, 2, 3, 4]);
        }
        for turn in 0..4 {
            let now = admitted(&rotation, &ids, 4, turn);
            assert_eq!(now.contains(&0), now.contains(&1), "the attention of layer 0 stays together");
        }
    }

    #[test]
    fn what_a_larger_stride_chooses_a_smaller_one_chooses_too() {
        let (rotation, ids) = rotation();
        for turn in 0..32 {
            let of_two = admitted(&rotation, &ids, 2, turn);
            let of_eight = admitted(&rotation, &ids, 8, turn);
            assert!(of_eight.iter().all(|id| of_two.contains(id)), "{of_eight:?} in {of_two:?}");
        }
    }
}
