//! Progress lines about a step's tensor files, because a large capture takes minutes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The minimum time between two lines.
const EVERY: Duration = Duration::from_secs(5);

/// The progress lines about a step's tensor files.
#[derive(Debug)]
pub(super) struct ProgressLines {
    step: u64,
    /// The expected total in bytes; 0 if unknown.
    expected: AtomicU64,
    bytes: AtomicU64,
    /// The time of the last line, or of the step's begin.
    told: Mutex<Instant>,
}

impl ProgressLines {
    pub(super) fn new(step: u64, now: Instant) -> Self {
        Self { step, expected: AtomicU64::new(0), bytes: AtomicU64::new(0), told: Mutex::new(now) }
    }

    /// Sets the expected total in bytes.
    pub(super) fn expect(&self, bytes: u64) {
        self.expected.store(bytes, Ordering::Relaxed);
    }

    /// Counts a written file of `bytes` bytes, the `files`th one, and returns a line if one is due.
    pub(super) fn written(&self, now: Instant, files: u64, bytes: u64) -> Option<String> {
        let bytes = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        // If another writer holds the lock, it reports.
        let mut told = self.told.try_lock()?;
        if now.saturating_duration_since(*told) < EVERY {
            return None;
        }
        *told = now;
        drop(told);
        let expected = self.expected.load(Ordering::Relaxed);
        let of = if expected > bytes { format!(" of about {}", size(expected)) } else { String::new() };
        let noun = if files == 1 { "file" } else { "files" };
        Some(format!("step {}: wrote {}{of} of tensors to {files} {noun}", self.step, size(bytes)))
    }
}

fn size(bytes: u64) -> String {
    let mebibytes = bytes as f64 / f64::from(1 << 20);
    if mebibytes < 1024.0 { format!("{mebibytes:.1} MiB") } else { format!("{:.1} GiB", mebibytes / 1024.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_told_now_and_then_with_what_is_expected() {
        let begin = Instant::now();
        let after = |seconds| begin + Duration::from_secs(seconds);
        let lines = ProgressLines::new(7, begin);
        assert_eq!(lines.written(after(4), 1, 1 << 20), None, "a step that is written quickly says nothing");
        assert_eq!(lines.written(after(5), 2, 3 << 20).unwrap(), "step 7: wrote 4.0 MiB of tensors to 2 files");
        assert_eq!(lines.written(after(9), 3, 1 << 30), None);
        lines.expect(3 << 30);
        assert_eq!(
            lines.written(after(11), 4, 1 << 30).unwrap(),
            "step 7: wrote 2.0 GiB of about 3.0 GiB of tensors to 4 files"
        );
        lines.expect(1);
        assert_eq!(
            lines.written(after(99), 5, 0).unwrap(),
            "step 7: wrote 2.0 GiB of tensors to 5 files",
            "more than was expected"
        );
    }
}
