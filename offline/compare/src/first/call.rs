//! An operator of both sides, with its values paired.

use trainmon_capture_files::Operator;

use super::compared::Comparer;
use super::finding::Compared;
use crate::evaluation::Sides;
use crate::fingerprint::Fingerprint;
use crate::name::{Direction, OperatorName};

/// The values of one operator on both sides.
pub(super) struct Call<'c> {
    /// The place in the order of execution.
    pub(super) place: usize,
    /// The index in the target and in the baseline.
    pub(super) at: (u32, u32),
    pub(super) operator: &'c Operator,
    pub(super) golden: &'c Operator,
    pub(super) name: Option<OperatorName<'c>>,
    pub(super) inputs: Vec<Compared<'c>>,
    pub(super) outputs: Vec<Compared<'c>>,
}

impl<'c> Call<'c> {
    /// Compares every value.
    pub(super) fn of(comparer: Comparer<'c>, place: usize, at: (u32, u32)) -> Self {
        Self::with(comparer, place, at, comparer.compare(at.0, at.1))
    }

    /// Compares every value after the divergence or a candidate: reads only tensors that a table needs.
    pub(super) fn behind(comparer: Comparer<'c>, place: usize, at: (u32, u32)) -> Self {
        Self::with(comparer, place, at, comparer.compare_behind(at.0, at.1))
    }

    /// All operators that both sides have, from a place on.
    pub(super) fn all_behind(comparer: Comparer<'c>, first: usize) -> impl Iterator<Item = Self> {
        let places = comparer.aligned.operators.iter().enumerate().skip(first);
        places.filter_map(move |(place, &(one, other))| Some(Self::behind(comparer, place, one.zip(other)?)))
    }

    fn with(comparer: Comparer<'c>, place: usize, at: (u32, u32), values: Vec<Compared<'c>>) -> Self {
        let (operator, golden) = (comparer.operator(at.0), comparer.golden(at.1));
        let (inputs, outputs) = values.into_iter().partition(|value| value.item.value.section.is_input());
        Self { place, at, operator, golden, name: OperatorName::parse(&operator.name), inputs, outputs }
    }

    /// Whether one side has it fused.
    pub(super) fn is_joined(&self, comparer: Comparer<'c>) -> bool {
        let Sides { target, golden, .. } = comparer.sides;
        target.joined.operator(&self.operator.name).is_some() || golden.joined.operator(&self.golden.name).is_some()
    }

    /// The inputs, then the outputs.
    pub(super) fn values(&self) -> impl Iterator<Item = &Compared<'c>> + Clone {
        self.inputs.iter().chain(&self.outputs)
    }

    /// The values that differ at all.
    pub(super) fn differing(&self) -> impl Iterator<Item = &Compared<'c>> + Clone {
        self.values().filter(|value| value.deviation.is_some())
    }

    /// Whether a forward call returns clearly different values, so that later operators would not hide the difference.
    pub(super) fn has_effect(&self) -> bool {
        self.is_forward() && self.outputs.iter().any(|output| output.deviation.relative > EFFECT)
    }

    /// Whether it receives clearly different tensors: then it may be another call.
    pub(super) fn is_given_others(&self) -> bool {
        self.inputs.iter().any(|input| input.item.tensor().is_some() && input.deviation.relative > EFFECT)
    }

    pub(super) fn is_forward(&self) -> bool {
        self.goes(Direction::Forward)
    }

    pub(super) fn goes(&self, direction: Direction) -> bool {
        self.name.is_some_and(|name| name.direction == direction)
    }
}

/// The difference from which on results count as different despite all rounding.
const EFFECT: f64 = 0.1;

/// The fingerprints of a value on both sides.
pub(super) fn looks(value: &Compared<'_>) -> Vec<Fingerprint> {
    let items = [Some(value.item), value.twin];
    items.into_iter().flatten().filter_map(|item| item.tensor()).map(Fingerprint::of).collect()
}
