//! The kernels for tensors on a device: their tables, and their launch. `python/trainmon/device` chooses the tensors,
//! the stream and the memory.

mod exchange;
mod kernels;
mod tables;

pub(crate) use kernels::PyDeviceKernels;
pub(crate) use tables::{PyDeviceTable, PyDeviceTables};
