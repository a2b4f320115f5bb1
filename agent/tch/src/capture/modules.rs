//! Watched modules as entries of a capture and as the scope of operators.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tch::Tensor;
use trainmon_capture::{Direction, Part, Session};

use super::values::show;
use super::{Active, current};
use crate::ffi::TensorRef;

/// Runs a module's call and reports it to the capture, if one is running. `class` is the module's Rust type.
pub(crate) fn around_module(name: &str, class: &str, input: &Tensor, forward: impl FnOnce() -> Tensor) -> Tensor {
    let Some(active) = current().filter(|active| active.session.plan().config().level.has_modules()) else {
        return forward();
    };
    let begun = guarded(|| begin(&active, name, class, input));
    let _end = End { active: &active, name: begun.as_ref().map(|(name, _)| &**name) };
    let output = forward();
    if let Some((name, true)) = &begun {
        guarded(|| {
            let mut entry = active.session.entry(name);
            entry.move_to_end();
            put(&active, &mut entry, Part::Output, &output);
            if entry.wants(Part::Parameters) {
                let parameters = entry.part(Part::Parameters);
                parameters.begin_object();
                parameters.end_object();
            }
            entry.append();
        });
    }
    output
}

/// Ends a module's call, even if it panics.
struct End<'a> {
    active: &'a Active,
    name: Option<&'a str>,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        if let Some(name) = self.name {
            guarded(|| self.active.session.end_module(name));
        }
    }
}

/// Begins a module's call. Returns its name, and whether it is captured.
fn begin(active: &Active, name: &str, class: &str, input: &Tensor) -> (String, bool) {
    let session: &Session = &active.session;
    let parent = session.open_module();
    let call = session.begin_module_call(&format!("Module.{name}.{}", short(class))).forward;
    let is_wanted = session.begin_module(&call, Direction::Forward);
    if is_wanted {
        let mut entry = session.entry(&call);
        entry.under(parent.as_deref());
        put(active, &mut entry, Part::InputArgs, input);
        if entry.wants(Part::InputKwargs) {
            let kwargs = entry.part(Part::InputKwargs);
            kwargs.begin_object();
            kwargs.end_object();
        }
        entry.append();
    }
    (call, is_wanted)
}

fn put(active: &Active, entry: &mut trainmon_capture::Entry<'_>, part: Part<'_>, tensor: &Tensor) {
    if !entry.wants(part) {
        return;
    }
    let values = entry.part(part);
    let mut launch = active.devices.launch();
    values.begin_list();
    match TensorRef::new(tensor) {
        Some(handle) => show(values, &mut launch, handle, tensor.requires_grad(), ""),
        None => values.null(),
    }
    values.end_list();
    launch.go(&active.session);
}

/// Runs `body` and catches its panics, which must not reach the training.
fn guarded<R>(body: impl FnOnce() -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(body)).ok()
}

/// Returns the short name of a type: `Linear` for `tch::nn::linear::Linear`, `Block` for `model::Block<model::Norm>`.
fn short(class: &str) -> &str {
    let bare = class.split('<').next().unwrap_or(class);
    bare.rsplit("::").next().unwrap_or(bare)
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn a_class_is_called_by_its_last_name() {
        assert_eq!(short("tch::nn::linear::Linear"), "Linear");
        assert_eq!(short("model::Block<model::Norm<a::B>>"), "Block");
        assert_eq!(short("u8"), "u8");
    }
}
