//! The parts that all `trainmon` commands share: exit codes, printing, progress, the page frame, and output that
//! appears complete or not at all.

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
