//! A progress bar for long work.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressDrawTarget, ProgressStyle};

/// Shorter work shows no bar.
const DELAY: Duration = Duration::from_secs(2);
/// Overrides the delay in seconds, for tests.
const AFTER: &str = "TRAINMON_PROGRESS_AFTER";
/// The interval at which [`watched`] updates the bar.
const EVERY: Duration = Duration::from_millis(200);

/// The progress of work, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes done.
    pub done: u64,
    /// Bytes in total.
    pub total: u64,
}

/// A bar on stderr, shown on a terminal after two seconds of work and removed when dropped. It has no colours.
struct ProgressBar {
    bar: indicatif::ProgressBar,
    started: Instant,
    delay: Duration,
    is_shown: bool,
}

impl ProgressBar {
    /// A bar with this label.
    fn new(what: &'static str) -> Self {
        let bar = indicatif::ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()).with_message(what);
        let asked = std::env::var(AFTER).ok().and_then(|seconds| seconds.parse().ok());
        let delay = asked.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).unwrap_or(DELAY);
        Self { bar, started: Instant::now(), delay, is_shown: false }
    }

    /// Updates the bar. Before the first byte, neither the total nor the remaining time is known, so nothing is shown.
    fn show(&mut self, Progress { done, total }: Progress) {
        if done == 0 || self.started.elapsed() < self.delay {
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

/// Runs work that reports its progress, and shows that progress.
pub fn shown<T>(what: &'static str, work: impl FnOnce(&mut (dyn FnMut(Progress) + Send)) -> T) -> T {
    let mut bar = ProgressBar::new(what);
    work(&mut |progress| bar.show(progress))
}

/// Runs `work` on this thread while another thread shows its progress.
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
