//! The change a step makes: needs a copy of every parameter from before it.

use std::time::Instant;

use tch::Tensor;
use trainmon_agent::core::{Dtype, Kind, Phase, Reading, Statistic, StatisticSet, TensorView};
use trainmon_agent::stats::{Request, copy_contiguous, difference, measure as measure_view};

use super::parameter::Parameter;
use super::shared::{Label, Shared};
use super::step::has_gradient;
use crate::device::Target;
use crate::ffi::{Description, TensorRef};

/// A parameter as it was before the step. Its memory is made at the first use and kept.
#[derive(Default)]
pub(super) struct Snapshot {
    /// 64-bit words: aligned for every dtype.
    words: Vec<u64>,
    /// The copy on the device, where the parameter lies there.
    on_device: Option<Tensor>,
    /// Whether this step's copy is in place.
    is_filled: bool,
}

impl Snapshot {
    fn fill(&mut self, view: &TensorView<'_>) {
        let bytes = view.size_in_bytes();
        self.words.resize(bytes.div_ceil(size_of::<u64>()), 0);
        copy_contiguous(view, &mut as_bytes_mut(&mut self.words)[..bytes]);
        self.is_filled = true;
    }

    /// The copy, laid out contiguously.
    fn view(&self, dtype: Dtype, dims: &[i64]) -> Option<TensorView<'_>> {
        let bytes = dims.iter().product::<i64>() as usize * dtype.size();
        TensorView::from_bytes(dtype, dims, as_bytes(&self.words).get(..bytes)?).ok()
    }
}

#[expect(unsafe_code, reason = "whole words seen as bytes")]
fn as_bytes_mut(words: &mut [u64]) -> &mut [u8] {
    // SAFETY: every byte of a u64 may be read and written as a u8, the length is the slice's own.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), size_of_val(words)) }
}

#[expect(unsafe_code, reason = "whole words seen as bytes")]
fn as_bytes(words: &[u64]) -> &[u8] {
    // SAFETY: as above, shared.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
}

/// Copies every parameter that has a gradient.
pub(super) fn keep_copies(shared: &Shared, parameters: &mut [Parameter]) {
    let start = Instant::now();
    for parameter in parameters {
        parameter.snapshot.is_filled = false;
        if !has_gradient(&parameter.tensor) || !shared.admits(Label::new(parameter.id, Kind::Update)) {
            continue;
        }
        let Some(Ok(Some(description))) = TensorRef::new(&parameter.tensor).map(TensorRef::describe) else { continue };
        if shared.is_on_device_path(&description) {
            parameter.snapshot.on_device = tch::no_grad(|| parameter.tensor.f_detach_copy()).ok();
            parameter.snapshot.is_filled = parameter.snapshot.on_device.is_some();
        } else if let Ok(view) = description.view() {
            parameter.snapshot.fill(&view);
        }
    }
    shared.monitor.add_cost(Phase::Measure, start.elapsed());
}

/// Measures the differences, and the ratio of their norm to the parameter's.
pub(super) fn measure(shared: &Shared, parameters: &mut [Parameter]) {
    let Some(request) = shared.monitor.request(Kind::Update) else { return };
    let request = Request { statistics: request.statistics.with(Statistic::Norm), ..request };
    for parameter in parameters.iter_mut().filter(|parameter| parameter.snapshot.is_filled) {
        parameter.snapshot.is_filled = false;
        let Some(Ok(Some(description))) = TensorRef::new(&parameter.tensor).map(TensorRef::describe) else { continue };
        if shared.is_on_device_path(&description) {
            measure_on_device(shared, parameter);
        } else {
            measure_on_host(shared, parameter, &description, request);
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
    let Some(before) = parameter.snapshot.view(after.dtype(), after.shape().dims()) else {
        return shared.unsupported(label, &"the parameter changed its shape or type in the step");
    };
    let Some(update) = difference(&before, &after, request) else {
        return shared.unsupported(label, &"only real floats have an update");
    };
    let norm = Request { statistics: StatisticSet::EMPTY.with(Statistic::Norm), eps: 0.0 };
    let ratio = update.norm / measure_view(&before, norm).norm;
    shared.monitor.record(label.with(update), start.elapsed(), 3 * description.bytes());
    let label = Label::new(parameter.id, Kind::UpdateRatio);
    shared.monitor.record(label.with(Reading::of_value(ratio)), std::time::Duration::ZERO, 0);
}

fn measure_on_device(shared: &Shared, parameter: &mut Parameter) {
    let label = Label::new(parameter.id, Kind::Update);
    let Some(before) = parameter.snapshot.on_device.take() else { return };
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
            shared.lane().enqueue(Target::value(Label::new(parameter.id, Kind::UpdateRatio), ratio));
        }
        Err(why) => shared.unsupported(label, &why),
    }
}
