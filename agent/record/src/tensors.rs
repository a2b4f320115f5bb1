//! The table of tensor names.

use std::sync::Arc;

use parking_lot::RwLock;

use crate::TensorId;

/// The identity of a tensor. Created when a hook is installed, never per step.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TensorInfo {
    /// The name in the model: `blocks.0.attn.qkv.weight`, or `blocks.0.attn.input_0` for an activation.
    pub name: Arc<str>,
    /// The virtual-pipeline stage (model chunk), 0 for a single model.
    pub vpp_stage: u32,
}

/// An append-only table of names, shared by hooks and exporters. A look-up takes a read lock, never held across I/O.
#[derive(Clone, Debug, Default)]
pub struct TensorTable {
    tensors: Arc<RwLock<Vec<TensorInfo>>>,
}

impl TensorTable {
    /// Adds a name and returns its id. Equal names get separate ids: the caller decides which records are of the same
    /// tensor.
    pub fn register(&self, info: TensorInfo) -> TensorId {
        let mut tensors = self.tensors.write();
        tensors.push(info);
        TensorId((tensors.len() - 1) as u32)
    }

    /// The tensor with this id, if it is registered here.
    pub fn get(&self, id: TensorId) -> Option<TensorInfo> {
        self.tensors.read().get(id.index()).cloned()
    }

    /// The number of registered tensors.
    pub fn len(&self) -> usize {
        self.tensors.read().len()
    }

    /// Whether no tensor is registered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends the names that are not yet in `known`. Cheap if there are none.
    pub fn sync_into(&self, known: &mut Vec<TensorInfo>) {
        let tensors = self.tensors.read();
        if let Some(new) = tensors.get(known.len()..) {
            known.extend_from_slice(new);
        }
    }
}
