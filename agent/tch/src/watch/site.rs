//! A measured place in the model: the input or output of a module, or a named tensor.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tch::Tensor;
use trainmon_agent::core::{Kind, MicroStep, TensorId};
use trainmon_agent::front::Label;

use super::shared::Shared;
use crate::ffi::{GradientHook, TensorRef, on_gradient};
use crate::names::identity;

/// A named place in the model with one tensor per micro-batch.
pub(crate) struct Site {
    forward: TensorId,
    backward: TensorId,
    /// The step in the upper half, and the number of passes in that step in the lower half.
    passes: AtomicU64,
    /// The hooks of the latest leaves, one per micro-batch: all of them may still wait for their backward pass. A leaf
    /// outlives its graph and must not be hooked twice.
    leaves: Mutex<VecDeque<LeafHook>>,
}

/// A leaf's hook. It keeps the leaf alive, so that no other tensor has the same identity.
struct LeafHook {
    identity: usize,
    micro_step: Arc<AtomicU32>,
    _hook: GradientHook,
}

impl Site {
    pub(crate) fn new(forward: TensorId, backward: TensorId) -> Self {
        Self { forward, backward, passes: AtomicU64::new(0), leaves: Mutex::default() }
    }

    /// Measures the tensor now and, if it takes part in a backward pass, its gradient later.
    pub(crate) fn pass(&self, shared: &Arc<Shared>, tensor: &Tensor) {
        if !shared.monitor.collecting() {
            return;
        }
        let micro_step = self.count_pass(shared);
        if shared.wants(Kind::Actv)
            && let Some(tensor) = TensorRef::new(tensor)
        {
            let label = Label { tensor: self.forward, kind: Kind::Actv, micro_step };
            shared.measure(label, tensor);
            // Activations are many and short-lived, so they are launched at once instead of kept.
            shared.launch_queued();
        }
        if shared.wants(Kind::ActvGrad) && tensor.requires_grad() {
            self.hook(shared, tensor, micro_step);
        }
    }

    /// Returns the number of this micro-batch: the passes of the current step modulo its micro-batches.
    fn count_pass(&self, shared: &Shared) -> MicroStep {
        let step = u64::from(shared.monitor.step().0 as u32) << 32;
        // Relaxed: the number is only a label and publishes no other memory.
        let last = self.passes.load(Ordering::Relaxed);
        let count = if last & !u64::from(u32::MAX) == step { last as u32 } else { 0 };
        self.passes.store(step | u64::from(count.wrapping_add(1)), Ordering::Relaxed);
        MicroStep(count % shared.micro_batches)
    }

    /// Hooks the tensor itself, which adds no node to the graph. (A node would change the order in which gradients are
    /// summed, and so their last bits.) The hook receives the tensor's whole gradient: for an input that is also used
    /// elsewhere, the sum over all uses.
    fn hook(&self, shared: &Arc<Shared>, tensor: &Tensor, micro_step: MicroStep) {
        let label = Label { tensor: self.backward, kind: Kind::ActvGrad, micro_step };
        let hooked = if tensor.is_leaf() {
            self.hook_leaf(shared, tensor, label)
        } else {
            on_gradient(tensor, gradient_observer(shared, label, Arc::new(AtomicU32::new(micro_step.0)))).map(drop)
        };
        if let Err(why) = hooked {
            shared.unsupported(label, &why);
        }
    }

    /// Hooks a leaf. Its hooks outlive the graph, so a leaf that passes again only gets a new micro-batch number.
    fn hook_leaf(&self, shared: &Arc<Shared>, tensor: &Tensor, label: Label) -> Result<(), String> {
        let identity = identity(tensor).ok_or("the tensor is undefined")?;
        let mut leaves = self.leaves.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = leaves.iter().find(|known| known.identity == identity) {
            known.micro_step.store(label.micro_step.0, Ordering::Relaxed);
            return Ok(());
        }
        let micro_step = Arc::new(AtomicU32::new(label.micro_step.0));
        let hook = GradientHook::new(tensor, gradient_observer(shared, label, Arc::clone(&micro_step)))?;
        if leaves.len() >= shared.micro_batches as usize {
            leaves.pop_front();
        }
        leaves.push_back(LeafHook { identity, micro_step, _hook: hook });
        Ok(())
    }
}

/// Returns a callback that measures a gradient.
fn gradient_observer(
    shared: &Arc<Shared>,
    label: Label,
    micro_step: Arc<AtomicU32>,
) -> impl Fn(TensorRef<'_>) + Send + Sync + 'static {
    let shared = Arc::clone(shared);
    move |gradient| {
        shared.monitor.guard("activation gradients", || {
            if shared.wants(label.kind) {
                let micro_step = MicroStep(micro_step.load(Ordering::Relaxed));
                shared.measure(Label { micro_step, ..label }, gradient);
                shared.launch_queued();
            }
        });
    }
}

impl std::fmt::Debug for Site {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Site").field("forward", &self.forward).finish_non_exhaustive()
    }
}
