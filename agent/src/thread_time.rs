//! What a piece of work costs the thread that does it, however many others want the processor.

use std::time::{Duration, Instant};

/// A moment in a thread's life.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThreadTime {
    wall: Instant,
    usage: Option<Usage>,
}

/// What the kernel has booked on the thread.
#[derive(Clone, Copy, Debug)]
struct Usage {
    processor: Duration,
    /// How often it waited for something. Losing the processor to another thread is no waiting.
    waits: i64,
}

impl ThreadTime {
    /// Now, on this thread.
    pub(crate) fn now() -> Self {
        Self { usage: usage(), wall: Instant::now() }
    }

    /// What this thread has spent since: its processor time, but where it waited for something all the time that passed.
    /// So the turns of others on a busy machine do not count, and a disk that keeps it waiting does.
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

/// The clock is exact; the times in `rusage` lag behind by up to a tick.
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
