//! How fast the file system takes large files.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// A file system that is slower than this (250 MB/s) is no page cache: the training does not wait for it.
const SLOWEST_BYTES_PER_MICROSECOND: u64 = 250;
/// So many slow files one after another are the disk's; of fewer the threads may have waited for a core.
const MOST_SLOW: u8 = 4;

/// Whether large files are written as fast as memory is, as the last of them tell. A clone shares it: one step's files tell
/// the next step's.
#[derive(Clone, Debug, Default)]
pub(crate) struct DiskSpeed(Arc<AtomicU8>);

impl DiskSpeed {
    /// Not before a fast one was seen, and not after several slow ones.
    pub(crate) fn is_fast(&self) -> bool {
        (1..=MOST_SLOW).contains(&self.0.load(Ordering::Relaxed))
    }

    /// A file of so many bytes was written.
    pub(crate) fn written(&self, size: u64, took: Duration) {
        let is_fast = took <= Duration::from_micros(size / SLOWEST_BYTES_PER_MICROSECOND);
        // 0: none was fast so far; otherwise 1 and the slow ones since.
        let next = |now: u8| match (is_fast, now) {
            (true, _) => Some(1),
            (false, 0) => None,
            (false, now) => Some(now.saturating_add(1).min(MOST_SLOW + 1)),
        };
        // `None` is no failure: it stays as it is.
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
