//! The tensors of a capture, if it has any.

use std::path::Path;

use trainmon_tensor_files::StoredTensor;

use super::input::Capture;
use super::item::Item;
use trainmon_distance::{Distance, Quotient};

/// The tensors of both sides.
pub(crate) struct TensorPair {
    pub(crate) target: StoredTensor,
    pub(crate) golden: StoredTensor,
}

/// Reads both tensors of a pair; `None` if a capture names no file for its tensor.
///
/// # Errors
/// The file that cannot be read, and the reason.
pub(crate) fn read_pair(
    target: &Capture,
    golden: &Capture,
    item: Item<'_>,
    other: Item<'_>,
) -> Option<Result<TensorPair, String>> {
    let (one, two) = (read(target, item)?, read(golden, other)?);
    Some(one.and_then(|target| Ok(TensorPair { target, golden: two? })))
}

/// Reads a value's tensor; `None` if the capture names no file for it.
///
/// # Errors
/// As for [`read_pair`], and if the parts of a joined tensor do not fit.
pub(crate) fn read(capture: &Capture, item: Item<'_>) -> Option<Result<StoredTensor, String>> {
    if let Some((recipe, layout)) = capture.joined.recipe(item) {
        return Some(recipe.make(layout, |name| read_file(capture, name)));
    }
    Some(read_file(capture, item.tensor()?.data_name.as_deref()?))
}

/// Reads a tensor file of a capture.
pub(crate) fn read_file(capture: &Capture, name: &str) -> Result<StoredTensor, String> {
    // A name must be that of a file in the capture's own directory: a path could lead anywhere.
    if Path::new(name).file_name() != Some(name.as_ref()) {
        return Err(format!("`{name}` is not a file name in `dump_tensor_data`"));
    }
    let Some(directory) = capture.tensors.as_deref() else {
        return Err(format!("`{name}`: no `dump_tensor_data` next to the JSON file"));
    };
    let read = trainmon_tensor_files::open(&directory.join(name)).and_then(|file| {
        if let Some(note) = file.harmful_note() {
            capture.meter.note(note);
        }
        file.only()
    });
    match read {
        Ok(tensor) => {
            capture.meter.add_tensor(tensor.bytes().len() as u64);
            Ok(tensor)
        }
        Err(error) => {
            let causes = trainmon_report::causes(&error);
            Err(std::iter::once(error.to_string()).chain(causes).collect::<Vec<_>>().join(": "))
        }
    }
}

impl TensorPair {
    /// Whether both have the same shape, except for sizes of 1, so that elements are comparable.
    pub(crate) fn is_comparable(&self) -> bool {
        let sizes = |tensor: &StoredTensor| -> Vec<i64> {
            tensor.shape().dims().iter().copied().filter(|&size| size != 1).collect()
        };
        sizes(&self.target) == sizes(&self.golden)
    }

    /// Whether both are bitwise equal.
    pub(crate) fn is_same(&self) -> bool {
        self.target.dtype() == self.golden.dtype() && self.target.bytes() == self.golden.bytes()
    }

    /// Measures the distance.
    pub(crate) fn distance(&self, quotient: Quotient) -> Distance {
        Distance::measure(&self.target, &self.golden, quotient)
    }
}
