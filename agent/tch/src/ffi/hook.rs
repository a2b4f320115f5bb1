//! Gradient hooks: Rust closures called by libtorch's backward pass.

use std::ffi::{c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use tch::Tensor;
use torch_sys::C_tensor;

use super::{TensorRef, check};

type Call = extern "C" fn(*mut c_void, *const C_tensor);
type Release = extern "C" fn(*mut c_void);

#[expect(unsafe_code, reason = "declared here, defined in shim/hooks.cpp")]
unsafe extern "C" {
    fn tmn_hook_accumulated(
        leaf: *const C_tensor,
        call: Call,
        data: *mut c_void,
        release: Release,
        token: *mut *const c_void,
    ) -> *mut c_char;
    fn tmn_unhook_accumulated(leaf: *const C_tensor, token: *const c_void) -> *mut c_char;
    fn tmn_hook_gradient(
        tensor: *const C_tensor,
        call: Call,
        data: *mut c_void,
        release: Release,
        position: *mut u32,
    ) -> *mut c_char;
    fn tmn_unhook_gradient(tensor: *const C_tensor, position: u32) -> *mut c_char;
    fn tmn_after_backward(call: Call, data: *mut c_void, release: Release) -> *mut c_char;
}

/// A callback from libtorch. Backward passes over device tensors run in separate threads.
type Callback = Box<dyn Fn(Option<TensorRef<'_>>) + Send + Sync>;

/// Returns the closure as one plain pointer. The shim that receives it owns it, even if it returns an error.
fn into_data(callback: Callback) -> *mut c_void {
    Box::into_raw(Box::new(callback)).cast()
}

/// Calls the closure and catches panics, which must never reach C++. Callers also guard their hooks themselves.
#[expect(unsafe_code, reason = "the data is the closure `into_data` made")]
extern "C" fn call(data: *mut c_void, tensor: *const C_tensor) {
    // SAFETY: the shim hands back the pointer of `into_data` and releases it only after the last call.
    let callback = unsafe { &*data.cast::<Callback>() };
    let caught = catch_unwind(AssertUnwindSafe(|| callback(TensorRef::from_raw(tensor))));
    if let Err(payload) = caught {
        // Dropping a payload may panic again.
        std::mem::forget(payload);
    }
}

#[expect(unsafe_code, reason = "the data is the closure `into_data` made")]
extern "C" fn release(data: *mut c_void) {
    // SAFETY: the shim calls this once, last.
    let callback = unsafe { Box::from_raw(data.cast::<Callback>()) };
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(callback))) {
        std::mem::forget(payload);
    }
}

/// A hook that runs with a leaf after each accumulation of its gradient, until it is dropped.
pub(crate) struct AccumulatedHook {
    leaf: Tensor,
    token: *const c_void,
}

#[expect(unsafe_code, reason = "a token and a counted handle")]
// SAFETY: the token is an opaque number; libtorch's handles may move between threads, as tch declares for `Tensor`.
unsafe impl Send for AccumulatedHook {}

impl AccumulatedHook {
    /// Hooks a leaf that requires a gradient. All other hooks on it keep working.
    #[expect(unsafe_code, reason = "a foreign call")]
    pub(crate) fn new(leaf: &Tensor, callback: impl Fn(TensorRef<'_>) + Send + Sync + 'static) -> Result<Self, String> {
        let data = into_data(Box::new(move |tensor| {
            if let Some(tensor) = tensor {
                callback(tensor);
            }
        }));
        let mut token = std::ptr::null();
        // SAFETY: the handle is alive, the data belongs to `call` and `release`, the token is writable.
        check(unsafe { tmn_hook_accumulated(leaf.as_ptr(), call, data, release, &raw mut token) })?;
        Ok(Self { leaf: leaf.shallow_clone(), token })
    }
}

impl Drop for AccumulatedHook {
    #[expect(unsafe_code, reason = "a foreign call")]
    fn drop(&mut self) {
        // SAFETY: the handle is alive; a token that was already removed is ignored.
        let removed = check(unsafe { tmn_unhook_accumulated(self.leaf.as_ptr(), self.token) });
        // If the removal fails, the closure still finds in its state that measuring has ended.
        drop(removed);
    }
}

/// Calls `callback` with the whole gradient of `tensor` when it is computed. The hook lives as long as the tensor's
/// part of the graph.
#[expect(unsafe_code, reason = "a foreign call")]
pub(crate) fn on_gradient(
    tensor: &Tensor,
    callback: impl Fn(TensorRef<'_>) + Send + Sync + 'static,
) -> Result<u32, String> {
    let data = into_data(Box::new(move |grad| {
        if let Some(grad) = grad {
            callback(grad);
        }
    }));
    let mut position = 0;
    // SAFETY: the handle is alive, the data belongs to `call` and `release`, the position is writable.
    check(unsafe { tmn_hook_gradient(tensor.as_ptr(), call, data, release, &raw mut position) })?;
    Ok(position)
}

/// A gradient hook on a tensor that outlives its graph (a leaf), until it is dropped.
pub(crate) struct GradientHook {
    tensor: Tensor,
    position: u32,
}

impl GradientHook {
    /// Hooks `tensor` like [`on_gradient`].
    pub(crate) fn new(
        tensor: &Tensor,
        callback: impl Fn(TensorRef<'_>) + Send + Sync + 'static,
    ) -> Result<Self, String> {
        let position = on_gradient(tensor, callback)?;
        Ok(Self { tensor: tensor.shallow_clone(), position })
    }
}

impl Drop for GradientHook {
    #[expect(unsafe_code, reason = "a foreign call")]
    fn drop(&mut self) {
        // SAFETY: the handle is alive and the position came from the same tensor.
        let removed = check(unsafe { tmn_unhook_gradient(self.tensor.as_ptr(), self.position) });
        drop(removed);
    }
}

/// Calls `callback` once after the backward pass that runs in this thread. Fails outside a backward pass.
#[expect(unsafe_code, reason = "a foreign call")]
pub(crate) fn after_backward(callback: impl Fn() + Send + Sync + 'static) -> Result<(), String> {
    let data = into_data(Box::new(move |_| callback()));
    // SAFETY: the data belongs to `call` and `release`.
    check(unsafe { tmn_after_backward(call, data, release) })
}
