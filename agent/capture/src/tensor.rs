//! A tensor as a front shows it.

use trainmon_capture_files::Hole;
use trainmon_core::TensorView;

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
    /// On a device: its numbers are told later, by [`Session::fill_numbers`](crate::Session::fill_numbers). Only where
    /// [`Values::wants_only_numbers`](crate::Values::wants_only_numbers) says so: nothing else comes later.
    Later,
    /// Nobody can read them: a meta tensor, a fake one, one inside a transform. No numbers, no file.
    Unreadable,
}

/// The numbers that a tensor on a device still lacks. To be given back when they are there.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "the numbers are null until they are told"]
pub struct Later {
    pub(crate) numbers: [Hole; 4],
}

/// A value that comes later: the gradient of one that was saved.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "it is null until it is told"]
pub struct LaterValue {
    pub(crate) hole: Hole,
    pub(crate) path: String,
    pub(crate) saves_tensors: bool,
}
