//! The synchronisation types of the pool: the standard library's, or shuttle's, which tests many orders of events.

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
