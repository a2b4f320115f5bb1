//! Writes a call's values. No value makes this fail: one that cannot be described is written as `null`.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyList, PyTuple};
use trainmon_capture::{LaterValue, Peer, Values};

use crate::capture::kinds::ValueKind;
use crate::capture::shared::Active;
use crate::capture::tensors;
use crate::discard_error::discard;
use crate::tensor::{Tracked, class_name};

/// The maximum depth of nested containers: the limit of the format, and safe for the stack.
const DEEPEST: usize = 160;

/// The maximum number of values of one call: a list may contain itself, or be a data set.
const MOST_VALUES: usize = 100_000;

/// A walk through the values of a call.
pub(crate) struct Walk<'w, 'v, 's> {
    active: &'w Active,
    tracked: Tracked,
    to: &'v mut Values<'s>,
    /// The containers around the current value: one that contains itself is not entered again.
    inside: Vec<usize>,
    left: usize,
}

impl<'w, 'v, 's> Walk<'w, 'v, 's> {
    /// Creates a walk through a program's values. Reading their attributes must call no mode.
    pub(crate) fn new(active: &'w Active, to: &'v mut Values<'s>) -> Self {
        Self { active, tracked: Tracked::Yes, to, inside: Vec::new(), left: MOST_VALUES }
    }

    /// Treats the values as those of a dispatcher operator, below autograd, if `is_below`.
    pub(crate) fn below_autograd(mut self, is_below: bool) -> Self {
        if is_below {
            self.tracked = Tracked::Unknown;
        }
        self
    }

    /// Writes a tuple as a list.
    pub(crate) fn list(&mut self, values: &Bound<'_, PyTuple>) {
        self.to.begin_list();
        for value in values.iter_borrowed() {
            self.value(&value);
        }
        self.to.end_list();
    }

    /// Like [`list`](Self::list); values at positions for which `is_hidden` returns true are `null`.
    pub(crate) fn list_without(&mut self, values: &Bound<'_, PyTuple>, is_hidden: impl Fn(usize) -> bool) {
        self.to.begin_list();
        for (place, value) in values.iter_borrowed().enumerate() {
            if is_hidden(place) {
                self.to.null();
            } else {
                self.value(&value);
            }
        }
        self.to.end_list();
    }

    /// Writes the result of a call as a list: the items of a tuple, or the only value.
    pub(crate) fn output(&mut self, value: &Bound<'_, PyAny>) {
        if let Ok(values) = value.cast::<PyTuple>()
            && self.active.kinds.of(value) == ValueKind::Sequence
        {
            self.list(values);
        } else if let Ok(values) = value.cast_exact::<PyList>() {
            self.sequence(values.as_any());
        } else {
            self.to.begin_list();
            self.value(value);
            self.to.end_list();
        }
    }

    /// Writes keyword arguments as an object.
    pub(crate) fn keywords(&mut self, values: Option<&Bound<'_, PyDict>>) {
        self.keywords_without(values, |_| false);
    }

    /// Like [`keywords`](Self::keywords); values of keys for which `is_hidden` returns true are `null`.
    pub(crate) fn keywords_without(&mut self, values: Option<&Bound<'_, PyDict>>, is_hidden: impl Fn(&str) -> bool) {
        self.to.begin_object();
        if let Some(values) = values {
            self.entries(values, is_hidden);
        }
        self.to.end_object();
    }

    /// Writes an object of the values that are not None: a module without a bias has no `bias`.
    pub(crate) fn present(&mut self, values: &Bound<'_, PyDict>) {
        self.to.begin_object();
        for (key, value) in values.iter().filter(|(_, value)| !value.is_none()) {
            let Ok(key) = key.str() else { continue };
            self.to.key(&key.to_string_lossy());
            self.value(&value);
        }
        self.to.end_object();
    }

    fn entries(&mut self, values: &Bound<'_, PyDict>, is_hidden: impl Fn(&str) -> bool) {
        for (key, value) in values.iter() {
            // A key may be any object; its text is the name.
            let Ok(key) = key.str() else { continue };
            let key = key.to_string_lossy();
            self.to.key(&key);
            if is_hidden(&key) {
                self.to.null();
            } else {
                self.value(&value);
            }
        }
    }

    /// Writes one value.
    pub(crate) fn value(&mut self, value: &Bound<'_, PyAny>) {
        if self.left == 0 {
            return self.to.null();
        }
        self.left -= 1;
        let py = value.py();
        let kind = self.active.kinds.of(value);
        let written = match kind {
            ValueKind::Tensor => {
                tensors::write(self.active, value, self.tracked, self.to);
                Ok(())
            }
            ValueKind::None | ValueKind::Other => {
                self.to.null();
                Ok(())
            }
            ValueKind::Sequence | ValueKind::NamedTuple | ValueKind::Mapping | ValueKind::DataClass => {
                self.container(value, kind);
                Ok(())
            }
            ValueKind::NdArray => {
                tensors::write_array(self.active, value, self.to);
                Ok(())
            }
            _ => self.plain(value, kind),
        };
        if let Err(error) = written {
            discard(py, error);
            self.to.null();
        }
    }

    /// Writes a value without inner values. Writes exactly one, or fails before writing anything.
    fn plain(&mut self, value: &Bound<'_, PyAny>, kind: ValueKind) -> PyResult<()> {
        let py = value.py();
        match kind {
            ValueKind::Bool => self.to.bool("bool", value.is_truthy()?),
            ValueKind::Int => match value.extract::<i64>() {
                Ok(number) => self.to.int(&class_name(value), number),
                Err(too_large) => {
                    discard(py, too_large);
                    let digits = py.get_type::<PyInt>().call_method1(intern!(py, "__repr__"), (value,))?;
                    self.to.big_int(&class_name(value), digits.extract()?);
                }
            },
            ValueKind::Float => self.to.float(&class_name(value), value.extract()?),
            ValueKind::Str => self.to.text(&class_name(value), &value.str()?.to_string_lossy()),
            ValueKind::Slice => {
                let end = |name: &str| -> PyResult<Option<i64>> { Ok(index_of(&value.getattr(name)?)) };
                self.to.slice([end("start")?, end("stop")?, end("step")?]);
            }
            ValueKind::Ellipsis => self.to.ellipsis(),
            ValueKind::Size => self.to.size(&value.extract::<Vec<i64>>()?),
            ValueKind::Dtype => self.to.text("torch.dtype", &value.str()?.to_string_lossy()),
            ValueKind::Device => self.to.text("torch.device", &value.str()?.to_string_lossy()),
            ValueKind::MemoryFormat => {
                let name = value.str()?.to_string_lossy().into_owned();
                self.to.memory_format(name.rsplit('.').next().unwrap_or_default());
            }
            ValueKind::ReduceOp => self.to.text("torch.distributed.ReduceOp", &reduce_op(value)?),
            ValueKind::ProcessGroup => self.to.process_group(&group_ranks(value)?),
            ValueKind::P2pOp => return self.peer_operation(value),
            ValueKind::NumpyScalar => self.numpy_scalar(value)?,
            _ => self.to.null(),
        }
        Ok(())
    }

    fn container(&mut self, value: &Bound<'_, PyAny>, kind: ValueKind) {
        let address = value.as_ptr() as usize;
        if self.inside.len() == DEEPEST || self.inside.contains(&address) {
            return self.to.null();
        }
        self.inside.push(address);
        if kind == ValueKind::Sequence {
            self.sequence(value);
        } else {
            self.object(value, kind);
        }
        self.inside.pop();
    }

    fn object(&mut self, value: &Bound<'_, PyAny>, kind: ValueKind) {
        let py = value.py();
        let entries = match kind {
            ValueKind::NamedTuple => value.call_method0(intern!(py, "_asdict")),
            ValueKind::DataClass => fields_of(value),
            _ => Ok(value.clone()),
        };
        let entries = entries.and_then(|entries| {
            // Copied, because the walk may run the host's code, which may change the dictionary.
            let copy = PyDict::new(py);
            copy.call_method1(intern!(py, "update"), (entries,))?;
            Ok(copy)
        });
        self.to.begin_object();
        match entries {
            Ok(entries) => self.entries(&entries, |_| false),
            Err(error) => discard(py, error),
        }
        self.to.end_object();
    }

    fn sequence(&mut self, value: &Bound<'_, PyAny>) {
        self.to.begin_list();
        if let Ok(values) = value.cast::<PyTuple>() {
            for value in values.iter_borrowed() {
                self.value(&value);
            }
        } else if let Ok(values) = value.cast::<PyList>() {
            for value in values.iter() {
                self.value(&value);
            }
        }
        self.to.end_list();
    }

    /// Writes the value's containers, with `null` for non-tensors and a slot for each tensor.
    pub(crate) fn places<'py>(
        &mut self,
        value: &Bound<'py, PyAny>,
        found: &mut dyn FnMut(&Bound<'py, PyAny>, LaterValue),
    ) {
        let address = value.as_ptr() as usize;
        if self.inside.len() == DEEPEST {
            return self.to.null();
        }
        match self.active.kinds.of(value) {
            ValueKind::Tensor => {
                let place = self.to.later();
                found(value, place);
            }
            ValueKind::Sequence | ValueKind::NamedTuple if !self.inside.contains(&address) => {
                self.inside.push(address);
                self.to.begin_list();
                for item in value.try_iter().into_iter().flatten().flatten() {
                    self.places(&item, found);
                }
                self.to.end_list();
                self.inside.pop();
            }
            ValueKind::Mapping if !self.inside.contains(&address) => {
                self.inside.push(address);
                self.to.begin_object();
                if let Ok(values) = value.cast::<PyDict>() {
                    for (key, item) in values.iter() {
                        self.to.key(&key.str().map(|key| key.to_string_lossy().into_owned()).unwrap_or_default());
                        self.places(&item, found);
                    }
                }
                self.to.end_object();
                self.inside.pop();
            }
            _ => self.to.null(),
        }
    }

    fn numpy_scalar(&mut self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = value.py();
        let kind = class_name(value);
        let plain = value.call_method0(intern!(py, "item"))?;
        match self.active.kinds.of(&plain) {
            ValueKind::Bool => self.to.bool(&kind, plain.is_truthy()?),
            ValueKind::Int => match plain.extract::<i64>() {
                Ok(number) => self.to.int(&kind, number),
                Err(too_large) => {
                    discard(py, too_large);
                    self.to.big_int(&kind, &plain.str()?.to_string_lossy());
                }
            },
            ValueKind::Float => self.to.float(&kind, plain.extract()?),
            // Complex numbers, dates, raw bytes.
            _ => self.to.text(&kind, &value.str()?.to_string_lossy()),
        }
        Ok(())
    }

    fn peer_operation(&mut self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = value.py();
        let operation = value.getattr(intern!(py, "op"))?.getattr(intern!(py, "__name__"))?.to_string();
        let rank = value.getattr(intern!(py, "peer"))?.extract()?;
        let tag = value.getattr(intern!(py, "tag"))?.extract()?;
        let group = value.getattr(intern!(py, "group"))?;
        let group = if group.is_none() { all_ranks(py)? } else { group_ranks(&group)? };
        let peer = Peer { operation: &operation, rank, tag, group: &group };
        tensors::write_peer(self.active, &peer, &value.getattr(intern!(py, "tensor"))?, self.tracked, self.to);
        Ok(())
    }
}

/// Returns a slice's bound: an integer, or an object that represents one (a numpy integer, a tensor of one element).
fn index_of(value: &Bound<'_, PyAny>) -> Option<i64> {
    if value.is_none() {
        return None;
    }
    let index = value.extract::<i64>().or_else(|_not_an_index| value.call_method0("item")?.extract::<i64>());
    index.map_err(|error| discard(value.py(), error)).ok()
}

fn fields_of<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = value.py();
    let fields = PyDict::new(py);
    for name in value.getattr(intern!(py, "__dataclass_fields__"))?.try_iter()? {
        let name = name?;
        if let Some(value) = value.getattr_opt(name.cast::<pyo3::types::PyString>()?)? {
            fields.set_item(name, value)?;
        }
    }
    Ok(fields.into_any())
}

/// Returns `RedOpType.SUM`, for example, for the wrapper (`ReduceOp`) and the wrapped enum.
fn reduce_op(value: &Bound<'_, PyAny>) -> PyResult<String> {
    let text = value.str()?.to_string_lossy().into_owned();
    if text.starts_with('<') {
        // The text of the wrapper contains only its address.
        return Ok(value.getattr("op")?.str()?.to_string_lossy().into_owned());
    }
    Ok(text)
}

fn group_ranks(group: &Bound<'_, PyAny>) -> PyResult<Vec<u64>> {
    let distributed = group.py().import("torch.distributed")?;
    distributed.call_method1("get_process_group_ranks", (group,))?.extract()
}

fn all_ranks(py: Python<'_>) -> PyResult<Vec<u64>> {
    let world: u64 = py.import("torch.distributed")?.call_method0("get_world_size")?.extract()?;
    Ok((0..world).collect())
}
