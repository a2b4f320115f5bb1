//! Borrowed tensors: their location, layout and content, without copies and without waiting for a device.

use std::ffi::{c_char, c_void};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use tch::Tensor;
use torch_sys::C_tensor;
use trainmon_agent::core::{Dtype, TensorView, ViewError};
use trainmon_agent::front::Readable;

use super::check;

/// Mirrors `Description` in shim/tensor.cpp.
#[repr(C)]
#[derive(Clone, Copy)]
struct RawDescription {
    data: *const c_void,
    sizes: *const i64,
    strides: *const i64,
    identity: *const c_void,
    dims: i64,
    version: i64,
    scalar_type: i8,
    device_type: i8,
    strided: u8,
    resolved: u8,
}

#[expect(unsafe_code, reason = "declared here, defined in shim/tensor.cpp")]
unsafe extern "C" {
    fn tmn_tensor_describe(tensor: *const C_tensor, out: *mut RawDescription, defined: *mut u8) -> *mut c_char;
    fn tmn_tensor_grad(tensor: *const C_tensor, grad: *mut *const C_tensor) -> *mut c_char;
    safe fn tmn_grad_mode_enabled() -> u8;
}

/// Whether this thread records operations for a backward pass.
pub(crate) fn grad_mode_enabled() -> bool {
    tmn_grad_mode_enabled() != 0
}

/// The reason why a tensor's memory cannot be measured in place.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum Unreadable {
    /// The tensor is in a device's memory.
    #[error("the tensor is on a device")]
    OnDevice,
    /// The tensor is sparse or has another layout without strides.
    #[error("only strided tensors can be measured, but this one is sparse or has a private layout")]
    NotStrided,
    /// The memory holds the conjugate or the negative of the values.
    #[error("the tensor is a pending conjugate or negative")]
    NotResolved,
    /// The element type is quantised or packed.
    #[error("tensors of torch's element type {number} cannot be measured")]
    Dtype {
        /// Torch's `ScalarType`.
        number: i8,
    },
    /// The memory is not a valid view.
    #[error(transparent)]
    View(#[from] ViewError),
    /// libtorch reported an error.
    #[error("libtorch: {message}")]
    Torch {
        /// libtorch's message.
        message: String,
    },
}

/// A tensor handle borrowed from Rust or from libtorch.
#[derive(Clone, Copy)]
pub(crate) struct TensorRef<'a> {
    tensor: NonNull<C_tensor>,
    owner: PhantomData<&'a Tensor>,
}

impl<'a> TensorRef<'a> {
    /// Borrows a tch tensor.
    pub(crate) fn new(tensor: &'a Tensor) -> Option<Self> {
        Self::from_raw(tensor.as_ptr())
    }

    /// Borrows a handle from libtorch; `None` for null. The pointer is only passed to the shim.
    pub(super) fn from_raw(tensor: *const C_tensor) -> Option<Self> {
        Some(Self { tensor: NonNull::new(tensor.cast_mut())?, owner: PhantomData })
    }

    pub(crate) fn as_ptr(self) -> *const C_tensor {
        self.tensor.as_ptr()
    }

    /// Calls `use_it` with the gradient accumulated so far. Returns `None` if there is none.
    #[expect(unsafe_code, reason = "a foreign call")]
    pub(crate) fn with_grad<R>(self, use_it: impl FnOnce(TensorRef<'_>) -> R) -> Option<R> {
        let mut grad = std::ptr::null();
        // SAFETY: the handle is alive for 'a, `grad` is writable.
        check(unsafe { tmn_tensor_grad(self.as_ptr(), &raw mut grad) }).ok()?;
        Some(use_it(TensorRef::from_raw(grad)?))
    }

    /// Returns the handle as a tch tensor, without a reference count.
    #[expect(unsafe_code, reason = "tch's only constructor from a handle")]
    pub(crate) fn as_tensor(&self) -> ManuallyDrop<Tensor> {
        // SAFETY: the handle is alive while `self` is borrowed; ManuallyDrop keeps tch from freeing it.
        ManuallyDrop::new(unsafe { Tensor::from_ptr(self.tensor.as_ptr()) })
    }

    /// Describes the tensor's memory; `None` for an undefined tensor.
    #[expect(unsafe_code, reason = "a foreign call")]
    pub(crate) fn describe(self) -> Result<Option<Description<'a>>, Unreadable> {
        let mut raw = RawDescription {
            data: std::ptr::null(),
            sizes: std::ptr::null(),
            strides: std::ptr::null(),
            identity: std::ptr::null(),
            dims: 0,
            version: -1,
            scalar_type: -1,
            device_type: 0,
            strided: 0,
            resolved: 0,
        };
        let mut defined = 0;
        // SAFETY: the handle is alive for 'a, both results are writable.
        check(unsafe { tmn_tensor_describe(self.as_ptr(), &raw mut raw, &raw mut defined) })
            .map_err(|message| Unreadable::Torch { message })?;
        Ok((defined != 0).then_some(Description { raw, owner: PhantomData }))
    }
}

/// The location and layout of a tensor's memory, valid until the tensor is resized or freed.
#[derive(Clone, Copy)]
pub(crate) struct Description<'a> {
    raw: RawDescription,
    owner: PhantomData<&'a Tensor>,
}

/// Torch's `DeviceType` of host memory.
const CPU: i8 = 0;

impl<'a> Description<'a> {
    /// A number that is equal for all handles of a tensor while it lives.
    pub(crate) fn identity(&self) -> usize {
        self.raw.identity.addr()
    }

    /// The address of the first element; 0 if there is none.
    pub(crate) fn address(&self) -> usize {
        self.raw.data.addr()
    }

    /// Whether the memory holds the values themselves, without a pending conjugation or negation.
    pub(crate) fn is_resolved(&self) -> bool {
        self.raw.resolved != 0
    }

    /// The strides in elements, one per size.
    pub(crate) fn strides(&self) -> &'a [i64] {
        slice(self.raw.strides, self.raw.dims)
    }

    pub(crate) fn is_on_host(&self) -> bool {
        self.raw.device_type == CPU
    }

    pub(crate) fn is_strided(&self) -> bool {
        self.raw.strided != 0
    }

    /// The sizes; empty for a tensor that is not strided.
    pub(crate) fn dims(&self) -> &'a [i64] {
        slice(self.raw.sizes, self.raw.dims)
    }

    /// The size of all elements in bytes; 0 for unknown types.
    pub(crate) fn bytes(&self) -> u64 {
        let elements = self.dims().iter().product::<i64>() as u64;
        self.dtype().map_or(0, |dtype| elements * dtype.size() as u64)
    }

    /// The element type, if trainmon can measure it.
    pub(crate) fn dtype(&self) -> Result<Dtype, Unreadable> {
        dtype_of(self.raw.scalar_type).ok_or(Unreadable::Dtype { number: self.raw.scalar_type })
    }

    /// Returns a view of the memory. Read it at once: nothing may write the memory while the view lives.
    #[expect(unsafe_code, reason = "the memory is torch's")]
    pub(crate) fn view(&self) -> Result<TensorView<'a>, Unreadable> {
        if !self.is_strided() {
            return Err(Unreadable::NotStrided);
        }
        if !self.is_on_host() {
            return Err(Unreadable::OnDevice);
        }
        if !self.is_resolved() {
            return Err(Unreadable::NotResolved);
        }
        let strides = self.strides();
        // SAFETY: torch keeps sizes and strides inside the storage, and the storage alive with the tensor ('a). The
        // callers read in the training thread, between the operators that write.
        Ok(unsafe { TensorView::from_raw_parts(self.raw.data.cast(), self.dtype()?, self.dims(), strides)? })
    }
}

impl Readable for Description<'_> {
    type Unreadable = Unreadable;

    fn view(&self) -> Result<TensorView<'_>, Unreadable> {
        self.view()
    }

    fn version(&self) -> Option<i64> {
        (self.raw.version >= 0).then_some(self.raw.version)
    }
}

#[expect(unsafe_code, reason = "torch's own arrays")]
fn slice<'a>(data: *const i64, len: i64) -> &'a [i64] {
    if len == 0 || data.is_null() {
        return &[];
    }
    // SAFETY: the shim fills pointer and length from one array of the tensor, which outlives 'a.
    unsafe { std::slice::from_raw_parts(data, len as usize) }
}

/// Converts a number of `c10::ScalarType`. The numbers are stable because torch's file formats contain them.
fn dtype_of(scalar_type: i8) -> Option<Dtype> {
    Some(match scalar_type {
        0 => Dtype::U8,
        1 => Dtype::I8,
        2 => Dtype::I16,
        3 => Dtype::I32,
        4 => Dtype::I64,
        5 => Dtype::F16,
        6 => Dtype::F32,
        7 => Dtype::F64,
        9 => Dtype::Complex64,
        10 => Dtype::Complex128,
        11 => Dtype::Bool,
        15 => Dtype::Bf16,
        23 => Dtype::F8E5M2,
        24 => Dtype::F8E4M3Fn,
        25 => Dtype::F8E5M2Fnuz,
        26 => Dtype::F8E4M3Fnuz,
        27 => Dtype::U16,
        28 => Dtype::U32,
        29 => Dtype::U64,
        _ => return None,
    })
}
