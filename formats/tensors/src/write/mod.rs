//! Tensors to files that numpy, torch and safetensors read. Each writes to any `Write`; the caller sees to it that a file
//! appears whole.

mod archive;
mod npy;
mod safe;
mod torch;

use std::io;

use trainmon_core::Dtype;

pub use npy::write_npy;
pub use safe::write_safetensors;
pub use torch::{write_pt, write_pt_of_crc, write_pt_of_one};

/// A tensor cannot be written.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the messages say they are")]
pub enum WriteError {
    /// The format has no such dtype.
    #[error("{format} has no {dtype}")]
    Dtype { format: &'static str, dtype: Dtype },
    /// What was written to refused it.
    #[error("the bytes were not taken")]
    Write(#[from] io::Error),
    /// The tensors are too large for the format's header.
    #[error("no safetensors file can be made of these tensors")]
    Safetensors(#[source] safetensors::SafeTensorError),
}
