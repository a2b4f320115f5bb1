//! The tensors of a call: their positions and sizes.

use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};
use trainmon_agent::core::{CollectiveOp, Dtype, MAX_DIMS, Shape};
use trainmon_agent::stacked_shape;

use crate::torch::{Class, Torch};

/// The maximum depth of arguments: lists of lists of tensors.
const DEEPEST: usize = 3;

/// The form of a method's arguments.
pub(super) struct Form {
    pub(super) what: What,
    inputs: Option<usize>,
    outputs: Option<usize>,
    /// Names of the arguments by position, for a caller that uses them.
    keywords: Vec<Py<PyString>>,
    /// The index in `torch.distributed`'s function, by position.
    slots: Vec<u8>,
}

/// The action of a method.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Operation(CollectiveOp),
    StartOfGroup,
    EndOfGroup,
}

/// One argument of a call: its tensors and its index in the function.
pub(super) struct Argument<'py> {
    pub(super) slot: u8,
    pub(super) value: Bound<'py, PyAny>,
    /// Whether it is also read after the call.
    pub(super) is_kept: bool,
    /// Whether this rank provides it. Otherwise the call fills it, and its contents before the call are meaningless.
    pub(super) is_given: bool,
}

/// The size of an operation.
#[derive(Clone, Copy)]
pub(super) struct Size {
    pub(super) dtype: Dtype,
    pub(super) shape: Shape,
    pub(super) bytes: u64,
    /// Whether CUDA events measure the operation's time.
    pub(super) is_on_cuda: bool,
}

impl Form {
    pub(super) fn new(
        op: &str,
        inputs: Option<usize>,
        outputs: Option<usize>,
        keywords: &[String],
        slots: &[u8],
    ) -> PyResult<Self> {
        let Some(op) = CollectiveOp::from_name(op) else {
            let names = CollectiveOp::ALL.map(CollectiveOp::name).join(", ");
            return Err(PyValueError::new_err(format!("operation `{op}`: expected one of {names}")));
        };
        let keywords = Python::attach(|py| keywords.iter().map(|name| PyString::intern(py, name).unbind()).collect());
        Ok(Self { what: What::Operation(op), inputs, outputs, keywords, slots: slots.to_vec() })
    }

    pub(super) fn start_of_group() -> Self {
        Self { what: What::StartOfGroup, ..Self::without_tensors() }
    }

    pub(super) fn end_of_group() -> Self {
        Self { what: What::EndOfGroup, ..Self::without_tensors() }
    }

    fn without_tensors() -> Self {
        Self { what: What::EndOfGroup, inputs: None, outputs: None, keywords: Vec::new(), slots: Vec::new() }
    }

    pub(super) fn op(&self) -> Option<CollectiveOp> {
        match self.what {
            What::Operation(op) => Some(op),
            What::StartOfGroup | What::EndOfGroup => None,
        }
    }

    /// Returns the inputs and outputs without the group. An argument that is both is only returned as an input.
    pub(super) fn arguments<'py>(
        &self,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<(Option<Argument<'py>>, Option<Argument<'py>>)> {
        let find = |place: usize| -> PyResult<Option<Argument<'py>>> {
            let value = if let Ok(value) = args.get_item(place + 1) {
                Some(value)
            } else {
                match (self.keywords.get(place), kwargs) {
                    (Some(name), Some(kwargs)) => kwargs.get_item(name)?,
                    _ => None,
                }
            };
            let slot = self.slots.get(place).copied().unwrap_or(0);
            Ok(value.map(|value| Argument { slot, value, is_kept: true, is_given: false }))
        };
        let mut inputs = self.inputs.map_or(Ok(None), find)?;
        if let Some(inputs) = &mut inputs {
            inputs.is_given = match self.op() {
                Some(CollectiveOp::Recv) => false,
                Some(CollectiveOp::Broadcast) => is_root(args, kwargs).unwrap_or(false),
                _ => true,
            };
        }
        let outputs = self.outputs.filter(|_| self.outputs != self.inputs).map_or(Ok(None), find)?;
        Ok((inputs, outputs))
    }
}

/// Returns whether this rank is the root of a broadcast; an error if that is unknown.
fn is_root(args: &Bound<'_, PyTuple>, kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<bool> {
    let py = args.py();
    let named = |name: &str| kwargs.map_or(Ok(None), |kwargs| kwargs.get_item(name));
    let root = match args.get_item(2) {
        Ok(root) => Some(root),
        Err(_) => named("opts")?.or(named("root")?),
    };
    let Some(root) = root else { return Ok(false) };
    // An options object, or the rank itself (possible since torch 2.9).
    let root: i64 = match root.extract() {
        Ok(rank) => rank,
        Err(_) => root.getattr(intern!(py, "rootRank"))?.extract()?,
    };
    Ok(args.get_item(0)?.call_method0(intern!(py, "rank"))?.extract::<i64>()? == root)
}

/// Calls `each` with every tensor of an argument, which is a tensor, a list of tensors, or a list of such lists.
pub(super) fn each_tensor<'py>(
    torch: &Torch,
    value: &Bound<'py, PyAny>,
    each: &mut impl FnMut(&Bound<'py, PyAny>) -> PyResult<()>,
) -> PyResult<()> {
    walk(torch, value, DEEPEST, each)
}

fn walk<'py>(
    torch: &Torch,
    value: &Bound<'py, PyAny>,
    depth: usize,
    each: &mut impl FnMut(&Bound<'py, PyAny>) -> PyResult<()>,
) -> PyResult<()> {
    if torch.is_plain(value) {
        return each(value);
    }
    if let Ok(list) = value.cast::<PyList>() {
        return if depth == 0 { Ok(()) } else { list.iter().try_for_each(|item| walk(torch, &item, depth - 1, each)) };
    }
    if let Ok(tuple) = value.cast::<PyTuple>() {
        return if depth == 0 { Ok(()) } else { tuple.iter().try_for_each(|item| walk(torch, &item, depth - 1, each)) };
    }
    // A non-tensor is skipped: the operation itself will raise.
    if torch.class_of(value)? == Class::Foreign { Ok(()) } else { each(value) }
}

/// Returns the size of an operation as defined by nccl-tests: that of the larger of its two buffers. A rank that has only
/// its part multiplies it by the number of ranks in the group.
///
/// `may_be_on_cuda`: whether to check the tensors' devices; each check adds to the cost of a call.
pub(super) fn size_of(
    torch: &Torch,
    op: CollectiveOp,
    ranks: u32,
    (inputs, outputs): (Option<&Bound<'_, PyAny>>, Option<&Bound<'_, PyAny>>),
    may_be_on_cuda: bool,
) -> PyResult<Size> {
    use CollectiveOp as Op;
    // If one buffer is never smaller than the other, that one is used.
    let (inputs, outputs) = match op {
        Op::AllGather | Op::AllGatherCoalesced | Op::AllGatherIntoTensor | Op::AllGatherIntoTensorCoalesced
            if outputs.is_some() =>
        {
            (None, outputs)
        }
        Op::ReduceScatter | Op::ReduceScatterTensor | Op::ReduceScatterTensorCoalesced if inputs.is_some() => {
            (inputs, None)
        }
        _ => (inputs, outputs),
    };
    let (sent, received) = (side(torch, inputs, may_be_on_cuda)?, side(torch, outputs, may_be_on_cuda)?);
    let is_received = received.size.bytes > sent.size.bytes || sent.tensors == 0;
    let (larger, smaller) = if is_received { (received, sent) } else { (sent, received) };
    let mut size = larger.size;
    if matches!(op, CollectiveOp::Gather | CollectiveOp::Scatter) && smaller.tensors == 0 {
        size.bytes *= u64::from(ranks);
    }
    size.is_on_cuda |= smaller.size.is_on_cuda;
    Ok(size)
}

struct Side {
    size: Size,
    tensors: usize,
}

fn side(torch: &Torch, value: Option<&Bound<'_, PyAny>>, may_be_on_cuda: bool) -> PyResult<Side> {
    let mut first: Option<Size> = None;
    let mut rest: Vec<Shape> = Vec::new();
    let mut bytes = 0;
    if let Some(value) = value {
        each_tensor(torch, value, &mut |tensor| {
            let size = size_of_tensor(torch, tensor, may_be_on_cuda)?;
            bytes += size.bytes;
            if first.is_none() {
                first = Some(size);
            } else {
                rest.push(size.shape);
            }
            Ok(())
        })?;
    }
    let none = Size { dtype: Dtype::U8, shape: Shape::default(), bytes: 0, is_on_cuda: false };
    let Some(one) = first else { return Ok(Side { size: none, tensors: 0 }) };
    let tensors = rest.len() + 1;
    let shape = if rest.is_empty() {
        one.shape
    } else {
        rest.insert(0, one.shape);
        stacked_shape(&rest)
    };
    Ok(Side { size: Size { shape, bytes, ..one }, tensors })
}

fn size_of_tensor(torch: &Torch, tensor: &Bound<'_, PyAny>, may_be_on_cuda: bool) -> PyResult<Size> {
    let py = tensor.py();
    let dtype = tensor.getattr(intern!(py, "dtype"))?;
    let known = torch.dtype(&dtype);
    let sizes = tensor.getattr(intern!(py, "shape"))?;
    let sizes = sizes.cast::<PyTuple>()?;
    let mut dims = [0; MAX_DIMS];
    let rank = sizes.len().min(MAX_DIMS);
    let mut elements: u64 = 1;
    for (place, size) in sizes.iter_borrowed().enumerate() {
        let size: i64 = size.extract()?;
        elements = elements.saturating_mul(u64::try_from(size).unwrap_or(0));
        if let Some(dim) = dims.get_mut(place) {
            *dim = size;
        }
    }
    let shape = if sizes.len() > MAX_DIMS { Shape::default() } else { Shape::new(&dims[..rank]).unwrap_or_default() };
    let element: u64 = match known {
        Some(dtype) => dtype.size() as u64,
        None => tensor.call_method0(intern!(py, "element_size"))?.extract()?,
    };
    let is_on_cuda = may_be_on_cuda && tensor.getattr(intern!(py, "is_cuda"))?.is_truthy()?;
    let bytes = match bytes_of_sparse(tensor, element)? {
        Some(bytes) => bytes,
        None => elements.saturating_mul(element),
    };
    Ok(Size { dtype: known.unwrap_or(Dtype::U8), shape, bytes, is_on_cuda })
}

/// The size of an index of a sparse tensor (int64).
const INDEX_BYTES: u64 = 8;

/// Returns the bytes of the indices and values of a sparse tensor (COO): these are sent, not the dense elements.
fn bytes_of_sparse(tensor: &Bound<'_, PyAny>, element: u64) -> PyResult<Option<u64>> {
    let py = tensor.py();
    if !tensor.getattr(intern!(py, "is_sparse"))?.is_truthy()? {
        return Ok(None);
    }
    let count = |part: &Bound<'_, PyAny>| part.call_method0(intern!(py, "numel"))?.extract::<u64>();
    let indices = count(&tensor.call_method0(intern!(py, "_indices"))?)?;
    let values = count(&tensor.call_method0(intern!(py, "_values"))?)?;
    Ok(Some(indices.saturating_mul(INDEX_BYTES).saturating_add(values.saturating_mul(element))))
}
