//! What is told of an operation when it begins.

use std::fmt;
use std::sync::Arc;

use trainmon_core::{CollectiveOp, Dtype, Shape, TensorView};

/// An operation that is about to start.
#[derive(Clone, Copy)]
pub struct CollectiveCall<'a> {
    /// Which one.
    pub op: CollectiveOp,
    /// The element type sent.
    pub dtype: Dtype,
    /// The shape of the larger of its buffers; of a list of equal tensors, with their number in front.
    pub shape: Shape,
    /// The size, as [`CollectiveTiming::bytes`](trainmon_core::CollectiveTiming::bytes) counts it.
    pub bytes: u64,
    /// What goes in, where this rank sends anything and its memory can be read: measured as the first argument.
    pub input: Option<&'a TensorView<'a>>,
    /// The line of the script that makes the call, where it is known: its times have a row of their own.
    pub caller: Option<&'a Arc<str>>,
    /// Whether it leaves records, where collectives are measured at all. It is counted all the same.
    pub is_recorded: bool,
}

impl<'a> CollectiveCall<'a> {
    /// An operation of which no tensor can be read.
    pub fn new(op: CollectiveOp, dtype: Dtype, bytes: u64) -> Self {
        Self { op, dtype, shape: Shape::default(), bytes, input: None, caller: None, is_recorded: true }
    }

    /// An operation that moves exactly this tensor: `all_reduce`, `reduce`, `broadcast`, `send`.
    pub fn of(op: CollectiveOp, tensor: &'a TensorView<'a>) -> Self {
        let bytes = tensor.size_in_bytes() as u64;
        Self { shape: tensor.shape(), input: Some(tensor), ..Self::new(op, tensor.dtype(), bytes) }
    }
}

/// Which of an operation's tensors, and when: by the place of the argument in `torch.distributed`'s function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Slot {
    /// Before the call.
    Pre(u8),
    /// After it.
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
