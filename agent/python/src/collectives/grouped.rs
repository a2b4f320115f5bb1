//! Operations that end together, in `_coalescing_manager`.

use std::collections::HashMap;
use std::thread::ThreadId;

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::open::Open;

/// The number of steps after which a group without an end counts as abandoned by an exception.
const MOST_STEPS: u8 = 2;

/// The open groups, by process group and thread.
#[derive(Default)]
pub(super) struct Grouped(Mutex<HashMap<(usize, ThreadId), Group>>);

/// The operations so far, and the number of steps that have ended since.
#[derive(Default)]
struct Group {
    open: Vec<Open>,
    steps: u8,
}

impl Grouped {
    /// Begins a group. An existing one was abandoned by an exception and is dropped.
    pub(super) fn begin(&self, args: &Bound<'_, PyTuple>) {
        let left = key_of(args).and_then(|key| self.0.lock().insert(key, Group::default()));
        release(left.map(|group| group.open).unwrap_or_default());
    }

    /// Adds an operation that has returned; returns it if no group has begun.
    pub(super) fn add(&self, args: &Bound<'_, PyTuple>, open: Open) -> Option<Open> {
        let mut groups = self.0.lock();
        if groups.is_empty() {
            // The usual case, without the cost of querying the thread.
            return Some(open);
        }
        let Some(key) = key_of(args) else { return Some(open) };
        match groups.get_mut(&key) {
            Some(group) => group.open.push(open),
            None => return Some(open),
        }
        None
    }

    /// Ends a group; returns its operations.
    pub(super) fn end(&self, args: &Bound<'_, PyTuple>) -> Vec<Open> {
        key_of(args).and_then(|key| self.0.lock().remove(&key)).unwrap_or_default().open
    }

    /// Ends a step: drops groups without an end.
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

    /// Takes all open operations.
    pub(super) fn take(&self) -> Vec<Open> {
        self.0.lock().drain().flat_map(|(_, group)| group.open).collect()
    }
}

fn release(all: Vec<Open>) {
    for open in all {
        open.guard.release();
    }
}

/// Returns the key of the group to which a call on this process group belongs.
fn key_of(args: &Bound<'_, PyTuple>) -> Option<(usize, ThreadId)> {
    Some((args.get_item(0).ok()?.as_ptr() as usize, std::thread::current().id()))
}
