//! Handles SIGTERM if nothing else does: delivers the measurements, then lets the signal end the process as usual.
//!
//! When one rank has failed, a launcher sends SIGTERM to the others, whose training threads may hang in a collective. The
//! handler is therefore installed below Python, whose handlers would wait for that thread. It is invisible to Python: a
//! script finds the default action, and its own handler replaces this one.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Once;
use std::sync::atomic::{AtomicI32, Ordering};

use libc::{c_int, c_void};

/// The process that has the delivery thread; a forked child has the handler, but not the thread.
static PROCESS: AtomicI32 = AtomicI32::new(0);
/// The pipe with which the handler wakes the thread.
static WAKE: AtomicI32 = AtomicI32::new(-1);
static INSTALL: Once = Once::new();

/// Calls `deliver` on a separate thread when the process receives SIGTERM, unless the script or a library handles it. If
/// this cannot be set up, SIGTERM ends the process as without trainmon.
pub(crate) fn deliver_before_sigterm(deliver: fn()) {
    INSTALL.call_once(|| {
        if !is_default() {
            return;
        }
        let Some((sleeper, waker)) = pipe() else { return };
        let wait = move || {
            let mut sleeper = File::from(sleeper);
            if sleeper.read_exact(&mut [0]).is_ok() {
                deliver();
                end_by_sigterm();
            }
        };
        if std::thread::Builder::new().name("trainmon-sigterm".to_owned()).spawn(wait).is_err() {
            return;
        }
        PROCESS.store(std::process::id().cast_signed(), Ordering::Relaxed);
        WAKE.store(keep_open(waker), Ordering::Relaxed);
        handle();
    });
}

/// The signal handler. Does only async-signal-safe work: two loads and system calls.
extern "C" fn asked_to_end(_signal: c_int) {
    #[expect(unsafe_code, reason = "system calls of a signal handler")]
    // SAFETY: `getpid` and `write` are async-signal-safe; the byte is on the stack, the descriptor is never closed.
    // `errno` is this thread's own, and is restored for the interrupted code.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        let is_ours = libc::getpid() == PROCESS.load(Ordering::Relaxed);
        let woken = is_ours && libc::write(WAKE.load(Ordering::Relaxed), [1_u8].as_ptr().cast::<c_void>(), 1) == 1;
        if !woken {
            end_by_sigterm();
        }
        *errno = before;
    }
}

/// Restores and triggers the default action, which happens at the latest when the handler returns. Async-signal-safe.
fn end_by_sigterm() {
    #[expect(unsafe_code, reason = "system calls that access no memory")]
    // SAFETY: only integers are passed.
    unsafe {
        libc::signal(libc::SIGTERM, libc::SIG_DFL);
        libc::kill(libc::getpid(), libc::SIGTERM);
    }
}

/// Whether the signal has its default action.
fn is_default() -> bool {
    #[expect(unsafe_code, reason = "a system call that fills a local struct")]
    // SAFETY: `sigaction` is plain data, for which zero is valid; the call writes nothing else.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGTERM, std::ptr::null(), &raw mut now) == 0 && now.sa_sigaction == libc::SIG_DFL
    }
}

fn handle() {
    #[expect(unsafe_code, reason = "a system call that reads a local struct")]
    // SAFETY: as above; the handler is a plain function that lives as long as the program. If the call fails, the default
    // action stays.
    unsafe {
        let mut ours: libc::sigaction = std::mem::zeroed();
        ours.sa_sigaction = asked_to_end as extern "C" fn(c_int) as usize;
        // Restart interrupted system calls of the training.
        ours.sa_flags = libc::SA_RESTART;
        libc::sigemptyset(&raw mut ours.sa_mask);
        let _default_stays = libc::sigaction(libc::SIGTERM, &raw const ours, std::ptr::null_mut());
    }
}

fn pipe() -> Option<(OwnedFd, OwnedFd)> {
    let mut ends = [-1; 2];
    #[expect(unsafe_code, reason = "a system call that creates two descriptors")]
    // SAFETY: the call writes two descriptors, which have no other owner.
    unsafe {
        let made = libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) == 0;
        made.then(|| (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])))
    }
}

/// Leaks a descriptor, because the handler may use it at any time.
fn keep_open(end: OwnedFd) -> RawFd {
    let number = end.as_raw_fd();
    std::mem::forget(end);
    number
}
