//! The C++ shim's functions, and types that make them safe to call. All foreign calls of this crate are here.
//!
//! Every function of the shim catches C++ exceptions and returns their text; every callback into Rust catches panics.

mod buffer;
mod hook;
mod optimizer;
mod options;
mod pending;
mod record;
mod tensor;

use std::ffi::{CStr, c_char};

pub(crate) use buffer::{Buffer, Where};
pub(crate) use hook::{AccumulatedHook, GradientHook, after_backward, on_gradient};
pub(crate) use optimizer::{DEFAULTS, Moment, RawOptimizer};
pub use options::{GroupOptions, OptimizerKind};
pub(crate) use pending::Pending;
pub(crate) use record::{CallData, OperatorObserver, OperatorValues, Recording, Value, unobserved};
pub(crate) use tensor::{Description, TensorRef, Unreadable, grad_mode_enabled};

#[expect(unsafe_code, reason = "declared here, defined in shim/tensor.cpp")]
unsafe extern "C" {
    fn tmn_error_free(message: *mut c_char);
}

/// Converts the shim's error text to a `Result`.
#[expect(unsafe_code, reason = "the text is the shim's own, and freed by it")]
fn check(message: *mut c_char) -> Result<(), String> {
    if message.is_null() {
        return Ok(());
    }
    // SAFETY: the shim returns null or a NUL-terminated text that stays valid until it is freed.
    let text = unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned();
    // SAFETY: the text came from the shim, is freed once, and is not used afterwards.
    unsafe { tmn_error_free(message) };
    Err(text)
}
