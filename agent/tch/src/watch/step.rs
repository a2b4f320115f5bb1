//! Measurements before and after the optimizer's step.

use std::sync::Arc;
use std::time::Instant;

use tch::Tensor;
use trainmon_agent::core::config::Dialect;
use trainmon_agent::core::{Kind, TensorStats};
use trainmon_agent::front::Label;
use trainmon_agent::stats::sign_agreement;

use super::parameter::{Parameter, has_gradient};
use super::shared::Shared;
use super::{gradients, update};
use crate::device::Target;
use crate::ffi::TensorRef;
use crate::moments::MomentSource;

/// Measures gradients, moments (those of the previous step) and parameters: everything that the step will change.
pub(super) fn before(shared: &Shared, parameters: &mut [Parameter], moments: &dyn MomentSource) {
    let guard = |hook, body: &mut dyn FnMut()| shared.monitor.guard(hook, body);
    if shared.wants(Kind::GradReduced) {
        guard("reduced gradients", &mut || {
            gradients::account_for_unmet(shared, parameters);
            gradients::measure_reduced(shared, parameters);
        });
    }
    if shared.monitor.config().dialect == Dialect::V1 && shared.wants(Kind::ExpAvg) {
        guard("moments", &mut || measure_moments(shared, parameters, moments));
    }
    if shared.wants(Kind::MgDirection) {
        guard("mg_direction", &mut || measure_directions(shared, parameters, moments));
    }
    if shared.wants(Kind::ParamOrigin) {
        guard("parameters", &mut || measure_parameters(shared, parameters, Kind::ParamOrigin));
    }
    if shared.wants(Kind::Update) {
        guard("updates", &mut || update::keep_copies(shared, parameters));
    }
    // Launched on the same stream as the step and before it, so that they read the values from before the step.
    guard("device statistics", &mut || shared.launch_queued());
}

/// Measures the results of the step.
pub(super) fn after(shared: &Arc<Shared>, parameters: &mut [Parameter], moments: &dyn MomentSource) {
    let guard = |hook, body: &mut dyn FnMut()| shared.monitor.guard(hook, body);
    if shared.wants(Kind::ParamUpdated) {
        guard("parameters", &mut || measure_parameters(shared, parameters, Kind::ParamUpdated));
    }
    if shared.monitor.config().dialect == Dialect::V2 && shared.wants(Kind::ExpAvg) {
        guard("moments", &mut || measure_moments(shared, parameters, moments));
    }
    if shared.wants(Kind::Update) {
        guard("updates", &mut || update::measure(shared, parameters));
    }
    guard("device statistics", &mut || shared.launch_queued());
    shared.queue().give_up_queued(&shared.monitor);
    for parameter in &mut *parameters {
        parameter.was_stepped |= has_gradient(&parameter.tensor);
    }
    gradients::begin_next_step(shared, parameters);
}

fn measure_moments(shared: &Shared, parameters: &[Parameter], moments: &dyn MomentSource) {
    for parameter in parameters {
        moments.visit_moments(&parameter.tensor, &mut |kind, moment| {
            if let Some(moment) = TensorRef::new(moment).filter(|_| kind.is_moment()) {
                shared.measure(Label::new(parameter.id, kind), moment);
            }
        });
    }
}

fn measure_parameters(shared: &Shared, parameters: &[Parameter], kind: Kind) {
    for parameter in parameters {
        if let Some(tensor) = TensorRef::new(&parameter.tensor) {
            shared.measure_unless_known(Label::new(parameter.id, kind), tensor);
        }
    }
}

/// Measures how far each gradient agrees in sign with the moving average of earlier gradients. The value is 1 for a
/// parameter's first gradient. Optimizers that keep no average have no value.
fn measure_directions(shared: &Shared, parameters: &[Parameter], moments: &dyn MomentSource) {
    for parameter in parameters {
        let label = Label::new(parameter.id, Kind::MgDirection);
        if !shared.admits(label) {
            continue;
        }
        let Some(leaf) = TensorRef::new(&parameter.tensor) else { continue };
        leaf.with_grad(|grad| {
            let mut average = None;
            moments.visit_moments(&parameter.tensor, &mut |kind, moment| {
                if matches!(kind, Kind::ExpAvg | Kind::MomentumBuffer) && average.is_none() {
                    average = Some(moment.shallow_clone());
                }
            });
            match average.as_ref().and_then(TensorRef::new) {
                Some(average) => measure_direction(shared, label, grad, average),
                None if !parameter.was_stepped => {
                    shared.monitor.record(label.with(TensorStats::of_value(1.0)), std::time::Duration::ZERO, 0);
                }
                None => {}
            }
        });
    }
}

fn measure_direction(shared: &Shared, label: Label, grad: TensorRef<'_>, average: TensorRef<'_>) {
    let start = Instant::now();
    let (Ok(Some(grad_at)), Ok(Some(average_at))) = (grad.describe(), average.describe()) else { return };
    if shared.is_on_device_path(&grad_at) && grad_at.is_strided() {
        match direction_on_device(&grad.as_tensor(), &average.as_tensor()) {
            Ok(value) => shared.queue().enqueue(Target::value(label, value)),
            Err(why) => shared.unsupported(label, &why),
        }
        return;
    }
    let agreement = grad_at.view().and_then(|grad| Ok(sign_agreement(&grad, &average_at.view()?)));
    match agreement {
        Ok(Some(agreement)) => {
            let record = label.with(TensorStats::of_value(agreement));
            shared.monitor.record(record, start.elapsed(), grad_at.bytes() + average_at.bytes());
        }
        Ok(None) => shared.unsupported(label, &"gradient and moment differ in shape or have no real float type"),
        Err(why) => shared.unsupported(label, &why),
    }
}

/// Computes the agreement on the gradient's device, as a tensor without dimensions.
fn direction_on_device(grad: &Tensor, average: &Tensor) -> Result<Tensor, tch::TchError> {
    tch::no_grad(|| {
        let agreement = grad.f_sign()?.f_mul(&average.f_sign()?)?.f_mean(tch::Kind::Double)?;
        agreement.f_add_scalar(1.0)?.f_div_scalar(2.0)
    })
}
