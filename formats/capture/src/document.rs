//! One rank's operators in a step, in the order of the file.

use std::sync::Arc;

/// What a dump holds of each tensor besides dtype and shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Max, min, mean, norm; maybe checksums. Also a look for NaN, which keeps none of these.
    Statistics,
    /// The tensors themselves too, in files.
    Tensor,
    /// Nothing: only which operators ran, and in which modules.
    Structure,
}

/// Which framework ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framework {
    /// torch; also what a file that names none is of.
    PyTorch,
    /// `MindSpore`.
    MindSpore,
    /// `MindSpore` behind torch's interface.
    MindTorch,
}

/// A `dump.json` or `debug.json`.
#[derive(Clone, Debug)]
pub struct Document {
    /// What was captured.
    pub task: Task,
    /// `L0`, `L1`, `mix` or `debug` in msprobe's files.
    pub level: Option<Box<str>>,
    /// Where it ran.
    pub framework: Framework,
    /// The operators, first started first. (msprobe puts modules where they end, so children come before parents.)
    pub operators: Vec<Operator>,
}

/// A call of an operator or module, its backward, or a module's parameter gradients.
#[derive(Clone, Debug)]
pub struct Operator {
    /// Like `Functional.linear.0.forward` or `Module.head.Linear.forward.0`.
    pub name: Box<str>,
    /// Inputs, parameters, outputs, parameter gradients, in this order.
    pub values: Vec<Value>,
}

/// On which side of an operator a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Section {
    /// Positional and keyword arguments; in a backward the gradients of the outputs.
    Input,
    /// A module's own parameters.
    Parameter,
    /// What came out; in a backward the gradients of the inputs.
    Output,
    /// Gradients of a module's parameters.
    ParameterGradient,
    /// A value a script saved by name.
    Saved,
}

impl Section {
    /// Whether the operator is given it; else it comes of it.
    pub fn is_input(self) -> bool {
        matches!(self, Self::Input | Self::Parameter)
    }
}

/// One tensor, number, text or nothing.
#[derive(Clone, Debug)]
pub struct Value {
    /// Its side.
    pub section: Section,
    /// Where it is among the operator's values, like `.input.0` or `.parameters.weight`; appended to the operator's name it
    /// is the value's name. Values of the same place share it.
    pub place: Arc<str>,
    /// It itself.
    pub leaf: Leaf,
}

impl Value {
    /// The tensor it is.
    pub fn tensor(&self) -> Option<&TensorFacts> {
        if let Leaf::Tensor(tensor) = &self.leaf { Some(tensor) } else { None }
    }
}

/// What a value is.
#[derive(Clone, Debug)]
pub enum Leaf {
    /// `None`, or something the capturing side could not describe.
    Nothing,
    /// A tensor or array.
    Tensor(Box<TensorFacts>),
    /// Anything else: a number, a text, a slice, a size.
    Plain {
        /// The file's `type`, like `int` or `slice`.
        kind: Box<str>,
        /// Its value.
        value: Plain,
    },
    /// A group of ranks.
    Group {
        /// Its members.
        ranks: Plain,
        /// A hash of them.
        id: Option<Box<str>>,
    },
}

/// What the file says of a tensor.
#[derive(Clone, Debug)]
pub struct TensorFacts {
    /// The file's `type`, like `torch.Tensor` or `numpy.ndarray`.
    pub kind: Arc<str>,
    /// Like `torch.float32`. Tensors of one dtype or shape share it: a capture has few different ones.
    pub dtype: Arc<Plain>,
    /// Sizes.
    pub shape: Arc<Plain>,
    /// Max, min, mean and L2 norm; null where they are not defined, all null where only checksums were taken.
    pub statistics: [Plain; 4],
    /// Whether it takes part in differentiation.
    pub requires_grad: Option<bool>,
    /// Whether it is a rank's part of a tensor that is spread over ranks: statistics and checksum are the part's, the shape is the whole's.
    pub is_shard: bool,
    /// Whether its memory was handed out unwritten in this capture (`torch.empty`): a part of it may still be as it was.
    pub is_from_empty: bool,
    /// Whether it is memory that nobody had written yet when it was seen: its numbers say nothing of a run. No file says so; whoever
    /// reads one may know it of the operator.
    pub is_unwritten: bool,
    /// The file it is in, inside `dump_tensor_data`.
    pub data_name: Option<Box<str>>,
    /// CRC-32 (8 hex digits) or xor of the memory (`0x…`); `Some(Null)` if the field is there but empty.
    pub digest: Option<Plain>,
    /// The other rank, where the tensor belongs to an operation between two.
    pub peer: Option<Box<Peer>>,
}

/// One send or receive of a batch.
#[derive(Clone, Debug)]
pub struct Peer {
    /// `isend`, `irecv`.
    pub operation: Plain,
    /// The other rank.
    pub rank: Plain,
    /// Told apart from others between the same two by it.
    pub tag: Plain,
    /// A hash of the group's ranks.
    pub group_id: Plain,
}

/// A JSON value that is no object.
#[derive(Clone, Debug, PartialEq)]
pub enum Plain {
    /// `null`.
    Null,
    /// A boolean.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// An integer beyond 64 bits, as it stands in the file.
    Big(Box<str>),
    /// A float; the file may have `NaN`, `Infinity` and `-Infinity`.
    Float(f64),
    /// A text.
    Text(Box<str>),
    /// A list.
    List(Box<[Plain]>),
}

impl Plain {
    /// The number it is; a boolean is none.
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Int(value) => Some(*value as f64),
            Self::Float(value) => Some(*value),
            Self::Big(text) => text.parse().ok(),
            _ => None,
        }
    }

    /// The text it is.
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
    /// The sizes, if they are whole numbers from 0 on.
    pub fn sizes(&self) -> Option<Vec<u64>> {
        self.each_size()?.collect()
    }

    fn each_size(&self) -> Option<impl Iterator<Item = Option<u64>>> {
        let Plain::List(sizes) = &*self.shape else { return None };
        Some(sizes.iter().map(|size| if let Plain::Int(size) = size { u64::try_from(*size).ok() } else { None }))
    }

    /// How many elements: 1 for a shape without dimensions.
    pub fn elements(&self) -> Option<u64> {
        self.each_size()?.try_fold(1_u64, |count, size| count.checked_mul(size?))
    }
}

impl Operator {
    /// A value's whole name.
    pub fn name_of(&self, value: &Value) -> String {
        [&*self.name, &*value.place].concat()
    }

    /// Its tensors on a side.
    pub fn tensors(&self, section: Section) -> impl DoubleEndedIterator<Item = &TensorFacts> {
        self.values.iter().filter(move |value| value.section == section).filter_map(Value::tensor)
    }
}

impl Document {
    /// Whether any tensor carries a checksum.
    pub fn has_digests(&self) -> bool {
        self.tensors().any(|tensor| tensor.digest.is_some())
    }

    /// Whether any tensor carries statistics.
    pub fn has_statistics(&self) -> bool {
        self.tensors().any(|tensor| tensor.statistics.iter().any(|value| !value.is_null()))
    }

    /// Every tensor, in the order of the file.
    pub fn tensors(&self) -> impl Iterator<Item = &TensorFacts> {
        self.operators.iter().flat_map(|operator| &operator.values).filter_map(Value::tensor)
    }
}
