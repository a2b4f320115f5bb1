//! The `.bin` files of Ascend's transformer library: a header of lines, then the elements.

use trainmon_core::{Dtype, Shape};

use super::error::FormatError;
use super::file_bytes::FileBytes;
use super::stored::StoredTensor;

pub(super) const MAGIC: &[u8] = b"$Version=";
const END: &str = "$End=1\n";
/// The largest header, which has about ten short lines.
const MAX_HEADER: usize = 1 << 16;

/// Reads the only tensor of a file.
pub(super) fn read(bytes: &FileBytes) -> Result<StoredTensor, FormatError> {
    let wrong = |found: &str| FormatError::malformed("the header of a .bin file", 0, found);
    let front = &bytes[..bytes.len().min(MAX_HEADER)];
    let end = front.windows(END.len()).position(|window| window == END.as_bytes());
    let end = end.ok_or_else(|| wrong("no line `$End=1`"))?;
    let text = String::from_utf8(front[..end].to_vec()).map_err(|error| wrong(&error.to_string()))?;
    let value = |key: &str| {
        let found = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        found.ok_or_else(|| wrong(&format!("no `{key}`")))
    };
    let numbers = |key: &str| -> Result<Vec<i64>, FormatError> {
        let text = value(key)?;
        let numbers = text.split(',').filter(|part| !part.is_empty()).map(|part| part.trim().parse::<i64>());
        numbers.collect::<Result<_, _>>().map_err(|error| wrong(&format!("`{key}` is {text:?}: {error}")))
    };
    let code = numbers("dtype")?;
    let dtype = code.first().and_then(|&code| dtype_of(code));
    let dtype = dtype.ok_or_else(|| FormatError::unsupported("a tensor of this dtype", format!("code {code:?}")))?;
    let shape = Shape::new(&numbers("dims")?)?;
    let [offset, length] = numbers("$Object.data")?[..] else { return Err(wrong("`$Object.data` is not a pair")) };
    let (Ok(offset), Ok(length)) = (u64::try_from(offset), u64::try_from(length)) else {
        return Err(wrong("`$Object.data` is negative"));
    };
    let begin = (end + END.len()) as u64;
    StoredTensor::new(dtype, shape, bytes.part("the tensor", begin.saturating_add(offset), length)?)
}

/// The dtype of an Ascend Computing Language code.
fn dtype_of(code: i64) -> Option<Dtype> {
    Some(match code {
        0 => Dtype::F32,
        1 => Dtype::F16,
        2 => Dtype::I8,
        3 => Dtype::I32,
        4 => Dtype::U8,
        6 => Dtype::I16,
        7 => Dtype::U16,
        8 => Dtype::U32,
        9 => Dtype::I64,
        10 => Dtype::U64,
        11 => Dtype::F64,
        12 => Dtype::Bool,
        16 => Dtype::Complex64,
        17 => Dtype::Complex128,
        27 => Dtype::Bf16,
        _ => return None,
    })
}
