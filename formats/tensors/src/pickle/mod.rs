//! Python pickles, read as data.
//!
//! `machine` carries out the opcodes of protocols 2 to 5 on a stack of numbers that name values in one table
//! ([`Pickled`]). It imports nothing and calls nothing: a class is its name, and what a pickle would call becomes an
//! object of that name with its arguments, its state and what was put into it. [`Item`] is a place in the result.

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

/// Reads the pickle at the beginning of `bytes`. Gives what it says and where it ends.
///
/// Cost: memory of at most some forty times the pickle's bytes, and a bounded number of objects.
///
/// # Errors
/// The pickle is cut off, damaged, of protocol 0 or 1, uses out-of-band buffers or Python's registry of extensions, or
/// goes beyond the bounds.
pub fn read(bytes: &[u8]) -> Result<(Pickled, usize), FormatError> {
    machine::Machine::new(bytes).run()
}
