//! `.safetensors`, by the crate of its authors.

use std::borrow::Cow;
use std::io::Write;

use safetensors::{Dtype as Name, View};
use trainmon_core::Dtype;

use super::WriteError;
use crate::TensorRef;

/// A tensor as the crate wants to see it.
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
/// The format has no such dtype (complex128), or the writer fails.
pub fn write_safetensors(tensors: &[(&str, TensorRef<'_>)], out: &mut impl Write) -> Result<(), WriteError> {
    let mut seen = Vec::with_capacity(tensors.len());
    for &(name, tensor) in tensors {
        let dtype = tensor.dtype();
        let view = Seen {
            name: name_of(dtype).ok_or(WriteError::Dtype { format: "safetensors", dtype })?,
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

fn name_of(dtype: Dtype) -> Option<Name> {
    Some(match dtype {
        Dtype::F64 => Name::F64,
        Dtype::F32 => Name::F32,
        Dtype::F16 => Name::F16,
        Dtype::Bf16 => Name::BF16,
        Dtype::F8E4M3Fn => Name::F8_E4M3,
        Dtype::F8E4M3Fnuz => Name::F8_E4M3FNUZ,
        Dtype::F8E5M2 => Name::F8_E5M2,
        Dtype::F8E5M2Fnuz => Name::F8_E5M2FNUZ,
        Dtype::I8 => Name::I8,
        Dtype::I16 => Name::I16,
        Dtype::I32 => Name::I32,
        Dtype::I64 => Name::I64,
        Dtype::U8 => Name::U8,
        Dtype::U16 => Name::U16,
        Dtype::U32 => Name::U32,
        Dtype::U64 => Name::U64,
        Dtype::Bool => Name::BOOL,
        Dtype::Complex64 => Name::C64,
        Dtype::Complex128 => return None,
    })
}
