//! How far a step's tensor files are, told now and then: a large capture takes minutes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// A line in so much time, at most.
const EVERY: Duration = Duration::from_secs(5);

/// Lines about a step's tensor files.
#[derive(Debug)]
pub(super) struct ProgressLines {
    step: u64,
    /// Bytes that are expected in all; 0: not known.
    expected: AtomicU64,
    bytes: AtomicU64,
    /// When the last line was told, or the step began.
    told: Mutex<Instant>,
}

impl ProgressLines {
    pub(super) fn new(step: u64, now: Instant) -> Self {
        Self { step, expected: AtomicU64::new(0), bytes: AtomicU64::new(0), told: Mutex::new(now) }
    }

    /// The step is expected to take about so many bytes.
    pub(super) fn expect(&self, bytes: u64) {
        self.expected.store(bytes, Ordering::Relaxed);
    }

    /// One more file of so many bytes is written, the `files`th: a line, if it is time for one.
    pub(super) fn written(&self, now: Instant, files: u64, bytes: u64) -> Option<String> {
        let bytes = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        // Another writer that is about to tell has the lock.
        let mut told = self.told.try_lock()?;
        if now.saturating_duration_since(*told) < EVERY {
            return None;
        }
        *told = now;
        drop(told);
        let expected = self.expected.load(Ordering::Relaxed);
        let of = if expected > bytes { format!(" of about {}", size(expected)) } else { String::new() };
        Some(format!("step {}: {}{of} of tensors are written, {files} files", self.step, size(bytes)))
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
        assert_eq!(lines.written(after(5), 2, 3 << 20).unwrap(), "step 7: 4.0 MiB of tensors are written, 2 files");
        assert_eq!(lines.written(after(9), 3, 1 << 30), None);
        lines.expect(3 << 30);
        assert_eq!(
            lines.written(after(11), 4, 1 << 30).unwrap(),
            "step 7: 2.0 GiB of about 3.0 GiB of tensors are written, 4 files"
        );
        lines.expect(1);
        assert_eq!(
            lines.written(after(99), 5, 0).unwrap(),
            "step 7: 2.0 GiB of tensors are written, 5 files",
            "more than was expected"
        );
    }
}
