//! Interprets, without executing them, the calls by which torch's pickles build tensors.

use trainmon_core::{Dtype, Shape};

use super::dtype_names::{dtype_called, storage_class};
use super::error::FormatError;
use super::pickle::{Item, Kind};
use super::strided::Strided;

/// The largest nesting: a parameter wraps a tensor, and a subclass wraps that. A pickle may contain itself.
const MAX_WRAPPERS: usize = 8;
/// torch's own limit.
const MAX_SIZES: usize = 64;

/// A tensor: a view into a storage.
pub(super) struct View<'a> {
    /// The storage's key in the file.
    pub(super) key: &'a str,
    /// The storage's size according to the pickle.
    pub(super) storage_bytes: u64,
    pub(super) strided: Strided,
}

/// A storage, as referenced in a pickle.
pub(super) struct Storage<'a> {
    pub(super) key: &'a str,
    /// `None` for a byte storage.
    dtype: Option<Dtype>,
    count: u64,
}

/// The tensor, or why it cannot be read; `None` if the item is not one.
pub(super) fn tensor_of(item: Item<'_>) -> Option<Result<View<'_>, FormatError>> {
    let (module, name) = item.class()?;
    call(module, name, item.args()?, 0)
}

fn call<'a>(module: &str, name: &str, args: Item<'a>, wrappers: usize) -> Option<Result<View<'a>, FormatError>> {
    if wrappers > MAX_WRAPPERS {
        let error =
            FormatError::TooMuch { what: "wrappers of a tensor", found: wrappers as u64, limit: MAX_WRAPPERS as u64 };
        return Some(Err(error));
    }
    let unsupported = || Some(Err(FormatError::unsupported("a tensor of this kind", format!("{module}.{name}"))));
    let mut argument = args.items();
    match (module, name) {
        ("torch._utils", "_rebuild_tensor" | "_rebuild_tensor_v2" | "_rebuild_tensor_v3") => {
            Some(view(args, name == "_rebuild_tensor_v3"))
        }
        (
            "torch._utils",
            "_rebuild_parameter" | "_rebuild_parameter_with_state" | "_rebuild_device_tensor_from_cpu_tensor",
        ) => {
            let inner = argument.next()?;
            match inner.class() {
                Some((module, name)) => call(module, name, inner.args()?, wrappers + 1).or_else(unsupported),
                None => unsupported(),
            }
        }
        // A subclass, or a tensor with attributes: the function, the class, the function's arguments, the attributes.
        ("torch._tensor", "_rebuild_from_type" | "_rebuild_from_type_v2") => {
            let (function, inner) = (argument.next()?, argument.nth(1)?);
            match function.kind() {
                Kind::Global { module, name } => call(module, name, inner, wrappers + 1).or_else(unsupported),
                _ => unsupported(),
            }
        }
        ("torch._utils" | "torch._tensor", name) if name.starts_with("_rebuild_") => unsupported(),
        _ => None,
    }
}

/// `(storage, offset, sizes, strides, requires_grad, hooks, [dtype in v3,] [marks])`
fn view(args: Item<'_>, has_dtype: bool) -> Result<View<'_>, FormatError> {
    let wrong = |found: &str| FormatError::malformed("a tensor", 0, found);
    let arguments: Vec<Item<'_>> = args.items().take(8).collect();
    let [storage, offset, sizes, strides, ..] = arguments[..] else { return Err(wrong("too few arguments")) };
    let storage = Storage::of(storage).ok_or_else(|| wrong("its storage is not a storage"))??;
    let dtype = if has_dtype {
        let named = arguments.get(6).ok_or_else(|| wrong("no dtype"))?;
        match named.kind() {
            Kind::Global { module: "torch", name } => Dtype::from_torch_name(name)
                .ok_or_else(|| FormatError::unsupported("a tensor of this dtype", format!("torch.{name}")))?,
            other => return Err(wrong(&format!("its dtype is {other:?}"))),
        }
    } else {
        storage.dtype.ok_or_else(|| wrong("its storage has no dtype"))?
    };
    // Marks of conjugation and negation, which torch applies when it reads the elements.
    if let Some(marks) = arguments.get(6 + usize::from(has_dtype))
        && let Some((mark, _)) = marks.pairs().find(|(_, value)| value.as_bool() == Some(true))
    {
        return Err(FormatError::unsupported(
            "a tensor with lazy conjugation or negation",
            format!("mark {:?}", mark.kind()),
        ));
    }
    let numbers = |item: Item<'_>, what: &str| -> Result<Vec<i64>, FormatError> {
        if item.items().len() > MAX_SIZES {
            return Err(wrong(&format!("{} {what}", item.items().len())));
        }
        let numbers: Option<Vec<i64>> = size_tuple(item).items().map(Item::as_int).collect();
        numbers.ok_or_else(|| wrong(&format!("its {what} are not numbers")))
    };
    let shape = Shape::new(&numbers(sizes, "sizes")?)?;
    let strides = numbers(strides, "strides")?;
    let offset = offset.as_int().and_then(|offset| u64::try_from(offset).ok());
    let offset = offset.ok_or_else(|| wrong("its offset is not a number"))?;
    let storage_bytes = storage.count.saturating_mul(storage.width());
    let strided = Strided { dtype, shape, strides, offset };
    Ok(View { key: storage.key, storage_bytes, strided })
}

/// `torch.Size((2, 3))` is a call in a pickle.
fn size_tuple(item: Item<'_>) -> Item<'_> {
    let inner = item.args().and_then(|args| args.items().next());
    inner.filter(|_| item.class() == Some(("torch", "Size"))).unwrap_or(item)
}

impl<'a> Storage<'a> {
    /// The storage that a persistent reference names: `("storage", class, key, device, count)`, in old files with the
    /// storage it is a view of. `None` if it does not reference a storage.
    pub(super) fn of(item: Item<'a>) -> Option<Result<Self, FormatError>> {
        let parts: Vec<Item<'a>> = item.persistent()?.items().take(6).collect();
        if parts.first()?.as_text() != Some("storage") {
            return None;
        }
        Some(Self::of_parts(&parts))
    }

    fn of_parts(parts: &[Item<'a>]) -> Result<Self, FormatError> {
        let wrong = |found: &str| FormatError::malformed("a reference to a storage", 0, found);
        let [_, class, key, _, count, rest @ ..] = parts else { return Err(wrong("too few parts")) };
        if rest.first().is_some_and(|view| view.kind() != Kind::None) {
            return Err(FormatError::unsupported("a storage that is a view of another", "torch before 0.4"));
        }
        let key = key.as_text().ok_or_else(|| wrong("its key is not a string"))?;
        let count = count.as_int().and_then(|count| u64::try_from(count).ok());
        let count = count.ok_or_else(|| wrong("its size is not a number"))?;
        let Kind::Global { name, .. } = class.kind() else { return Err(wrong("its class is not a class")) };
        let dtype = match name {
            "UntypedStorage" => None,
            name => Some(
                dtype_called(storage_class, name)
                    .ok_or_else(|| FormatError::unsupported("a storage of this class", name.to_owned()))?,
            ),
        };
        Ok(Self { key, dtype, count })
    }

    /// A view of all its elements.
    pub(super) fn into_view(self) -> Result<View<'a>, FormatError> {
        let storage_bytes = self.count.saturating_mul(self.width());
        let shape = Shape::new(&[i64::try_from(self.count).unwrap_or(i64::MAX)])?;
        let strided = Strided { dtype: self.dtype.unwrap_or(Dtype::U8), shape, strides: vec![1], offset: 0 };
        Ok(View { key: self.key, storage_bytes, strided })
    }

    /// The bytes per unit of its size.
    pub(super) fn width(&self) -> u64 {
        self.dtype.map_or(1, |dtype| dtype.size() as u64)
    }
}

/// The key of a referenced storage and the bytes per unit of its size, also for unsupported classes.
pub(super) fn key_and_width(item: Item<'_>) -> Option<(&str, u64)> {
    let mut parts = item.persistent()?.items();
    let is_storage = parts.next()?.as_text() == Some("storage");
    let (class, key) = (parts.next()?, parts.next()?.as_text()?);
    let Kind::Global { name, .. } = class.kind() else { return None };
    let width = match name {
        "UntypedStorage" | "QInt8Storage" | "QUInt8Storage" | "QUInt4x2Storage" | "QUInt2x4Storage" => 1,
        "QInt32Storage" => 4,
        name => dtype_called(storage_class, name)?.size() as u64,
    };
    is_storage.then_some((key, width))
}
