//! The change that a step makes to the parameters. It requires a copy of every parameter from before the step.

use tch::Tensor;
use trainmon_agent::core::Kind;
use trainmon_agent::front::{Found, Label};

use super::parameter::{Parameter, has_gradient};
use super::shared::Shared;
use crate::device::Target;
use crate::ffi::{TensorRef, Unreadable};

/// Copies every parameter that has a gradient.
pub(super) fn keep_copies(shared: &Shared, parameters: &mut [Parameter]) {
    for parameter in parameters {
        parameter.before = None;
        let Some(tensor) = TensorRef::new(&parameter.tensor).filter(|_| has_gradient(&parameter.tensor)) else {
            shared.meter.discard_copy(parameter.id);
            continue;
        };
        shared.meter.keep_copy(parameter.id, || {
            let Some(description) = tensor.describe()? else { return Ok(Found::Missing) };
            if !shared.is_on_device_path(&description) {
                return Ok(Found::Here(description));
            }
            parameter.before = tch::no_grad(|| parameter.tensor.f_detach_copy()).ok();
            Ok::<_, Unreadable>(Found::Queued)
        });
    }
}

/// Measures the differences, and the ratio of their norm to the parameter's.
pub(super) fn measure(shared: &Shared, parameters: &mut [Parameter]) {
    for parameter in parameters {
        if let Some(before) = parameter.before.take() {
            measure_on_device(shared, parameter, &before);
        } else if let Some(tensor) = TensorRef::new(&parameter.tensor) {
            let find = || Ok::<_, Unreadable>(tensor.describe()?.map_or(Found::Missing, Found::Here));
            shared.meter.measure_change(parameter.id, find);
        }
    }
}

fn measure_on_device(shared: &Shared, parameter: &Parameter, before: &Tensor) {
    let label = Label::new(parameter.id, Kind::Update);
    let computed = tch::no_grad(|| {
        let update = parameter.tensor.f_detach()?.f_sub(before)?;
        let norm = |tensor: &Tensor| tensor.f_norm_scalaropt_dtype(2.0, tch::Kind::Double);
        let ratio = norm(&update)?.f_div(&norm(before)?)?;
        Ok::<_, tch::TchError>((update, ratio))
    });
    match computed {
        Ok((update, ratio)) => {
            if let Some(update) = TensorRef::new(&update) {
                shared.measure(label, update);
            }
            shared.queue().enqueue(Target::value(Label::new(parameter.id, Kind::UpdateRatio), ratio));
        }
        Err(why) => shared.unsupported(label, &why),
    }
}
