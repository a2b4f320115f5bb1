//! Service threads: low priority, so that the training's threads run first, and text of caught panics.

use std::any::Any;

/// The default increment of `nice` for a background job.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 10;

/// Lowers the calling thread's priority. Does nothing except on Linux: elsewhere, it would affect the whole process.
pub fn step_back() {
    // If the call is refused, the thread runs at normal priority.
    #[cfg(target_os = "linux")]
    let _refused = rustix::process::setpriority_process(None, NICENESS);
}

/// The text of a caught panic.
pub fn panic_text(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned())
}
