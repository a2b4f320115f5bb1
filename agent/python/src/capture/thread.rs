//! The state of a thread that a capture depends on.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// A call of a torch function before it reaches the capture, as its caller made it.
///
/// Torch passes the arguments of a Python function on in the form used by the function's own code: positional ones become
/// keywords. An operator (`a + b`) arrives as its method.
pub(crate) struct Announced {
    /// The function with which the mode will be called.
    pub(crate) target: usize,
    /// Its index in the table. `None`: this call is not captured, although the function is.
    pub(crate) operator: Option<usize>,
    pub(crate) args: Py<PyTuple>,
    pub(crate) kwargs: Option<Py<PyDict>>,
}

thread_local! {
    static BUSY: Cell<u32> = const { Cell::new(0) };
    static ANNOUNCED: RefCell<Option<Announced>> = const { RefCell::new(None) };
    static OPEN: RefCell<Vec<OpenModule>> = const { RefCell::new(Vec::new()) };
    static INSIDE: RefCell<Vec<InsideOf>> = const { RefCell::new(Vec::new()) };
    static PARENT: RefCell<Option<Parent>> = const { RefCell::new(None) };
}

/// The number of times that parents were discarded.
static FORGOTTEN: AtomicU64 = AtomicU64::new(0);

/// A parent of calls other than the innermost module.
struct Parent {
    name: String,
    /// The value of [`FORGOTTEN`] when the parent was set; once that has changed, the parent is discarded.
    set_after: u64,
}

/// Guard under which calls of this thread are not captured: they are inside a captured one, or trainmon's own.
pub(crate) struct Busy(());

impl Busy {
    pub(crate) fn new() -> Self {
        BUSY.set(BUSY.get() + 1);
        Self(())
    }

    pub(crate) fn is_on() -> bool {
        BUSY.get() > 0
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        BUSY.set(BUSY.get().saturating_sub(1));
    }
}

/// A function of torch whose body runs with the mode on.
struct InsideOf {
    function: usize,
    /// Whether the body has already made a call that the mode received.
    has_called: bool,
}

/// Guard under which a function's body runs with the mode on.
pub(crate) struct Inside(());

impl Inside {
    pub(crate) fn of(function: usize) -> Self {
        INSIDE.with(|inside| {
            if let Ok(mut inside) = inside.try_borrow_mut() {
                inside.push(InsideOf { function, has_called: false });
            }
        });
        Self(())
    }

    /// Returns whether the first call of a body is one of its own function. Such a body checks for a mode in a way that
    /// cannot be removed, and would call itself forever.
    pub(crate) fn asks_again(function: usize) -> bool {
        INSIDE.with(|inside| {
            let Ok(mut inside) = inside.try_borrow_mut() else { return false };
            let Some(innermost) = inside.last_mut() else { return false };
            !std::mem::replace(&mut innermost.has_called, true) && innermost.function == function
        })
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.with(|inside| inside.try_borrow_mut().map(|mut inside| inside.pop()).ok());
    }
}

/// A module's forward or backward pass in progress in this thread.
struct OpenModule {
    name: String,
    /// Whether `construct.json` already contains it.
    is_told: bool,
}

/// Enters a module.
pub(crate) fn enter_module(name: &str) {
    OPEN.with(|open| {
        if let Ok(mut open) = open.try_borrow_mut() {
            open.push(OpenModule { name: name.to_owned(), is_told: false });
        }
    });
}

/// Leaves a module, and modules inside it that were not left.
pub(crate) fn leave_module(name: &str) {
    OPEN.with(|open| {
        if let Ok(mut open) = open.try_borrow_mut()
            && let Some(at) = open.iter().rposition(|one| one.name == name)
        {
            open.truncate(at);
        }
    });
}

/// Discards modules that were entered and never left, in a step that has ended.
pub(crate) fn leave_all_modules() {
    OPEN.with(|open| {
        if let Ok(mut open) = open.try_borrow_mut() {
            open.clear();
        }
    });
}

/// Passes each surrounding module and its parent to `tell` once, the outermost first.
pub(crate) fn tell_around(mut tell: impl FnMut(&str, Option<&str>)) {
    OPEN.with(|open| {
        let Ok(mut open) = open.try_borrow_mut() else { return };
        for at in 0..open.len() {
            if !open[at].is_told {
                open[at].is_told = true;
                tell(&open[at].name, at.checked_sub(1).map(|around| &*open[around].name));
            }
        }
    });
}

/// Ends a [`Busy`] that was forgotten on purpose.
pub(crate) fn no_longer_busy() {
    BUSY.set(BUSY.get().saturating_sub(1));
}

/// Announces a call unless one is already announced. Returns whether it did.
pub(crate) fn announce(call: Announced) -> bool {
    ANNOUNCED.with(|announced| {
        let Ok(mut announced) = announced.try_borrow_mut() else { return false };
        if announced.is_some() {
            return false;
        }
        *announced = Some(call);
        true
    })
}

/// Takes the announced call, if it is a call of this function.
pub(crate) fn take_announced(target: usize) -> Option<Announced> {
    ANNOUNCED.with(|announced| {
        let mut announced = announced.try_borrow_mut().ok()?;
        announced.take_if(|call| call.target == target)
    })
}

/// Discards an announced call that did not arrive.
pub(crate) fn withdraw() {
    let gone = ANNOUNCED.with(|announced| announced.try_borrow_mut().ok().and_then(|mut call| call.take()));
    drop(gone);
}

/// Sets the parent of calls (`optimizer`, `clip_grad`) in place of the innermost module. Returns the previous one.
pub(crate) fn set_parent(name: Option<String>) -> Option<String> {
    let set_after = FORGOTTEN.load(Ordering::Relaxed);
    let parent = name.map(|name| Parent { name, set_after });
    PARENT.with(|current| {
        let before = std::mem::replace(&mut *current.try_borrow_mut().ok()?, parent)?;
        (before.set_after == set_after).then_some(before.name)
    })
}

/// Calls `look` with the parent, if one is set.
pub(crate) fn with_parent<R>(look: impl FnOnce(Option<&str>) -> R) -> R {
    let set_after = FORGOTTEN.load(Ordering::Relaxed);
    PARENT.with(|current| match current.try_borrow() {
        Ok(current) => {
            let parent = current.as_ref().filter(|parent| parent.set_after == set_after);
            look(parent.map(|parent| &*parent.name))
        }
        Err(_) => look(None),
    })
}

/// Discards the parents of all threads: one may still be inside an optimizer's step when a capture ends.
pub(crate) fn forget_parents() {
    FORGOTTEN.fetch_add(1, Ordering::Relaxed);
}
