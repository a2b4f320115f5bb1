//! Tensors from Python: finds their memory and checks it before reading.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use trainmon_agent::core::{Dtype, MAX_DIMS, Shape, ShapeError, TensorView, ViewError};
use trainmon_agent::front::{Found, Readable};

use crate::discard_error::discard;
use crate::torch::{Class, Torch};

/// The number of elements from which the interpreter is released while a tensor is read. Reading 16 Ki elements takes a
/// few microseconds, about as long as releasing and reacquiring the interpreter.
const LARGE: usize = 16 << 10;

/// The reason why a tensor's memory cannot be measured in place.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum Unreadable {
    /// Not a tensor.
    #[error("expected a torch tensor, found `{class}`")]
    Foreign {
        /// The object's class.
        class: String,
    },
    /// A tensor that wraps other tensors, or none.
    #[error("a `{class}` has no memory of its own")]
    Wrapper {
        /// The tensor's class.
        class: String,
    },
    /// A tensor in a device's memory, or a meta tensor.
    #[error("the tensor is on `{device}`, not in host memory")]
    OnDevice {
        /// Torch's name of the device.
        device: String,
    },
    /// A sparse tensor, or another layout without plain memory.
    #[error("only strided tensors can be measured; this one is `{layout}`")]
    NotStrided {
        /// Torch's name of the layout.
        layout: String,
    },
    /// A tensor whose memory holds the conjugate or the negative of its values.
    #[error("the tensor is a pending conjugate or negative")]
    NotResolved,
    /// A quantised or packed element type.
    #[error("elements of type `{dtype}` cannot be measured")]
    Dtype {
        /// Torch's name of the type.
        dtype: String,
    },
    /// The storage was freed or truncated, for example by FSDP between uses.
    #[error("the tensor's storage has {held} of the required {needed} bytes: it was freed or resized")]
    Storage {
        /// Bytes from the storage's start to the tensor's last element.
        needed: u128,
        /// Bytes in the storage.
        held: u128,
    },
    /// The sizes are invalid.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// The memory was refused.
    #[error(transparent)]
    View(#[from] ViewError),
    /// Torch raised an error.
    #[error("torch: {message}")]
    Torch {
        /// The first line of torch's message.
        message: String,
    },
}

/// Address, dtype, sizes and strides of a tensor; equal for equal memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) address: usize,
    pub(crate) dtype: Dtype,
    pub(crate) shape: Shape,
    /// The strides in elements, one per size.
    strides: [i64; MAX_DIMS],
}

impl Layout {
    /// Returns the bytes of all elements.
    pub(crate) fn bytes(&self) -> usize {
        self.shape.elements() * self.dtype.size()
    }

    /// Returns the strides in elements, one per size.
    pub(crate) fn strides(&self) -> &[i64] {
        &self.strides[..self.shape.dims().len()]
    }

    /// Returns the bytes from the storage's start to the end of the last element; `None` if that overflows.
    fn end(&self, storage_offset: i64) -> Option<u128> {
        let reach = |(&size, &stride): (&i64, &i64)| i128::from(size - 1).checked_mul(i128::from(stride));
        let last = self
            .shape
            .dims()
            .iter()
            .zip(self.strides())
            .map(reach)
            .try_fold(i128::from(storage_offset), |sum, next| sum.checked_add(next?))?;
        u128::try_from(last + 1).ok()?.checked_mul(self.dtype.size() as u128)
    }
}

/// Returns the layout of a tensor on any device, without reading its memory. Cost: about 1 microsecond.
pub(crate) fn layout_anywhere(object: &Bound<'_, PyAny>) -> Result<Layout, Unreadable> {
    let (torch, class) = torch_and_class(object)?;
    let py = object.py();
    let read = || HostTensor::read_memory(torch, object, Tracked::Unknown);
    let found = torch.quietly(py, class, read).unwrap_or_else(|error| Err(torch_says(py, error)));
    found.map(|(layout, _version)| layout)
}

/// Whether a tensor comes from above autograd, which tracks shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tracked {
    /// A program's tensor, created above autograd.
    Yes,
    /// Possibly a tensor of the dispatcher, below autograd.
    Unknown,
}

/// A tensor whose memory can be read. The borrow keeps it alive.
pub(crate) struct HostTensor<'a, 'py> {
    object: &'a Bound<'py, PyAny>,
    pub(crate) layout: Layout,
    /// Torch's count of writes to the tensor, if it has one.
    pub(crate) version: Option<i64>,
}

impl<'a, 'py> HostTensor<'a, 'py> {
    /// Determines the layout of a tensor. Cost: about a microsecond for a plain tensor; allocates nothing.
    pub(crate) fn describe(object: &'a Bound<'py, PyAny>) -> Result<Self, Unreadable> {
        let (torch, class) = torch_and_class(object)?;
        let py = object.py();
        torch
            .quietly(py, class, || Self::read_attributes(torch, object, Tracked::Unknown))
            .unwrap_or_else(|error| Err(torch_says(py, error)))
    }

    /// Like [`describe`](Self::describe) at half the cost. The caller must ensure that reading a plain tensor calls no mode
    /// of the host.
    pub(crate) fn describe_unseen(object: &'a Bound<'py, PyAny>, tracked: Tracked) -> Result<Self, Unreadable> {
        let (torch, class) = torch_and_class(object)?;
        let py = object.py();
        let read = || Self::read_attributes(torch, object, tracked);
        let read = if class == Class::Plain { read() } else { torch.quietly(py, class, read) };
        read.unwrap_or_else(|error| Err(torch_says(py, error)))
    }

    /// Reads the attributes, those with the cheapest checks first. The outer error is torch's.
    fn read_attributes(
        torch: &Torch,
        object: &'a Bound<'py, PyAny>,
        tracked: Tracked,
    ) -> PyResult<Result<Self, Unreadable>> {
        let py = object.py();
        if !object.getattr(intern!(py, "is_cpu"))?.is_truthy()? {
            let device = object.getattr(intern!(py, "device"))?.getattr(intern!(py, "type"))?.to_string();
            return Ok(Err(Unreadable::OnDevice { device }));
        }
        Ok(Self::read_memory(torch, object, tracked)?.map(|(layout, version)| Self { object, layout, version }))
    }

    /// Reads the location of the memory, on any device, and torch's count of writes to it.
    fn read_memory(
        torch: &Torch,
        object: &Bound<'py, PyAny>,
        tracked: Tracked,
    ) -> PyResult<Result<(Layout, Option<i64>), Unreadable>> {
        let py = object.py();
        let layout = object.getattr(intern!(py, "layout"))?;
        if !torch.is_strided(&layout) {
            return Ok(Err(Unreadable::NotStrided { layout: layout.to_string() }));
        }
        let torch_dtype = object.getattr(intern!(py, "dtype"))?;
        let Some(dtype) = torch.dtype(&torch_dtype) else {
            return Ok(Err(Unreadable::Dtype { dtype: torch_dtype.to_string() }));
        };
        if tracked == Tracked::Unknown && torch.is_pending(object)? {
            return Ok(Err(Unreadable::NotResolved));
        }
        let (dims, rank) = match numbers(&object.getattr(intern!(py, "shape"))?)? {
            Ok(sizes) => sizes,
            Err(too_many) => return Ok(Err(too_many.into())),
        };
        let (strides, stride_count) = match numbers(&object.call_method0(intern!(py, "stride"))?)? {
            Ok(strides) => strides,
            Err(too_many) => return Ok(Err(too_many.into())),
        };
        let (dims, strides_given) = (&dims[..rank], &strides[..stride_count]);
        let shape = match Shape::new(dims) {
            Ok(shape) if rank == stride_count && strides_given.iter().all(|&stride| stride >= 0) => shape,
            Ok(_) => {
                let error = ViewError::BadStrides { dims: dims.to_vec(), strides: strides_given.to_vec() };
                return Ok(Err(error.into()));
            }
            Err(error) => return Ok(Err(error.into())),
        };
        let address = object.call_method0(intern!(py, "data_ptr"))?.extract()?;
        let layout = Layout { address, dtype, shape, strides };
        let fills_storage = match check_storage(object, &layout)? {
            Ok(fills) => fills,
            Err(refused) => return Ok(Err(refused)),
        };
        // Inference tensors have no version: torch raises.
        let version = object.getattr(intern!(py, "_version")).and_then(|version| version.extract());
        let version = version.map_err(|error| discard(py, error)).ok();
        // A pending conjugate is a view of another tensor's memory. Autograd tracks such views, except those from `.data`,
        // which cover a part of a complex tensor's memory. Checked last: it costs more than all checks before.
        let is_own = tracked == Tracked::Yes
            && fills_storage
            && version.is_some()
            && !matches!(dtype, Dtype::Complex64 | Dtype::Complex128)
            && !object.call_method0(intern!(py, "_is_view"))?.is_truthy()?;
        if tracked == Tracked::Yes && !is_own && torch.is_pending(object)? {
            return Ok(Err(Unreadable::NotResolved));
        }
        Ok(Ok((layout, version)))
    }

    /// Describes an object for a meter; Python's `None` is a missing tensor.
    pub(crate) fn found(object: &'a Bound<'py, PyAny>) -> Result<Found<Self>, Unreadable> {
        if object.is_none() { Ok(Found::Missing) } else { Self::describe(object).map(Found::Here) }
    }

    /// Passes the memory to `work`, with the interpreter released for large tensors.
    pub(crate) fn read<R: Send>(&self, work: impl FnOnce(&TensorView<'_>) -> R + Send) -> Result<R, Unreadable> {
        let view = self.view()?;
        Ok(self.run(view.elements(), || work(&view)))
    }
}

impl Readable for HostTensor<'_, '_> {
    type Unreadable = Unreadable;

    /// Returns the view. Sound because `describe` has just found every element inside the storage, and `self` borrows the
    /// object, so that the view does not outlive the tensor or its storage. Another thread that resized or wrote the
    /// storage during a hook would break the training itself: torch runs hooks between the operators that write.
    #[expect(unsafe_code, reason = "the memory is torch's")]
    fn view(&self) -> Result<TensorView<'_>, Unreadable> {
        let Layout { address, dtype, shape, .. } = &self.layout;
        let data = std::ptr::with_exposed_provenance(*address);
        // SAFETY: see above.
        Ok(unsafe { TensorView::from_raw_parts(data, *dtype, shape.dims(), self.layout.strides()) }?)
    }

    fn version(&self) -> Option<i64> {
        self.version
    }

    /// Runs `body`, with the interpreter released if it is long.
    fn run<R: Send>(&self, elements: usize, body: impl FnOnce() -> R + Send) -> R {
        if elements >= LARGE { self.object.py().detach(body) } else { body() }
    }
}

fn torch_and_class(object: &Bound<'_, PyAny>) -> Result<(&'static Torch, Class), Unreadable> {
    let py = object.py();
    let torch = Torch::loaded(py).map_err(|error| torch_says(py, error))?;
    let Some(torch) = torch else { return Err(Unreadable::Foreign { class: class_name(object) }) };
    match torch.class_of(object).map_err(|error| torch_says(py, error))? {
        Class::Wrapper => Err(Unreadable::Wrapper { class: class_name(object) }),
        Class::Foreign => Err(Unreadable::Foreign { class: class_name(object) }),
        class => Ok((torch, class)),
    }
}

/// Checks that the layout is within its storage and returns whether it covers all of it.
fn check_storage(object: &Bound<'_, PyAny>, layout: &Layout) -> PyResult<Result<bool, Unreadable>> {
    let py = object.py();
    if layout.shape.elements() == 0 {
        return Ok(Ok(false));
    }
    let offset: i64 = object.call_method0(intern!(py, "storage_offset"))?.extract()?;
    let storage = object.call_method0(intern!(py, "untyped_storage"))?;
    // The length of an untyped storage is in bytes.
    let held = storage.len()? as u64;
    let needed = layout.end(offset).unwrap_or(u128::MAX);
    if needed > u128::from(held) {
        return Ok(Err(Unreadable::Storage { needed, held: u128::from(held) }));
    }
    Ok(Ok(layout.bytes() as u64 == held))
}

/// Returns sizes or strides and their number, without an allocation.
fn numbers(tuple: &Bound<'_, PyAny>) -> PyResult<Result<([i64; MAX_DIMS], usize), ShapeError>> {
    let tuple = tuple.cast::<PyTuple>()?;
    let len = tuple.len();
    if len > MAX_DIMS {
        return Ok(Err(ShapeError::TooManyDims { got: len }));
    }
    let mut numbers = [0; MAX_DIMS];
    for (number, item) in numbers.iter_mut().zip(tuple.iter_borrowed()) {
        *number = item.extract()?;
    }
    Ok(Ok((numbers, len)))
}

/// Returns the name of an object's class, without its module.
pub(crate) fn class_name(object: &Bound<'_, PyAny>) -> String {
    object.get_type().name().map_or_else(|_unnamed| "?".to_owned(), |name| name.to_string())
}

fn torch_says(py: Python<'_>, error: PyErr) -> Unreadable {
    let text = error.to_string();
    // Torch's errors have many lines; the first one is the message.
    let message = text.lines().next().unwrap_or_default().to_owned();
    discard(py, error);
    Unreadable::Torch { message }
}
