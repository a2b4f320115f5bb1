//! numpy's `.npy`, version 1, as numpy itself writes it.

use std::io::Write;

use trainmon_core::Dtype;

use super::WriteError;
use crate::TensorRef;

/// Elements begin at a multiple of this.
const ALIGNMENT: usize = 64;
/// Numbers widened at a time.
const CHUNK: usize = 4096;

/// Writes a tensor. What numpy has no dtype for (bfloat16, float8) becomes float32, which holds all of its values.
///
/// # Errors
/// The writer fails.
pub fn write_npy<'t>(tensor: impl Into<TensorRef<'t>>, out: &mut impl Write) -> Result<(), WriteError> {
    let tensor = tensor.into();
    let sizes: Vec<String> = tensor.shape().dims().iter().map(ToString::to_string).collect();
    let sizes = if let [one] = &sizes[..] { format!("{one},") } else { sizes.join(", ") };
    let descr = descr_of(tensor.dtype());
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

fn descr_of(dtype: Dtype) -> Option<&'static str> {
    Some(match dtype {
        Dtype::F64 => "<f8",
        Dtype::F32 => "<f4",
        Dtype::F16 => "<f2",
        Dtype::I8 => "|i1",
        Dtype::I16 => "<i2",
        Dtype::I32 => "<i4",
        Dtype::I64 => "<i8",
        Dtype::U8 => "|u1",
        Dtype::U16 => "<u2",
        Dtype::U32 => "<u4",
        Dtype::U64 => "<u8",
        Dtype::Bool => "|b1",
        Dtype::Complex64 => "<c8",
        Dtype::Complex128 => "<c16",
        Dtype::Bf16 | Dtype::F8E4M3Fn | Dtype::F8E4M3Fnuz | Dtype::F8E5M2 | Dtype::F8E5M2Fnuz => return None,
    })
}
