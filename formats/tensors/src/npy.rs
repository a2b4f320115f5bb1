//! numpy's `.npy`: a magic, a header that is a Python dict, the elements.

use trainmon_core::{Dtype, Shape};

use super::dtype_names::{dtype_called, numpy_descr};
use super::error::{FormatError, part};
use super::file_bytes::FileBytes;
use super::python_literal::{self, Literal};
use super::stored::{StoredTensor, byte_length};
use super::strided::{Strided, gather};

pub(super) const MAGIC: &[u8] = b"\x93NUMPY";
/// The largest header: numpy's own take less than 200 bytes, those of wide records a few thousand.
const MAX_HEADER: u64 = 1 << 20;

/// Reads the only array of a file as row-major and little-endian.
pub(super) fn read(bytes: &FileBytes) -> Result<StoredTensor, FormatError> {
    let (header, begin) = header(bytes)?;
    let Header { dtype, is_big_endian, is_fortran, shape } = header;
    let length = byte_length(dtype, &shape)?;
    let elements = bytes.part("the array", begin, length)?;
    row_major(dtype, is_big_endian, is_fortran, shape, elements)
}

/// Converts an array to row-major and little-endian.
pub(super) fn row_major(
    dtype: Dtype,
    is_big_endian: bool,
    is_fortran: bool,
    shape: Shape,
    elements: FileBytes,
) -> Result<StoredTensor, FormatError> {
    let mut tensor = StoredTensor::new(dtype, shape, elements)?;
    if is_fortran && shape.dims().len() > 1 {
        let mut next = 1i64;
        let stride_of = |&size: &i64| {
            let stride = next;
            next = next.saturating_mul(size);
            stride
        };
        let strides = shape.dims().iter().map(stride_of).collect();
        let strided = Strided { dtype, shape, strides, offset: 0 };
        tensor = StoredTensor::new(dtype, shape, gather(tensor.bytes(), &strided)?.into())?;
    }
    if is_big_endian && dtype.align() > 1 {
        let mut swapped = tensor.bytes().to_vec();
        swapped.chunks_exact_mut(dtype.align()).for_each(<[u8]>::reverse);
        tensor = StoredTensor::new(dtype, shape, swapped.into())?;
    }
    Ok(tensor)
}

struct Header {
    dtype: Dtype,
    is_big_endian: bool,
    is_fortran: bool,
    shape: Shape,
}

/// The header, and the offset of the elements.
fn header(bytes: &[u8]) -> Result<(Header, u64), FormatError> {
    let fixed = part(bytes, "a .npy header", 0, 10)?;
    let (length, begin) = match fixed[6] {
        1 => (u64::from(u16::from_le_bytes([fixed[8], fixed[9]])), 10),
        2 | 3 => {
            let long = part(bytes, "a .npy header", 8, 4)?;
            (u64::from(u32::from_le_bytes([long[0], long[1], long[2], long[3]])), 12)
        }
        version => {
            return Err(FormatError::unsupported("this version of .npy", format!("{version}, known are 1 to 3")));
        }
    };
    if length > MAX_HEADER {
        return Err(FormatError::TooMuch { what: "bytes of a .npy header", found: length, limit: MAX_HEADER });
    }
    let text = part(bytes, "a .npy header", begin, length)?;
    let wrong = |found: &str| FormatError::malformed("a .npy header", begin as usize, found);
    let text = String::from_utf8(text.to_vec()).map_err(|error| wrong(&error.to_string()))?;
    let Literal::Dict(pairs) = python_literal::parse(&text).map_err(|found| wrong(&found))? else {
        return Err(wrong("it is not a dict"));
    };
    let get = |name: &str| {
        let found = pairs.iter().find(|(key, _)| key == name).map(|(_, value)| value);
        found.ok_or_else(|| wrong(&format!("no `{name}`")))
    };
    let (dtype, is_big_endian) = match get("descr")? {
        Literal::Text(descr) => dtype_of(descr)?,
        _ => return Err(FormatError::unsupported("an array of records", "descr is a list of fields")),
    };
    let Literal::Bool(is_fortran) = *get("fortran_order")? else { return Err(wrong("`fortran_order` is not a bool")) };
    let Literal::Tuple(sizes) = get("shape")? else { return Err(wrong("`shape` is not a tuple")) };
    let sizes: Option<Vec<i64>> =
        sizes.iter().map(|size| if let Literal::Int(size) = size { Some(*size) } else { None }).collect();
    let shape = Shape::new(&sizes.ok_or_else(|| wrong("`shape` has an entry that is not a number"))?)?;
    Ok((Header { dtype, is_big_endian, is_fortran, shape }, begin + length))
}

/// The dtype of a `descr` such as `<f4`, and whether its byte order must be reversed.
pub(super) fn dtype_of(descr: &str) -> Result<(Dtype, bool), FormatError> {
    let code = descr.get(1..).unwrap_or_default();
    let dtype = dtype_called(|dtype| numpy_descr(dtype)?.get(1..), code).ok_or_else(|| match code {
        "O" => FormatError::unsupported("an array of Python objects", "it is a pickle, which is not executed"),
        _ => FormatError::unsupported("an array of this dtype", format!("descr {descr:?}")),
    })?;
    match descr.as_bytes()[0] {
        b'<' | b'|' => Ok((dtype, false)),
        b'>' => Ok((dtype, true)),
        _ => Err(FormatError::unsupported("an array of this byte order", format!("descr {descr:?}"))),
    }
}
