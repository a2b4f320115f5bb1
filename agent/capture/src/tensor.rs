//! A tensor as a front passes it.

use trainmon_capture_files::Hole;
use trainmon_core::TensorView;

/// A tensor among a call's values.
#[derive(Clone, Copy, Debug)]
pub struct Tensor<'t> {
    /// The format's name of its type; empty means `torch.Tensor`.
    pub kind: &'t str,
    /// The name of its dtype, like `torch.float32`.
    pub dtype: &'t str,
    /// The sizes. The content may have others, for example if it is flattened.
    pub shape: &'t [i64],
    /// `None` if the framework has no such property; the key is then omitted.
    pub requires_grad: Option<bool>,
    /// The `device_mesh` and `placements` of a tensor that is distributed over ranks, as JSON.
    pub spread: Option<(&'t str, &'t str)>,
    /// Whether the memory was allocated without initialisation in this capture, by `torch.empty` or a similar function.
    pub is_from_empty: bool,
    /// The elements.
    pub content: Content<'t>,
}

/// A tensor's elements, as far as they are readable.
#[derive(Clone, Copy, Debug)]
pub enum Content<'t> {
    /// In the host's memory: measured, summed and copied before the call returns.
    Host(TensorView<'t>),
    /// On a device: [`Session::fill_numbers`](crate::Session::fill_numbers) passes the numbers later. Allowed only if
    /// [`Values::wants_only_numbers`](crate::Values::wants_only_numbers) is true, because nothing else can be passed later.
    Later,
    /// Unreadable: a meta tensor, a fake tensor or one inside a transform. It gets no numbers and no file.
    Unreadable,
}

/// The missing numbers of a tensor on a device, to be passed back once they are available.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "the numbers are null until they are filled in"]
pub struct Later {
    pub(crate) numbers: [Hole; 4],
}

/// A value that is available later: the gradient of a saved value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "the value is null until it is filled in"]
pub struct LaterValue {
    pub(crate) hole: Hole,
    pub(crate) path: String,
    pub(crate) saves_tensors: bool,
}
