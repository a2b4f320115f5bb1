//! Finds the first divergence of two runs.
//!
//! The method: find the first operator whose inputs agree and whose outputs do not. In a rank, "first" is the order of
//! execution ([`walk`]); between ranks, the order that communication enforces ([`first_divergence`]); steps follow each other.

mod agreement;
mod broadcast;
mod call;
mod communication;
mod compared;
mod completed;
mod finding;
mod fresh;
mod gradients;
mod judged;
mod kink;
mod learn;
mod learnt;
mod left;
mod magnitude;
mod memory;
mod named;
mod noise;
mod operands;
mod outputs;
mod pattern;
mod ranks;
mod region;
mod rewritten;
mod settled;
mod update;
mod updated;
mod walk;
mod written;

pub(crate) use communication::Communication;
pub use finding::Kind;
pub(crate) use finding::{Excuse, Finding, Judged, OneSidedCall, Rewritten, Suspect, Walked};
pub(crate) use noise::Rounding;
pub(crate) use ranks::{Divergence, Noise, RankCapture, first_divergence};
