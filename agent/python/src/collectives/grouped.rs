//! Operations that end together: those of `_coalescing_manager`.

use std::collections::HashMap;
use std::thread::ThreadId;

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::open::Open;

/// A group whose end does not come for so many steps was left by an exception.
const MOST_STEPS: u8 = 2;

/// By the process group and the thread.
#[derive(Default)]
pub(super) struct Grouped(Mutex<HashMap<(usize, ThreadId), Group>>);

/// The operations so far, and the steps that have ended since.
#[derive(Default)]
struct Group {
    open: Vec<Open>,
    steps: u8,
}

impl Grouped {
    /// A group begins; one that stands here was left by an exception.
    pub(super) fn begin(&self, args: &Bound<'_, PyTuple>) {
        let left = key_of(args).and_then(|key| self.0.lock().insert(key, Group::default()));
        release(left.map(|group| group.open).unwrap_or_default());
    }

    /// Takes an operation that has returned; gives it back where no group has begun.
    pub(super) fn add(&self, args: &Bound<'_, PyTuple>, open: Open) -> Option<Open> {
        let mut groups = self.0.lock();
        if groups.is_empty() {
            // As a rule. No thread is asked for its name.
            return Some(open);
        }
        let Some(key) = key_of(args) else { return Some(open) };
        match groups.get_mut(&key) {
            Some(group) => group.open.push(open),
            None => return Some(open),
        }
        None
    }

    /// A group ends: its operations.
    pub(super) fn end(&self, args: &Bound<'_, PyTuple>) -> Vec<Open> {
        key_of(args).and_then(|key| self.0.lock().remove(&key)).unwrap_or_default().open
    }

    /// A step has ended: lets go of groups without an end.
    pub(super) fn end_step(&self) {
        let mut left = Vec::new();
        self.0.lock().retain(|_, group| {
            group.steps += 1;
            if group.steps > MOST_STEPS {
                left.append(&mut group.open);
            }
            group.steps <= MOST_STEPS
        });
        release(left);
    }

    /// All of them.
    pub(super) fn take(&self) -> Vec<Open> {
        self.0.lock().drain().flat_map(|(_, group)| group.open).collect()
    }
}

fn release(all: Vec<Open>) {
    for open in all {
        open.guard.release();
    }
}

/// The group of operations that a call on this process group would belong to.
fn key_of(args: &Bound<'_, PyTuple>) -> Option<(usize, ThreadId)> {
    Some((args.get_item(0).ok()?.as_ptr() as usize, std::thread::current().id()))
}
