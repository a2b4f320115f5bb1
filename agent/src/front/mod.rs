//! What both fronts (tch, Python) do alike: name a measurement ([`Label`]), measure what they show ([`Meter`]: request,
//! loss scale, readings that still hold, the latest readings, changes since a copy), and read what a device computed
//! ([`DevicePlan`], [`DeviceRow`]).

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
pub use latest::{Latest, LatestReadings, Remembering};
pub use meter::{Measured, Meter, Shown};
pub use readable::{Found, Readable};
use snapshot::Snapshot;
