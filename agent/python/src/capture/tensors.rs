//! A tensor among a call's values: measured where it lies, or, where that is not possible, through what
//! `trainmon.captures.tensors` makes of it.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use trainmon_capture::{Content, Peer, Tensor, Values};

use crate::swallow::swallow;
use crate::tensor::{HostTensor, Tracked, Unreadable};

/// What Python finds of a tensor without plain memory of its own: the format's name of its type, its dtype, its shape, a host
/// tensor with its elements (or none), mesh and placements as JSON (or none).
type Found<'py> = (String, String, Vec<i64>, Option<Bound<'py, PyAny>>, Option<(String, String)>);

/// Writes a tensor.
pub(crate) fn write(py: Python<'_>, object: &Bound<'_, PyAny>, tracked: Tracked, to: &mut Values<'_>) {
    let mut put = |values: &mut Values<'_>, tensor: &Tensor<'_>| {
        // What lies on a device was brought here: nothing comes later.
        drop(values.tensor(tensor));
    };
    write_with(py, object, tracked, to, &mut put);
}

/// Writes one send or receive of a batch, with its tensor.
pub(crate) fn write_peer(
    py: Python<'_>,
    peer: &Peer<'_>,
    object: &Bound<'_, PyAny>,
    tracked: Tracked,
    to: &mut Values<'_>,
) {
    let mut put = |values: &mut Values<'_>, tensor: &Tensor<'_>| drop(values.peer_operation(peer, tensor));
    write_with(py, object, tracked, to, &mut put);
}

fn write_with(
    py: Python<'_>,
    object: &Bound<'_, PyAny>,
    tracked: Tracked,
    to: &mut Values<'_>,
    put: &mut (dyn FnMut(&mut Values<'_>, &Tensor<'_>) + Send),
) {
    let requires_grad = object.getattr(intern!(py, "requires_grad")).and_then(|it| it.is_truthy());
    let requires_grad = requires_grad.map_err(|error| swallow(py, error)).ok();
    let nothing = Tensor { kind: "", dtype: "", shape: &[], requires_grad, spread: None, content: Content::Unreadable };
    match HostTensor::describe_unseen(object, tracked) {
        Ok(host) => {
            let plain = Tensor { dtype: host.layout.dtype.torch_name(), shape: host.layout.shape.dims(), ..nothing };
            put_host(&host, &plain, to, put);
        }
        Err(Unreadable::Foreign { .. }) => put(to, &nothing),
        Err(_) => write_other(py, object, &nothing, to, put),
    }
}

fn put_host(
    host: &HostTensor<'_, '_>,
    tensor: &Tensor<'_>,
    to: &mut Values<'_>,
    put: &mut (dyn FnMut(&mut Values<'_>, &Tensor<'_>) + Send),
) {
    let mut is_written = false;
    let read = host.read(|view| {
        put(to, &Tensor { content: Content::Host(*view), ..*tensor });
        is_written = true;
    });
    if read.is_err() && !is_written {
        put(to, tensor);
    }
}

/// Device tensors, wrappers, sparse, quantised, fake ones.
fn write_other(
    py: Python<'_>,
    object: &Bound<'_, PyAny>,
    nothing: &Tensor<'_>,
    to: &mut Values<'_>,
    put: &mut (dyn FnMut(&mut Values<'_>, &Tensor<'_>) + Send),
) {
    static READABLE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let found = READABLE.import(py, "trainmon.captures.tensors", "readable").and_then(|readable| {
        let found = readable.call1((object,))?;
        found.extract::<Found<'_>>()
    });
    let (kind, dtype, shape, elements, spread) = match found {
        Ok(found) => found,
        Err(error) => {
            swallow(py, error);
            return put(to, nothing);
        }
    };
    let spread = spread.as_ref().map(|(mesh, placements)| (&**mesh, &**placements));
    let tensor = Tensor { kind: &kind, dtype: &dtype, shape: &shape, spread, ..*nothing };
    let Some(elements) = elements else { return put(to, &tensor) };
    match HostTensor::describe(&elements) {
        Ok(host) => put_host(&host, &tensor, to, put),
        Err(_) => put(to, &tensor),
    }
}

/// Writes a numpy array: torch can look at its memory, too.
pub(crate) fn write_array(py: Python<'_>, array: &Bound<'_, PyAny>, to: &mut Values<'_>) {
    let nothing = Tensor {
        kind: "numpy.ndarray",
        dtype: "",
        shape: &[],
        requires_grad: None,
        spread: None,
        content: Content::Unreadable,
    };
    write_other(py, array, &nothing, to, &mut |values, tensor| drop(values.tensor(tensor)));
}
