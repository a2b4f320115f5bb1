//! A tensor as a front shows it.

use trainmon_capture_files::Hole;
use trainmon_core::{Scalar, TensorView};

/// A tensor among a call's values.
#[derive(Clone, Copy, Debug)]
pub struct Tensor<'t> {
    /// The format's name of its type, like `torch.Tensor`; empty means that.
    pub kind: &'t str,
    /// Like `torch.float32`.
    pub dtype: &'t str,
    /// Its sizes. Those of the content may be others (flattened).
    pub shape: &'t [i64],
    /// `None` where the framework has no such property: the key is left away.
    pub requires_grad: Option<bool>,
    /// Of a tensor that is spread over ranks: `device_mesh` and `placements`, as JSON.
    pub spread: Option<(&'t str, &'t str)>,
    /// Whether its memory was handed out unwritten in this capture, by `torch.empty` or its kin.
    pub is_from_empty: bool,
    /// The elements.
    pub content: Content<'t>,
}

/// A tensor's elements, as far as they can be had.
#[derive(Clone, Copy, Debug)]
pub enum Content<'t> {
    /// In the host's memory: measured, summed and copied before the call returns.
    Host(TensorView<'t>),
    /// On a device: what is found there is told later, by [`Session::fill`](crate::Session::fill).
    Later,
    /// Nobody can read them: a meta tensor, a fake one, one inside a transform. No numbers, no file.
    Unreadable,
    /// Readable, but not as numbers of a dtype known here: no statistics; checksum and file are made of these bytes, which
    /// the front has copied in logical order.
    Bytes(&'t [u8]),
}

/// What a tensor on a device still lacks. To be given back when its numbers are there.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "the numbers are null until they are told"]
pub struct Later {
    pub(crate) numbers: Option<[Hole; 4]>,
    pub(crate) digest: Option<Hole>,
    pub(crate) file: Option<LaterFile>,
    pub(crate) looks_for_nan: bool,
}

/// The file of a tensor whose bytes come later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LaterFile {
    pub(crate) hole: Hole,
    pub(crate) path: String,
}

impl Later {
    /// Whether its bytes are wanted, for a checksum or a file.
    pub fn wants_bytes(&self) -> bool {
        self.digest.is_some() || self.file.is_some()
    }

    /// Whether max, min, mean and norm are.
    pub fn wants_numbers(&self) -> bool {
        self.numbers.is_some() || self.looks_for_nan
    }
}

/// A value that comes later: the gradient of one that was saved.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "it is null until it is told"]
pub struct LaterValue {
    pub(crate) hole: Hole,
    pub(crate) path: String,
    pub(crate) saves_tensors: bool,
}

/// What was found on a device. `None`: not defined.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DeviceNumbers {
    /// The largest element.
    pub max: Option<Scalar>,
    /// The smallest element.
    pub min: Option<Scalar>,
    /// The mean.
    pub mean: Option<f64>,
    /// The L2 norm.
    pub norm: Option<f64>,
}
