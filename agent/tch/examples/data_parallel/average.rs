//! Collective operations over MPI, each measured by trainmon.

use mpi::collective::SystemOperation;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator as _, CommunicatorCollectives as _, Root as _};
use tch::Tensor;
use trainmon_agent::core::{CollectiveOp, TensorView};
use trainmon_agent::{CollectiveCall, CollectiveGroup, Monitor};

/// Keeps the models of all ranks equal.
pub(crate) struct Averager<'a> {
    world: &'a SimpleCommunicator,
    group: CollectiveGroup,
}

impl<'a> Averager<'a> {
    pub(crate) fn new(world: &'a SimpleCommunicator, monitor: &Monitor) -> Self {
        Self { world, group: monitor.collective_group("dp", u32::try_from(world.size()).unwrap_or(1)) }
    }

    /// Sends the parameters of rank 0 to every rank.
    pub(crate) fn broadcast(&self, parameters: &[Tensor]) {
        let mut values = flat(parameters);
        let guard = guarded(&values, |view| self.group.start(CollectiveCall::of(CollectiveOp::Broadcast, view)));
        self.world.process_at_rank(0).broadcast_into(&mut values[..]);
        guarded(&values, |view| guard.finish(Some(view)));
        spread(&values, parameters);
    }

    /// Replaces every gradient with its mean over the ranks, in one all-reduce of all gradients.
    pub(crate) fn average_gradients(&self, parameters: &[Tensor]) {
        let gradients: Vec<Tensor> = parameters.iter().map(Tensor::grad).collect();
        let own = flat(&gradients);
        let mut mean = vec![0.0_f32; own.len()];
        let guard = guarded(&own, |view| self.group.start(CollectiveCall::of(CollectiveOp::AllReduce, view)));
        self.world.all_reduce_into(&own[..], &mut mean[..], SystemOperation::sum());
        guarded(&mean, |view| guard.finish(Some(view)));
        let ranks = self.world.size() as f32;
        for value in &mut mean {
            *value /= ranks;
        }
        spread(&mean, &gradients);
    }
}

/// Passes a view of the values to trainmon.
fn guarded<R>(values: &[f32], show: impl FnOnce(&TensorView<'_>) -> R) -> R {
    let view = TensorView::from_slice(values, &[values.len() as i64]).expect("as long as it says");
    show(&view)
}

/// Concatenates the elements of all tensors.
fn flat(tensors: &[Tensor]) -> Vec<f32> {
    let parts: Vec<Tensor> = tensors.iter().map(|tensor| tensor.detach().view(-1)).collect();
    Vec::try_from(Tensor::cat(&parts, 0)).expect("float32 tensors")
}

/// Writes concatenated elements back to the tensors.
fn spread(values: &[f32], tensors: &[Tensor]) {
    let mut rest = values;
    tch::no_grad(|| {
        for tensor in tensors {
            let (own, others) = rest.split_at(tensor.numel());
            rest = others;
            let mut target = tensor.shallow_clone();
            target.copy_(&Tensor::from_slice(own).view(tensor.size().as_slice()));
        }
    });
}
