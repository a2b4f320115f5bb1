//! Waiting for conditions.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// Long enough for any machine: it bounds a broken test, not a working one.
pub const PATIENCE: Duration = Duration::from_mins(1);

const PAUSE: Duration = Duration::from_millis(5);

/// Asks until `found` gives something.
///
/// # Errors
/// What `found` says, or nothing came within [`PATIENCE`].
pub fn wait_for<T>(what: &str, mut found: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = found()? {
            return Ok(found);
        }
        if Instant::now() >= deadline {
            bail!("no {what} within {PATIENCE:?}");
        }
        std::thread::sleep(PAUSE);
    }
}
