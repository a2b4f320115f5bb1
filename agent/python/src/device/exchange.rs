//! Reads tensors through torch's C exchange interface (`DLPack` 1.3, torch 2.10 and newer). This takes nanoseconds;
//! reading the attributes one by one takes a microsecond.
#![expect(unsafe_code, reason = "a table of C functions")]

use std::ffi::{CStr, c_int, c_void};

use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use trainmon_agent::core::{Dtype, Shape};
use trainmon_device::Spread;

use crate::discard_error::discard;
use crate::torch::Torch;

/// The attribute of a tensor's class that contains the table.
const TABLE: &str = "__dlpack_c_exchange_api__";
const CAPSULE: &CStr = c"dlpack_exchange_api";
/// The supported major version: tables of others have another layout.
const MAJOR: u32 = 1;

/// `DLTensor`.
#[repr(C)]
struct Raw {
    data: *const c_void,
    device_type: c_int,
    device_id: i32,
    rank: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

/// `DLPackExchangeAPI`; unused fields have no type.
#[repr(C)]
struct Table {
    major: u32,
    minor: u32,
    previous: *const c_void,
    allocator: *const c_void,
    managed_from_object: *const c_void,
    managed_to_object: *const c_void,
    from_object: Option<unsafe extern "C" fn(*mut c_void, *mut Raw) -> c_int>,
    current_work_stream: *const c_void,
}

/// The function that reads torch's plain tensors.
#[derive(Clone, Copy)]
pub(super) struct Exchange(unsafe extern "C" fn(*mut c_void, *mut Raw) -> c_int);

/// The location of a tensor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Found {
    pub(super) address: u64,
    /// `DLPack`'s number of the device type, and the device's index.
    pub(super) device: (i32, i32),
    pub(super) dtype: Dtype,
    pub(super) shape: Shape,
    /// `None` if a kernel cannot read it.
    pub(super) spread: Option<Spread>,
}

impl Exchange {
    /// Returns torch's function, if its table has a supported version.
    pub(super) fn of(py: Python<'_>, torch: &Torch) -> Option<Self> {
        let capsule = torch.tensor(py).getattr(TABLE).map_err(|error| discard(py, error)).ok()?;
        let capsule = capsule.cast_into::<PyCapsule>().ok()?;
        let table = capsule.pointer_checked(Some(CAPSULE)).map_err(|error| discard(py, error)).ok()?;
        // SAFETY: a capsule of this name contains such a table, which lives as long as torch.
        let table = unsafe { table.cast::<Table>().as_ref() };
        (table.major == MAJOR).then_some(())?;
        table.from_object.map(Self)
    }

    /// Reads a tensor of torch's own classes; `None` if it fails, or its dtype cannot be measured.
    pub(super) fn read(self, object: &Bound<'_, PyAny>) -> Option<Found> {
        let mut raw = Raw {
            data: std::ptr::null(),
            device_type: 0,
            device_id: 0,
            rank: 0,
            code: 0,
            bits: 0,
            lanes: 0,
            shape: std::ptr::null(),
            strides: std::ptr::null(),
            byte_offset: 0,
        };
        // SAFETY: the object is a tensor of the class that provides the table, and the interpreter is attached.
        let status = unsafe { (self.0)(object.as_ptr().cast(), &raw mut raw) };
        if status != 0 {
            if let Some(error) = PyErr::take(object.py()) {
                discard(object.py(), error);
            }
            return None;
        }
        let rank = usize::try_from(raw.rank).ok()?;
        // SAFETY: there are as many numbers as dimensions, which the tensor owns; no other code runs before they are
        // copied.
        let (sizes, strides) = unsafe { (numbers(raw.shape, rank)?, numbers(raw.strides, rank)?) };
        Some(Found {
            address: (raw.data as u64).checked_add(raw.byte_offset)?,
            device: (raw.device_type, raw.device_id),
            dtype: (raw.lanes == 1).then(|| dtype(raw.code, raw.bits)).flatten()?,
            shape: Shape::new(sizes).ok()?,
            spread: Spread::of(sizes, strides),
        })
    }
}

/// # Safety
/// `count` numbers are at the address, for as long as the slice is used.
unsafe fn numbers<'a>(at: *const i64, count: usize) -> Option<&'a [i64]> {
    match (count, at.is_null()) {
        (0, _) => Some(&[]),
        (_, true) => None,
        // SAFETY: guaranteed by the caller.
        (_, false) => Some(unsafe { std::slice::from_raw_parts(at, count) }),
    }
}

/// Returns the dtype for a `DLDataTypeCode` and its bits.
const fn dtype(code: u8, bits: u8) -> Option<Dtype> {
    Some(match (code, bits) {
        (0, 8) => Dtype::I8,
        (0, 16) => Dtype::I16,
        (0, 32) => Dtype::I32,
        (0, 64) => Dtype::I64,
        (1, 8) => Dtype::U8,
        (1, 16) => Dtype::U16,
        (1, 32) => Dtype::U32,
        (1, 64) => Dtype::U64,
        (2, 16) => Dtype::F16,
        (2, 32) => Dtype::F32,
        (2, 64) => Dtype::F64,
        (4, 16) => Dtype::Bf16,
        (5, 64) => Dtype::Complex64,
        (5, 128) => Dtype::Complex128,
        (6, 8) => Dtype::Bool,
        (10, 8) => Dtype::F8E4M3Fn,
        (11, 8) => Dtype::F8E4M3Fnuz,
        (12, 8) => Dtype::F8E5M2,
        (13, 8) => Dtype::F8E5M2Fnuz,
        _ => return None,
    })
}
