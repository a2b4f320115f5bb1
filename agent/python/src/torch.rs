//! Access to torch's objects. This module never imports torch: a process with a tensor has imported it.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use trainmon_agent::core::Dtype;

use crate::discard_error::discard;

/// Torch's objects, looked up once per process; they live as long as torch.
pub(crate) struct Torch {
    tensor: Py<PyType>,
    parameter: Py<PyType>,
    strided: Py<PyAny>,
    /// The `__torch_dispatch__` of classes that do not wrap other tensors.
    no_dispatch: Py<PyAny>,
    /// The context manager in which no `__torch_function__` is called.
    quiet: Py<PyAny>,
    /// Returns whether a `TorchFunctionMode` of the host is on, which every attribute access would call.
    mode_is_on: Py<PyAny>,
    dtypes: Vec<(Py<PyAny>, Dtype)>,
    /// `None` if torch does not expose its dispatch keys as numbers (2.1).
    dispatch: Option<Dispatch>,
}

/// Access to a tensor's dispatch keys.
struct Dispatch {
    /// `torch._C._dispatch_keys`.
    keys: Py<PyAny>,
    /// The keys of tensors whose memory differs from their values: pending conjugates and negatives.
    pending: u64,
}

/// The ways to read a tensor of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// `torch.Tensor` or `torch.nn.Parameter`: reading an attribute runs no Python code.
    Plain,
    /// A subclass whose memory holds its values, though its attributes may run its own code.
    Subclass,
    /// A subclass with its own dispatch (a `DTensor`, a `FakeTensor`): its memory is another tensor's, or does not
    /// exist.
    Wrapper,
    /// Not a tensor.
    Foreign,
}

static TORCH: PyOnceLock<Torch> = PyOnceLock::new();

impl Dispatch {
    fn of(internals: &Bound<'_, PyAny>) -> PyResult<Self> {
        let bits_of = |key: &str| -> PyResult<u64> {
            let key = internals.getattr("DispatchKey")?.getattr(key)?;
            internals.getattr("DispatchKeySet")?.call1((key,))?.call_method0("raw_repr")?.extract()
        };
        let pending = bits_of("Conjugate")? | bits_of("Negative")?;
        Ok(Self { keys: internals.getattr("_dispatch_keys")?.unbind(), pending })
    }
}

impl Torch {
    /// Returns torch, if this process has imported it.
    pub(crate) fn loaded(py: Python<'_>) -> PyResult<Option<&'static Self>> {
        if let Some(torch) = TORCH.get(py) {
            return Ok(Some(torch));
        }
        let modules = py.import("sys")?.getattr("modules")?;
        match modules.call_method1("get", ("torch",))? {
            none if none.is_none() => Ok(None),
            module => TORCH.get_or_try_init(py, || Self::of(&module)).map(Some),
        }
    }

    fn of(module: &Bound<'_, PyAny>) -> PyResult<Self> {
        let internals = module.getattr("_C")?;
        let tensor = module.getattr("Tensor")?.cast_into::<PyType>()?;
        // Torch has no attributes for types that it was built without.
        let dtypes = Dtype::ALL.into_iter().filter_map(|dtype| {
            let name = dtype.torch_name().trim_start_matches("torch.");
            Some((module.getattr(name).ok()?.unbind(), dtype))
        });
        Ok(Self {
            dispatch: Dispatch::of(&internals).map_err(|error| discard(module.py(), error)).ok(),
            no_dispatch: tensor.getattr("__torch_dispatch__")?.unbind(),
            tensor: tensor.unbind(),
            parameter: module.getattr("nn")?.getattr("Parameter")?.cast_into::<PyType>()?.unbind(),
            strided: module.getattr("strided")?.unbind(),
            quiet: internals.getattr("DisableTorchFunction")?.unbind(),
            mode_is_on: internals.getattr("_is_torch_function_mode_enabled")?.unbind(),
            dtypes: dtypes.collect(),
        })
    }

    /// Returns the class `torch.Tensor`.
    pub(crate) fn tensor<'py>(&self, py: Python<'py>) -> &Bound<'py, PyType> {
        self.tensor.bind(py)
    }

    /// Whether an object is a tensor of torch's own classes.
    pub(crate) fn is_plain(&self, object: &Bound<'_, PyAny>) -> bool {
        let class = object.get_type_ptr();
        class == self.tensor.as_ptr().cast() || class == self.parameter.as_ptr().cast()
    }

    /// Returns the class of an object, which determines how to read it.
    pub(crate) fn class_of(&self, object: &Bound<'_, PyAny>) -> PyResult<Class> {
        if self.is_plain(object) {
            return Ok(Class::Plain);
        }
        let (py, class) = (object.py(), object.get_type());
        if !class.is_subclass(self.tensor.bind(py))? {
            return Ok(Class::Foreign);
        }
        let dispatch = class.getattr(intern!(py, "__torch_dispatch__"))?;
        Ok(if dispatch.is(&self.no_dispatch) { Class::Subclass } else { Class::Wrapper })
    }

    /// Runs `body` so that reading attributes calls no `__torch_function__`.
    pub(crate) fn quietly<R>(&self, py: Python<'_>, class: Class, body: impl FnOnce() -> PyResult<R>) -> PyResult<R> {
        if class == Class::Plain && !self.mode_is_on.bind(py).call0()?.is_truthy()? {
            return body();
        }
        let quiet = self.quiet.bind(py).call0()?;
        quiet.call_method0(intern!(py, "__enter__"))?;
        let result = body();
        quiet.call_method1(intern!(py, "__exit__"), (py.None(), py.None(), py.None()))?;
        result
    }

    /// Whether the memory holds the conjugate or the negative of the values.
    ///
    /// Uses the dispatch keys if available: `is_neg` releases the interpreter on each call, and another thread may then
    /// hold it for milliseconds.
    pub(crate) fn is_pending(&self, tensor: &Bound<'_, PyAny>) -> PyResult<bool> {
        let py = tensor.py();
        let Some(dispatch) = &self.dispatch else {
            let is_conjugate = tensor.call_method0(intern!(py, "is_conj"))?.is_truthy()?;
            return Ok(is_conjugate || tensor.call_method0(intern!(py, "is_neg"))?.is_truthy()?);
        };
        let keys = dispatch.keys.bind(py).call1((tensor,))?;
        let bits: u64 = keys.call_method0(intern!(py, "raw_repr"))?.extract()?;
        Ok(bits & dispatch.pending != 0)
    }

    /// Whether a layout is that of plain memory.
    pub(crate) fn is_strided(&self, layout: &Bound<'_, PyAny>) -> bool {
        layout.is(&self.strided)
    }

    /// Returns the element type of a `torch.dtype`, if it can be measured.
    pub(crate) fn dtype(&self, dtype: &Bound<'_, PyAny>) -> Option<Dtype> {
        self.dtypes.iter().find(|(known, _)| dtype.is(known)).map(|&(_, dtype)| dtype)
    }
}
