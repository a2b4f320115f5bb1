//! A handle to an optimizer of `torch::optim`.

use std::ffi::c_char;
use std::ptr::NonNull;

use tch::Tensor;
use torch_sys::C_tensor;

use super::options::{GroupOptions, OptimizerKind};
use super::{TensorRef, check};

/// Defined in shim/optimizer.cpp.
#[repr(C)]
struct Handle {
    opaque: [u8; 0],
}

#[expect(unsafe_code, reason = "declared here, defined in shim/optimizer.cpp")]
unsafe extern "C" {
    fn tmn_optimizer_new(kind: u32, options: *const GroupOptions, out: *mut *mut Handle) -> *mut c_char;
    fn tmn_optimizer_free(handle: *mut Handle);
    fn tmn_optimizer_add(handle: *mut Handle, parameter: *const C_tensor, group: usize) -> *mut c_char;
    fn tmn_optimizer_step(handle: *mut Handle) -> *mut c_char;
    fn tmn_optimizer_zero_grad(handle: *mut Handle) -> *mut c_char;
    fn tmn_optimizer_groups(handle: *mut Handle) -> usize;
    fn tmn_optimizer_read_options(handle: *mut Handle, group: usize, out: *mut GroupOptions) -> *mut c_char;
    fn tmn_optimizer_write_options(handle: *mut Handle, group: usize, options: *const GroupOptions) -> *mut c_char;
    fn tmn_optimizer_moment(
        handle: *mut Handle,
        parameter: *const C_tensor,
        moment: u32,
        out: *mut *const C_tensor,
    ) -> *mut c_char;
    fn tmn_optimizer_set_moment(
        handle: *mut Handle,
        parameter: *const C_tensor,
        moment: u32,
        value: *const C_tensor,
    ) -> *mut c_char;
    fn tmn_optimizer_step_count(handle: *mut Handle, parameter: *const C_tensor, out: *mut i64) -> *mut c_char;
    fn tmn_optimizer_set_step_count(handle: *mut Handle, parameter: *const C_tensor, count: i64) -> *mut c_char;
    fn tmn_optimizer_clear_state(handle: *mut Handle) -> *mut c_char;
}

/// Mirrors `Moment` in shim/optimizer.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Moment {
    ExpAvg,
    ExpAvgSq,
    MaxExpAvgSq,
    MomentumBuffer,
    SquareAvg,
    GradAvg,
    Sum,
}

/// An owned optimizer of libtorch. Errors are libtorch's messages.
pub(crate) struct RawOptimizer(NonNull<Handle>);

#[expect(unsafe_code, reason = "an owned C++ object without thread affinity")]
// SAFETY: libtorch's optimizers hold counted tensors and plain numbers; nothing is bound to a thread.
unsafe impl Send for RawOptimizer {}

/// The group number of the default options, which apply to groups added later.
pub(crate) const DEFAULTS: usize = usize::MAX;

#[expect(unsafe_code, reason = "foreign calls on the owned handle")]
impl RawOptimizer {
    pub(crate) fn new(kind: OptimizerKind, options: &GroupOptions) -> Result<Self, String> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the options are readable, the result writable.
        check(unsafe { tmn_optimizer_new(kind as u32, options, &raw mut handle) })?;
        NonNull::new(handle).map(Self).ok_or_else(|| "libtorch returned no optimizer".to_owned())
    }

    pub(crate) fn add(&mut self, parameter: &Tensor, group: usize) -> Result<(), String> {
        // SAFETY: both handles are alive; libtorch keeps its own reference to the parameter.
        check(unsafe { tmn_optimizer_add(self.0.as_ptr(), parameter.as_ptr(), group) })
    }

    pub(crate) fn step(&mut self) -> Result<(), String> {
        // SAFETY: the handle is alive and borrowed mutably.
        check(unsafe { tmn_optimizer_step(self.0.as_ptr()) })
    }

    pub(crate) fn zero_grad(&mut self) -> Result<(), String> {
        // SAFETY: as in `step`.
        check(unsafe { tmn_optimizer_zero_grad(self.0.as_ptr()) })
    }

    pub(crate) fn groups(&self) -> usize {
        // SAFETY: the handle is alive; the call only reads.
        unsafe { tmn_optimizer_groups(self.0.as_ptr()) }
    }

    /// Returns the options of a group, or the default options for [`DEFAULTS`].
    pub(crate) fn options(&self, group: usize) -> Result<GroupOptions, String> {
        let mut options = GroupOptions::default();
        // SAFETY: the handle is alive, the result writable and of the shim's layout.
        check(unsafe { tmn_optimizer_read_options(self.0.as_ptr(), group, &raw mut options) })?;
        Ok(options)
    }

    pub(crate) fn set_options(&mut self, group: usize, options: &GroupOptions) -> Result<(), String> {
        // SAFETY: the handle is alive, the options readable and of the shim's layout.
        check(unsafe { tmn_optimizer_write_options(self.0.as_ptr(), group, options) })
    }

    /// Calls `use_it` with the state's own tensor. Returns `None` if there is none (yet).
    pub(crate) fn with_moment<R>(
        &self,
        parameter: &Tensor,
        moment: Moment,
        use_it: impl FnOnce(TensorRef<'_>) -> R,
    ) -> Result<Option<R>, String> {
        let mut tensor = std::ptr::null();
        // SAFETY: both handles are alive. The tensor is borrowed from `self`, which `use_it` cannot reach mutably.
        check(unsafe { tmn_optimizer_moment(self.0.as_ptr(), parameter.as_ptr(), moment as u32, &raw mut tensor) })?;
        Ok(TensorRef::from_raw(tensor).map(use_it))
    }

    pub(crate) fn set_moment(&mut self, parameter: &Tensor, moment: Moment, value: &Tensor) -> Result<(), String> {
        // SAFETY: all handles are alive; libtorch keeps its own reference to the value.
        check(unsafe { tmn_optimizer_set_moment(self.0.as_ptr(), parameter.as_ptr(), moment as u32, value.as_ptr()) })
    }

    /// Returns `None` if the kind does not count steps, or before the parameter's first step.
    pub(crate) fn step_count(&self, parameter: &Tensor) -> Result<Option<i64>, String> {
        let mut count = -1;
        // SAFETY: both handles are alive, the result writable.
        check(unsafe { tmn_optimizer_step_count(self.0.as_ptr(), parameter.as_ptr(), &raw mut count) })?;
        Ok((count >= 0).then_some(count))
    }

    pub(crate) fn set_step_count(&mut self, parameter: &Tensor, count: i64) -> Result<(), String> {
        // SAFETY: both handles are alive.
        check(unsafe { tmn_optimizer_set_step_count(self.0.as_ptr(), parameter.as_ptr(), count) })
    }

    pub(crate) fn clear_state(&mut self) -> Result<(), String> {
        // SAFETY: as in `step`.
        check(unsafe { tmn_optimizer_clear_state(self.0.as_ptr()) })
    }
}

impl Drop for RawOptimizer {
    #[expect(unsafe_code, reason = "frees the owned handle")]
    fn drop(&mut self) {
        // SAFETY: owned, freed once.
        unsafe { tmn_optimizer_free(self.0.as_ptr()) };
    }
}
