//! Threads beside the training: where cores are short, the training's go first; a panic ends nothing but itself.

use std::any::Any;

/// What `nice` gives a background job.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 10;

/// Lowers the calling thread's priority. Linux keeps it per thread; elsewhere it would be the whole process's, so nothing
/// is done.
pub fn step_back() {
    // It may be refused, and then the thread runs as the others.
    #[cfg(target_os = "linux")]
    let _refused = rustix::process::setpriority_process(None, NICENESS);
}

/// The text of a caught panic.
pub fn panic_text(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without words".to_owned())
}
