//! A progress bar for work that takes long.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressDrawTarget, ProgressStyle};

/// Work that ends before is not worth a bar.
const PATIENCE: Duration = Duration::from_secs(2);
/// Seconds in its place, for tests.
const AFTER: &str = "TRAINMON_PROGRESS_AFTER";
/// How often [`watched`] looks.
const EVERY: Duration = Duration::from_millis(200);

/// How far a piece of work is, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Done.
    pub done: u64,
    /// In all.
    pub total: u64,
}

/// A bar on stderr, shown once the work has taken two seconds, on a terminal only; gone when dropped. It has no colours.
struct ProgressBar {
    bar: indicatif::ProgressBar,
    started: Instant,
    patience: Duration,
    is_shown: bool,
}

impl ProgressBar {
    /// A bar with this word in front.
    fn new(what: &'static str) -> Self {
        let bar = indicatif::ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()).with_message(what);
        let asked = std::env::var(AFTER).ok().and_then(|seconds| seconds.parse().ok());
        let patience = asked.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).unwrap_or(PATIENCE);
        Self { bar, started: Instant::now(), patience, is_shown: false }
    }

    /// Shows how far it is. Before the first byte is done, neither the total nor the time left is known: nothing is shown.
    fn show(&mut self, Progress { done, total }: Progress) {
        if done == 0 || self.started.elapsed() < self.patience {
            return;
        }
        self.bar.set_length(total);
        self.bar.set_position(done);
        if !self.is_shown {
            self.is_shown = true;
            let style =
                ProgressStyle::with_template("{msg} [{bar:32}] {binary_bytes} of {binary_total_bytes}, {eta} left");
            self.bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }
}

impl Drop for ProgressBar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Runs work that tells how far it is, and shows that.
pub fn shown<T>(what: &'static str, work: impl FnOnce(&mut (dyn FnMut(Progress) + Send)) -> T) -> T {
    let mut bar = ProgressBar::new(what);
    work(&mut |progress| bar.show(progress))
}

/// Runs `work` on this thread; another looks now and then how far it is, and shows that.
pub fn watched<T>(what: &'static str, progress: &(dyn Fn() -> Progress + Sync), work: impl FnOnce() -> T) -> T {
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut bar = ProgressBar::new(what);
            while !is_done.load(Ordering::Relaxed) {
                std::thread::park_timeout(EVERY);
                bar.show(progress());
            }
        });
        let result = work();
        is_done.store(true, Ordering::Relaxed);
        watcher.thread().unpark();
        result
    })
}
