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
    waits: libc::c_long,
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

#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "two system calls that fill a struct each")]
fn usage() -> Option<Usage> {
    let mut clock = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel fills the struct it is given, which lives until the call returns. The clock is exact; the times in
    // `rusage` lag behind by up to a tick.
    let has_clock = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut clock) } == 0;
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: as above.
    let has_usage = unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) } == 0;
    // SAFETY: all its fields are integers, for which the zeros it began with are values.
    let waits = unsafe { usage.assume_init() }.ru_nvcsw;
    let processor = Duration::new(clock.tv_sec.unsigned_abs(), u32::try_from(clock.tv_nsec).unwrap_or_default());
    (has_clock && has_usage).then_some(Usage { processor, waits })
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
