//! Weight gradients: hooks measure unreduced gradients in the backward pass; reduced ones are measured just before the
//! optimizer's step.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use trainmon_agent::core::{Kind, MicroStep};
use trainmon_agent::front::Label;

use super::WatchError;
use super::parameter::Parameter;
use super::shared::Shared;
use crate::ffi::{AccumulatedHook, TensorRef, after_backward};

/// Hooks every parameter that takes a gradient and is not hooked yet, if gradients are configured. Stops at the first
/// error; hooks installed before it stay.
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

/// Measures a gradient after an accumulation: the k-th one of a step is micro-batch k. The gradient is still in the
/// cache and not yet reduced.
fn gradient_added(shared: &Arc<Shared>, firings: &AtomicU32, label: Label, leaf: TensorRef<'_>) {
    // Relaxed: a parameter's backward passes run one after the other, and the optimizer's step runs after them.
    let micro_step = firings.fetch_add(1, Ordering::Relaxed);
    // A new gradient may have the same address as the previous one.
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

/// Whether to measure this micro-batch: the last one, which has the whole gradient, or all if the plan requests them.
fn is_measured(shared: &Shared, micro_step: u32) -> bool {
    shared.every_micro_batch() || micro_step + 1 == shared.micro_batches
}

/// Launches the measurement of all device gradients after the backward pass, before anything reduces them.
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

/// Measures the gradients that the optimizer uses. A gradient that was not written since its hook ran is not read
/// again.
pub(super) fn measure_reduced(shared: &Shared, parameters: &[Parameter]) {
    for parameter in parameters {
        // The gradient of the whole step has the number of the last micro-batch, as in V2's files.
        let micro_step = MicroStep(shared.micro_batches - 1);
        let label = Label { micro_step, ..Label::new(parameter.id, Kind::GradReduced) };
        let Some(leaf) = TensorRef::new(&parameter.tensor) else { continue };
        leaf.with_grad(|grad| shared.measure_unless_known(label, grad));
    }
}

/// Counts and reports gradients that were not measured because the number of backward passes differs from the announced
/// one: they are recorded in the last announced micro-batch.
pub(super) fn account_for_unmet(shared: &Shared, parameters: &[Parameter]) {
    let announced = shared.micro_batches;
    if shared.every_micro_batch() {
        return;
    }
    for parameter in parameters {
        let came = parameter.firings.load(Ordering::Relaxed);
        if came != 0 && came != announced {
            let label = Label::new(parameter.id, Kind::GradUnreduced);
            let why = format!("the number of backward passes was {came}, but `grad_acc_steps` is {announced}");
            shared.unsupported(label, &why);
        }
    }
}

/// Resets the micro-batch counters for the next step, and hooks parameters that were unfrozen in the meantime.
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
