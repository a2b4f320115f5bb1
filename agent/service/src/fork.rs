//! A forked child has the parent's memory but none of its threads: its monitor must go inert.

use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many forks lie between the first process and this one.
static GENERATION: AtomicU64 = AtomicU64::new(0);
static INSTALL: Once = Once::new();

extern "C" fn in_child() {
    // Only async-signal-safe work is allowed here: one atomic add. No other memory is published through it.
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// Remembers the process a monitor was started in.
#[derive(Debug)]
pub struct ForkGuard {
    generation: u64,
}

impl ForkGuard {
    /// Of this process.
    #[expect(unsafe_code, reason = "the only way to learn of a fork without asking the kernel on every observation")]
    pub fn of_this_process() -> Self {
        INSTALL.call_once(|| {
            // SAFETY: the handler is a plain function that lives as long as the program and does one atomic add.
            // It can fail only for want of memory, and then forked children are not told apart.
            let _out_of_memory = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        });
        Self { generation: GENERATION.load(Ordering::Relaxed) }
    }

    /// Whether this is a child of the process the monitor was started in. One relaxed load.
    pub fn is_child(&self) -> bool {
        GENERATION.load(Ordering::Relaxed) != self.generation
    }
}
