//! Fork detection. A forked child has the parent's memory but none of its threads, so its monitor must become inactive.

use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of forks between the first process and this one.
static GENERATION: AtomicU64 = AtomicU64::new(0);
static INSTALL: Once = Once::new();

extern "C" fn in_child() {
    // Only async-signal-safe work is allowed here: one atomic add, which publishes no other memory.
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// The process in which a monitor was started.
#[derive(Debug)]
pub struct ForkGuard {
    generation: u64,
}

impl ForkGuard {
    /// Returns the current process.
    #[expect(unsafe_code, reason = "the only way to detect a fork without a system call per observation")]
    pub fn of_this_process() -> Self {
        INSTALL.call_once(|| {
            // SAFETY: the handler is a plain function that lives as long as the program and does one atomic add.
            // Registration fails only without memory; forks are then not detected.
            let _out_of_memory = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        });
        Self { generation: GENERATION.load(Ordering::Relaxed) }
    }

    /// Whether this process is a forked child of the one that started the monitor. Cost: one relaxed load.
    pub fn is_child(&self) -> bool {
        GENERATION.load(Ordering::Relaxed) != self.generation
    }
}
