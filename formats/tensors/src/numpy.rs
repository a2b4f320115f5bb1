//! Interprets, without executing them, the calls by which pickles build numpy's arrays and scalars, and Python's bytes.

use std::borrow::Cow;

use trainmon_core::{Dtype, Shape};

use super::error::FormatError;
use super::npy;
use super::pickle::{Item, Kind};
use super::stored::StoredTensor;

/// The largest nesting, for example `bytearray(bytes(...))`; real files have no more, and a pickle may contain itself.
const MAX_WRAPPERS: usize = 4;

/// An array whose elements are in the pickle.
pub(super) struct Array<'a> {
    pub(super) dtype: Dtype,
    pub(super) shape: Shape,
    is_big_endian: bool,
    is_fortran: bool,
    elements: Item<'a>,
    /// The number of pickle bytes examined to detect this, if it is large.
    pub(super) scanned: u64,
}

/// The array, or why it cannot be read; `None` if the item is not one. Bytes are an array of `uint8`. An array of
/// Python objects is a container instead.
pub(super) fn array_of(item: Item<'_>) -> Option<Result<Array<'_>, FormatError>> {
    if let Some(bytes) = Bytes::of(item, 0) {
        return Some(Array::of_bytes(item, &bytes));
    }
    let (module, name) = item.class()?;
    match (module, name) {
        ("numpy.core.multiarray" | "numpy._core.multiarray", "_reconstruct") => reconstructed(item),
        ("numpy.core.multiarray" | "numpy._core.multiarray", "scalar") => scalar(item.args()?),
        ("numpy.core.numeric" | "numpy._core.numeric", "_frombuffer") => Some(from_buffer(item.args()?)),
        ("numpy.ma" | "numpy.ma.core", "_mareconstruct") => Some(Err(unsupported(&format!("{module}.{name}")))),
        _ => None,
    }
}

/// `_reconstruct(class, (0,), b'b')`, filled with `([version,] shape, dtype, is_fortran, elements)`.
fn reconstructed(item: Item<'_>) -> Option<Result<Array<'_>, FormatError>> {
    let Some(state) = item.state() else { return Some(Err(wrong("it has no state"))) };
    let parts: Vec<Item<'_>> = state.items().take(6).collect();
    let ([_, shape, dtype, is_fortran, elements] | [shape, dtype, is_fortran, elements]) = parts[..] else {
        return Some(Err(wrong("its state has other parts")));
    };
    if elements.kind() == Kind::List {
        return None;
    }
    Some(made(shape, dtype, is_fortran.as_bool() == Some(true), elements))
}

/// `scalar(dtype, elements)`; for a Python object, the object itself.
fn scalar(args: Item<'_>) -> Option<Result<Array<'_>, FormatError>> {
    let mut args = args.items();
    let (dtype, elements) = (args.next()?, args.next()?);
    let scanned = Bytes::in_numpy(elements)?.scanned();
    let made = dtype_of(dtype).and_then(|(dtype, is_big_endian)| {
        Ok(Array { dtype, shape: Shape::new(&[])?, is_big_endian, is_fortran: false, elements, scanned })
    });
    Some(made)
}

/// `_frombuffer(elements, dtype, shape, order)`.
fn from_buffer(args: Item<'_>) -> Result<Array<'_>, FormatError> {
    let parts: Vec<Item<'_>> = args.items().take(5).collect();
    let [elements, dtype, shape, order] = parts[..] else { return Err(wrong("other arguments")) };
    made(shape, dtype, order.as_text() == Some("F"), elements)
}

fn made<'a>(shape: Item<'_>, dtype: Item<'_>, is_fortran: bool, elements: Item<'a>) -> Result<Array<'a>, FormatError> {
    let (dtype, is_big_endian) = dtype_of(dtype)?;
    let sizes: Option<Vec<i64>> = shape.items().map(Item::as_int).collect();
    let shape = Shape::new(&sizes.ok_or_else(|| wrong("its sizes are not numbers"))?)?;
    Ok(Array { dtype, shape, is_big_endian, is_fortran, elements, scanned: 0 })
}

/// `dtype('f4', False, True)`, filled with `(version, byte order, subarray, names of fields, …)`.
fn dtype_of(item: Item<'_>) -> Result<(Dtype, bool), FormatError> {
    let code = item.args().and_then(|args| args.items().next());
    let (Some(("numpy", "dtype")), Some(code)) = (item.class(), code) else {
        return Err(wrong("its dtype is not a dtype"));
    };
    let code = match code.kind() {
        Kind::Text(code) => Cow::Borrowed(code),
        Kind::Bytes(code) => String::from_utf8_lossy(code),
        Kind::Global { module, name } => return Err(unsupported(&format!("{module}.{name}"))),
        _ => return Err(wrong("its dtype has no name")),
    };
    let state: Vec<Item<'_>> = item.state().into_iter().flat_map(Item::items).take(4).collect();
    if state.iter().skip(2).any(|part| part.kind() != Kind::None) {
        return Err(unsupported("an array of records"));
    }
    let order = state.get(1).and_then(|order| order.as_text()).unwrap_or("|");
    npy::dtype_of(&format!("{order}{code}"))
}

impl<'a> Array<'a> {
    fn of_bytes(elements: Item<'a>, bytes: &Bytes<'_>) -> Result<Self, FormatError> {
        let shape = Shape::new(&[i64::try_from(bytes.len()).unwrap_or(i64::MAX)])?;
        let scanned = bytes.scanned();
        Ok(Self { dtype: Dtype::U8, shape, is_big_endian: false, is_fortran: false, elements, scanned })
    }

    /// The elements, copied.
    pub(super) fn read(&self) -> Result<StoredTensor, FormatError> {
        let bytes = Bytes::in_numpy(self.elements).ok_or_else(|| wrong("its elements are not bytes"))?;
        let bytes = bytes.to_vec().into();
        npy::row_major(self.dtype, self.is_big_endian, self.is_fortran, self.shape, bytes)
    }
}

/// Bytes in the forms that pickles have for them.
enum Bytes<'a> {
    Plain(&'a [u8]),
    /// Protocol 2 has no bytes in Python 3: each byte is a character of this text.
    Characters(&'a str),
}

impl<'a> Bytes<'a> {
    fn of(item: Item<'a>, wrappers: usize) -> Option<Self> {
        if let Kind::Bytes(bytes) = item.kind() {
            return Some(Self::Plain(bytes));
        }
        let (module, name) = item.class()?;
        let mut args = item.args()?.items();
        let first = args.next();
        let is_latin = args.next().and_then(Item::as_text).is_some_and(is_latin);
        let characters = first.and_then(Item::as_text).filter(|text| is_latin && text.chars().all(|it| it <= '\u{ff}'));
        match (module, name) {
            ("_codecs", "encode") => characters.map(Self::Characters),
            ("builtins" | "__builtin__", "bytes" | "bytearray") => match first {
                None => Some(Self::Plain(&[])),
                Some(_) if characters.is_some() => characters.map(Self::Characters),
                Some(inner) if wrappers < MAX_WRAPPERS => Self::of(inner, wrappers + 1),
                Some(_) => None,
            },
            _ => None,
        }
    }

    /// Bytes in numpy's form, including Python 2, whose strings are both bytes and text.
    fn in_numpy(item: Item<'a>) -> Option<Self> {
        item.as_text().map(|text| Self::Plain(text.as_bytes())).or_else(|| Self::of(item, 0))
    }

    fn len(&self) -> usize {
        match self {
            Self::Plain(bytes) => bytes.len(),
            Self::Characters(text) => text.chars().count(),
        }
    }

    fn scanned(&self) -> u64 {
        if let Self::Characters(text) = self { text.len() as u64 } else { 0 }
    }

    fn to_vec(&self) -> Vec<u8> {
        match self {
            Self::Plain(bytes) => bytes.to_vec(),
            Self::Characters(text) => text.chars().map(|it| it as u8).collect(),
        }
    }
}

fn is_latin(encoding: &str) -> bool {
    matches!(encoding, "latin1" | "latin-1" | "iso-8859-1")
}

fn wrong(found: &str) -> FormatError {
    FormatError::malformed("an array of numpy", 0, found)
}

fn unsupported(found: &str) -> FormatError {
    FormatError::unsupported("an array of this kind", found)
}
