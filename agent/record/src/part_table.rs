//! Which part of each parameter this rank holds, where ranks hold different ones: whose sums over ranks are the whole's.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use crate::{Kind, TensorInfo};

/// What is held of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Its values, and how a step changes them.
    Values,
    /// Its gradient after aggregation.
    Gradient,
    /// The optimizer's state.
    Moments,
}

impl Content {
    /// What records of a kind are of; `None` for what is no parameter's, or each rank's own (gradients before aggregation).
    pub const fn of(kind: Kind) -> Option<Self> {
        match kind {
            Kind::GradReduced | Kind::MgDirection => Some(Self::Gradient),
            Kind::ParamOrigin | Kind::ParamUpdated | Kind::Update | Kind::UpdateRatio => Some(Self::Values),
            kind if kind.is_moment() => Some(Self::Moments),
            _ => None,
        }
    }
}

/// A rank's part of one content of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldPart {
    /// Whether it counts in sums over ranks: not where a lower rank holds the same elements.
    pub is_counted: bool,
    /// How many elements it has; `None` where only the records tell.
    pub elements: Option<u64>,
}

/// A rank's parts of one parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterParts {
    /// The parameter's name in the whole model: pipeline stages and ranks with experts of their own count anew.
    pub whole_name: Arc<str>,
    /// How many elements it has over all ranks.
    pub elements: u64,
    /// By [`Content`]; `None` where it is not known which ranks hold the same.
    pub held: [Option<HeldPart>; 3],
    /// Whether the ranks that hold the values are those that step them: each measures the change of what it steps.
    pub is_stepped_by_holders: bool,
}

/// What a record comes to in a sum over ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// All of it, if it has this many elements; `None`: however many.
    Counted(Option<u64>),
    /// Nothing: a lower rank holds the same.
    OfAnother,
    /// Nobody can tell.
    Unknown,
}

/// The parts of every parameter, told once by the front. Empty where every rank holds everything, and where one rank is all.
#[derive(Debug, Default)]
pub struct PartTable(OnceLock<HashMap<TensorInfo, ParameterParts>>);

impl PartTable {
    /// Takes the parts of all parameters; what is told later is ignored. `parameters`: as their records are called.
    pub fn tell(&self, parameters: impl IntoIterator<Item = (TensorInfo, ParameterParts)>) {
        self.0.get_or_init(|| parameters.into_iter().collect());
    }

    /// Whether ranks hold different parts. Cost: one load.
    pub fn is_told(&self) -> bool {
        self.0.get().is_some()
    }

    /// What records of a kind of this tensor are called in the whole model and come to in sums over ranks. `None` for what is
    /// no parameter's, or each rank's own. Cost: two look-ups.
    pub fn find(&self, kind: Kind, tensor: &TensorInfo) -> Option<(Arc<str>, Share)> {
        let content = Content::of(kind)?;
        let parts = self.0.get()?;
        let (parts, state) = match parts.get(tensor) {
            Some(parts) => (parts, ""),
            None => match state_of(kind, tensor).and_then(|(of, state)| Some((parts.get(&of)?, state))) {
                Some(found) => found,
                None => return Some((Arc::clone(&tensor.name), Share::Unknown)),
            },
        };
        let whole = &parts.whole_name;
        let name = if state.is_empty() { Arc::clone(whole) } else { [&**whole, state].concat().into() };
        let share = match parts.held[content as usize] {
            None => Share::Unknown,
            Some(_) if kind == Kind::Update && !parts.is_stepped_by_holders => Share::Unknown,
            Some(HeldPart { is_counted: false, .. }) => Share::OfAnother,
            // State of another shape than the parameter's can be had of copies: they are the whole.
            Some(HeldPart { elements, .. }) => Share::Counted(elements.filter(|&elements| elements != parts.elements)),
        };
        Some((name, share))
    }
}

/// State of an unknown optimizer has the state's name behind the parameter's.
fn state_of(kind: Kind, tensor: &TensorInfo) -> Option<(TensorInfo, &str)> {
    let (parameter, state) = tensor.name.rsplit_once('.').filter(|_| kind == Kind::OptimizerState)?;
    let of = TensorInfo { name: parameter.into(), vpp_stage: tensor.vpp_stage };
    Some((of, &tensor.name[tensor.name.len() - state.len() - 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(name: &str, vpp_stage: u32) -> TensorInfo {
        TensorInfo { name: name.into(), vpp_stage }
    }

    #[test]
    fn a_record_counts_by_what_it_is_of() {
        let held = |is_counted, elements| Some(HeldPart { is_counted, elements });
        let book = PartTable::default();
        assert_eq!((book.is_told(), book.find(Kind::GradReduced, &tensor("h.0.w", 1))), (false, None));
        let parts = ParameterParts {
            whole_name: "h.4.w".into(),
            elements: 8,
            held: [held(false, Some(8)), held(true, Some(4)), held(true, Some(8))],
            is_stepped_by_holders: false,
        };
        book.tell([(tensor("h.0.w", 1), parts)]);
        book.tell([]);
        let find = |kind, name, stage| book.find(kind, &tensor(name, stage));
        assert_eq!(find(Kind::ParamOrigin, "h.0.w", 1), Some(("h.4.w".into(), Share::OfAnother)));
        assert_eq!(find(Kind::Update, "h.0.w", 1), Some(("h.4.w".into(), Share::Unknown)), "stepped by other ranks");
        assert_eq!(find(Kind::GradReduced, "h.0.w", 1), Some(("h.4.w".into(), Share::Counted(Some(4)))));
        let whole = Some(("h.4.w.momentum_8bit".into(), Share::Counted(None)));
        assert_eq!(find(Kind::OptimizerState, "h.0.w.momentum_8bit", 1), whole);
        assert_eq!(find(Kind::GradReduced, "h.0.w", 0), Some(("h.0.w".into(), Share::Unknown)));
        assert_eq!(find(Kind::GradUnreduced, "h.0.w", 1), None);
    }
}
