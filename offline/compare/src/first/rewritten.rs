//! Code that was written otherwise: calls of one side alone, and what comes out of them agrees.

use std::collections::HashSet;

use trainmon_dump::capture::{Operator, Section, TensorFacts};

use crate::deviation::{What, deviation};
use crate::item::Item;
use crate::name::{Direction, OperatorName};

use super::finding::{Candidate, Compared, Excuse, Finding, Kind, OneSidedCall, Rewritten, suspect};
use super::magnitude::{only_moves, takes_weights};
use super::walker::Walker;
use crate::fingerprint::Fingerprint;

/// Calls of one side alone count as part of a rewritten place if they ran at most so many operators before it.
pub(super) const NEAR: usize = 48;

/// Results that are apart by no more agree for sure: what float32 makes of it. (Half precision says little.)
const SURE: f64 = 1.5e-5;

/// A part that is computed otherwise.
struct Region {
    places: Vec<usize>,
    until: String,
    apart: f64,
    is_reshaped: bool,
}

impl<'c> Walker<'c> {
    pub(super) fn one_sided(&mut self, place: usize, kind: Kind, target: Option<u32>, golden: Option<u32>) {
        let Some(operator) = self.of_one_side(target, golden) else { return };
        let given: Vec<Fingerprint> = results(operator).map(Fingerprint::of).collect();
        let operator = operator.name.to_string();
        let is_target = kind == Kind::TargetOnly;
        let is_forward = OperatorName::parse(&operator).is_some_and(|name| name.direction == Direction::Forward);
        let is_update = is_forward && self.gradient.is_some();
        if is_update && OperatorName::parse(&operator).is_some_and(|name| name.function().ends_with('_')) {
            self.changed.extend(given.iter().copied());
        }
        self.given.extend(given);
        self.walked.one_sided.push(OneSidedCall { operator: operator.clone(), place, is_target });
        if self.walked.finding.is_none() {
            self.parted.push(Finding { is_update, ..Finding::at(kind, operator, place, [target, golden]) });
        }
    }

    pub(super) fn of_one_side(&self, target: Option<u32>, golden: Option<u32>) -> Option<&'c Operator> {
        match (target, golden) {
            (Some(index), _) => Some(&self.target.document.operators[index as usize]),
            (None, Some(index)) => Some(&self.golden.document.operators[index as usize]),
            (None, None) => None,
        }
    }

    /// Calls of one side alone that compute anything: what only moves values computes nothing otherwise.
    fn computed(&self) -> impl Iterator<Item = &Finding> {
        self.parted.iter().filter(|call| !OperatorName::parse(&call.operator).is_some_and(only_moves))
    }

    /// What a call of one side alone gave.
    fn given(&self, parted: &Finding) -> Vec<Fingerprint> {
        let Some(operator) = self.of_one_side(parted.target, parted.golden) else { return Vec::new() };
        results(operator).map(Fingerprint::of).collect()
    }

    /// Among calls that one side alone made: the one that gave what is missed here, else the first of the last ones together.
    pub(super) fn missing_producer(&mut self, missed: &[Fingerprint]) -> Option<Finding> {
        let gives = |parted: &Finding| self.given(parted).iter().any(|given| missed.contains(given));
        if let Some(found) = self.parted.iter().position(gives) {
            return Some(self.parted.remove(found));
        }
        let mut parted = self.parted.pop()?;
        while let Some(before) = self.parted.pop_if(|before| before.place + 1 == parted.place) {
            parted = before;
        }
        Some(parted)
    }

    /// Whether inputs that nobody produced are the results of calls that one side alone made, and agree: then that part is computed
    /// otherwise, and the search goes on behind it.
    pub(super) fn agrees_again(
        &mut self,
        place: usize,
        operator: &Operator,
        fresh: &[&Compared<'c>],
        fingerprints: &[Fingerprint],
    ) -> bool {
        let apart = fresh.iter().map(|input| input.deviation.relative).fold(0.0, f64::max);
        let is_number = |input: &&Compared<'c>| input.deviation.what == What::Numbers;
        if !fresh.iter().all(|input| is_number(input) && self.agrees(operator, input)) {
            return false;
        }
        let is_given =
            self.computed().any(|parted| self.given(parted).iter().any(|given| fingerprints.contains(given)));
        let is_inside = fingerprints.iter().any(|looks| self.excused.inside.contains(looks));
        // In a backward most of what is recorded is a view that nobody takes as it is: there the forward must have been such a part.
        let name = OperatorName::parse(&operator.name);
        let is_behind = name.is_some_and(|name| name.direction == Direction::Backward && self.led_into_part(name))
            && self.parted.iter().any(|parted| is_backward(parted) && parted.place + NEAR >= place);
        if !is_given && !is_inside && !is_behind {
            return false;
        }
        let suspects = Vec::new();
        let producer = if is_given || is_behind { self.missing_producer(fingerprints) } else { None };
        if let Some(finding) = producer {
            let until = operator.name.to_string();
            let places = finding.place..=place;
            self.add_rewritten(Rewritten { finding: Finding { suspects, ..finding }, until, apart, places });
        }
        for input in fresh {
            self.note_rounding(operator, input.deviation);
        }
        true
    }

    /// Whether a finding is the beginning of a part that is computed otherwise, with results that agree; then its operators are
    /// passed from now on.
    pub(super) fn enter_rewritten(&mut self, finding: &Finding, fingerprints: &[Fingerprint]) -> bool {
        if let Some(until) = self.accumulated(finding) {
            self.rounding.is_accumulated = true;
            let places = finding.place..=finding.place;
            self.add_rewritten(Rewritten { finding: finding.clone(), until, apart: 0.0, places });
            return true;
        }
        let Some(region) = self.region(finding, fingerprints) else { return false };
        let operators = &self.comparer.aligned.operators;
        for &place in &region.places {
            let Some((Some(one), _)) = operators.get(place) else { continue };
            let name = OperatorName::parse(&self.target.document.operators[*one as usize].name);
            self.excused.calls.extend(name.map(|name| (name.callee.to_owned(), name.call)));
        }
        self.excused.is_reshaped |= region.is_reshaped;
        let Region { until, apart, places, .. } = region;
        let last = places.iter().copied().max().unwrap_or(finding.place);
        self.region.extend(places);
        let near = self.parted.iter().map(|call| call.place).filter(|place| place + NEAR >= finding.place);
        let places = near.min().unwrap_or(finding.place)..=last;
        self.add_rewritten(Rewritten { finding: finding.clone(), until, apart, places });
        true
    }

    /// Where the sum of gradients is used and agrees, if what differs are gradients on the way to it: micro-batches that were added up in
    /// another order.
    fn accumulated(&self, finding: &Finding) -> Option<String> {
        let name = OperatorName::parse(&finding.operator)?;
        if name.direction != Direction::ParameterGradient || name.call == 0 {
            return None;
        }
        let mut parts: HashSet<Fingerprint> = HashSet::new();
        let mut until = None;
        for &(one, other) in self.comparer.aligned.operators.iter().skip(finding.place) {
            let Some((one, other)) = one.zip(other) else { continue };
            let operator = self.operator(one);
            let Some(name) = OperatorName::parse(&operator.name) else { continue };
            let compared = self.comparer.compare_behind(one, other);
            let mut differing = compared.iter().filter(|value| value.deviation.is_some());
            if name.direction == Direction::ParameterGradient {
                parts.extend(differing.flat_map(looks));
            } else if name.direction == Direction::Forward {
                let mut inputs = compared.iter().filter(|value| value.item.value.section.is_input());
                if differing.any(|value| !self.agrees(operator, value)) {
                    return None;
                }
                if inputs.any(|value| looks(value).iter().any(|looks| parts.contains(looks))) {
                    until.get_or_insert_with(|| operator.name.to_string());
                }
            }
        }
        until
    }

    /// Follows what differs from a finding on, as long as it goes the same way, forward or backward. It is a part computed otherwise
    /// if one side has calls of its own in it (or its parameters another shape), and an operator behind it takes agreeing results of
    /// it, after which nothing of it differs any more.
    fn region(&self, finding: &Finding, fingerprints: &[Fingerprint]) -> Option<Region> {
        let direction = OperatorName::parse(&finding.operator)?.direction;
        let near = |call: &&Finding| call.place + NEAR >= finding.place;
        let mut inside: HashSet<Fingerprint> = fingerprints.iter().copied().collect();
        inside.extend(self.computed().filter(near).flat_map(|call| self.given(call)));
        // Calls of one side alone that have to do with it: one gave what differs here, or takes what differs further on.
        let mut is_one_sided =
            self.computed().any(|call| self.given(call).iter().any(|given| fingerprints.contains(given)));
        let mut has_own_parameters = false;
        let mut region = Region { places: Vec::new(), until: String::new(), apart: 0.0, is_reshaped: false };
        for (place, &(one, other)) in self.comparer.aligned.operators.iter().enumerate().skip(finding.place) {
            let (Some(one), Some(other)) = (one, other) else {
                let operator = self.of_one_side(one, other)?;
                if OperatorName::parse(&operator.name).is_some_and(|name| is_same_way(name.direction, direction)) {
                    let is_computed = !OperatorName::parse(&operator.name).is_some_and(only_moves);
                    let is_fed =
                        is_computed && inputs(operator).map(Fingerprint::of).any(|looks| inside.contains(&looks));
                    is_one_sided |= is_fed;
                    has_own_parameters |= region.until.is_empty() && has_parameters(operator);
                    inside.extend(results(operator).map(Fingerprint::of));
                }
                continue;
            };
            let operator = self.operator(one);
            let Some(name) = OperatorName::parse(&operator.name) else { continue };
            if !is_same_way(name.direction, direction) {
                break;
            }
            if self.judge.thresholds.ignores(name) || self.region.contains(&place) {
                continue;
            }
            let compared = self.comparer.compare_behind(one, other);
            match self.passes(operator, name, &compared, &inside, place == finding.place) {
                Passed::Same => {}
                Passed::Together(apart) if region.until.is_empty() => {
                    region.until = operator.name.to_string();
                    region.apart = region.apart.max(apart);
                }
                Passed::Together(apart) => region.apart = region.apart.max(apart),
                Passed::Inside(is_reshaped) => {
                    region.until.clear();
                    region.is_reshaped |= is_reshaped;
                    region.places.push(place);
                    let differing = compared.iter().filter(|value| value.deviation.is_some());
                    inside.extend(differing.flat_map(looks));
                }
                // Where results agree by chance only, as far as a coarse dtype tells, what differs behind them speaks against it.
                Passed::Apart if region.until.is_empty() || region.apart > SURE => return None,
                // Another thing, behind this one: the search comes to it.
                Passed::Apart => break,
            }
        }
        // What nobody computed cannot be computed otherwise, but for a parameter that has another shape or that one side lacks.
        let is_uncomputed = matches!(finding.kind, Kind::Parameter | Kind::Data);
        let is_explained = region.is_reshaped
            || (is_one_sided
                && (!is_uncomputed || has_own_parameters)
                && !self.is_update(OperatorName::parse(&finding.operator)));
        (is_explained && !region.places.is_empty() && !region.until.is_empty()).then_some(region)
    }

    fn passes(
        &self,
        operator: &'c Operator,
        name: OperatorName<'_>,
        compared: &[Compared<'c>],
        inside: &HashSet<Fingerprint>,
        is_first: bool,
    ) -> Passed {
        let agree_to = self.results_agree_to(operator);
        let (inputs, outputs): (Vec<_>, Vec<_>) =
            compared.iter().partition(|compared| compared.item.value.section.is_input());
        let is_of_it = |value: &&&Compared<'c>| looks(value).iter().any(|looks| inside.contains(looks));
        if inputs.iter().any(|input| self.is_nearly_given(Some(name), input)) {
            return Passed::Apart;
        }
        let differing: Vec<_> = inputs.iter().filter(|input| !self.agrees(operator, input)).collect();
        let bound = self.judge.bound(operator, 0.0).bound.max(2.0 * agree_to);
        let is_output_apart = outputs
            .iter()
            .any(|output| output.deviation.relative > bound && !self.is_cancelled(operator, Some(name), output));
        if differing.is_empty() && !is_output_apart {
            let joined = inputs.iter().filter(is_of_it).map(|input| input.deviation.relative);
            return joined.reduce(f64::max).map_or(Passed::Same, Passed::Together);
        }
        let is_reshape = |value: &&Compared<'c>| value.deviation.what == What::Shape;
        if name.direction == Direction::ParameterGradient
            && !outputs.iter().all(|it| is_reshape(it) || !it.deviation.is_some())
        {
            return Passed::Apart;
        }
        let is_reshaped =
            inputs.iter().any(|input| is_reshape(input) && self.is_parameter(operator, Some(name), input));
        let is_explained = |input: &&&Compared<'c>| {
            is_of_it(input) || self.is_parameter(operator, Some(name), input) || input.deviation.what == What::Shape
        };
        if is_first || (!differing.is_empty() && differing.iter().all(is_explained)) {
            return Passed::Inside(is_reshaped);
        }
        Passed::Apart
    }

    /// Whether an operator is the backward of one that is computed otherwise, or has to do with a parameter of another shape.
    pub(super) fn is_excused(&self, name: Option<OperatorName<'_>>, compared: &[Compared<'_>]) -> bool {
        let is_update = self.is_update(name);
        if self.excused.calls.is_empty() && !self.rounding.is_accumulated {
            return false;
        }
        let mut differing = compared.iter().filter(|value| value.deviation.is_some()).peekable();
        let Some(name) = name.filter(|_| differing.peek().is_some()) else { return false };
        if self.rounding.is_accumulated && name.direction == Direction::ParameterGradient {
            return true;
        }
        if self.excused.is_reshaped
            && (is_update || name.direction == Direction::ParameterGradient)
            && differing.clone().any(|value| value.deviation.what == What::Shape)
        {
            return true;
        }
        name.direction == Direction::Backward && self.excused.calls.contains(&(name.callee.to_owned(), name.call))
    }

    /// Whether an operator is part of an update of parameters that one side has fused: which call is whose nobody can tell.
    pub(super) fn is_unjudged(&self, operator: &Operator, name: Option<OperatorName<'_>>) -> bool {
        // Another micro-batch runs in modules; an update in none, or in `optimizer`.
        let parent = self.target.parent(&operator.name).and_then(|parent| parent.name.as_deref());
        self.is_uneven && self.is_update(name) && parent.and_then(OperatorName::parse).is_none()
    }

    /// A number or text that no call of this function has in the golden's update: whichever call is whose.
    pub(super) fn other_argument(
        &self,
        operator: &Operator,
        name: Option<OperatorName<'_>>,
        compared: &[Compared<'c>],
    ) -> Option<Candidate> {
        let callee = name?.callee;
        let is_same = |golden: &&Operator| OperatorName::parse(&golden.name).is_some_and(|name| name.callee == callee);
        let is_known = |value: &Compared<'_>| {
            let calls = self.golden.document.operators.iter().filter(is_same);
            let mut values =
                calls.flat_map(|operator| operator.values.iter().map(move |value| Item { operator, value }));
            values.any(|other| other.value.place == value.item.value.place && !deviation(value.item, other).is_some())
        };
        let is_other = |value: &&Compared<'_>| value.deviation.what == What::Argument && !is_known(value);
        let suspects: Vec<_> = compared.iter().filter(is_other).map(|value| suspect(value, 0.0)).collect();
        (!suspects.is_empty() && operator.values.len() > 1).then_some(Candidate {
            kind: Kind::Argument,
            suspects,
            input: 0.0,
        })
    }

    /// Passes an operator inside of a part that is computed otherwise.
    pub(super) fn excuse(&mut self, compared: &[Compared<'c>]) {
        self.note_judged(compared, Excuse::Rewritten);
        let differing = compared.iter().filter(|value| value.deviation.is_some());
        self.excused.inside.extend(differing.flat_map(|value| looks(value)));
    }
}

/// What an operator is to the part computed otherwise.
enum Passed {
    /// Nothing to do with it.
    Same,
    /// It takes what comes of it, and that agrees but for so much.
    Together(f64),
    /// It belongs to it; whether a parameter has another shape.
    Inside(bool),
    /// It differs for another reason.
    Apart,
}

fn is_backward(finding: &Finding) -> bool {
    OperatorName::parse(&finding.operator).is_some_and(|name| name.direction == Direction::Backward)
}

fn is_same_way(one: Direction, other: Direction) -> bool {
    (one == Direction::Forward) == (other == Direction::Forward)
}

pub(super) fn results(operator: &Operator) -> impl Iterator<Item = &TensorFacts> {
    let outputs = operator.values.iter().filter(|value| value.section == Section::Output);
    outputs.filter_map(move |value| Item { operator, value }.tensor())
}

/// Whether a call has parameters of its own.
fn has_parameters(operator: &Operator) -> bool {
    let takes = OperatorName::parse(&operator.name).is_some_and(|name| takes_weights(name.function()));
    takes || operator.values.iter().any(|value| value.section == Section::Parameter)
}

pub(super) fn inputs(operator: &Operator) -> impl Iterator<Item = &TensorFacts> {
    let inputs = operator.values.iter().filter(|value| value.section == Section::Input);
    inputs.filter_map(move |value| Item { operator, value }.tensor())
}

/// By what both sides of a value are known again.
pub(super) fn looks(value: &Compared<'_>) -> Vec<Fingerprint> {
    let items = [Some(value.item), value.twin];
    items.into_iter().flatten().filter_map(|item| item.tensor()).map(Fingerprint::of).collect()
}
