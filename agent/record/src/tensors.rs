//! Names of tensors, interned once.

use std::sync::Arc;

use parking_lot::RwLock;

use crate::TensorId;

/// Who a tensor is. Made when a hook is installed, never per step.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TensorInfo {
    /// The name as the model tells it: `blocks.0.attn.qkv.weight`, or `blocks.0.attn.input_0` for an activation.
    pub name: Arc<str>,
    /// The virtual-pipeline stage (model chunk), 0 for a single model.
    pub vpp_stage: u32,
}

/// An append-only table of names, shared by hooks and exporters. A lookup takes a read lock, never held across I/O.
#[derive(Clone, Debug, Default)]
pub struct TensorTable {
    tensors: Arc<RwLock<Vec<TensorInfo>>>,
}

impl TensorTable {
    /// Adds a name and returns its id. Equal names get separate ids: the caller decides what is one tensor.
    pub fn register(&self, info: TensorInfo) -> TensorId {
        let mut tensors = self.tensors.write();
        tensors.push(info);
        TensorId((tensors.len() - 1) as u32)
    }

    /// The tensor of this id, if it was registered here.
    pub fn get(&self, id: TensorId) -> Option<TensorInfo> {
        self.tensors.read().get(id.index()).cloned()
    }

    /// How many tensors are registered.
    pub fn len(&self) -> usize {
        self.tensors.read().len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies the names an exporter has not seen yet onto the end of its own list. Cheap when there are none.
    pub fn sync_into(&self, known: &mut Vec<TensorInfo>) {
        let tensors = self.tensors.read();
        if let Some(new) = tensors.get(known.len()..) {
            known.extend_from_slice(new);
        }
    }
}
