//! The extent of rewritten code: from the first difference to the operator at which both sides continue together.

use std::collections::HashSet;

use trainmon_capture_files::{Leaf, Operator, Section};

use super::agreement::{SURE, keeps_statistics};
use super::call::{Call, looks};
use super::compared::Comparer;
use super::finding::{Compared, Finding, Kind};
use super::learnt::Bounds;
use super::left::left_alike;
use super::magnitude::{only_moves, takes_weights};
use super::memory::numbers;
use super::operands::{inputs, results};
use crate::deviation::What;
use crate::fingerprint::Fingerprint;
use crate::name::{Direction, OperatorName};

/// The distance, in operators, up to which earlier one-sided calls count as part of rewritten code.
pub(super) const NEAR: usize = 48;

/// A region of rewritten code.
pub(super) struct Region {
    /// Its places, in the order of execution.
    pub(super) places: Vec<usize>,
    /// The operator at which both sides continue together.
    pub(super) until: String,
    /// The difference of the results.
    pub(super) apart: f64,
    /// Whether a parameter has another shape.
    pub(super) is_reshaped: bool,
}

/// The relation of an operator to rewritten code.
enum Passed {
    /// Unrelated.
    Same,
    /// It reads the result of the region, which agrees within this difference.
    Together(f64),
    /// It belongs to the region. Also whether a parameter has another shape, and whether each side reads another common result
    /// or a negated one.
    Inside { is_reshaped: bool, is_rewired: bool },
    /// It differs for another reason.
    Apart,
}

/// The operator at which the sum of gradients is used and agrees, if only gradients on the way to it differ: micro-batches were
/// added in another order.
pub(super) fn accumulated(bounds: Bounds<'_, '_>, finding: &Finding) -> Option<String> {
    let name = OperatorName::parse(&finding.operator)?;
    if name.direction != Direction::ParameterGradient || name.call == 0 {
        return None;
    }
    let mut parts: HashSet<Fingerprint> = HashSet::new();
    let mut until = None;
    for call in Call::all_behind(bounds.comparer, finding.place) {
        let Some(name) = call.name else { continue };
        if name.direction == Direction::ParameterGradient {
            parts.extend(call.differing().flat_map(looks));
        } else if name.direction == Direction::Forward {
            if call.differing().any(|value| !bounds.agrees(call.operator, value)) {
                return None;
            }
            if call.inputs.iter().any(|value| looks(value).iter().any(|looks| parts.contains(looks))) {
                until.get_or_insert_with(|| call.operator.name.to_string());
            }
        }
    }
    until
}

/// Follows the differences from a finding on, as long as they run in the same direction, forward or backward. They are
/// rewritten code under three conditions. One side has calls of its own (`alone`, the earlier ones that compute anything) or
/// its parameters another shape. A later operator reads agreeing results. Nothing derived from them differs any more. `known`:
/// places of such regions that were found before.
pub(super) fn region(
    bounds: Bounds<'_, '_>,
    (alone, known): (&[&Finding], &HashSet<usize>),
    finding: &Finding,
    fingerprints: &[Fingerprint],
) -> Option<Region> {
    let comparer = bounds.comparer;
    let direction = OperatorName::parse(&finding.operator)?.direction;
    let mut followed = Followed::of(comparer, alone, finding, fingerprints);
    for (place, &(one, other)) in comparer.aligned.operators.iter().enumerate().skip(finding.place) {
        let (Some(one), Some(other)) = (one, other) else {
            let operator = comparer.of_one_side([one, other])?;
            if OperatorName::parse(&operator.name).is_some_and(|name| is_same_way(name.direction, direction)) {
                followed.alone(operator);
            }
            continue;
        };
        let Some(name) = OperatorName::parse(&comparer.operator(one).name) else { continue };
        if !is_same_way(name.direction, direction) {
            followed.end_together(comparer, finding.place..place);
            break;
        }
        if comparer.judge.thresholds.ignores(name) || known.contains(&place) {
            continue;
        }
        let call = Call::behind(comparer, place, (one, other));
        let passed = passes(bounds, &call, &followed.inside, finding);
        if matches!(passed, Passed::Apart) && followed.is_again(bounds, finding, &call) {
            followed.both(&call, &Passed::Inside { is_reshaped: false, is_rewired: false });
            continue;
        }
        if matches!(passed, Passed::Apart) {
            // If results agree only within the limits of a coarse dtype, later differences speak against rewritten code.
            if followed.region.until.is_empty() || followed.region.apart > SURE {
                return None;
            }
            // A later, separate difference: the search will reach it. Statistics of another result may agree.
            followed.has_rewired = false;
            followed.end = End::Apart;
            break;
        }
        followed.both(&call, &passed);
    }
    followed.explained(bounds, finding)
}

/// The state of following a region.
struct Followed {
    region: Region,
    /// The fingerprints of its values.
    inside: HashSet<Fingerprint>,
    /// Whether one-sided calls are involved: one produced what differs, or reads it later.
    is_one_sided: bool,
    has_own_parameters: bool,
    has_rewired: bool,
    end: End,
}

/// How a region ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// Operators read its results, and nothing else differs.
    Taken,
    /// Something else differs after it.
    Apart,
    /// The forward pass ends with its results.
    Left,
}

impl Followed {
    fn of(comparer: Comparer<'_>, alone: &[&Finding], finding: &Finding, fingerprints: &[Fingerprint]) -> Self {
        let near = |call: &&&Finding| call.place + NEAR >= finding.place;
        let mut inside: HashSet<Fingerprint> = fingerprints.iter().copied().collect();
        inside.extend(alone.iter().filter(near).flat_map(|call| comparer.given(call)));
        let gives = |call: &&Finding| comparer.given(call).iter().any(|given| fingerprints.contains(given));
        Self {
            region: Region { places: Vec::new(), until: String::new(), apart: 0.0, is_reshaped: false },
            inside,
            is_one_sided: alone.iter().any(gives),
            has_own_parameters: false,
            has_rewired: false,
            end: End::Taken,
        }
    }

    /// Handles a forward pass that ends after these places without a common operator reading the results: a loss that each side
    /// computes in its own way. The sides agree if all their remaining results do.
    fn end_together(&mut self, comparer: Comparer<'_>, places: std::ops::Range<usize>) {
        if self.region.until.is_empty()
            && let Some((until, apart)) = left_alike(comparer, places)
        {
            (self.region.until, self.region.apart) = (until, apart);
            self.end = End::Left;
        }
    }

    /// Whether a call after such a region receives another result of code that was not captured: optimizers decompose a matrix
    /// for each parameter.
    fn is_again(&self, bounds: Bounds<'_, '_>, finding: &Finding, call: &Call<'_>) -> bool {
        let mut given = call.inputs.iter().filter(|input| !agrees(bounds, finding, call, input)).peekable();
        finding.kind == Kind::Between
            && !self.region.until.is_empty()
            && self.region.apart <= SURE
            && call.is_forward()
            && !keeps_statistics(call)
            && given.peek().is_some()
            && given.all(|input| input.deviation.what == What::Numbers && bounds.is_fresh(call, input))
    }

    /// A one-sided call.
    fn alone(&mut self, operator: &Operator) {
        let is_computed = !OperatorName::parse(&operator.name).is_some_and(only_moves);
        let mut given = inputs(operator).map(Fingerprint::of);
        self.is_one_sided |= is_computed && given.any(|looks| self.inside.contains(&looks));
        self.has_own_parameters |= self.region.until.is_empty() && has_parameters(operator);
        self.inside.extend(results(operator).map(Fingerprint::of));
    }

    /// A call of both sides.
    fn both(&mut self, call: &Call<'_>, passed: &Passed) {
        match *passed {
            Passed::Same | Passed::Apart => {}
            Passed::Together(apart) => {
                if self.region.until.is_empty() {
                    self.region.until = call.operator.name.to_string();
                }
                self.region.apart = self.region.apart.max(apart);
            }
            Passed::Inside { is_reshaped, is_rewired } => {
                self.region.until.clear();
                self.region.is_reshaped |= is_reshaped;
                self.has_rewired |= is_rewired;
                self.region.places.push(call.place);
                let results = call.outputs.iter().filter(|_| self.has_rewired);
                self.inside.extend(call.differing().chain(results).flat_map(looks));
            }
        }
    }

    fn explained(self, bounds: Bounds<'_, '_>, finding: &Finding) -> Option<Region> {
        let Self { region, is_one_sided, has_own_parameters, has_rewired, end, .. } = self;
        // Data and parameters are not computed and cannot be rewritten, except for a parameter with another shape or on one
        // side only.
        let is_uncomputed = matches!(finding.kind, Kind::Parameter | Kind::Data);
        let is_sure = region.apart <= SURE;
        let is_update = bounds.is_update(OperatorName::parse(&finding.operator));
        let is_written_otherwise =
            (is_one_sided || (has_rewired && is_sure)) && (!is_uncomputed || has_own_parameters) && !is_update;
        // Code that was not captured may have another correct result, such as vectors of equal eigenvalues.
        let is_unrecorded = finding.kind == Kind::Between && end == End::Taken && is_sure;
        let is_explained = region.is_reshaped || is_written_otherwise || is_unrecorded;
        (is_explained && !region.places.is_empty() && !region.until.is_empty()).then_some(region)
    }
}

fn passes<'c>(bounds: Bounds<'_, 'c>, call: &Call<'c>, inside: &HashSet<Fingerprint>, finding: &Finding) -> Passed {
    let operator = call.operator;
    let agree_to = bounds.results_agree_to(operator);
    let is_of_it = |value: &&Compared<'c>| looks(value).iter().any(|looks| inside.contains(looks));
    if keeps_statistics(call) || call.inputs.iter().any(|input| bounds.is_nearly_given(call, input)) {
        return Passed::Apart;
    }
    let differing: Vec<&Compared<'c>> =
        call.inputs.iter().filter(|input| !agrees(bounds, finding, call, input)).collect();
    let bound = bounds.comparer.judge.bound(operator, 0.0).bound.max(2.0 * agree_to);
    let is_beyond = |output: &&Compared<'c>| output.deviation.relative > bound;
    let is_output_apart = call.outputs.iter().filter(is_beyond).any(|output| !bounds.is_cancelled(call, output));
    if differing.is_empty() && !is_output_apart {
        let joined = call.inputs.iter().filter(is_of_it).map(|input| input.deviation.relative);
        return joined.reduce(f64::max).map_or(Passed::Same, Passed::Together);
    }
    let is_reshape = |value: &Compared<'c>| value.deviation.what == What::Shape;
    if call.goes(Direction::ParameterGradient)
        && !call.outputs.iter().all(|it| is_reshape(it) || !it.deviation.is_some())
    {
        return Passed::Apart;
    }
    let is_rewired = |input: &Compared<'c>| {
        let tensors = input.item.tensor().zip(input.twin.and_then(|twin| twin.tensor()));
        tensors.is_some_and(|(one, other)| bounds.learnt.rounding.have_both(one, other))
    };
    let is_reshaped = call.inputs.iter().any(|input| is_reshape(input) && bounds.is_parameter(call, input));
    let is_explained = |input: &&Compared<'c>| {
        is_of_it(input)
            || bounds.is_parameter(call, input)
            || is_reshape(input)
            || is_rewired(input)
            || is_negated(input)
    };
    if call.place == finding.place || (!differing.is_empty() && differing.iter().all(is_explained)) {
        return Passed::Inside {
            is_reshaped,
            is_rewired: differing.iter().any(|input| is_rewired(input) || is_negated(input)),
        };
    }
    Passed::Apart
}

/// Whether a value agrees after rewritten code. If that code was not captured, an update rounds like any other code.
fn agrees(bounds: Bounds<'_, '_>, finding: &Finding, call: &Call<'_>, value: &Compared<'_>) -> bool {
    let is_rounding = || value.deviation.relative <= bounds.fresh_bound(call.operator);
    bounds.agrees(call.operator, value)
        || (finding.kind == Kind::Between && bounds.is_update(call.name) && is_rounding())
}

/// Whether one side has the other's numbers negated: a negation is not captured, and passes through a sum.
fn is_negated(input: &Compared<'_>) -> bool {
    if let (Leaf::Plain { value, .. }, Some(twin)) = (&input.item.value.leaf, input.twin) {
        let other = if let Leaf::Plain { value, .. } = &twin.value.leaf { value.number() } else { None };
        return value.number().zip(other).is_some_and(|(one, other)| one == -other);
    }
    let twin = input.twin.and_then(|twin| twin.tensor());
    let Some((a, b)) = input.item.tensor().and_then(numbers).zip(twin.and_then(numbers)) else { return false };
    let size = a[..2].iter().fold(0.0_f64, |most, it| most.max(it.abs()));
    let is_near = |one: f64, other: f64| (one + other).abs() <= SURE * size;
    size > 0.0 && is_near(a[0], b[1]) && is_near(a[1], b[0]) && is_near(a[2], b[2]) && is_near(a[3], -b[3])
}

fn is_same_way(one: Direction, other: Direction) -> bool {
    (one == Direction::Forward) == (other == Direction::Forward)
}

/// Whether a call has parameters of its own.
fn has_parameters(operator: &Operator) -> bool {
    let takes = OperatorName::parse(&operator.name).is_some_and(|name| takes_weights(name.function()));
    takes || operator.values.iter().any(|value| value.section == Section::Parameter)
}
