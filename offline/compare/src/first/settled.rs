//! Whether all results of a step are the same despite rewritten code: its gradients, its loss and its updates.
//!
//! [`region`](super::region) follows differences from call to call. It loses the trail if one side splits what the other joins,
//! or if calls of one name do different things. The results of the step decide then.

use std::collections::{HashMap, HashSet};

use trainmon_capture_files::{Leaf, Operator, Plain, Section, TensorFacts};

use super::agreement::{SURE, is_another_tensor, keeps_statistics};
use super::call::Call;
use super::compared::Comparer;
use super::finding::{Compared, Finding, Kind};
use super::fresh::SAME_AS_PRODUCED;
use super::gradients::Gradients;
use super::learnt::Bounds;
use super::magnitude::{makes_of_nothing, only_moves};
use super::operands::{inputs, results};
use super::region::{NEAR, Region};
use super::written::{is_in_place, is_updated_alike};
use crate::deviation::What;
use crate::fingerprint::Fingerprint;
use crate::item::Item;
use crate::judge::coarse;
use crate::name::{Direction, OperatorName};
use crate::unwritten::gives_view;

/// The largest difference of equal module outputs: a few dozen units of float32. A residual stream may hide as much of a fault
/// as other code adds to all results of a step.
const OF_A_MODULE: f64 = 2e-6;

/// A phase of a step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Forward,
    /// Gradients, and the computations of `torch.autograd.Function.backward`.
    Backward,
    /// The operators after the last gradient.
    Update,
}

/// Returns the differences after a finding in its own phase, if their results agree: the outputs of the surrounding module, or
/// all results of the step. One side must have computing calls of its own, or the data be in another order.
///
/// `None` if a difference has no effect on these results: values written in place, a result that nothing reads and that has no
/// gradient, a number from a config. `is_rearranged`: the data of this step are known to be in another order or form.
pub(super) fn settled(
    bounds: Bounds<'_, '_>,
    (alone, is_rearranged): (&[&Finding], bool),
    finding: &Finding,
) -> Option<Region> {
    let comparer = bounds.comparer;
    let gradients = Gradients::of(comparer);
    let last = gradients.last();
    let step = Step { bounds, phases: Phases::of(comparer), known: Known::of(comparer), gradients, last };
    let is_near = |call: &&Finding| call.place + NEAR >= finding.place;
    let is_alone = |region: &Region| {
        let last = region.places.last().copied().unwrap_or(finding.place);
        is_rearranged || alone.iter().any(is_near) || computes_alone(comparer, finding.place..last + NEAR)
    };
    match finding.kind {
        Kind::Parameter => None,
        Kind::Data => step.whole(finding).filter(|_| step.phases.last_gradient.is_some() && step.has_effect(finding)),
        _ => {
            let around = modules_around(comparer, finding.place).into_iter();
            let inside = around.filter_map(|end| step.inside(finding, end)).find(is_alone);
            inside.or_else(|| step.whole(finding).filter(is_alone))
        }
    }
}

/// A rank's step, with what is known of it from beginning to end.
struct Step<'w, 'c> {
    bounds: Bounds<'w, 'c>,
    phases: Phases,
    known: Known,
    gradients: Gradients<'c>,
    /// The last gradients of each module's parameters.
    last: HashSet<usize>,
}

impl Step<'_, '_> {
    /// Whether the results of the call differ as well: data in another order or form. Statistics may hide the effect of other
    /// data.
    fn has_effect(&self, finding: &Finding) -> bool {
        let first = Call::all_behind(self.bounds.comparer, finding.place).next();
        first.is_some_and(|call| call.outputs.iter().any(|output| output.deviation.relative > SURE))
    }

    /// Returns the differences if a call of a surrounding module has the same results in the phase of the finding: forward, or
    /// backward including its gradients.
    fn inside(&self, finding: &Finding, end: usize) -> Option<Region> {
        let comparer = self.bounds.comparer;
        let mut settled = Settled { places: vec![finding.place], ..Settled::default() };
        let calls = Call::all_behind(comparer, finding.place).take_while(|call| call.place <= end);
        for call in calls {
            if call.name.is_some_and(|name| comparer.judge.thresholds.ignores(name)) {
                continue;
            }
            let is_same = !settled.is_apart(self.bounds, &call, Phase::Forward);
            settled.keep(&call);
            let is_outcome = call.place == end || call.goes(Direction::ParameterGradient);
            let is_same = is_same && (call.place != end || largest(&call) <= OF_A_MODULE);
            match (is_outcome, is_same) {
                (_, true) => settled.agrees(&call),
                (false, false) if self.is_shown(&call, self.phases.of_place(call.place), None) => settled.note(&call),
                (_, false) => return None,
            }
        }
        Some(settled.region(finding))
    }

    /// Returns the differences if all results of the step agree: the last gradients of every parameter, the last result of the
    /// forward, and the tensors that the update writes. If the step has gradients, at least one gradient or update must follow
    /// the finding.
    fn whole(&self, finding: &Finding) -> Option<Region> {
        let Self { bounds, phases, .. } = self;
        let comparer = bounds.comparer;
        let phase = phases.of_place(finding.place);
        let first = phases.last_gradient.map_or(usize::MAX, |last| last + 1);
        let updated = is_updated_alike(comparer, &bounds.learnt.rounding.parameters, first);
        if updated == Some(false) || self.gradients.lacking().iter().any(|&place| place >= finding.place) {
            return None;
        }
        let mut outcomes = usize::from(updated.is_some());
        let mut settled = Settled { places: vec![finding.place], ..Settled::default() };
        for call in Call::all_behind(comparer, finding.place) {
            if call.name.is_some_and(|name| comparer.judge.thresholds.ignores(name)) {
                continue;
            }
            let here = phases.of_place(call.place);
            let is_same = !settled.is_apart(*bounds, &call, here);
            settled.keep(&call);
            let is_update = updated.is_none() && here == Phase::Update && call.name.is_some_and(is_in_place);
            let is_of_gradients = self.last.contains(&call.place) || is_update;
            let is_loss = phases.forward.end == call.place + 1;
            if is_same {
                let counts = self.last.contains(&call.place) || (is_update && self.is_given_gradients(&call));
                outcomes += usize::from(counts || (is_loss && phases.last_gradient.is_none()));
                if here == phase {
                    settled.agrees(&call);
                }
                continue;
            }
            let is_outcome = is_of_gradients || is_loss;
            let is_explained = if is_outcome {
                is_loss && self.is_of_another_batch(&call, updated)
            } else {
                self.is_shown(&call, here, updated)
            };
            if !is_explained {
                return None;
            }
            if here == phase && !is_outcome {
                settled.note(&call);
            }
        }
        (outcomes > 0).then(|| settled.region(finding))
    }

    /// Whether a side's apparent loss is none, or that of another micro-batch: each side has both, or the other batch has
    /// another size and the updates agree.
    fn is_of_another_batch(&self, call: &Call<'_>, updated: Option<bool>) -> bool {
        let is_sized = call.inputs.iter().any(|input| input.deviation.what == What::Shape);
        self.known.have_both(call) || (is_sized && updated == Some(true))
    }

    /// Whether an update reads a parameter, or the result of a backward.
    fn is_given_gradients(&self, call: &Call<'_>) -> bool {
        let is_gradient = |input: &Compared<'_>| {
            input.item.tensor().is_some_and(|tensor| self.known.gradients.contains(&Fingerprint::of(tensor)))
        };
        call.inputs.iter().any(|input| self.bounds.parameter(input.item).is_some() || is_gradient(input))
    }

    /// Whether gradients, the loss and updates would differ if a differing call had another result than the baseline's.
    fn is_shown(&self, call: &Call<'_>, phase: Phase, updated: Option<bool>) -> bool {
        if is_called_otherwise(call) || keeps_statistics(call) {
            return false;
        }
        let is_in_place = call.name.is_some_and(is_in_place);
        let is_compared_by_name = updated.is_some() && phase == Phase::Update && is_in_place;
        // The results of a backward become gradients, if those of parameters are known.
        let is_of_backward = phase == Phase::Backward && !is_in_place && !has_gradients_of_its_own(call);
        let by_gradients = phase != Phase::Update && self.phases.last_gradient.is_some();
        call.goes(Direction::ParameterGradient)
            || is_compared_by_name
            || (is_of_backward && !self.last.is_empty())
            || self.known.is_shown(call, by_gradients)
    }
}

/// Whether a forward call has results with gradients: those of a backward have none.
fn has_gradients_of_its_own(call: &Call<'_>) -> bool {
    call.is_forward() && [call.operator, call.golden].into_iter().flat_map(results).any(has_gradient)
}

#[derive(Default)]
struct Settled {
    /// The places of differing calls in the finding's phase.
    places: Vec<usize>,
    /// The first agreeing call after them.
    until: Option<String>,
    /// The difference of the values that agree after them.
    apart: f64,
    /// The results of common calls after the finding, with their differences.
    given: HashMap<Fingerprint, f64>,
}

impl Settled {
    fn keep(&mut self, call: &Call<'_>) {
        let tensors = call.outputs.iter().filter_map(|output| Some((output.item.tensor()?, output.deviation.relative)));
        self.given.extend(tensors.map(|(tensor, apart)| (Fingerprint::of(tensor), apart)));
    }

    /// Whether values of a call differ by more than rewritten code explains. An update is a small part of a parameter, which
    /// shows little of an error: in-place results are compared within round-off, and with the other inputs of the call.
    fn is_apart(&self, bounds: Bounds<'_, '_>, call: &Call<'_>, phase: Phase) -> bool {
        let written = call.inputs.first().filter(|_| phase == Phase::Update && call.name.is_some_and(is_in_place));
        let most = |value: &Compared<'_>| {
            let Some(written) = written else { return SURE };
            if value.item.value.section.is_input() && value.at != written.at {
                return SURE;
            }
            let given = |input: &Compared<'_>| self.given.get(&Fingerprint::of(input.item.tensor()?)).copied();
            let before = given(written).or_else(|| Some(bounds.producer(written)?.deviation)).unwrap_or(0.0);
            let given = call.inputs.iter().filter(|input| input.at != written.at);
            let given = given.map(|input| input.deviation.relative).fold(before, f64::max);
            let given = if value.item.value.section.is_input() { before } else { given };
            coarse(call.operator).max(SAME_AS_PRODUCED * given).min(SURE)
        };
        let is_small =
            |value: &Compared<'_>| value.deviation.what == What::Numbers && value.deviation.relative <= most(value);
        let mut differing = call.differing().filter(|value| !is_small(value));
        differing.any(|value| value.item.value.section.is_input() || !bounds.is_cancelled(call, value))
    }

    fn note(&mut self, call: &Call<'_>) {
        self.places.push(call.place);
        (self.until, self.apart) = (None, 0.0);
    }

    fn agrees(&mut self, call: &Call<'_>) {
        self.until.get_or_insert_with(|| call.operator.name.to_string());
        self.apart = self.apart.max(largest(call));
    }

    fn region(self, finding: &Finding) -> Region {
        let Self { places, until, apart, .. } = self;
        let until = until.unwrap_or_else(|| finding.operator.clone());
        Region { places, until, apart, is_reshaped: false }
    }
}

/// The phases of a step, as places in the order of execution.
struct Phases {
    forward: std::ops::Range<usize>,
    last_gradient: Option<usize>,
}

impl Phases {
    fn of(comparer: Comparer<'_>) -> Self {
        let operators = &comparer.aligned.operators;
        let is_gradient = |&(one, other): &(Option<u32>, Option<u32>)| {
            let operator = comparer.of_one_side([one, other]);
            let name = operator.and_then(|operator| OperatorName::parse(&operator.name));
            name.is_some_and(|name| name.direction != Direction::Forward)
        };
        let first = operators.iter().position(is_gradient).unwrap_or(operators.len());
        let last_gradient = operators.iter().rposition(is_gradient);
        let both = |(one, other): &(Option<u32>, Option<u32>)| one.is_some() && other.is_some();
        let end = operators[..first].iter().rposition(both).map_or(0, |last| last + 1);
        Self { forward: 0..end, last_gradient }
    }

    fn of_place(&self, place: usize) -> Phase {
        match place {
            place if self.forward.contains(&place) => Phase::Forward,
            place if self.last_gradient.is_some_and(|last| place <= last) => Phase::Backward,
            _ => Phase::Update,
        }
    }
}

/// The uses of results, by the fingerprints of tensors.
#[derive(Default)]
struct Known {
    target: OfSide,
    golden: OfSide,
    /// Results of the target's backward calls.
    gradients: HashSet<Fingerprint>,
}

/// The inputs and results of one side's calls.
#[derive(Default)]
struct OfSide {
    /// The last place at which a call reads it.
    taken: HashMap<Fingerprint, usize>,
    given: HashSet<Fingerprint>,
}

impl Known {
    fn of(comparer: Comparer<'_>) -> Self {
        let mut known = Self::default();
        for (place, &(one, other)) in comparer.aligned.operators.iter().enumerate() {
            let target = one.map(|index| comparer.operator(index));
            let is_gradient = |operator: &&Operator| {
                OperatorName::parse(&operator.name).is_some_and(|name| name.direction != Direction::Forward)
            };
            let gradients = target.filter(is_gradient).into_iter().flat_map(every_result);
            known.gradients.extend(gradients.map(Fingerprint::of));
            known.target.add(place, target);
            known.golden.add(place, other.map(|index| comparer.golden(index)));
        }
        known
    }

    /// Whether later results would differ if a call had another result than the baseline's. `by_gradients`: gradients show it.
    fn is_shown(&self, call: &Call<'_>, by_gradients: bool) -> bool {
        !call.name.is_some_and(is_in_place)
            && self.target.leads_on((call.place, call.operator), &self.golden, by_gradients)
            && self.golden.leads_on((call.place, call.golden), &self.target, by_gradients)
    }
}

impl Known {
    /// Whether the results of each side's call are results of the other side too: another micro-batch's loss.
    fn have_both(&self, call: &Call<'_>) -> bool {
        let are_known = |operator: &Operator, other: &OfSide| {
            results(operator).all(|tensor| other.given.contains(&Fingerprint::of(tensor)))
        };
        are_known(call.operator, &self.golden) && are_known(call.golden, &self.target)
    }
}

impl OfSide {
    fn add(&mut self, place: usize, operator: Option<&Operator>) {
        let of = |tensor| Fingerprint::of(tensor);
        self.taken.extend(operator.into_iter().flat_map(inputs).map(|tensor| (of(tensor), place)));
        self.given.extend(operator.into_iter().flat_map(results).map(of));
    }

    /// Whether all results of a call are read later, are results of the other side too, or have gradients that show a
    /// difference. A call without results has no effect.
    fn leads_on(&self, (place, operator): (usize, &Operator), other: &Self, by_gradients: bool) -> bool {
        let is_later = |looks: Fingerprint| self.taken.get(&looks).is_some_and(|&last| last > place);
        let is_known = |tensor: &TensorFacts| {
            let looks = Fingerprint::of(tensor);
            (by_gradients && has_gradient(tensor))
                || is_later(looks)
                || is_later(looks.negated())
                || other.given.contains(&looks)
        };
        results(operator).next().is_some() && results(operator).all(is_known)
    }
}

fn has_gradient(tensor: &TensorFacts) -> bool {
    tensor.requires_grad == Some(true)
}

/// Whether a call has another parameter, or the same tensors and another fractional number, such as an epsilon, which may
/// matter at another time.
fn is_called_otherwise(call: &Call<'_>) -> bool {
    let is_number = |item: Item<'_>| matches!(&item.value.leaf, Leaf::Plain { value: Plain::Float(_), .. });
    let is_another_number = |value: &Compared<'_>| is_number(value.item) && value.twin.is_some_and(is_number);
    let mut inputs = call.differing().filter(|value| value.item.value.section.is_input());
    let is_parameter =
        |value: &Compared<'_>| value.item.value.section == Section::Parameter && is_another_tensor(value);
    call.differing().any(is_parameter) || (call.differing().any(is_another_number) && !inputs.any(is_another_tensor))
}

fn largest(call: &Call<'_>) -> f64 {
    let apart = call.differing().map(|value| value.deviation.relative);
    apart.filter(|apart| *apart <= SURE).fold(0.0, f64::max)
}

/// The results of an operator, including parameter gradients.
fn every_result(operator: &Operator) -> impl Iterator<Item = &TensorFacts> {
    let values = operator.values.iter().filter(|value| !value.section.is_input());
    values.filter_map(move |value| Item { operator, value }.tensor())
}

/// The places at which calls of the modules around an operator end, the innermost first, for modules on both sides.
fn modules_around(comparer: Comparer<'_>, place: usize) -> Vec<usize> {
    let operators = &comparer.aligned.operators;
    let Some(Some(one)) = operators.get(place).map(|pair| pair.0) else { return Vec::new() };
    let mut around = Vec::new();
    let mut name = &*comparer.operator(one).name;
    while let Some(parent) = comparer.sides.target.parent(name).and_then(|parent| parent.name.as_deref()) {
        let is_it = |&(one, other): &(Option<u32>, Option<u32>)| {
            one.zip(other).is_some_and(|(one, _)| &*comparer.operator(one).name == parent)
        };
        around.extend(operators[place..].iter().position(is_it).map(|behind| place + behind));
        name = parent;
    }
    around
}

/// Whether only one side has computing calls at some places.
fn computes_alone(comparer: Comparer<'_>, places: std::ops::Range<usize>) -> bool {
    let operators = comparer.aligned.operators.get(places.start..).unwrap_or_default();
    let mut alone = operators.iter().take(places.len()).filter(|(one, other)| one.is_none() != other.is_none());
    alone.any(|&(one, other)| {
        let operator = comparer.of_one_side([one, other]);
        let name = operator.and_then(|operator| OperatorName::parse(&operator.name));
        name.is_some_and(|name| !only_moves(name) && !gives_view(name) && !makes_of_nothing(name))
    })
}
