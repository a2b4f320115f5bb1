//! A few threads that share the work on large tensors.
//!
//! They are the host's own if the calling thread has an OpenMP team ([`team`](crate::team)). Otherwise [`start_threads`]
//! or the first large tensor starts them; they are named, and parked between calls. A call allocates nothing. A large
//! tensor is always split into the same shards, whose results are merged in order, so the result does not depend on the
//! number of threads. A call never waits for the pool: if another call is using it, or if this process was forked from
//! the one that owns the threads, the shards run on the calling thread.
#![expect(unsafe_code, reason = "lends the caller's stack to the pool's threads for the duration of a call")]

use std::cell::Cell;
use std::num::NonZero;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize as Setting, Ordering};
use std::sync::{OnceLock, PoisonError};
use std::thread::available_parallelism;

use crate::fp_env::StandardFloats;
use crate::sync::{AtomicBool, AtomicU32, AtomicUsize, Condvar, Mutex, MutexGuard, thread};
use crate::team::{self, ThreadTeam};

/// The number of elements from which a tensor is split: a pass takes about 70 us, and the host's team starts in a few.
pub(crate) const LARGE: usize = 1 << 18;

/// The number of elements from which parked threads are woken: one starts in 5 to 50 us.
const WORTH_WAKING: usize = 1 << 20;

/// The number of shards of a large tensor: enough that a thread that loses its core delays little work.
const SHARDS: usize = 64;

/// Shards begin at multiples of this, so that no block or 64-bit word crosses a boundary.
const SHARD_ALIGN: usize = 16 << 10;

/// The default limit of threads: a few cores saturate the memory bandwidth, and the training needs the others.
const MOST_BY_DEFAULT: usize = 4;

/// The configured number of threads; 0 for the default.
static THREADS: Setting = Setting::new(0);

/// The default once it is known; 0 before. Not guarded by a lock, which a fork could leave locked in the child.
static DEFAULT: Setting = Setting::new(0);

/// Returns the most threads of a measurement, including the calling one.
///
/// By default, the processor's parallelism, at most 4.
pub fn threads() -> usize {
    let known = [&THREADS, &DEFAULT].map(|threads| threads.load(Ordering::Relaxed));
    known.into_iter().find(|&threads| threads > 0).unwrap_or_else(|| {
        let default = available_parallelism().map_or(1, NonZero::get).min(MOST_BY_DEFAULT);
        DEFAULT.store(default, Ordering::Relaxed);
        default
    })
}

/// Sets [`threads`] for the whole process; 0 restores the default. Threads that are no longer needed stay parked.
pub fn set_threads(threads: usize) {
    THREADS.store(threads, Ordering::Relaxed);
}

thread_local! {
    /// The limit of threads for measurements on this thread, if lower than [`threads`].
    static MOST_HERE: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Runs `body` with at most `most` threads for its measurements on this thread, including this one (at least 1). For a
/// caller that keeps cores busy itself: a helper that waits for a core would delay the measurement.
pub fn with_at_most<R>(most: usize, body: impl FnOnce() -> R) -> R {
    /// Restores the former limit when dropped, also in a panic.
    struct Before(usize);
    impl Drop for Before {
        fn drop(&mut self) {
            MOST_HERE.set(self.0);
        }
    }
    let _before = Before(MOST_HERE.replace(most.max(1)));
    body()
}

/// Prepares the threads that [`threads`] allows. They are the host's own if the calling thread has a team; only this call
/// detects one. Otherwise this call starts them, instead of the first large tensor.
pub fn start_threads() {
    team::find();
    if POOL.is_ours() && team::of_this_thread().is_none() {
        POOL.start(&mut POOL.lock(), threads().min(SHARDS) - 1);
    }
}

/// Folds the numbers `0..elements` into the empty `total`: a small tensor directly, a large one in shards that are merged
/// in order. The shards run in parallel where it pays.
pub(crate) fn fold_shards<R: Default + Send + Sync>(
    elements: usize,
    total: &mut R,
    fold: impl Fn(Range<usize>, &mut R) + Sync,
    join: impl FnMut(&mut R, &R),
) {
    if elements < LARGE {
        fold(0..elements, total);
    } else {
        fold_shared(elements, total, &fold, join);
    }
}

/// Folds a large tensor. A separate function, so that small tensors do not pay for its stack frame.
#[inline(never)]
fn fold_shared<R: Default + Send + Sync>(
    elements: usize,
    total: &mut R,
    fold: &(impl Fn(Range<usize>, &mut R) + Sync),
    mut join: impl FnMut(&mut R, &R),
) {
    let size = elements.div_ceil(SHARDS).next_multiple_of(SHARD_ALIGN);
    let shards = elements.div_ceil(size);
    let results = [const { OnceLock::<R>::new() }; SHARDS];
    POOL.run(shards, elements, &|shard| {
        let start = shard * size;
        results[shard].get_or_init(|| {
            let mut result = R::default();
            fold(start..elements.min(start + size), &mut result);
            result
        });
    });
    results.iter().filter_map(OnceLock::get).for_each(|result| join(total, result));
}

/// Calls `work` in parallel for each of the numbers `0..parts`; `elements` is the total that they read. Nested calls from
/// a part run on its thread alone.
pub(crate) fn share_out(parts: usize, elements: usize, work: &(dyn Fn(usize) + Sync)) {
    POOL.run(parts, elements, work);
}

static POOL: Pool = Pool::new();

struct Pool {
    /// The process that owns the threads; 0 before the first use.
    owner: AtomicU32,
    is_busy: AtomicBool,
    state: Mutex<State>,
    begun: Condvar,
    left: Condvar,
}

struct State {
    task: Option<Task>,
    /// The number of the task; a thread joins each task at most once.
    number: u64,
    /// The number of started threads.
    started: usize,
    /// How many more threads may join the task.
    free_seats: usize,
    /// The number of threads that have joined and not left.
    working: usize,
}

/// A task borrowed from the stack of the call that runs it. Valid while it is in the state, and for threads that joined
/// until they leave.
#[derive(Clone, Copy)]
struct Task {
    work: *const Work<'static>,
}

// SAFETY: `Work` is shared between threads on purpose and is Sync.
unsafe impl Send for Task {}

struct Work<'w> {
    run: &'w (dyn Fn(usize) + Sync),
    next: AtomicUsize,
    shards: usize,
    has_panicked: AtomicBool,
}

impl Work<'_> {
    fn take_part(&self) {
        loop {
            let shard = self.next.fetch_add(1, Ordering::Relaxed);
            if shard >= self.shards {
                return;
            }
            (self.run)(shard);
        }
    }

    /// Calls [`take_part`](Self::take_part) on a thread that a panic must not end.
    fn help(&self) {
        if catch_unwind(AssertUnwindSafe(|| self.take_part())).is_err() {
            self.has_panicked.store(true, Ordering::Relaxed);
        }
    }

    /// Runs the work on at most this many threads of the host's team, including the calling one.
    fn do_with(&self, team: ThreadTeam, most: usize) {
        let seats = AtomicUsize::new(most);
        team.run(&|| {
            if seats.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| free.checked_sub(1)).is_ok() {
                let _standard = StandardFloats::enter();
                self.help();
            }
        });
    }
}

impl Pool {
    const fn new() -> Self {
        Self {
            owner: AtomicU32::new(0),
            is_busy: AtomicBool::new(false),
            state: Mutex::new(State { task: None, number: 0, started: 0, free_seats: 0, working: 0 }),
            begun: Condvar::new(),
            left: Condvar::new(),
        }
    }

    fn run(&'static self, shards: usize, elements: usize, run: &(dyn Fn(usize) + Sync)) {
        let team = team::of_this_thread();
        let most = if team.is_some() || elements >= WORTH_WAKING { threads() } else { 1 };
        let helpers = most.min(shards).min(MOST_HERE.get()) - 1;
        if helpers == 0 || !self.is_ours() || self.is_busy.swap(true, Ordering::Acquire) {
            (0..shards).for_each(run);
            return;
        }
        let work = Work { run, next: AtomicUsize::new(0), shards, has_panicked: AtomicBool::new(false) };
        if let Some(team) = team {
            work.do_with(team, helpers + 1);
            self.is_busy.store(false, Ordering::Release);
        } else {
            let _call = self.begin(&work, helpers);
            work.take_part();
        }
        assert!(!work.has_panicked.load(Ordering::Relaxed), "a shard of a measurement panicked");
    }

    /// Returns whether this process owns the threads: they do not survive a fork.
    fn is_ours(&self) -> bool {
        let process = std::process::id();
        match self.owner.compare_exchange(0, process, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => true,
            Err(owner) => owner == process,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes a task for helpers. The returned call must be dropped before `work`.
    fn begin(&'static self, work: &Work<'_>, helpers: usize) -> Call {
        let mut state = self.lock();
        self.start(&mut state, helpers);
        state.task = Some(Task { work: std::ptr::from_ref(work).cast() });
        state.number += 1;
        state.free_seats = helpers;
        drop(state);
        self.begun.notify_all();
        Call { pool: self }
    }

    /// Starts threads until there are this many. If the system refuses one, the others do its work.
    fn start(&'static self, state: &mut State, helpers: usize) {
        while state.started < helpers {
            let name = format!("trainmon-stats-{}", state.started + 1);
            if thread::Builder::new().name(name).spawn(|| self.help()).is_err() {
                break;
            }
            state.started += 1;
        }
    }

    /// The main loop of a helper thread.
    fn help(&self) {
        let _standard = StandardFloats::enter();
        let mut last = 0;
        let mut state = self.lock();
        loop {
            #[cfg(trainmon_shuttle)]
            if state.number == interleavings::ENDED {
                return;
            }
            let Some(task) = state.task.filter(|_| state.number != last && state.free_seats > 0) else {
                state = self.begun.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            last = state.number;
            state.free_seats -= 1;
            state.working += 1;
            drop(state);
            // SAFETY: the call that lent it waits until `working` is 0 before it returns.
            let work = unsafe { &*task.work };
            work.help();
            state = self.lock();
            state.working -= 1;
            if state.working == 0 {
                self.left.notify_one();
            }
        }
    }
}

/// A call in progress. Dropping it, by return or panic, waits for every helper that joined.
struct Call {
    pool: &'static Pool,
}

impl Drop for Call {
    fn drop(&mut self) {
        let mut state = self.pool.lock();
        state.task = None;
        while state.working > 0 {
            state = self.pool.left.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        drop(state);
        self.pool.is_busy.store(false, Ordering::Release);
    }
}

#[cfg(trainmon_shuttle)]
mod interleavings;

#[cfg(all(test, not(trainmon_shuttle)))]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_caller_that_keeps_the_cores_busy_measures_alone() {
        let of = |most: usize| {
            let threads = Mutex::new(HashSet::new());
            let work = |_: usize| {
                threads.lock().unwrap().insert(thread::current().id());
                thread::yield_now();
            };
            with_at_most(most, || share_out(SHARDS, WORTH_WAKING, &work));
            threads.into_inner().unwrap()
        };
        set_threads(3);
        assert_eq!(of(1), HashSet::from([thread::current().id()]));
        assert_eq!(of(0), HashSet::from([thread::current().id()]));
        assert!(catch_unwind(|| with_at_most(1, || panic!("broken"))).is_err());
        assert_eq!(MOST_HERE.get(), usize::MAX);
    }

    #[test]
    fn a_panicking_shard_ends_the_call_and_not_the_pool() {
        set_threads(3);
        let sum = |broken: Option<usize>| {
            let mut total = 0;
            fold_shards(
                WORTH_WAKING,
                &mut total,
                |range, part| {
                    assert!(broken.is_none_or(|element| !range.contains(&element)), "a broken shard");
                    *part = range.sum::<usize>();
                },
                |total, part| *total += part,
            );
            total
        };
        let expected = (0..WORTH_WAKING).sum::<usize>();
        for broken in [0, WORTH_WAKING / 2, WORTH_WAKING - 1] {
            assert_eq!(sum(None), expected);
            assert!(catch_unwind(|| sum(Some(broken))).is_err());
        }
        assert_eq!(sum(None), expected);
        // Another test may be using it; a call that had ended badly would hold it for ever.
        while POOL.is_busy.load(Ordering::Relaxed) {
            thread::yield_now();
        }
    }

    #[test]
    fn a_team_does_every_shard_once_on_no_more_threads_than_allowed() {
        for most in [1, 2, 9] {
            let done = Mutex::new(Vec::new());
            let run = |shard: usize| {
                done.lock().unwrap().push((shard, thread::current().id()));
                thread::yield_now();
            };
            let work = Work { run: &run, next: AtomicUsize::new(0), shards: 40, has_panicked: AtomicBool::new(false) };
            work.do_with(ThreadTeam::of_five(), most);
            assert!(!work.has_panicked.into_inner());
            let (mut shards, threads): (Vec<_>, HashSet<_>) = done.into_inner().unwrap().into_iter().unzip();
            shards.sort_unstable();
            assert_eq!(shards, (0..40).collect::<Vec<_>>());
            assert!((1..=most.min(5)).contains(&threads.len()), "{} threads", threads.len());
        }
    }

    #[test]
    fn a_panic_on_a_teams_thread_is_kept_from_the_runtime() {
        let run = |shard: usize| assert!(shard != 7, "a broken shard");
        let work = Work { run: &run, next: AtomicUsize::new(0), shards: 40, has_panicked: AtomicBool::new(false) };
        work.do_with(ThreadTeam::of_five(), 3);
        assert!(work.has_panicked.into_inner());
    }

    #[test]
    fn shards_cover_every_element_once_and_in_order() {
        for elements in [0, 1, LARGE - 1, LARGE, LARGE + 1, WORTH_WAKING, 5 * WORTH_WAKING + 77] {
            let mut covered = 0..0;
            fold_shards(
                elements,
                &mut covered,
                |range, covered| *covered = range,
                |covered, next| {
                    assert_eq!(covered.end, next.start);
                    covered.end = next.end;
                },
            );
            assert_eq!(covered, 0..elements);
        }
    }
}
