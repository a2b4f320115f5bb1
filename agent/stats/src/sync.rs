//! What the pool's threads share: the standard library's, or shuttle's, which tries one order of events after another.

#[cfg(not(trainmon_shuttle))]
pub(crate) use std::{
    sync::atomic::{AtomicBool, AtomicU32, AtomicUsize},
    sync::{Condvar, Mutex, MutexGuard},
    thread,
};

#[cfg(trainmon_shuttle)]
pub(crate) use shuttle::{
    sync::atomic::{AtomicBool, AtomicU32, AtomicUsize},
    sync::{Condvar, Mutex, MutexGuard},
    thread,
};
