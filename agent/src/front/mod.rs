//! The shared part of both fronts (tch, Python).
//!
//! A [`Label`] names a measurement. A [`Meter`] measures tensors: it handles requests, the loss scale, reused readings, the
//! latest readings and changes since a copy. [`DevicePlan`] and [`DeviceRow`] describe the results of a device.

mod copies;
mod device;
mod factor;
mod known;
mod latest;
mod meter;
mod readable;
mod snapshot;

pub use crate::label::Label;
pub use device::{DeviceColumn, DevicePlan, DeviceRow};
pub use latest::{Latest, LatestReadings, StepReadings};
pub use meter::{Measured, Meter, Shown};
pub use readable::{Found, Readable};
use snapshot::Snapshot;
