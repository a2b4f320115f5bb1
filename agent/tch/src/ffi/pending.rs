//! Statistics that were launched on a device, until they arrive on the host.

use std::ffi::c_char;
use std::ptr::NonNull;

use torch_sys::C_tensor;
use trainmon_agent::front::DeviceColumn;

use super::{TensorRef, check};

/// Defined in shim/device.cpp.
#[repr(C)]
pub(super) struct Handle {
    opaque: [u8; 0],
}

#[expect(unsafe_code, reason = "declared here, defined in shim/device.cpp")]
unsafe extern "C" {
    fn tmn_device_launch(
        tensors: *const *const C_tensor,
        count: usize,
        wanted: u32,
        eps: f64,
        out: *mut *mut Handle,
    ) -> *mut c_char;
    fn tmn_pending_ready(pending: *const Handle, ready: *mut u8) -> *mut c_char;
    fn tmn_pending_values(pending: *const Handle) -> *const f64;
    fn tmn_pending_free(pending: *mut Handle);
}

/// The number of columns in a result row; `Column` in shim/device.cpp numbers them.
const COLUMNS: usize = DeviceColumn::ALL.len();

/// A launched measurement.
pub(crate) struct Pending {
    handle: NonNull<Handle>,
    rows: usize,
}

#[expect(unsafe_code, reason = "an owned C++ object without thread affinity")]
// SAFETY: two counted tensors and an event; events may be queried and freed from any thread.
unsafe impl Send for Pending {}

#[expect(unsafe_code, reason = "foreign calls on the owned handle")]
impl Pending {
    /// Launches the columns whose bits are set in `wanted`, for non-empty tensors of one device.
    pub(crate) fn launch(tensors: &[TensorRef<'_>], wanted: u32, eps: f64) -> Result<Self, String> {
        let pointers: Vec<*const C_tensor> = tensors.iter().map(|tensor| tensor.as_ptr()).collect();
        let mut handle = std::ptr::null_mut();
        // SAFETY: the handles are alive for the call, the array holds `len` of them, the result is writable.
        check(unsafe { tmn_device_launch(pointers.as_ptr(), pointers.len(), wanted, eps, &raw mut handle) })?;
        let handle = NonNull::new(handle).ok_or_else(|| "libtorch returned no measurement".to_owned())?;
        Ok(Self { handle, rows: tensors.len() })
    }

    /// Wraps a measurement of `rows` rows that the shim launched; `None` for null.
    pub(super) fn from_raw(handle: *mut Handle, rows: usize) -> Option<Self> {
        Some(Self { handle: NonNull::new(handle)?, rows })
    }

    /// Whether the values have arrived. Never waits.
    pub(crate) fn is_ready(&self) -> Result<bool, String> {
        let mut ready = 0;
        // SAFETY: the handle is alive, the result writable.
        check(unsafe { tmn_pending_ready(self.handle.as_ptr(), &raw mut ready) })?;
        Ok(ready != 0)
    }

    /// The rows. Call it only after [`is_ready`](Self::is_ready) returned `true`.
    pub(crate) fn rows(&self) -> impl ExactSizeIterator<Item = &[f64; COLUMNS]> {
        // SAFETY: the shim holds a contiguous float64 tensor of `rows` times `COLUMNS` values until it is freed.
        let values =
            unsafe { std::slice::from_raw_parts(tmn_pending_values(self.handle.as_ptr()), self.rows * COLUMNS) };
        values.as_chunks::<COLUMNS>().0.iter()
    }
}

impl Drop for Pending {
    #[expect(unsafe_code, reason = "frees the owned handle")]
    fn drop(&mut self) {
        // SAFETY: owned, freed once.
        unsafe { tmn_pending_free(self.handle.as_ptr()) };
    }
}
