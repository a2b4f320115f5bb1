//! The description of an operation that is about to start.

use std::fmt;
use std::sync::Arc;

use trainmon_core::{CollectiveOp, Dtype, Shape, TensorView};

/// A collective operation that is about to start.
#[derive(Clone, Copy)]
pub struct CollectiveCall<'a> {
    /// The operation.
    pub op: CollectiveOp,
    /// The type of the sent elements.
    pub dtype: Dtype,
    /// The shape of its larger buffer. For a list of equal tensors, their number is the first dimension.
    pub shape: Shape,
    /// The size as defined by [`CollectiveTiming::bytes`](trainmon_core::CollectiveTiming::bytes).
    pub bytes: u64,
    /// The tensor that this rank sends, measured as the first argument. `None` if there is none or it cannot be read.
    pub input: Option<&'a TensorView<'a>>,
    /// The line of the script that makes the call, if known. The times of calls from this line have their own row.
    pub caller: Option<&'a Arc<str>>,
    /// Whether it leaves records if collectives are measured. It is counted in any case.
    pub is_recorded: bool,
}

impl<'a> CollectiveCall<'a> {
    /// Describes an operation whose tensors cannot be read.
    pub fn new(op: CollectiveOp, dtype: Dtype, bytes: u64) -> Self {
        Self { op, dtype, shape: Shape::default(), bytes, input: None, caller: None, is_recorded: true }
    }

    /// Describes an operation that moves exactly this tensor: `all_reduce`, `reduce`, `broadcast`, `send`.
    pub fn of(op: CollectiveOp, tensor: &'a TensorView<'a>) -> Self {
        let bytes = tensor.size_in_bytes() as u64;
        Self { shape: tensor.shape(), input: Some(tensor), ..Self::new(op, tensor.dtype(), bytes) }
    }
}

/// An argument before or after the call. The number is its position in the function of `torch.distributed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Slot {
    /// Before the call.
    Pre(u8),
    /// After the call.
    Post(u8),
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pre(place) => write!(f, "pre_{place}"),
            Self::Post(place) => write!(f, "post_{place}"),
        }
    }
}
