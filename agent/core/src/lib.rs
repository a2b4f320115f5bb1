//! The vocabulary every other crate of trainmon speaks.
//!
//! No I/O, no async runtime, no torch, no Python. A [`TensorView`] borrows a tensor's memory, a [`Reading`] is what
//! one pass over it found, a [`StepBatch`] carries one step's readings from the hooks to the exporters, and the
//! [`Ledger`] counts every record that got lost on the way.
//!
//! The words of a single record are of `trainmon-record`, re-exported here. This crate is compiled without optimisation, for
//! nearly all of it is the config: what a step touches is marked `#[inline]`, and so compiled with the crate that calls it.

#![forbid(unsafe_code)]

mod activation;
mod batch;
pub mod catalog;
mod cells;
mod columns;
pub mod config;
mod printable;
mod repeats;
mod shell;
mod summary;

pub use activation::{ActivationName, FiniteCalls, ModuleEnd, activation_name};
pub use batch::{GradNorm, Phase, PhaseTimes, StepBatch};
pub use cells::{cell_of, text_of_cell};
pub use columns::{is_number_column, micro_step_column};
pub use printable::printable;
pub use repeats::{LeftOut, Repeats};
pub use shell::shell_word;
pub use summary::{combine_norms, largest, median_of};
pub use trainmon_record::*;
