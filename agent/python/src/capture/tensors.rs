//! Writes a tensor among a call's values. It is measured in place or, if that is not possible, through the description by
//! `trainmon.captures.tensors`.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use trainmon_capture::{Content, Later, Peer, Tensor, Values};

use crate::capture::shared::Active;
use crate::discard_error::discard;
use crate::tensor::{HostTensor, Tracked, Unreadable};

/// Python's description of a tensor without plain memory of its own: the type's name in the format, dtype, shape, elements,
/// and mesh and placements as JSON (or none). The elements are a host tensor, the ticket of a measurement on a device, or
/// none.
type DescribedTensor<'py> = (String, String, Vec<i64>, Option<Bound<'py, PyAny>>, Option<(String, String)>);

/// A function that writes the described tensor and returns the slot for its late numbers.
type WriteTensor<'p> = dyn FnMut(&mut Values<'_>, &Tensor<'_>) -> Option<Later> + Send + 'p;

/// Writes a tensor.
pub(crate) fn write(active: &Active, object: &Bound<'_, PyAny>, tracked: Tracked, to: &mut Values<'_>) {
    write_with(active, object, tracked, to, &mut |values, tensor| values.tensor(tensor));
}

/// Writes one send or receive of a batch with its tensor.
pub(crate) fn write_peer(
    active: &Active,
    peer: &Peer<'_>,
    object: &Bound<'_, PyAny>,
    tracked: Tracked,
    to: &mut Values<'_>,
) {
    write_with(active, object, tracked, to, &mut |values, tensor| values.peer_operation(peer, tensor));
}

fn write_with(
    active: &Active,
    object: &Bound<'_, PyAny>,
    tracked: Tracked,
    to: &mut Values<'_>,
    put: &mut WriteTensor<'_>,
) {
    let py = object.py();
    let requires_grad = object.getattr(intern!(py, "requires_grad")).and_then(|it| it.is_truthy());
    let requires_grad = requires_grad.map_err(|error| discard(py, error)).ok();
    let is_from_empty = active.allocations.have_given(object);
    let content = Content::Unreadable;
    let nothing = Tensor { kind: "", dtype: "", shape: &[], requires_grad, spread: None, is_from_empty, content };
    match HostTensor::describe_unseen(object, tracked) {
        Ok(host) => {
            let plain = Tensor { dtype: host.layout.dtype.torch_name(), shape: host.layout.shape.dims(), ..nothing };
            put_host(&host, &plain, to, put);
        }
        Err(Unreadable::Foreign { .. }) => {
            put(to, &nothing);
        }
        Err(_) => write_other(active, object, &nothing, to, put),
    }
}

fn put_host(host: &HostTensor<'_, '_>, tensor: &Tensor<'_>, to: &mut Values<'_>, put: &mut WriteTensor<'_>) {
    let mut is_written = false;
    let read = host.read(|view| {
        put(to, &Tensor { content: Content::Host(*view), ..*tensor });
        is_written = true;
    });
    if read.is_err() && !is_written {
        put(to, tensor);
    }
}

/// Writes a tensor without plain host memory: device, wrapper, sparse, quantised or fake.
fn write_other(
    active: &Active,
    object: &Bound<'_, PyAny>,
    nothing: &Tensor<'_>,
    to: &mut Values<'_>,
    put: &mut WriteTensor<'_>,
) {
    static READABLE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = object.py();
    // A checksum or a file needs the memory on the host at once.
    let device_numbers = if to.wants_only_numbers() { active.devices.device_numbers(py) } else { None };
    let found = READABLE.import(py, "trainmon.captures.tensors", "readable").and_then(|readable| {
        let found = readable.call1((object, device_numbers))?;
        found.extract::<DescribedTensor<'_>>()
    });
    let (kind, dtype, shape, elements, spread) = match found {
        Ok(found) => found,
        Err(error) => {
            discard(py, error);
            put(to, nothing);
            return;
        }
    };
    let spread = spread.as_ref().map(|(mesh, placements)| (&**mesh, &**placements));
    let tensor = Tensor { kind: &kind, dtype: &dtype, shape: &shape, spread, ..*nothing };
    let Some(elements) = elements else {
        put(to, &tensor);
        return;
    };
    if let Ok((ticket, count)) = elements.extract::<(u64, i64)>() {
        if let Some(later) = put(to, &Tensor { content: Content::Later, ..tensor }) {
            active.devices.await_numbers(ticket, later, &tensor, count);
        }
        return;
    }
    match HostTensor::describe(&elements) {
        Ok(host) => put_host(&host, &tensor, to, put),
        Err(_) => {
            put(to, &tensor);
        }
    }
}

/// Writes a numpy array, through a torch tensor of the same memory.
pub(crate) fn write_array(active: &Active, array: &Bound<'_, PyAny>, to: &mut Values<'_>) {
    let nothing = Tensor {
        kind: "numpy.ndarray",
        dtype: "",
        shape: &[],
        requires_grad: None,
        spread: None,
        is_from_empty: false,
        content: Content::Unreadable,
    };
    write_other(active, array, &nothing, to, &mut |values, tensor| values.tensor(tensor));
}
