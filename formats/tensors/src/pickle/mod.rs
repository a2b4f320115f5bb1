//! Reads Python pickles as data.
//!
//! `machine` executes the opcodes of protocols 2 to 5 on a stack of ids of values in one table ([`Pickled`]). It
//! imports nothing and calls nothing: a class is its name, and a call becomes an object of that name with its
//! arguments, its state and its content. [`Item`] is a reference into the result.

mod calls;
mod item;
mod limits;
mod machine;
mod opcode;
mod value;

pub use item::{Item, Kind};
pub(super) use value::Id;
pub use value::Pickled;

use super::error::FormatError;

/// Reads the pickle at the beginning of `bytes`. Returns its content and its end.
///
/// Cost: memory of at most about forty times the pickle's bytes, and a limited number of objects.
///
/// # Errors
/// The pickle is truncated, damaged, has protocol 0 or 1, uses out-of-band buffers or Python's registry of extensions,
/// or exceeds the limits.
pub fn read(bytes: &[u8]) -> Result<(Pickled, usize), FormatError> {
    machine::Machine::new(bytes).run()
}
