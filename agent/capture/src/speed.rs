//! The speed at which the file system takes large files.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// The lowest speed (250 MB/s) of the page cache. The training does not wait for slower writes.
const SLOWEST_BYTES_PER_MICROSECOND: u64 = 250;
/// The number of consecutive slow files that indicates a slow disk. Fewer may be due to a busy CPU.
const MOST_SLOW: u8 = 4;

/// Whether the latest large files were written at memory speed. A clone shares the state, so that it carries over to the
/// next step.
#[derive(Clone, Debug, Default)]
pub(crate) struct DiskSpeed(Arc<AtomicU8>);

impl DiskSpeed {
    /// Whether writes are fast: false before the first fast file, and after several slow ones.
    pub(crate) fn is_fast(&self) -> bool {
        (1..=MOST_SLOW).contains(&self.0.load(Ordering::Relaxed))
    }

    /// Records the time that a file of `size` bytes took.
    pub(crate) fn written(&self, size: u64, took: Duration) {
        let is_fast = took <= Duration::from_micros(size / SLOWEST_BYTES_PER_MICROSECOND);
        // 0: no fast file so far; else 1 plus the number of slow files since.
        let next = |now: u8| match (is_fast, now) {
            (true, _) => Some(1),
            (false, 0) => None,
            (false, now) => Some(now.saturating_add(1).min(MOST_SLOW + 1)),
        };
        // `None` is no failure: the value is unchanged.
        let _before = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slow_file_is_not_the_disks_several_are() {
        let speed = DiskSpeed::default();
        let write = |microseconds| speed.written(4_000_000, Duration::from_micros(microseconds));
        write(16_001);
        assert!(!speed.is_fast(), "nothing was fast so far");
        write(16_000);
        assert!(speed.clone().is_fast());
        for slow in 1..=MOST_SLOW {
            write(20_000);
            assert_eq!(speed.is_fast(), slow < MOST_SLOW, "{slow}");
        }
        (0..300).for_each(|_| write(20_000));
        assert!(!speed.is_fast());
        write(1_000);
        assert!(speed.is_fast());
    }
}
