//! The change a step makes: needs a copy of every parameter from before it.

use std::time::Instant;

use tch::Tensor;
use trainmon_agent::core::{Kind, Phase, Reading};
use trainmon_agent::front::{Change, Label, NoChange};
use trainmon_agent::stats::Request;

use super::parameter::{BeforeStep, Parameter, has_gradient};
use super::shared::Shared;
use crate::device::Target;
use crate::ffi::{Description, TensorRef};

/// Copies every parameter that has a gradient.
pub(super) fn keep_copies(shared: &Shared, parameters: &mut [Parameter]) {
    let start = Instant::now();
    for parameter in parameters {
        let BeforeStep { on_host, on_device } = &mut parameter.before;
        on_host.discard();
        *on_device = None;
        if !has_gradient(&parameter.tensor) || !shared.admits(Label::new(parameter.id, Kind::Update)) {
            continue;
        }
        let Some(Ok(Some(description))) = TensorRef::new(&parameter.tensor).map(TensorRef::describe) else { continue };
        if shared.is_on_device_path(&description) {
            *on_device = tch::no_grad(|| parameter.tensor.f_detach_copy()).ok();
        } else if let Ok(view) = description.view() {
            on_host.fill(&view);
        }
    }
    shared.monitor.add_cost(Phase::Measure, start.elapsed());
}

/// Measures the differences, and the ratio of their norm to the parameter's.
pub(super) fn measure(shared: &Shared, parameters: &mut [Parameter]) {
    let Some(request) = shared.monitor.request(Kind::Update) else { return };
    for parameter in parameters {
        let Some(Ok(Some(description))) = TensorRef::new(&parameter.tensor).map(TensorRef::describe) else { continue };
        if parameter.before.on_device.is_some() {
            measure_on_device(shared, parameter);
        } else if parameter.before.on_host.is_filled() {
            measure_on_host(shared, parameter, &description, request);
            parameter.before.on_host.discard();
        }
    }
}

fn measure_on_host(shared: &Shared, parameter: &Parameter, description: &Description<'_>, request: Request) {
    let start = Instant::now();
    let label = Label::new(parameter.id, Kind::Update);
    let after = match description.view() {
        Ok(after) => after,
        Err(why) => return shared.unsupported(label, &why),
    };
    let Change { update, ratio } = match parameter.before.on_host.change(&after, request) {
        Ok(change) => change,
        Err(NoChange::NotReal(_)) => return shared.unsupported(label, &"only real floats have an update"),
        Err(NoChange::Reshaped(..) | NoChange::NoCopy) => {
            return shared.unsupported(label, &"the parameter changed its shape or type in the step");
        }
    };
    shared.monitor.record(label.with(update), start.elapsed(), 3 * description.bytes());
    let label = Label::new(parameter.id, Kind::UpdateRatio);
    shared.monitor.record(label.with(Reading::of_values(&[ratio])), std::time::Duration::ZERO, 0);
}

fn measure_on_device(shared: &Shared, parameter: &mut Parameter) {
    let label = Label::new(parameter.id, Kind::Update);
    let Some(before) = parameter.before.on_device.take() else { return };
    let computed = tch::no_grad(|| {
        let update = parameter.tensor.f_detach()?.f_sub(&before)?;
        let norm = |tensor: &Tensor| tensor.f_norm_scalaropt_dtype(2.0, tch::Kind::Double);
        let ratio = norm(&update)?.f_div(&norm(&before)?)?;
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
