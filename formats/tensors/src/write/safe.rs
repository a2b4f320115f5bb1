//! Writes `.safetensors` with the authors' crate.

use std::borrow::Cow;
use std::io::Write;

use safetensors::{Dtype as Name, View};

use super::WriteError;
use crate::TensorRef;
use crate::dtype_names::safetensors_name;

/// Adapts a tensor to the crate's interface.
struct Seen<'a> {
    name: Name,
    shape: Vec<usize>,
    bytes: &'a [u8],
}

impl View for &Seen<'_> {
    fn dtype(&self) -> Name {
        self.name
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        self.bytes.into()
    }

    fn data_len(&self) -> usize {
        self.bytes.len()
    }
}

/// Writes named tensors. Cost: the whole file once in memory.
///
/// # Errors
/// The format does not support the dtype (complex128), or the writer fails.
pub fn write_safetensors(tensors: &[(&str, TensorRef<'_>)], out: &mut impl Write) -> Result<(), WriteError> {
    let mut seen = Vec::with_capacity(tensors.len());
    for &(name, tensor) in tensors {
        let dtype = tensor.dtype();
        let view = Seen {
            name: safetensors_name(dtype).ok_or(WriteError::Dtype { format: "safetensors", dtype })?,
            shape: tensor.shape().dims().iter().map(|&size| size as usize).collect(),
            bytes: tensor.bytes(),
        };
        seen.push((name, view));
    }
    let views = seen.iter().map(|(name, view)| (*name, view));
    let bytes = safetensors::serialize(views, None).map_err(WriteError::Safetensors)?;
    out.write_all(&bytes)?;
    Ok(())
}
