//! Tensors and other operands as values of a capture.

use trainmon_agent::core::Shape;
use trainmon_capture::{Content, Tensor, Values};

use super::devices::{Launch, on_host};
use crate::ffi::{TensorRef, Value};

/// Writes an operand of an operator.
pub(super) fn write(value: Value<'_>, to: &mut Values<'_>, launch: &mut Launch<'_>) {
    match value {
        Value::BeginList => to.begin_list(),
        Value::EndList => to.end_list(),
        Value::Null => to.null(),
        Value::Bool(value) => to.bool("bool", value),
        Value::Int(value) => to.int("int", value),
        Value::Float(value) => to.float("float", value),
        Value::Text(value) => to.text("str", value),
        Value::Device(value) => to.text("torch.device", value),
        Value::Tensor { tensor, requires_grad, dtype } => show(to, launch, tensor, requires_grad, dtype),
    }
}

/// Measures a tensor in host memory. A device tensor is launched if only statistics are requested, and otherwise copied
/// to the host. `dtype` is the name in C++, for a dtype that trainmon does not support.
pub(super) fn show(
    to: &mut Values<'_>,
    launch: &mut Launch<'_>,
    tensor: TensorRef<'_>,
    requires_grad: bool,
    dtype: &str,
) {
    let Ok(Some(description)) = tensor.describe() else { return to.null() };
    let unknown = format!("torch.{}", dtype.to_lowercase());
    let known = description.dtype();
    let dtype = known.as_ref().map_or(&*unknown, |dtype| dtype.torch_name());
    let (shape, requires_grad) = (description.dims(), Some(requires_grad));
    // Not required in tch: the calls that return unwritten memory are entries themselves.
    let is_from_empty = false;
    let shown =
        Tensor { kind: "", dtype, shape, requires_grad, spread: None, is_from_empty, content: Content::Unreadable };
    if !launch.takes(&description) {
        let content = description.view().map_or(Content::Unreadable, Content::Host);
        to.tensor(&Tensor { content, ..shown });
        return;
    }
    if to.wants_only_numbers()
        && let (Ok(dtype), Ok(shape)) = (known, Shape::new(shape))
        && shape.elements() > 0
    {
        if let Some(later) = to.tensor(&Tensor { content: Content::Later, ..shown }) {
            launch.add(tensor, later, dtype, shape);
        }
        return;
    }
    let copy = on_host(tensor);
    let described = copy.as_ref().and_then(TensorRef::new).and_then(|copy| copy.describe().ok().flatten());
    let content = described.and_then(|copy| copy.view().ok()).map_or(Content::Unreadable, Content::Host);
    to.tensor(&Tensor { content, ..shown });
}
