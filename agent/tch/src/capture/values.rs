//! Tensors and other operands, as a capture's values.

use trainmon_capture::{Content, Tensor, Values};

use crate::ffi::{TensorRef, ValueSink};

/// Writes an operator's operands.
pub(super) struct Operands<'v, 's> {
    pub(super) to: &'v mut Values<'s>,
}

impl ValueSink for Operands<'_, '_> {
    fn begin_list(&mut self) {
        self.to.begin_list();
    }

    fn end_list(&mut self) {
        self.to.end_list();
    }

    fn null(&mut self) {
        self.to.null();
    }

    fn bool(&mut self, value: bool) {
        self.to.bool("bool", value);
    }

    fn int(&mut self, value: i64) {
        self.to.int("int", value);
    }

    fn float(&mut self, value: f64) {
        self.to.float("float", value);
    }

    fn text(&mut self, value: &str) {
        self.to.text("str", value);
    }

    fn device(&mut self, value: &str) {
        self.to.text("torch.device", value);
    }

    fn tensor(&mut self, tensor: TensorRef<'_>, requires_grad: bool, dtype: &str) {
        show(self.to, tensor, requires_grad, dtype);
    }
}

/// Measures a tensor in the host's memory; of any other its facts are told. `dtype` is the name in C++, for a dtype that is
/// not known here.
pub(super) fn show(to: &mut Values<'_>, tensor: TensorRef<'_>, requires_grad: bool, dtype: &str) {
    let Ok(Some(description)) = tensor.describe() else { return to.null() };
    let unknown = format!("torch.{}", dtype.to_lowercase());
    let dtype = description.dtype().map_or(&*unknown, |dtype| dtype.torch_name());
    let content = description.view().map_or(Content::Unreadable, Content::Host);
    let (shape, requires_grad) = (description.dims(), Some(requires_grad));
    // What comes later is asked for by nobody: there is no such content here.
    let _later = to.tensor(&Tensor { kind: "", dtype, shape, requires_grad, spread: None, content });
}
