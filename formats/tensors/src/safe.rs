//! `.safetensors`: the header is read by the crate of its authors, which checks that the tensors cover the file exactly.

use safetensors::{Dtype as Name, SafeTensors};
use trainmon_core::{Dtype, Shape};

use super::contents::{Contents, Entry, Place, Unreadable};
use super::error::FormatError;

/// The header's length is a number of 8 bytes, then comes JSON.
pub(super) fn looks_like_it(bytes: &[u8]) -> bool {
    bytes.len() > 8 && bytes[8] == b'{'
}

/// What the file holds, in the order of the tensors' places.
pub(super) fn read(bytes: &[u8]) -> Result<Contents, FormatError> {
    let (header, metadata) = SafeTensors::read_metadata(bytes).map_err(FormatError::Safetensors)?;
    let begin = 8 + header as u64;
    let mut contents = Contents::default();
    for name in metadata.offset_keys() {
        let Some(info) = metadata.info(&name) else { continue };
        let sizes: Vec<i64> = info.shape.iter().map(|&size| i64::try_from(size).unwrap_or(-1)).collect();
        let (dtype, shape) = (dtype_of(info.dtype), Shape::new(&sizes));
        match (dtype, shape) {
            (Some(dtype), Ok(shape)) => {
                let place = Place::Contiguous { from: begin + info.data_offsets.0 as u64 };
                contents.tensors.push((Entry { name, dtype, shape }, place));
            }
            (None, _) => {
                let trouble = FormatError::unsupported("a tensor of this dtype", format!("{:?}", info.dtype));
                contents.unreadable.push(Unreadable { name, trouble });
            }
            (_, Err(error)) => contents.unreadable.push(Unreadable { name, trouble: error.into() }),
        }
    }
    if let Some(texts) = metadata.metadata() {
        contents.metadata = texts.iter().map(|(key, text)| (key.clone(), text.clone())).collect();
        contents.metadata.sort();
    }
    Ok(contents)
}

fn dtype_of(name: Name) -> Option<Dtype> {
    Some(match name {
        Name::F64 => Dtype::F64,
        Name::F32 => Dtype::F32,
        Name::F16 => Dtype::F16,
        Name::BF16 => Dtype::Bf16,
        Name::F8_E4M3 => Dtype::F8E4M3Fn,
        Name::F8_E4M3FNUZ => Dtype::F8E4M3Fnuz,
        Name::F8_E5M2 => Dtype::F8E5M2,
        Name::F8_E5M2FNUZ => Dtype::F8E5M2Fnuz,
        Name::I8 => Dtype::I8,
        Name::I16 => Dtype::I16,
        Name::I32 => Dtype::I32,
        Name::I64 => Dtype::I64,
        Name::U8 => Dtype::U8,
        Name::U16 => Dtype::U16,
        Name::U32 => Dtype::U32,
        Name::U64 => Dtype::U64,
        Name::BOOL => Dtype::Bool,
        Name::C64 => Dtype::Complex64,
        _ => return None,
    })
}
