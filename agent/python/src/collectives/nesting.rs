//! The nesting of this thread's calls.

use std::cell::Cell;

thread_local! {
    /// The number of announced calls that this thread is inside of.
    static INSIDE: Cell<u32> = const { Cell::new(0) };
    /// The number of calls that move pickled objects.
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
