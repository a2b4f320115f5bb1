//! The host's own OpenMP threads, borrowed on the thread that trains.
//!
//! Torch's operators run on an OpenMP team whose threads spin for some milliseconds after each of them. Threads of our
//! own would contend with those for the cores, and let them fall asleep: the host would wait for them to wake in its
//! next operator. On a small machine the team costs a training step half of what our threads do.
//!
//! A thread that calls gets a team of its own: so one is used on the thread that started the monitor only, in the
//! process it was found in, and where torch itself runs on it.
#![expect(unsafe_code, reason = "calls OpenMP's runtime by the names it is found under")]

use std::ffi::{c_int, c_uint, c_void};
use std::sync::OnceLock;

/// `GOMP_parallel(fn, data, num_threads, flags)`: libgomp's since GCC 4.9; LLVM's and Intel's runtimes have it too.
type Parallel = unsafe extern "C" fn(unsafe extern "C" fn(*mut c_void), *mut c_void, c_uint, c_uint);
/// `omp_get_max_threads()`: threads in the next team of the calling thread.
type MaxThreads = unsafe extern "C" fn() -> c_int;

/// Of a larger team all would have to wake for the few that work.
const MOST: c_int = 16;

/// OpenMP, as torch calls it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThreadTeam {
    parallel: Parallel,
    max_threads: MaxThreads,
    /// The thread whose team it is.
    thread: ThreadId,
}

static TEAM: OnceLock<ThreadTeam> = OnceLock::new();

/// Looks for the calling thread's team. The first call that finds torch decides, for good.
pub(crate) fn find() {
    if TEAM.get().is_none()
        && let Some((parallel, max_threads)) = torchs_openmp()
    {
        TEAM.get_or_init(|| ThreadTeam { parallel, max_threads, thread: this_thread() });
    }
}

/// The calling thread's team, if it has one of several threads.
pub(crate) fn of_this_thread() -> Option<ThreadTeam> {
    let team = *TEAM.get()?;
    // SAFETY: asks for a number that the runtime keeps per thread.
    (team.thread == this_thread() && (2..=MOST).contains(&unsafe { (team.max_threads)() })).then_some(team)
}

impl ThreadTeam {
    /// Calls `work` on every thread of the team at once, the calling one among them, and waits for them all.
    ///
    /// `work` must not panic: nothing may unwind through the runtime.
    pub(crate) fn run<F: Fn() + Sync>(self, work: &F) {
        unsafe extern "C" fn call<F: Fn()>(work: *mut c_void) {
            // SAFETY: the `F` that `run` lends until every thread has left.
            unsafe { (*work.cast_const().cast::<F>())() }
        }
        // As many threads as torch asks for, which is all: with another number the runtime would end and restart some.
        // SAFETY: `call` gets back the pointer it expects; the runtime returns when all threads have left it.
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

    /// What torch's own calls reach: the loader asks the global scope before what a library brings itself.
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

    /// A library this process has loaded already.
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

    /// Unmeasured there.
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
