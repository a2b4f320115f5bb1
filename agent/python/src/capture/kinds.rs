//! The kind of a value, determined from its class and cached: each value of a call needs it.

use std::collections::HashMap;

use parking_lot::Mutex;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::discard_error::discard;

/// The form in which values of a class are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueKind {
    /// A tensor, or a subclass of one.
    Tensor,
    None,
    Bool,
    Int,
    Float,
    Str,
    /// A list, a tuple, or a subclass of either; written as its items in order.
    Sequence,
    /// `torch.Size`.
    Size,
    /// A tuple with field names.
    NamedTuple,
    /// An instance of a data class.
    DataClass,
    Mapping,
    Slice,
    Ellipsis,
    Dtype,
    Device,
    MemoryFormat,
    ReduceOp,
    ProcessGroup,
    P2pOp,
    NumpyScalar,
    NdArray,
    /// A value that a dump cannot contain.
    Other,
}

/// The kinds of the classes seen so far. Holds the classes, so that an address is never reused.
#[derive(Default)]
pub(crate) struct Kinds(Mutex<HashMap<usize, (ValueKind, Py<PyType>), foldhash::fast::RandomState>>);

impl Kinds {
    /// Returns the kind of a value. Cost: one look-up, except for the first value of a class.
    pub(crate) fn of(&self, value: &Bound<'_, PyAny>) -> ValueKind {
        let class = value.get_type();
        let address = class.as_ptr() as usize;
        if let Some((kind, _)) = self.0.lock().get(&address) {
            return *kind;
        }
        // Outside the lock, because this may run foreign code.
        let kind = classify(&class).unwrap_or_else(|error| {
            discard(value.py(), error);
            ValueKind::Other
        });
        self.0.lock().insert(address, (kind, class.unbind()));
        kind
    }
}

/// The kinds by module and class, more specific classes first.
const CLASSES: [(&str, &str, ValueKind); 20] = [
    ("torch", "Tensor", ValueKind::Tensor),
    ("builtins", "bool", ValueKind::Bool),
    ("numpy", "generic", ValueKind::NumpyScalar),
    ("numpy", "ndarray", ValueKind::NdArray),
    ("builtins", "int", ValueKind::Int),
    ("builtins", "float", ValueKind::Float),
    ("builtins", "str", ValueKind::Str),
    ("torch", "Size", ValueKind::Size),
    ("builtins", "list", ValueKind::Sequence),
    ("builtins", "tuple", ValueKind::Sequence),
    ("builtins", "dict", ValueKind::Mapping),
    ("collections.abc", "Mapping", ValueKind::Mapping),
    ("builtins", "slice", ValueKind::Slice),
    ("torch", "dtype", ValueKind::Dtype),
    ("torch", "device", ValueKind::Device),
    ("torch", "memory_format", ValueKind::MemoryFormat),
    ("torch.distributed", "ReduceOp", ValueKind::ReduceOp),
    ("torch.distributed", "ProcessGroup", ValueKind::ProcessGroup),
    ("torch.distributed", "P2POp", ValueKind::P2pOp),
    ("types", "EllipsisType", ValueKind::Ellipsis),
];

fn classify(class: &Bound<'_, PyType>) -> PyResult<ValueKind> {
    let py = class.py();
    if class.is(py.None().bind(py).get_type()) {
        return Ok(ValueKind::None);
    }
    if class.is(py.Ellipsis().bind(py).get_type()) {
        return Ok(ValueKind::Ellipsis);
    }
    let modules = py.import("sys")?.getattr("modules")?;
    for (module, name, kind) in CLASSES {
        // Nothing is imported here: the class of a value exists only if its module was imported.
        let module = modules.call_method1(intern!(py, "get"), (module,))?;
        let Some(of) = module.getattr_opt(name)? else { continue };
        let Ok(of) = of.cast::<PyType>() else { continue };
        if class.is_subclass(of)? {
            let has_fields = kind == ValueKind::Sequence && class.hasattr(intern!(py, "_fields"))?;
            return Ok(if has_fields { ValueKind::NamedTuple } else { kind });
        }
    }
    if class.name()? == "RedOpType" {
        return Ok(ValueKind::ReduceOp);
    }
    Ok(if class.hasattr(intern!(py, "__dataclass_fields__"))? { ValueKind::DataClass } else { ValueKind::Other })
}
