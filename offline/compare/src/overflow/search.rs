//! Searches one rank's operators in order for the origin of NaN and infinities, and for those on purpose.
//!
//! An infinity may be on purpose: a mask that adds minus infinity, or scores that are filled with it. It is an argument or is
//! filled in, and a softmax turns it into zeros. So an infinity that was not computed is followed silently until it becomes a
//! NaN, a loss or a gradient.

use trainmon_capture_files::{Leaf, Operator, Section, Value};

use super::non_finite::{has_infinity, is_bad, is_nan, was_told_infinity};
use super::{Anomaly, FirstNonFinite, RankAnomalies, level};
use crate::name::{Direction, OperatorName};
use crate::write_only::is_read;

/// Operations that select one element, which may be an infinite one of a mask.
const PICKS: [&str; 11] =
    ["amax", "amin", "aminmax", "item", "kthvalue", "max", "maximum", "median", "min", "minimum", "select"];

/// Shape and statistics, bitwise.
type Known = (Option<Vec<u64>>, [Option<u64>; 4]);

fn known(value: &Value) -> Known {
    let Some(tensor) = value.tensor() else { return (None, [None; 4]) };
    (tensor.sizes(), [0, 1, 2, 3].map(|at: usize| tensor.statistics[at].number().map(f64::to_bits)))
}

#[derive(Default)]
pub(super) struct Search {
    found: RankAnomalies,
    /// Operators that passed on an infinity that no operator computed.
    tolerated: Vec<Anomaly>,
    /// Where they received it, with the fingerprint of the tensor.
    given: Vec<(FirstNonFinite, Known)>,
    /// Whether it became a loss or a gradient.
    did_harm: bool,
}

impl Search {
    pub(super) fn of_rank(rank: u64) -> Self {
        Self { found: RankAnomalies { rank, ..RankAnomalies::default() }, ..Self::default() }
    }

    pub(super) fn look_at(&mut self, operator: &Operator, index: u32) {
        let Some((name, level)) = OperatorName::parse(&operator.name).zip(level(operator)) else { return };
        let anomaly = Anomaly { operator: index, name: operator.name.to_string(), level };
        if self.found.origin.is_none() && operator.values.iter().any(is_bad) {
            let sides = Sides { name, operator };
            self.found.origin = self.origin(sides, index);
            if self.found.origin.is_none() {
                self.tolerate(sides, index, anomaly);
                return;
            }
        }
        self.found.anomalies.push(anomaly);
    }

    /// The first NaN, computed infinity, or infinite parameter. For a parameter, it is the operator inside the module that read
    /// it first.
    fn origin(&self, sides: Sides<'_>, index: u32) -> Option<FirstNonFinite> {
        let parameter = || {
            let value = sides.parameter()?;
            let before = self.given.iter().find(|(_, other)| *other == known(value)).map(|(given, _)| given.clone());
            Some(before.unwrap_or_else(|| sides.value(value, true, index)))
        };
        sides.nan(index).or_else(parameter).or_else(|| sides.computed(index))
    }

    fn tolerate(&mut self, sides: Sides<'_>, index: u32, anomaly: Anomaly) {
        let given = sides.inputs().map(|value| (value, true)).chain(sides.outputs().map(|value| (value, false)));
        let infinite = given.filter(|(value, _)| has_infinity(value));
        self.given.extend(infinite.map(|(value, arrives)| (sides.value(value, arrives, index), known(value))));
        self.did_harm |= sides.is_harm();
        self.tolerated.push(anomaly);
    }

    pub(super) fn result(self) -> RankAnomalies {
        let Self { mut found, tolerated, given, did_harm } = self;
        if found.origin.is_none() && did_harm {
            found.origin = given.into_iter().next().map(|(first, _)| first);
        }
        // Earlier infinities are harmless.
        let begin = found.origin.as_ref().map_or(u32::MAX, |origin| origin.operator);
        let (counted, harmless): (Vec<_>, Vec<_>) = tolerated.into_iter().partition(|one| one.operator >= begin);
        found.on_purpose = harmless.into_iter().map(|one| one.name).collect();
        found.anomalies.extend(counted);
        found.anomalies.sort_by_key(|anomaly| anomaly.operator);
        found
    }
}

/// An operator's inputs and outputs.
#[derive(Clone, Copy)]
struct Sides<'a> {
    name: OperatorName<'a>,
    operator: &'a Operator,
}

impl<'a> Sides<'a> {
    fn inputs(self) -> impl Iterator<Item = &'a Value> {
        let is_read = move |value: &&Value| value.section.is_input() && is_read(self.name, &value.place);
        self.operator.values.iter().filter(is_read)
    }

    fn outputs(self) -> impl Iterator<Item = &'a Value> {
        self.operator.values.iter().filter(|value| !value.section.is_input())
    }

    fn nan(self, index: u32) -> Option<FirstNonFinite> {
        let given = self.inputs().find(|value| is_nan(value)).map(|value| self.value(value, true, index));
        given.or_else(|| self.outputs().find(|value| is_nan(value)).map(|value| self.value(value, false, index)))
    }

    /// A parameter with an infinity.
    fn parameter(self) -> Option<&'a Value> {
        self.inputs().find(|value| value.section == Section::Parameter && has_infinity(value))
    }

    /// An infinity that the operator computed.
    fn computed(self, index: u32) -> Option<FirstNonFinite> {
        if self.inputs().any(|value| has_infinity(value) || was_told_infinity(value)) {
            return None;
        }
        self.outputs().find(|value| has_infinity(value)).map(|value| self.value(value, false, index))
    }

    fn value(self, value: &Value, arrives: bool, index: u32) -> FirstNonFinite {
        let was_given = self.inputs().find(|input| has_infinity(input) && !is_nan(input));
        FirstNonFinite {
            operator: index,
            name: self.operator.name.to_string(),
            value: self.operator.name_of(value),
            what: if is_nan(value) { "NaN" } else { "infinity" },
            arrives,
            given: was_given.filter(|_| !arrives).map(|input| self.operator.name_of(input)),
        }
    }

    /// Whether a gradient is infinite, or a single number computed from many.
    fn is_harm(self) -> bool {
        let is_gradient = self.name.direction != Direction::Forward;
        let is_computed = !PICKS.contains(&self.name.operation()) && !self.inputs().any(was_told_infinity);
        let is_one = |value: &Value| matches!(&value.leaf, Leaf::Tensor(tensor) if tensor.elements() == Some(1));
        let is_many = |value: &Value| has_infinity(value) && !is_one(value);
        let is_loss = |value: &Value| is_computed && is_one(value) && self.inputs().any(is_many);
        self.outputs().any(|value| has_infinity(value) && (is_gradient || is_loss(value)))
    }
}
