//! Two values that belong together, and by what.

use crate::item::Address;

/// Operators of both sides by index; at least one side is there. In the target's order, what only the golden has where it ran.
pub(crate) type Aligned = (Option<u32>, Option<u32>);

/// By what two values were found to belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum How {
    /// The same name.
    Name,
    /// The same name but for the number of a backward call: calls are counted in the order they ran.
    Renumbered,
    /// The same place in the sequence of calls, whatever their numbers.
    Sequence,
    /// A mapping file.
    Mapping,
    /// One side's parts were put together as the other has them fused.
    Fused,
    /// The same, and the fused tensors have the parts by groups (of heads, of rows), not one after another.
    FusedInGroups,
    /// The same operator in another framework's spelling.
    Family,
    /// The same name but for what a parallel wrapper adds to it.
    Wrapped,
    /// The same name but for the index in a list of one model, which one side was captured as.
    Listed,
}

impl How {
    /// The word for it in tables.
    pub fn word(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Renumbered => "renumbered",
            Self::Sequence => "sequence",
            Self::Mapping => "mapping",
            Self::Fused => "fused",
            Self::FusedInGroups => "fused, in groups",
            Self::Family => "family",
            Self::Wrapped => "wrapper",
            Self::Listed => "list of one model",
        }
    }
}

/// A row of the comparison: at least one side is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The run in question.
    pub target: Option<Address>,
    /// The run it is held against.
    pub golden: Option<Address>,
    /// By what they belong together; also told of a target without golden.
    pub how: How,
}
