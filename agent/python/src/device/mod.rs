//! The kernels for tensors on a device: what they are told of tensors, and their launch. Which tensors, on which stream and
//! into what memory is `python/trainmon/device`'s.

mod exchange;
mod kernels;
mod tables;

pub(crate) use kernels::PyDeviceKernels;
pub(crate) use tables::{PyDeviceTable, PyDeviceTables};
