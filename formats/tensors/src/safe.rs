//! `.safetensors`: the authors' crate reads the header and checks that the tensors cover the file exactly.

use safetensors::SafeTensors;
use trainmon_core::Shape;

use super::contents::{Contents, Entry, Place, Unreadable};
use super::dtype_names::{dtype_called, safetensors_name};
use super::error::FormatError;

/// Whether the file begins with an 8-byte header length and JSON.
pub(super) fn looks_like_it(bytes: &[u8]) -> bool {
    bytes.len() > 8 && bytes[8] == b'{'
}

/// The contents of the file, in the order of the tensors' offsets.
pub(super) fn read(bytes: &[u8]) -> Result<Contents, FormatError> {
    let (header, metadata) = SafeTensors::read_metadata(bytes).map_err(FormatError::Safetensors)?;
    let begin = 8 + header as u64;
    let mut contents = Contents::default();
    for name in metadata.offset_keys() {
        let Some(info) = metadata.info(&name) else { continue };
        let sizes: Vec<i64> = info.shape.iter().map(|&size| i64::try_from(size).unwrap_or(-1)).collect();
        let (dtype, shape) = (dtype_called(safetensors_name, info.dtype), Shape::new(&sizes));
        match (dtype, shape) {
            (Some(dtype), Ok(shape)) => {
                let place = Place::Contiguous { from: begin + info.data_offsets.0 as u64 };
                contents.tensors.push((Entry { name, dtype, shape }, place));
            }
            (None, _) => {
                let error = FormatError::unsupported("a tensor of this dtype", format!("{:?}", info.dtype));
                contents.unreadable.push(Unreadable { name, error });
            }
            (_, Err(error)) => contents.unreadable.push(Unreadable { name, error: error.into() }),
        }
    }
    if let Some(texts) = metadata.metadata() {
        contents.metadata = texts.iter().map(|(key, text)| (key.clone(), text.clone())).collect();
        contents.metadata.sort();
    }
    Ok(contents)
}
