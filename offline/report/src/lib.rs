//! What every command of `trainmon` shares: how it ends, what it prints, how far it is, the look of a page, and output that
//! appears whole or not at all.

#![forbid(unsafe_code)]

mod envelope;
mod failure;
mod fresh;
pub mod html;
mod outcome;
mod printer;
mod progress;
mod text;

pub use envelope::{answer_as_json, comparison_as_json};
pub use failure::{Advise, as_json, causes, result_as_json};
pub use fresh::{FreshDirectory, NotMade, OutputError, Unfinished, unfinished_in, write_new};
pub use outcome::Outcome;
pub use printer::{Printer, Tone, toned};
pub use progress::{Progress, shown, watched};
pub use text::{counted, first_of, quoted};
