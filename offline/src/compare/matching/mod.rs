//! Which value of the target belongs to which of the golden.

mod exact;
mod fuzzy;
mod mapping;
mod sequence;

pub use exact::exact;
pub use fuzzy::fuzzy;
pub use mapping::{Mapping, MappingError, by_cell, by_data};
pub use sequence::{Aligned, align};

use crate::compare::input::Address;

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
}

impl How {
    /// The word for it in tables.
    pub fn word(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Renumbered => "renumbered",
            Self::Sequence => "sequence",
            Self::Mapping => "mapping",
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
