//! Tests the pool in thousands of orders of events: `cargo xtask test --only interleavings`.

#![cfg_attr(not(test), expect(dead_code, reason = "tests only"))]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool as Plain, Ordering};

use super::{Pool, WORTH_WAKING, set_threads};
use crate::sync::{AtomicUsize, thread};

/// The number of a task that ends the helpers: a test's threads must not outlive it.
pub(super) const ENDED: u64 = u64::MAX;

/// The number of orders tested, chosen at random.
const ORDERS: usize = 5_000;

impl Pool {
    fn end(&self) {
        self.lock().number = ENDED;
        self.begun.notify_all();
    }
}

/// Runs a call of so many shards; every shard is done once, and none when the call has returned.
fn call(pool: &'static Pool, shards: usize) {
    let is_over = Arc::new(Plain::new(false));
    let done: Vec<AtomicUsize> = (0..shards).map(|_| AtomicUsize::new(0)).collect();
    pool.run(shards, WORTH_WAKING, &|shard| {
        assert!(!is_over.load(Ordering::SeqCst), "a helper works on what its call has taken back");
        done[shard].fetch_add(1, Ordering::Relaxed);
        thread::yield_now();
    });
    is_over.store(true, Ordering::SeqCst);
    assert!(done.iter().all(|times| times.load(Ordering::Relaxed) == 1));
}

#[test]
fn every_shard_is_done_once_and_none_after_its_call() {
    set_threads(3);
    shuttle::check_random(
        || {
            let pool: &'static Pool = Box::leak(Box::new(Pool::new()));
            for shards in [3, 2, 4] {
                call(pool, shards);
            }
            pool.end();
        },
        ORDERS,
    );
}

#[test]
fn two_callers_at_once_both_have_all_their_shards() {
    set_threads(3);
    shuttle::check_random(
        || {
            let pool: &'static Pool = Box::leak(Box::new(Pool::new()));
            let other = thread::spawn(move || call(pool, 3));
            call(pool, 3);
            other.join().unwrap();
            pool.end();
        },
        ORDERS,
    );
}

#[test]
fn a_panic_of_a_shard_ends_its_call_and_the_next_one_is_whole() {
    set_threads(3);
    shuttle::check_random(
        || {
            let pool: &'static Pool = Box::leak(Box::new(Pool::new()));
            let broken = catch_unwind(AssertUnwindSafe(|| {
                pool.run(3, WORTH_WAKING, &|shard| assert!(shard != 1, "a broken shard"));
            }));
            assert!(broken.is_err());
            call(pool, 3);
            pool.end();
        },
        ORDERS,
    );
}
