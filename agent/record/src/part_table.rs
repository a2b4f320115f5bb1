//! The part of each parameter that this rank holds, if ranks hold different parts, so that sums over ranks cover the
//! whole parameter once.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use crate::{Kind, TensorInfo};

/// A quantity of a parameter that is distributed over ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// The values, and their change in a step.
    Values,
    /// The gradient after reduction.
    Gradient,
    /// The optimizer's state.
    Moments,
}

impl Content {
    /// The content that records of a kind belong to. `None` if they do not belong to a parameter or each rank has its
    /// own (gradients before reduction).
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
    /// Whether it counts in sums over ranks: `false` if a lower rank holds the same elements.
    pub is_counted: bool,
    /// The number of elements; `None` if only the records contain it.
    pub elements: Option<u64>,
}

/// A rank's parts of one parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterParts {
    /// The parameter's name in the whole model. Pipeline stages, and ranks with different experts, count from 0 in
    /// their own names.
    pub whole_name: Arc<str>,
    /// The number of elements over all ranks.
    pub elements: u64,
    /// By [`Content`]; `None` if it is unknown which ranks hold the same elements.
    pub held: [Option<HeldPart>; 3],
    /// Whether the ranks that hold the values also update them; each rank then measures the change of what it updates.
    pub is_stepped_by_holders: bool,
}

/// The contribution of a record to a sum over ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// The whole record, if it has this many elements; `None`: any number of elements.
    Counted(Option<u64>),
    /// None: a lower rank holds the same elements.
    OfAnother,
    /// Unknown.
    Unknown,
}

/// The parts of all parameters, set once by the front. Empty if every rank holds everything, and for a single rank.
#[derive(Debug, Default)]
pub struct PartTable(OnceLock<HashMap<TensorInfo, ParameterParts>>);

impl PartTable {
    /// Sets the parts of all parameters. Later calls have no effect. `parameters` have the names of their records.
    pub fn set(&self, parameters: impl IntoIterator<Item = (TensorInfo, ParameterParts)>) {
        self.0.get_or_init(|| parameters.into_iter().collect());
    }

    /// Whether ranks hold different parts. Cost: one load.
    pub fn is_set(&self) -> bool {
        self.0.get().is_some()
    }

    /// The name in the whole model, and the contribution to sums over ranks, of records of this kind and tensor. `None`
    /// if they do not belong to a parameter or each rank has its own. Cost: two look-ups.
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
            // State of another shape than the parameter exists only as full copies.
            Some(HeldPart { elements, .. }) => Share::Counted(elements.filter(|&elements| elements != parts.elements)),
        };
        Some((name, share))
    }
}

/// The parameter and the state's name: the state of an unknown optimizer has its name appended to the parameter's.
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
        let totals = PartTable::default();
        assert_eq!((totals.is_set(), totals.find(Kind::GradReduced, &tensor("h.0.w", 1))), (false, None));
        let parts = ParameterParts {
            whole_name: "h.4.w".into(),
            elements: 8,
            held: [held(false, Some(8)), held(true, Some(4)), held(true, Some(8))],
            is_stepped_by_holders: false,
        };
        totals.set([(tensor("h.0.w", 1), parts)]);
        totals.set([]);
        let find = |kind, name, stage| totals.find(kind, &tensor(name, stage));
        assert_eq!(find(Kind::ParamOrigin, "h.0.w", 1), Some(("h.4.w".into(), Share::OfAnother)));
        assert_eq!(find(Kind::Update, "h.0.w", 1), Some(("h.4.w".into(), Share::Unknown)), "stepped by other ranks");
        assert_eq!(find(Kind::GradReduced, "h.0.w", 1), Some(("h.4.w".into(), Share::Counted(Some(4)))));
        let whole = Some(("h.4.w.momentum_8bit".into(), Share::Counted(None)));
        assert_eq!(find(Kind::OptimizerState, "h.0.w.momentum_8bit", 1), whole);
        assert_eq!(find(Kind::GradReduced, "h.0.w", 0), Some(("h.0.w".into(), Share::Unknown)));
        assert_eq!(find(Kind::GradUnreduced, "h.0.w", 1), None);
    }
}
