//! Writes tensors to files that numpy, torch and safetensors read. Each function writes to any `Write`; the caller
//! ensures that a file appears complete.

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
    /// The format does not support the dtype.
    #[error("{format} does not support dtype {dtype}")]
    Dtype { format: &'static str, dtype: Dtype },
    /// A write error.
    #[error("cannot write the bytes")]
    Write(#[from] io::Error),
    /// The tensors are too large for the format's header.
    #[error("cannot write these tensors to a safetensors file")]
    Safetensors(#[source] safetensors::SafeTensorError),
}
