//! How far a comparison is, on a bar: the work runs on all cores, the bar looks at it from a thread of its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::answer::RankCaptures;
use crate::progress::{Progress, ProgressBar};

/// How often the bar is drawn.
const EVERY: Duration = Duration::from_millis(200);

/// Runs `work` on a rank's captures and shows how much of their tensors has been read.
pub(super) fn watched<T>(rank: &RankCaptures, work: impl FnOnce() -> T) -> T {
    let total: u64 = [&rank.target, &rank.golden].map(|capture| size(capture.tensors.as_deref())).iter().sum();
    if total == 0 {
        return work();
    }
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut bar = ProgressBar::new("comparing tensors");
            while !is_done.load(Ordering::Relaxed) {
                std::thread::park_timeout(EVERY);
                let read = |capture: &super::Capture| capture.tensor_bytes.load(Ordering::Relaxed);
                let done = read(&rank.target) + read(&rank.golden);
                bar.show(Progress { done: done.min(total), total });
            }
        });
        let result = work();
        is_done.store(true, Ordering::Relaxed);
        watcher.thread().unpark();
        result
    })
}

/// The bytes of a directory's files; what cannot be looked at counts for nothing.
fn size(directory: Option<&std::path::Path>) -> u64 {
    let entries = directory.and_then(|directory| std::fs::read_dir(directory).ok()).into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.metadata().ok()).map(|metadata| metadata.len()).sum()
}
