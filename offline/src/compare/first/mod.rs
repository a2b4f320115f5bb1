//! Where two runs first part.
//!
//! The method: find the first operator whose inputs agree and whose outputs do not. Inside a rank "first" is the order of
//! execution ([`walk`]); between ranks it is the order communication enforces ([`ranks`]); steps follow each other.

mod communication;
mod ranks;
mod walk;

pub(crate) use communication::Communication;
pub use ranks::{Divergence, RankCapture, first_divergence};
pub use walk::{Finding, Kind, Suspect, Walked, walk};
