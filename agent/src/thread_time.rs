//! The cost of a piece of work to its thread, independent of other load on the processor.

use std::time::{Duration, Instant};

/// The clock readings of a thread at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThreadTime {
    wall: Instant,
    usage: Option<Usage>,
}

/// The kernel's accounting of the thread.
#[derive(Clone, Copy, Debug)]
struct Usage {
    processor: Duration,
    /// The number of voluntary waits. Preemption by another thread is not one.
    waits: i64,
}

impl ThreadTime {
    /// Reads the clocks of this thread.
    pub(crate) fn now() -> Self {
        Self { usage: usage(), wall: Instant::now() }
    }

    /// The time that this thread has spent since: its processor time, or the elapsed time if it waited for something.
    /// Preemption on a busy machine therefore does not count, but waiting for a disk does.
    pub(crate) fn cost(&self) -> Duration {
        let passed = self.wall.elapsed();
        match (self.usage, usage()) {
            (Some(then), Some(now)) if then.waits == now.waits => {
                now.processor.saturating_sub(then.processor).min(passed)
            }
            _ => passed,
        }
    }
}

/// Uses the exact clock for the processor time: the times in `rusage` lag by up to a tick.
#[cfg(target_os = "linux")]
fn usage() -> Option<Usage> {
    use nix::sys::resource::{UsageWho, getrusage};
    use nix::time::{ClockId, clock_gettime};

    let processor = Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).ok()?);
    let waits = getrusage(UsageWho::RUSAGE_THREAD).ok()?.voluntary_context_switches();
    Some(Usage { processor, waits })
}

#[cfg(not(target_os = "linux"))]
fn usage() -> Option<Usage> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_costs_all_the_time_that_passes_and_working_no_more_than_that() {
        let start = ThreadTime::now();
        std::thread::sleep(Duration::from_millis(5));
        assert!(start.cost() >= Duration::from_millis(5));
        let start = ThreadTime::now();
        let begin = Instant::now();
        while start.cost() == Duration::ZERO {
            std::hint::spin_loop();
        }
        assert!(start.cost() <= begin.elapsed() + start.wall.elapsed());
    }
}
