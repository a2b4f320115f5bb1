//! Memory on a device, and the stream that uses it.

use std::ffi::c_char;
use std::ptr::NonNull;

use super::check;
use super::pending::{Handle, Pending};

/// Device memory from libtorch's allocator.
#[repr(C)]
struct Opaque {
    opaque: [u8; 0],
}

#[expect(unsafe_code, reason = "declared here, defined in shim/device.cpp")]
unsafe extern "C" {
    fn tmn_buffer_make(device: i32, count: usize, out: *mut *mut Opaque) -> *mut c_char;
    fn tmn_buffer_fill(device: i32, words: *const i64, count: usize, out: *mut *mut Opaque) -> *mut c_char;
    fn tmn_buffer_address(buffer: *const Opaque) -> u64;
    fn tmn_buffer_free(buffer: *mut Opaque);
    fn tmn_buffer_deliver(buffer: *mut Opaque, out: *mut *mut Handle) -> *mut c_char;
    fn tmn_stream(device: i32, out: *mut u64) -> *mut c_char;
}

/// The location of a buffer: a CUDA device or the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Where {
    /// A CUDA device by libtorch's number.
    Cuda(u32),
    /// Host memory, for tests.
    Host,
}

impl Where {
    fn number(self) -> i32 {
        match self {
            Self::Cuda(number) => number.cast_signed(),
            Self::Host => -1,
        }
    }

    /// Returns the address of the device's current stream.
    #[expect(unsafe_code, reason = "a foreign call")]
    pub(crate) fn stream(self) -> Result<u64, String> {
        let mut stream = 0;
        // SAFETY: the result is writable.
        check(unsafe { tmn_stream(self.number(), &raw mut stream) })?;
        Ok(stream)
    }
}

/// Device memory that is used in the order of the current stream.
pub(crate) struct Buffer(NonNull<Opaque>);

#[expect(unsafe_code, reason = "an owned C++ object without thread affinity")]
// SAFETY: a counted tensor.
unsafe impl Send for Buffer {}

#[expect(unsafe_code, reason = "foreign calls on the owned handle")]
impl Buffer {
    /// Allocates `count` float64 elements.
    pub(crate) fn make(place: Where, count: usize) -> Result<Self, String> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the result is writable.
        check(unsafe { tmn_buffer_make(place.number(), count, &raw mut handle) })?;
        NonNull::new(handle).map(Self).ok_or_else(|| "libtorch returned no memory".to_owned())
    }

    /// Allocates a buffer and starts copying `words` to it.
    pub(crate) fn fill(place: Where, words: &[i64]) -> Result<Self, String> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the words are copied before it returns, the result is writable.
        check(unsafe { tmn_buffer_fill(place.number(), words.as_ptr(), words.len(), &raw mut handle) })?;
        NonNull::new(handle).map(Self).ok_or_else(|| "libtorch returned no memory".to_owned())
    }

    /// The address of the first byte on the device.
    pub(crate) fn address(&self) -> u64 {
        // SAFETY: the handle is alive.
        unsafe { tmn_buffer_address(self.0.as_ptr()) }
    }

    /// Starts copying the buffer, which contains `rows` rows, to the host.
    pub(crate) fn deliver(self, rows: usize) -> Result<Pending, String> {
        let buffer = std::mem::ManuallyDrop::new(self);
        let mut handle = std::ptr::null_mut();
        // SAFETY: the shim owns the buffer from here on; the result is writable.
        check(unsafe { tmn_buffer_deliver(buffer.0.as_ptr(), &raw mut handle) })?;
        Pending::from_raw(handle, rows).ok_or_else(|| "libtorch returned no copy".to_owned())
    }
}

impl Drop for Buffer {
    #[expect(unsafe_code, reason = "frees the owned handle")]
    fn drop(&mut self) {
        // SAFETY: owned, freed once.
        unsafe { tmn_buffer_free(self.0.as_ptr()) };
    }
}
