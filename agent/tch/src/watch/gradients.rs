//! Weight gradients: before aggregation from hooks in the backward pass, after it when the optimizer is about to step.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use trainmon_agent::core::{Kind, MicroStep};
use trainmon_agent::front::Label;

use super::WatchError;
use super::parameter::Parameter;
use super::shared::Shared;
use crate::ffi::{AccumulatedHook, TensorRef, after_backward};

/// Hooks every parameter that takes a gradient and is not hooked yet, if gradients are configured. The first refusal ends
/// it; what was hooked stays.
pub(super) fn hook(shared: &Arc<Shared>, parameters: &mut [Parameter]) -> Result<(), WatchError> {
    if shared.monitor.request(Kind::GradUnreduced).is_none() {
        return Ok(());
    }
    for parameter in parameters.iter_mut().filter(|parameter| parameter.hook.is_none()) {
        if !parameter.tensor.requires_grad() {
            continue;
        }
        let (shared, firings) = (Arc::clone(shared), Arc::clone(&parameter.firings));
        let label = Label::new(parameter.id, Kind::GradUnreduced);
        let on_added = move |leaf: TensorRef<'_>| {
            shared.monitor.guard("weight gradients", || gradient_added(&shared, &firings, label, leaf));
        };
        let hook = AccumulatedHook::new(&parameter.tensor, on_added);
        let refused = |message| WatchError::Hook { parameter: parameter.name.to_string(), message };
        parameter.hook = Some(hook.map_err(refused)?);
    }
    Ok(())
}

/// The k-th addition of a step is micro-batch k. The gradient is in the cache now, and nobody aggregated it yet.
fn gradient_added(shared: &Arc<Shared>, firings: &AtomicU32, label: Label, leaf: TensorRef<'_>) {
    // Relaxed: the backward passes of a parameter follow each other, and the optimizer's step follows them.
    let micro_step = firings.fetch_add(1, Ordering::Relaxed);
    // A gradient that was made anew may lie where the last one did.
    shared.meter.forget(label);
    if !shared.wants(label.kind) || !is_measured(shared, micro_step) {
        return;
    }
    let label = Label { micro_step: MicroStep(micro_step), ..label };
    let was_queued = leaf.with_grad(|grad| shared.measure_unless_known(label, grad).is_none());
    if was_queued == Some(true) {
        launch_after_backward(shared);
    }
}

/// The last micro-batch has the whole gradient; the others only if every one is asked for.
fn is_measured(shared: &Shared, micro_step: u32) -> bool {
    shared.every_micro_batch() || micro_step + 1 == shared.micro_batches
}

/// Device gradients are measured together, when the backward pass has ended and before anything aggregates them.
fn launch_after_backward(shared: &Arc<Shared>) {
    if !shared.queue().expect_launch() {
        return;
    }
    let later = Arc::clone(shared);
    let queued = after_backward(move || {
        later.monitor.guard("device statistics", || later.launch_queued());
    });
    if queued.is_err() {
        shared.launch_queued();
    }
}

/// The gradients as the optimizer sees them. One that nobody wrote since its hook is not read again.
pub(super) fn measure_reduced(shared: &Shared, parameters: &[Parameter]) {
    for parameter in parameters {
        // The whole step's gradient: it stands beside the last micro-batch, whose number V2's files show.
        let micro_step = MicroStep(shared.micro_batches - 1);
        let label = Label { micro_step, ..Label::new(parameter.id, Kind::GradReduced) };
        let Some(leaf) = TensorRef::new(&parameter.tensor) else { continue };
        leaf.with_grad(|grad| shared.measure_unless_known(label, grad));
    }
}

/// Gradients that never met the micro-batch at which they are recorded, because another number of backward passes came
/// than was announced: counted as not measured, and said.
pub(super) fn account_for_unmet(shared: &Shared, parameters: &[Parameter]) {
    let announced = shared.micro_batches;
    if shared.every_micro_batch() {
        return;
    }
    for parameter in parameters {
        let came = parameter.firings.load(Ordering::Relaxed);
        if came != 0 && came != announced {
            let label = Label::new(parameter.id, Kind::GradUnreduced);
            let why = format!("{announced} backward passes per step were announced (grad_acc_steps), {came} came");
            shared.unsupported(label, &why);
        }
    }
}

/// The next gradient belongs to the next step. Parameters that were unfrozen meanwhile are hooked now.
pub(super) fn begin_next_step(shared: &Arc<Shared>, parameters: &mut [Parameter]) {
    for parameter in &*parameters {
        parameter.firings.store(0, Ordering::Relaxed);
    }
    let hooked = shared.monitor.guard("weight gradients", || hook(shared, parameters));
    if let Some(Err(WatchError::Hook { message, .. })) = hooked
        && let Some(refused) = parameters.iter().find(|parameter| parameter.hook.is_none())
    {
        shared.unsupported(Label::new(refused.id, Kind::GradUnreduced), &message);
    }
}
