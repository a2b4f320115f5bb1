//! One rank's operators in a step, in file order.

use std::sync::Arc;

/// The data about each tensor besides dtype and shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Max, min, mean and norm, and possibly checksums. Also a check for NaN, which stores none of these.
    Statistics,
    /// Also the tensors themselves, in files.
    Tensor,
    /// No data: only the operators and their modules.
    Structure,
}

/// The framework of the training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framework {
    /// torch; also the default of a file that names no framework.
    PyTorch,
    /// `MindSpore`.
    MindSpore,
    /// `MindSpore` with torch's interface.
    MindTorch,
}

/// The content of a `dump.json` or `debug.json`.
#[derive(Clone, Debug)]
pub struct Document {
    /// The captured data.
    pub task: Task,
    /// `L0`, `L1`, `mix` or `debug` in msprobe's files.
    pub level: Option<Box<str>>,
    /// The framework.
    pub framework: Framework,
    /// The operators, first started first. (msprobe orders modules by their end, so children come before parents.)
    pub operators: Vec<Operator>,
}

/// A call of an operator or module, its backward pass, or a module's parameter gradients.
#[derive(Clone, Debug)]
pub struct Operator {
    /// The name, such as `Functional.linear.0.forward` or `Module.head.Linear.forward.0`.
    pub name: Box<str>,
    /// Inputs, parameters, outputs, parameter gradients, in this order.
    pub values: Vec<Value>,
}

/// The side of an operator on which a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Section {
    /// Positional and keyword arguments; in a backward pass, the gradients of the outputs.
    Input,
    /// A module's own parameters.
    Parameter,
    /// Return values; in a backward pass, the gradients of the inputs.
    Output,
    /// Gradients of a module's parameters.
    ParameterGradient,
    /// A value that a script saved by name.
    Saved,
}

impl Section {
    /// Whether the operator receives the value; otherwise it returns it.
    pub fn is_input(self) -> bool {
        matches!(self, Self::Input | Self::Parameter)
    }
}

/// One tensor, number, text or `None`.
#[derive(Clone, Debug)]
pub struct Value {
    /// The side of the operator.
    pub section: Section,
    /// The place among the operator's values, such as `.input.0` or `.parameters.weight`; appended to the operator's
    /// name, it gives the value's name. Values with the same place share it.
    pub place: Arc<str>,
    /// The value itself.
    pub leaf: Leaf,
}

impl Value {
    /// The tensor, if the value is one.
    pub fn tensor(&self) -> Option<&TensorFacts> {
        if let Leaf::Tensor(tensor) = &self.leaf { Some(tensor) } else { None }
    }
}

/// The content of a value.
#[derive(Clone, Debug)]
pub enum Leaf {
    /// `None`, or a value that the capture could not describe.
    Nothing,
    /// A tensor or array.
    Tensor(Box<TensorFacts>),
    /// Anything else: a number, a text, a slice, a size.
    Plain {
        /// The file's `type`, such as `int` or `slice`.
        kind: Box<str>,
        /// The value.
        value: Plain,
    },
    /// A group of ranks.
    Group {
        /// The members.
        ranks: Plain,
        /// A hash of the members.
        id: Option<Box<str>>,
    },
}

/// The file's data about a tensor.
#[derive(Clone, Debug)]
pub struct TensorFacts {
    /// The file's `type`, such as `torch.Tensor` or `numpy.ndarray`.
    pub kind: Arc<str>,
    /// The dtype, such as `torch.float32`. Tensors of one dtype or shape share it, because a capture has few different
    /// ones.
    pub dtype: Arc<Plain>,
    /// The sizes.
    pub shape: Arc<Plain>,
    /// Max, min, mean and L2 norm; null if undefined, all null if only checksums were computed.
    pub statistics: [Plain; 4],
    /// Whether the tensor requires gradients.
    pub requires_grad: Option<bool>,
    /// Whether it is a rank's part of a distributed tensor: statistics and checksum are those of the part, the shape is
    /// that of the whole.
    pub is_shard: bool,
    /// Whether its memory was allocated uninitialized in this capture (`torch.empty`): a part of it may still be
    /// uninitialized.
    pub is_from_empty: bool,
    /// Whether its memory was completely uninitialized when it was captured, so that its numbers are meaningless. No
    /// file contains this; a reader may derive it from the operator.
    pub is_unwritten: bool,
    /// Its file inside `dump_tensor_data`.
    pub data_name: Option<Box<str>>,
    /// CRC-32 (8 hex digits) or xor of the memory (`0x…`); `Some(Null)` if the field exists but is empty.
    pub digest: Option<Plain>,
    /// The other rank, if the tensor belongs to a point-to-point operation.
    pub peer: Option<Box<Peer>>,
}

/// One send or receive of a batch.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The operation: `isend`, `irecv`.
    pub operation: Plain,
    /// The other rank.
    pub rank: Plain,
    /// The tag, which distinguishes operations between the same two ranks.
    pub tag: Plain,
    /// A hash of the group's ranks.
    pub group_id: Plain,
}

/// A JSON value that is not an object.
#[derive(Clone, Debug, PartialEq)]
pub enum Plain {
    /// `null`.
    Null,
    /// A boolean.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// An integer beyond 64 bits, as written in the file.
    Big(Box<str>),
    /// A float; the file may contain `NaN`, `Infinity` and `-Infinity`.
    Float(f64),
    /// A text.
    Text(Box<str>),
    /// A list.
    List(Box<[Plain]>),
}

impl Plain {
    /// The number, if it is one; a boolean is not.
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Int(value) => Some(*value as f64),
            Self::Float(value) => Some(*value),
            Self::Big(text) => text.parse().ok(),
            _ => None,
        }
    }

    /// The text, if it is one.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Whether it is `null`.
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }
}

impl TensorFacts {
    /// The sizes, if they are non-negative integers.
    pub fn sizes(&self) -> Option<Vec<u64>> {
        self.each_size()?.collect()
    }

    fn each_size(&self) -> Option<impl Iterator<Item = Option<u64>>> {
        let Plain::List(sizes) = &*self.shape else { return None };
        Some(sizes.iter().map(|size| if let Plain::Int(size) = size { u64::try_from(*size).ok() } else { None }))
    }

    /// The number of elements: 1 for a shape without dimensions.
    pub fn elements(&self) -> Option<u64> {
        self.each_size()?.try_fold(1_u64, |count, size| count.checked_mul(size?))
    }
}

impl Operator {
    /// The full name of a value.
    pub fn name_of(&self, value: &Value) -> String {
        [&*self.name, &*value.place].concat()
    }

    /// The tensors on one side.
    pub fn tensors(&self, section: Section) -> impl DoubleEndedIterator<Item = &TensorFacts> {
        self.values.iter().filter(move |value| value.section == section).filter_map(Value::tensor)
    }
}

impl Document {
    /// Whether any tensor has a checksum.
    pub fn has_digests(&self) -> bool {
        self.tensors().any(|tensor| tensor.digest.is_some())
    }

    /// Whether any tensor has statistics.
    pub fn has_statistics(&self) -> bool {
        self.tensors().any(|tensor| tensor.statistics.iter().any(|value| !value.is_null()))
    }

    /// Every tensor, in file order.
    pub fn tensors(&self) -> impl Iterator<Item = &TensorFacts> {
        self.operators.iter().flat_map(|operator| &operator.values).filter_map(Value::tensor)
    }
}
