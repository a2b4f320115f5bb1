//! Rewritten code: one-sided calls whose results agree.

use std::collections::HashSet;

use trainmon_capture_files::Operator;

use crate::deviation::{What, deviation};
use crate::item::Item;
use crate::name::{Direction, OperatorName};

use super::call::{Call, looks};
use super::compared::Comparer;
use super::finding::{Candidate, Compared, Finding, Kind, Rewritten, suspect};
use super::fresh::Fresh;
use super::learnt::Bounds;
use super::magnitude::{makes_of_nothing, only_moves, reorders};
use super::operands::{inputs, results};
use super::region::{NEAR, Region, accumulated, region};
use super::settled::settled;
use crate::fingerprint::Fingerprint;
use crate::unwritten::gives_view;

/// One-sided calls, and the rewritten code that contains them.
pub(super) struct Parts {
    /// Whether the sides update different parameters, because one has some of them fused: it is unknown which call belongs to
    /// which.
    is_uneven: bool,
    /// One-sided calls without a known effect so far.
    pub(super) parted: Vec<Finding>,
    /// Operators with inputs in another order, which is no finding by itself.
    pub(super) reordered: Vec<Finding>,
    /// Places of operators in rewritten code with the same results.
    pub(super) places: HashSet<usize>,
    /// Rewritten code with the same results.
    pub(super) rewritten: Vec<Rewritten>,
    /// Forward calls in rewritten code, by callee and number: their backward differs too.
    calls: HashSet<(String, u32)>,
    /// Forward calls in rewritten code, or calls that produced its inputs.
    upstream: HashSet<(String, u32)>,
    /// Whether a parameter has another shape: so have its gradient and its moments.
    is_reshaped: bool,
    /// The values that differ inside of rewritten code.
    inside: HashSet<Fingerprint>,
}

/// Whether a finding starts rewritten code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entered {
    /// No.
    No,
    /// Yes: the operators of the region are skipped from now on.
    Part,
    /// Gradients were summed in another order: only their sums are compared from now on.
    Accumulation,
}

impl Parts {
    /// The state at the start of a rank.
    pub(super) fn of(comparer: Comparer<'_>) -> Self {
        Self {
            is_uneven: is_uneven(comparer),
            parted: Vec::new(),
            reordered: Vec::new(),
            places: HashSet::new(),
            rewritten: Vec::new(),
            calls: HashSet::new(),
            upstream: HashSet::new(),
            is_reshaped: false,
            inside: HashSet::new(),
        }
    }

    /// One-sided calls that compute anything: calls that only move values cannot be rewritten.
    pub(super) fn computed(&self) -> impl Iterator<Item = &Finding> {
        self.parted.iter().filter(|call| !OperatorName::parse(&call.operator).is_some_and(only_moves))
    }

    /// The one-sided call that produced what is missing here; otherwise the first of the last consecutive ones.
    pub(super) fn missing_producer(&mut self, comparer: Comparer<'_>, missed: &[Fingerprint]) -> Option<Finding> {
        let gives = |parted: &Finding| comparer.given(parted).iter().any(|given| missed.contains(given));
        if let Some(found) = self.parted.iter().position(gives) {
            return Some(self.parted.remove(found));
        }
        let mut parted = self.parted.pop()?;
        while let Some(before) = self.parted.pop_if(|before| before.place + 1 == parted.place) {
            parted = before;
        }
        Some(parted)
    }

    /// The first one-sided call inside of a module whose inputs agree and whose outputs do not.
    pub(super) fn inside_of(&mut self, comparer: Comparer<'_>, call: &Call<'_>) -> Option<Finding> {
        call.name.filter(|name| !name.is_operator && name.direction == Direction::Forward)?;
        let is_inside = |parted: &Finding| {
            let (capture, module) = match parted.kind {
                Kind::TargetOnly => (comparer.sides.target, &call.operator.name),
                _ => (comparer.sides.golden, &call.golden.name),
            };
            let parent = capture.parent(&parted.operator).and_then(|parent| parent.name.as_deref());
            let is_computed = OperatorName::parse(&parted.operator)
                .is_some_and(|name| !only_moves(name) && !gives_view(name) && !makes_of_nothing(name));
            is_computed && parent == Some(module) && parted.place < call.place
        };
        let found = self.parted.iter().position(is_inside)?;
        Some(self.parted.remove(found))
    }

    /// The call that reordered an operator's input, directly or through others: statistics of the input agree, those of the
    /// result may not. It is the last one-sided call of that kind, or the only operator with a reordered input: many of them
    /// mean rewritten code.
    pub(super) fn reordering(&mut self, comparer: Comparer<'_>, call: &Call<'_>) -> Option<Finding> {
        let has_digest = |value: &Compared<'_>| {
            value.item.tensor().is_some_and(|tensor| tensor.digest.as_ref().is_some_and(|digest| !digest.is_null()))
        };
        if call.inputs.iter().any(has_digest) {
            return None;
        }
        let is_reordering = |parted: &Finding| {
            let operator = comparer.of_one_side([parted.target, parted.golden]);
            operator.is_some_and(|one| OperatorName::parse(&one.name).is_some_and(|name| reorders(name, one)))
        };
        let found = self.parted.iter().rposition(|parted| is_reordering(parted) && leads_to(comparer, parted, call));
        if let Some(found) = found {
            return Some(self.parted.remove(found));
        }
        let [given] = &*self.reordered else { return None };
        leads_to(comparer, given, call).then(|| given.clone())
    }

    /// Whether inputs that no operator produced are results of one-sided calls, and agree: then that region is rewritten, and
    /// the search continues after it.
    pub(super) fn joins(&mut self, bounds: Bounds<'_, '_>, call: &Call<'_>, fresh: &Fresh<'_, '_>) -> bool {
        let Fresh { values, fingerprints, .. } = fresh;
        let comparer = bounds.comparer;
        let is_number = |input: &&Compared<'_>| input.deviation.what == What::Numbers;
        if !values.iter().all(|input| is_number(input) && bounds.agrees(call.operator, input)) {
            return false;
        }
        let is_given =
            self.computed().any(|parted| comparer.given(parted).iter().any(|given| fingerprints.contains(given)));
        let is_inside = fingerprints.iter().any(|looks| self.inside.contains(looks));
        // In a backward, most captured tensors are views that nothing reads directly: the forward must have been rewritten.
        let name = call.name.filter(|_| call.goes(Direction::Backward));
        let is_behind = name.is_some_and(|name| self.led_into_part(name))
            && self.parted.iter().any(|parted| is_backward(parted) && parted.place + NEAR >= call.place);
        // A call that was not captured may be in between: both sides must have one-sided calls before it.
        let has_near = |kind: Kind| self.computed().any(|one| one.kind == kind && one.place + NEAR >= call.place);
        let is_between = call.is_forward()
            && [Kind::TargetOnly, Kind::GoldenOnly].into_iter().all(has_near)
            && values.iter().all(|input| input.item.tensor().is_some_and(|one| one.requires_grad == Some(true)));
        if !is_given && !is_inside && !is_behind && !is_between {
            return false;
        }
        let producer =
            if is_given || is_behind || is_between { self.missing_producer(comparer, fingerprints) } else { None };
        if let Some(finding) = producer {
            let apart = values.iter().map(|input| input.deviation.relative).fold(0.0, f64::max);
            let (until, places) = (call.operator.name.to_string(), finding.place..=call.place);
            let finding = Finding { suspects: Vec::new(), ..finding };
            self.add(comparer, Rewritten { finding, until, apart, places });
        }
        true
    }

    /// Whether a finding starts rewritten code with results that agree; if so, its operators are skipped from now on.
    pub(super) fn enter(&mut self, bounds: Bounds<'_, '_>, finding: &Finding, fingerprints: &[Fingerprint]) -> Entered {
        let comparer = bounds.comparer;
        if let Some(until) = accumulated(bounds, finding) {
            let places = finding.place..=finding.place;
            self.add(comparer, Rewritten { finding: finding.clone(), until, apart: 0.0, places });
            return Entered::Accumulation;
        }
        let alone: Vec<&Finding> = self.computed().collect();
        let is_rearranged = self.rewritten.iter().any(|part| part.finding.kind == Kind::Data);
        let followed = region(bounds, (&alone, &self.places), finding, fingerprints);
        let Some(region) = followed.or_else(|| settled(bounds, (&alone, is_rearranged), finding)) else {
            return Entered::No;
        };
        for &place in &region.places {
            let Some((Some(one), _)) = comparer.aligned.operators.get(place) else { continue };
            let name = OperatorName::parse(&comparer.operator(*one).name);
            self.calls.extend(name.map(|name| (name.callee.to_owned(), name.call)));
        }
        self.is_reshaped |= region.is_reshaped;
        let Region { until, apart, places, .. } = region;
        let last = places.iter().copied().max().unwrap_or(finding.place);
        self.places.extend(places);
        let near = self.parted.iter().map(|call| call.place).filter(|place| place + NEAR >= finding.place);
        let places = near.min().unwrap_or(finding.place)..=last;
        self.add(comparer, Rewritten { finding: finding.clone(), until, apart, places });
        Entered::Part
    }

    /// Records a call with other arguments and the same results.
    pub(super) fn note_call(&mut self, comparer: Comparer<'_>, finding: Finding) {
        let (until, place) = (finding.operator.clone(), finding.place);
        let name = OperatorName::parse(&finding.operator);
        self.calls.extend(name.map(|name| (name.callee.to_owned(), name.call)));
        self.add(comparer, Rewritten { finding, until, apart: 0.0, places: place..=place });
    }

    /// Records rewritten code with its forward calls, and the calls before it: those that produced the inputs of its one-sided
    /// calls, and the operator directly before it. A part of a result, such as a third of fused projections, is not captured.
    fn add(&mut self, comparer: Comparer<'_>, part: Rewritten) {
        let operators = &comparer.aligned.operators;
        let (first, last) = (*part.places.start(), *part.places.end());
        let at = |place: usize| operators.get(place).copied().unwrap_or_default();
        let mut fed: HashSet<Fingerprint> = HashSet::new();
        for (one, other) in (first..=last).map(at).filter(|(one, other)| one.is_none() != other.is_none()) {
            fed.extend(comparer.of_one_side([one, other]).into_iter().flat_map(inputs).map(Fingerprint::of));
        }
        let before =
            (0..first).rev().take(NEAR).map(at).filter_map(|(one, other)| Some(comparer.operator(one.zip(other)?.0)));
        if let Some(last) = before.clone().next() {
            fed.extend(results(last).map(Fingerprint::of));
        }
        let feeds = |operator: &&Operator| results(operator).any(|tensor| fed.contains(&Fingerprint::of(tensor)));
        let inside = (first..=last).map(at).filter_map(|(one, _)| Some(comparer.operator(one?)));
        self.upstream.extend(inside.chain(before.filter(feeds)).filter_map(forward_call));
        self.rewritten.push(part);
    }

    /// Whether the forward of a backward call ran in rewritten code or led into it: its gradient is a result of the backward of
    /// that region.
    fn led_into_part(&self, name: OperatorName<'_>) -> bool {
        self.upstream.contains(&(name.callee.to_owned(), name.call))
    }

    /// Whether an operator is in rewritten code, is the backward of such an operator, or uses a parameter of another shape.
    pub(super) fn have(&self, bounds: Bounds<'_, '_>, call: &Call<'_>) -> bool {
        if self.places.contains(&call.place) {
            return true;
        }
        let is_accumulated = bounds.learnt.rounding.is_accumulated;
        let Some(name) = call.name.filter(|_| call.differing().next().is_some()) else { return false };
        if self.calls.is_empty() && !is_accumulated {
            return false;
        }
        let is_gradient = name.direction == Direction::ParameterGradient;
        if is_accumulated && is_gradient {
            return true;
        }
        let is_of_parameter = is_gradient || bounds.is_update(call.name);
        if self.is_reshaped && is_of_parameter && call.differing().any(|value| value.deviation.what == What::Shape) {
            return true;
        }
        name.direction == Direction::Backward && self.calls.contains(&(name.callee.to_owned(), name.call))
    }

    /// Skips an operator in rewritten code.
    pub(super) fn pass(&mut self, call: &Call<'_>) {
        self.inside.extend(call.differing().flat_map(looks));
    }

    /// Whether an operator updates parameters that one side has fused: it is unknown which call belongs to which.
    pub(super) fn is_unassigned(&self, bounds: Bounds<'_, '_>, call: &Call<'_>) -> bool {
        // Another micro-batch runs in modules; an update runs in none, or in `optimizer`.
        let parent = bounds.comparer.sides.target.parent(&call.operator.name).and_then(|parent| parent.name.as_deref());
        self.is_uneven && bounds.is_update(call.name) && parent.and_then(OperatorName::parse).is_none()
    }
}

impl<'c> Comparer<'c> {
    /// A number or text that no call of this function has in the baseline's update.
    pub(super) fn other_argument(self, call: &Call<'c>) -> Option<Candidate> {
        let callee = call.name?.callee;
        let is_same = |golden: &&Operator| OperatorName::parse(&golden.name).is_some_and(|name| name.callee == callee);
        let is_known = |value: &Compared<'_>| {
            let calls = self.sides.golden.document.operators.iter().filter(is_same);
            let mut values =
                calls.flat_map(|operator| operator.values.iter().map(move |value| Item { operator, value }));
            values.any(|other| other.value.place == value.item.value.place && !deviation(value.item, other).is_some())
        };
        let is_other = |value: &&Compared<'_>| value.deviation.what == What::Argument && !is_known(value);
        let suspects: Vec<_> = call.values().filter(is_other).map(|value| suspect(value, 0.0)).collect();
        let is_found = !suspects.is_empty() && call.operator.values.len() > 1;
        is_found.then_some(Candidate { kind: Kind::Argument, suspects, input: 0.0 })
    }
}

/// Whether one side has fused parameters and one-sided calls in its updates.
fn is_uneven(comparer: Comparer<'_>) -> bool {
    if comparer.sides.target.joined.is_empty() && comparer.sides.golden.joined.is_empty() {
        return false;
    }
    let mut is_behind = false;
    comparer.aligned.operators.iter().any(|&(one, other)| {
        let operator = comparer.of_one_side([one, other]);
        let direction = operator.and_then(|operator| OperatorName::parse(&operator.name)).map(|name| name.direction);
        is_behind |= direction == Some(Direction::Backward);
        is_behind && direction == Some(Direction::Forward) && one.is_none() != other.is_none()
    })
}

/// Whether the results of an operator, or of its backward, are inputs of another one.
fn leads_to(comparer: Comparer<'_>, finding: &Finding, call: &Call<'_>) -> bool {
    // A gradient that a module lists early may be compared after operators that follow its place.
    let operators = comparer.aligned.operators.get(finding.place..call.place).unwrap_or_default();
    let mut led: HashSet<Fingerprint> = comparer.given(finding).into_iter().collect();
    let mut calls: HashSet<(&str, u32)> = HashSet::new();
    let takes = |operator: &Operator, led: &HashSet<Fingerprint>, calls: &HashSet<(&str, u32)>| {
        let name = OperatorName::parse(&operator.name).filter(|name| name.direction != Direction::Forward);
        name.is_some_and(|name| calls.contains(&(name.callee, name.call)))
            || inputs(operator).any(|tensor| led.contains(&Fingerprint::of(tensor)))
    };
    for (at, &(one, other)) in operators.iter().enumerate() {
        let Some(operator) = comparer.of_one_side([one, other]) else { continue };
        if at == 0 || takes(operator, &led, &calls) {
            led.extend(results(operator).map(Fingerprint::of));
            calls.extend(OperatorName::parse(&operator.name).map(|name| (name.callee, name.call)));
        }
    }
    takes(call.operator, &led, &calls)
}

fn is_backward(finding: &Finding) -> bool {
    OperatorName::parse(&finding.operator).is_some_and(|name| name.direction == Direction::Backward)
}

/// The callee and the number of a forward call.
fn forward_call(operator: &Operator) -> Option<(String, u32)> {
    let name = OperatorName::parse(&operator.name).filter(|name| name.direction == Direction::Forward)?;
    Some((name.callee.to_owned(), name.call))
}
