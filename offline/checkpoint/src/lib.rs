//! `trainmon compare-checkpoint`: compares two checkpoints of any layout, tensor by tensor.
//!
//! ```text
//! path ─▶ detect ─▶ plain | hf | megatron | deepspeed | dcp ─▶ contents: names, recipes ─▶ assemble ─▶ measure ─▶
//! report
//! ```
//!
//! Opening reads only structures. Tensors are assembled in batches when they are compared, so memory holds 256 MiB of
//! tensors (or two of the largest) in addition to the mapped files.

#![forbid(unsafe_code)]

mod assemble;
mod comparison;
mod contents;
mod dcp;
mod deepspeed;
mod deepspeed_zero3;
mod detect;
mod directory;
mod error;
mod hf;
mod layout;
mod megatron;
mod megatron_name;
mod megatron_split;
mod output;
mod page;
mod plain;
mod recipe;
mod report;
mod slices;
mod tensor_parallel;

pub use self::comparison::{Comparison, compare};
pub use self::detect::is_one;
pub use self::error::CheckpointError;
pub use self::layout::Dialect;
pub use self::output::{Format, Output};
pub use self::report::{as_json, in_words};
