//! numpy's `.npy`, version 1, as numpy itself writes it.

use std::io::Write;

use super::WriteError;
use crate::TensorRef;
use crate::dtype_names::numpy_descr;

/// The alignment of elements.
const ALIGNMENT: usize = 64;
/// The number of values widened at a time.
const CHUNK: usize = 4096;

/// Writes a tensor. Dtypes that numpy lacks (bfloat16, float8) become float32, which represents all their values.
///
/// # Errors
/// The writer fails.
pub fn write_npy<'t>(tensor: impl Into<TensorRef<'t>>, out: &mut impl Write) -> Result<(), WriteError> {
    let tensor = tensor.into();
    let sizes: Vec<String> = tensor.shape().dims().iter().map(ToString::to_string).collect();
    let sizes = if let [one] = &sizes[..] { format!("{one},") } else { sizes.join(", ") };
    let descr = numpy_descr(tensor.dtype());
    let mut header = format!("{{'descr': '{}', 'fortran_order': False, 'shape': ({sizes}), }}", descr.unwrap_or("<f4"));
    let magic = b"\x93NUMPY\x01\x00";
    let unpadded = magic.len() + 2 + header.len() + 1;
    header.push_str(&" ".repeat(unpadded.next_multiple_of(ALIGNMENT) - unpadded));
    header.push('\n');
    out.write_all(magic)?;
    out.write_all(&(header.len() as u16).to_le_bytes())?;
    out.write_all(header.as_bytes())?;
    if descr.is_some() {
        out.write_all(tensor.bytes())?;
        return Ok(());
    }
    let mut numbers = vec![0.0; CHUNK.min(tensor.numbers())];
    let mut at = 0;
    while at < tensor.numbers() {
        let count = CHUNK.min(tensor.numbers() - at);
        tensor.read_f64(at, &mut numbers[..count]);
        let bytes: Vec<u8> = numbers[..count].iter().flat_map(|&number| (number as f32).to_le_bytes()).collect();
        out.write_all(&bytes)?;
        at += count;
    }
    Ok(())
}
