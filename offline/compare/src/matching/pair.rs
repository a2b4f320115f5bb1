//! A pair of values, and how it was found.

use crate::item::Address;

/// The operators of both sides by index, at least one of them. In the target's order; operators of the baseline only are where
/// they ran.
pub(crate) type Aligned = (Option<u32>, Option<u32>);

/// How two values were paired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum How {
    /// By the same name.
    Name,
    /// By the same name after renumbering backward calls in execution order.
    Renumbered,
    /// By the same place in the sequence of calls, whatever their numbers.
    Sequence,
    /// By a mapping file.
    Mapping,
    /// One side's parts were joined as on the other side, where they are fused.
    Fused,
    /// Joined, and the fused tensors have the parts in groups (of heads, of rows), not one after another.
    FusedInGroups,
    /// By the same operator in another framework's spelling.
    Family,
    /// By the same name without the additions of a parallel wrapper.
    Wrapped,
    /// By the same name without the index of a list of one model, as which one side was captured.
    Listed,
}

impl How {
    /// The text for tables.
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

/// A row of the comparison with a value of at least one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The value of the target.
    pub target: Option<Address>,
    /// The value of the baseline.
    pub golden: Option<Address>,
    /// How they were paired; also set for a target without a baseline.
    pub how: How,
}
