//! What both fronts (tch, Python) do alike: name a measurement ([`Label`]), keep a reading that still holds
//! ([`CachedReading`]), measure what a step changed ([`Snapshot`]), and read what a device computed ([`DevicePlan`],
//! [`DeviceRow`]). [`Monitor::request_now`](crate::Monitor::request_now) and
//! [`Monitor::observe_with`](crate::Monitor::observe_with) are how every tensor gets measured.

mod cached;
mod device;
mod label;
mod snapshot;

pub use cached::CachedReading;
pub use device::{DeviceColumn, DevicePlan, DeviceRow};
pub use label::Label;
pub use snapshot::{Change, NoChange, Snapshot};
