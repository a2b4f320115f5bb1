//! Room on the disk.

use std::path::Path;

use anyhow::{Context as _, Result};

use crate::hint::Hinted;

const GIBIBYTE: u64 = 1 << 30;

/// Makes sure that there is this much room where `place`, an existing directory, is.
///
/// # Errors
/// There is less; the error says how much, and carries a hint.
pub(super) fn ensure_free(place: &Path, gigabytes: u64) -> Result<()> {
    let disk = rustix::fs::statvfs(place).with_context(|| format!("cannot look at the disk of {}", place.display()))?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize) / GIBIBYTE;
    if free >= gigabytes {
        return Ok(());
    }
    let message = format!("{free} GiB free at {}, this needs {gigabytes} GiB", place.display());
    Err(Hinted::new(message, "free some space, or put `target` of this checkout on a larger disk").into())
}
