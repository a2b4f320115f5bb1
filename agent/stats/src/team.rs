//! The host's own OpenMP threads, used on the training thread.
//!
//! Torch's operators run on an OpenMP team whose threads spin for some milliseconds after each operator. Threads of the
//! pool would compete with them for the cores and make them sleep, so that torch's next operator had to wait for them.
//! On a small machine, the team costs a training step half of what the pool's threads cost.
//!
//! OpenMP creates a separate team for each calling thread. A team is therefore used only on the thread that started the
//! monitor, in the process in which it was found, and only if torch itself uses it.
#![expect(unsafe_code, reason = "calls the OpenMP runtime through looked-up symbols")]

use std::ffi::{c_int, c_uint, c_void};
use std::sync::OnceLock;

/// `GOMP_parallel(fn, data, num_threads, flags)`: in libgomp since GCC 4.9, and in LLVM's and Intel's runtimes.
type Parallel = unsafe extern "C" fn(unsafe extern "C" fn(*mut c_void), *mut c_void, c_uint, c_uint);
/// `omp_get_max_threads()`: the number of threads in the next team of the calling thread.
type MaxThreads = unsafe extern "C" fn() -> c_int;

/// The largest team that is used: all threads of a team wake, even if few of them work.
const MOST: c_int = 16;

/// The OpenMP runtime of torch, for one thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThreadTeam {
    parallel: Parallel,
    max_threads: MaxThreads,
    /// The thread that owns the team.
    thread: ThreadId,
}

static TEAM: OnceLock<ThreadTeam> = OnceLock::new();

/// Detects the calling thread's team. The first call that finds torch determines it permanently.
pub(crate) fn find() {
    if TEAM.get().is_none()
        && let Some((parallel, max_threads)) = torchs_openmp()
    {
        TEAM.get_or_init(|| ThreadTeam { parallel, max_threads, thread: this_thread() });
    }
}

/// Returns the calling thread's team if it has several threads.
pub(crate) fn of_this_thread() -> Option<ThreadTeam> {
    let team = *TEAM.get()?;
    // SAFETY: only reads a number that the runtime stores per thread.
    (team.thread == this_thread() && (2..=MOST).contains(&unsafe { (team.max_threads)() })).then_some(team)
}

impl ThreadTeam {
    /// Calls `work` on all threads of the team, including the calling one, and waits for them.
    ///
    /// `work` must not panic: a panic may not unwind through the runtime.
    pub(crate) fn run<F: Fn() + Sync>(self, work: &F) {
        unsafe extern "C" fn call<F: Fn()>(work: *mut c_void) {
            // SAFETY: the `F` that `run` lends until every thread has left.
            unsafe { (*work.cast_const().cast::<F>())() }
        }
        // All threads, as torch does: with another number, the runtime would end and restart some.
        // SAFETY: `call` receives the pointer it expects; the runtime returns when all threads have left it.
        unsafe { (self.parallel)(call::<F>, std::ptr::from_ref(work).cast_mut().cast(), 0, 0) };
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::ffi::{CStr, c_void};
    use std::mem::transmute;

    use super::{MaxThreads, Parallel};

    pub(super) type ThreadId = libc::pid_t;

    pub(super) fn this_thread() -> ThreadId {
        // SAFETY: cannot fail.
        unsafe { libc::gettid() }
    }

    /// Returns the functions that torch's own calls resolve to: the loader searches the global scope before a library's
    /// own dependencies.
    pub(super) fn torchs_openmp() -> Option<(Parallel, MaxThreads)> {
        let torch = loaded(c"libtorch_cpu.so")?;
        let symbol = |name| {
            let own = find_in(torch, name)?;
            find_in(libc::RTLD_DEFAULT, name).or(Some(own))
        };
        let (parallel, max_threads) = (symbol(c"GOMP_parallel")?, symbol(c"omp_get_max_threads")?);
        // SAFETY: these names have these signatures in every OpenMP runtime that has them.
        Some(unsafe {
            (transmute::<*mut c_void, Parallel>(parallel), transmute::<*mut c_void, MaxThreads>(max_threads))
        })
    }

    /// Returns the handle of a library that this process has already loaded.
    fn loaded(name: &CStr) -> Option<*mut c_void> {
        // SAFETY: loads nothing and runs nothing. The handle is never closed, so its symbols stay.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        (!handle.is_null()).then_some(handle)
    }

    fn find_in(scope: *mut c_void, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: a valid scope and a C string.
        let symbol = unsafe { libc::dlsym(scope, name.as_ptr()) };
        (!symbol.is_null()).then_some(symbol)
    }
}

#[cfg(target_os = "linux")]
use linux::{ThreadId, this_thread, torchs_openmp};

#[cfg(not(target_os = "linux"))]
mod elsewhere {
    use super::{MaxThreads, Parallel};

    pub(super) type ThreadId = ();

    pub(super) fn this_thread() -> ThreadId {}

    /// Returns `None`: the benefit is not measured on this platform.
    pub(super) fn torchs_openmp() -> Option<(Parallel, MaxThreads)> {
        None
    }
}

#[cfg(not(target_os = "linux"))]
use elsewhere::{ThreadId, this_thread, torchs_openmp};

#[cfg(all(test, not(trainmon_shuttle)))]
impl ThreadTeam {
    /// Five threads, four of them started anew by every call.
    pub(crate) fn of_five() -> Self {
        unsafe extern "C" fn parallel(
            call: unsafe extern "C" fn(*mut c_void),
            work: *mut c_void,
            _: c_uint,
            _: c_uint,
        ) {
            let work = work.expose_provenance();
            // SAFETY: `work` is what `call` expects, and lives until the scope ends.
            let call = || unsafe { call(std::ptr::with_exposed_provenance_mut(work)) };
            std::thread::scope(|scope| {
                (1..5).for_each(|_| drop(scope.spawn(call)));
                call();
            });
        }
        unsafe extern "C" fn five() -> c_int {
            5
        }
        Self { parallel, max_threads: five, thread: this_thread() }
    }
}
