//! The tables of tensors on a device, and the launch of the kernels. `python/trainmon/device` selects the tensors, the
//! stream and the memory.

mod exchange;
mod kernels;
mod tables;

pub(crate) use kernels::PyDeviceKernels;
pub(crate) use tables::{PyDeviceTable, PyDeviceTables};
