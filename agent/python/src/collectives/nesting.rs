//! The nesting depth of a thread's calls.

use std::cell::Cell;

thread_local! {
    /// The number of announced calls around the current one.
    static INSIDE: Cell<u32> = const { Cell::new(0) };
    /// The number of those that transfer pickled objects.
    static OBJECTS: Cell<u32> = const { Cell::new(0) };
}

pub(super) fn enter() {
    INSIDE.set(INSIDE.get() + 1);
}

pub(super) fn leave() {
    INSIDE.set(INSIDE.get().saturating_sub(1));
}

pub(super) fn is_inside() -> bool {
    INSIDE.get() > 0
}

pub(super) fn enter_objects() {
    OBJECTS.set(OBJECTS.get() + 1);
}

pub(super) fn leave_objects() {
    OBJECTS.set(OBJECTS.get().saturating_sub(1));
}

pub(super) fn moves_objects() -> bool {
    OBJECTS.get() > 0
}
