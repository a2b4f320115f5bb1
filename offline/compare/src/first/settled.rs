//! Whether all that comes of a step is the same, though code in it was written otherwise: its gradients, its loss and its updates.
//!
//! [`region`](super::region) follows what differs from call to call. It loses the trail where each side takes apart what the other puts
//! together, and where calls of one name do different things. What a step is for tells then.

use std::collections::{HashMap, HashSet};

use trainmon_dump::capture::{Leaf, Operator, Plain, Section, TensorFacts};

use super::call::Call;
use super::compared::Comparer;
use super::finding::{Compared, Finding, Kind};
use super::fresh::SAME_AS_PRODUCED;
use super::learnt::Bounds;
use super::magnitude::{makes_of_nothing, only_moves};
use super::operands::{inputs, results};
use super::region::{NEAR, Region, SURE};
use crate::deviation::What;
use crate::fingerprint::Fingerprint;
use crate::item::Item;
use crate::judge::coarse;
use crate::name::{Direction, OperatorName};
use crate::unwritten::gives_view;

/// A part of a step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Forward,
    /// Gradients, and what calls of `torch.autograd.Function.backward` compute.
    Backward,
    /// What comes behind the last gradient.
    Update,
}

/// What differs behind a finding in its own phase, if all that comes of the step agrees: every gradient of a parameter, the last result of
/// the forward, and what the update writes in place. At least one of the gradients or updates must be behind the finding, where a step has
/// gradients, and one side must have calls of its own that compute anything. `None` else, and where something differs that they do not
/// show: what was written in place, a result that nothing takes and that has no gradient, a number that somebody wrote down.
pub(super) fn settled(bounds: Bounds<'_, '_>, alone: &[&Finding], finding: &Finding) -> Option<Region> {
    if matches!(finding.kind, Kind::Data | Kind::Parameter) {
        return None;
    }
    let comparer = bounds.comparer;
    let phases = Phases::of(comparer);
    let phase = phases.of_place(finding.place);
    let known = Known::of(comparer);
    let mut settled = Settled { places: vec![finding.place], ..Settled::default() };
    for call in Call::all_behind(comparer, finding.place) {
        if call.name.is_some_and(|name| comparer.judge.thresholds.ignores(name)) {
            continue;
        }
        let here = phases.of_place(call.place);
        let is_same = !settled.is_apart(bounds, &call, here);
        settled.keep(&call);
        let is_of_gradients = call.goes(Direction::ParameterGradient) || (here == Phase::Update && is_in_place(&call));
        let is_outcome = is_of_gradients || phases.forward.end == call.place + 1;
        match (is_outcome, is_same) {
            (true, true) => settled.outcomes += usize::from(is_of_gradients || !phases.has_gradients()),
            (false, true) => {}
            (false, false) if known.is_shown_by_gradients(&call) => settled.note(&call, here == phase),
            (_, false) => return None,
        }
        if is_same && here == phase {
            settled.until.get_or_insert_with(|| call.operator.name.to_string());
            settled.apart = settled.apart.max(largest(&call));
        }
    }
    let Settled { places, until, apart, outcomes, .. } = settled;
    let last = *places.last()?;
    if lacks_a_gradient(comparer, finding.place) {
        return None;
    }
    let is_near = |call: &&Finding| call.place + NEAR >= finding.place;
    let has_alone = alone.iter().any(is_near) || computes_alone(comparer, finding.place..last + NEAR);
    (outcomes > 0 && has_alone).then(|| Region {
        places,
        until: until.unwrap_or_else(|| finding.operator.clone()),
        apart,
        is_reshaped: false,
    })
}

#[derive(Default)]
struct Settled {
    /// Of calls that differ, in the finding's phase.
    places: Vec<usize>,
    /// The first call behind them that agrees.
    until: Option<String>,
    /// How far those are apart that agree behind them.
    apart: f64,
    /// Gradients of parameters and updates behind the finding; losses where there are no gradients.
    outcomes: usize,
    /// What calls of both sides gave behind the finding, and how far it was apart.
    given: HashMap<Fingerprint, f64>,
}

impl Settled {
    fn keep(&mut self, call: &Call<'_>) {
        let tensors = call.outputs.iter().filter_map(|output| Some((output.item.tensor()?, output.deviation.relative)));
        self.given.extend(tensors.map(|(tensor, apart)| (Fingerprint::of(tensor), apart)));
    }

    /// Whether values of a call are apart by more than other code makes of them. A step is a small part of a parameter, which shows little of
    /// what is wrong with it: what an update writes in place is held against round-off, and against what else the call is given.
    fn is_apart(&self, bounds: Bounds<'_, '_>, call: &Call<'_>, phase: Phase) -> bool {
        let written = call.inputs.first().filter(|_| phase == Phase::Update && is_in_place(call));
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

    fn note(&mut self, call: &Call<'_>, is_here: bool) {
        if is_here {
            self.places.push(call.place);
            (self.until, self.apart) = (None, 0.0);
        }
    }
}

/// Where a step's phases are, as places in the order of execution.
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

    fn has_gradients(&self) -> bool {
        self.last_gradient.is_some()
    }

    fn of_place(&self, place: usize) -> Phase {
        match place {
            place if self.forward.contains(&place) => Phase::Forward,
            place if self.last_gradient.is_some_and(|last| place <= last) => Phase::Backward,
            _ => Phase::Update,
        }
    }
}

/// What becomes of results, by what tensors are known.
#[derive(Default)]
struct Known {
    target: OfSide,
    golden: OfSide,
}

/// What one side's calls take and give.
#[derive(Default)]
struct OfSide {
    /// The last place where a call takes it.
    taken: HashMap<Fingerprint, usize>,
    given: HashSet<Fingerprint>,
}

impl Known {
    fn of(comparer: Comparer<'_>) -> Self {
        let mut known = Self::default();
        for (place, &(one, other)) in comparer.aligned.operators.iter().enumerate() {
            known.target.add(place, one.map(|index| comparer.operator(index)));
            known.golden.add(place, other.map(|index| comparer.golden(index)));
        }
        known
    }

    /// Whether gradients, the loss and updates would be others if a call that differs gave anything else than the golden's.
    fn is_shown_by_gradients(&self, call: &Call<'_>) -> bool {
        let of_forward = || {
            self.target.leads_on(call.place, call.operator, &self.golden)
                && self.golden.leads_on(call.place, call.golden, &self.target)
        };
        !is_in_place(call) && !is_called_otherwise(call) && (!call.is_forward() || of_forward())
    }
}

impl OfSide {
    fn add(&mut self, place: usize, operator: Option<&Operator>) {
        let of = |tensor| Fingerprint::of(tensor);
        self.taken.extend(operator.into_iter().flat_map(inputs).map(|tensor| (of(tensor), place)));
        self.given.extend(operator.into_iter().flat_map(results).map(of));
    }

    /// Whether all results of a call of this side have gradients, are taken later, or are results of the other side too.
    fn leads_on(&self, place: usize, operator: &Operator, other: &Self) -> bool {
        let is_later = |looks: Fingerprint| self.taken.get(&looks).is_some_and(|&last| last > place);
        results(operator).all(|tensor| {
            let looks = Fingerprint::of(tensor);
            has_gradient(tensor) || is_later(looks) || is_later(looks.negated()) || other.given.contains(&looks)
        })
    }
}

fn has_gradient(tensor: &TensorFacts) -> bool {
    tensor.requires_grad == Some(true)
}

/// Whether a call has another parameter, or does the same to the same tensors with another number that has a fraction, as an epsilon: it may
/// matter more another time.
fn is_called_otherwise(call: &Call<'_>) -> bool {
    let is_number = |item: Item<'_>| matches!(&item.value.leaf, Leaf::Plain { value: Plain::Float(_), .. });
    let is_another_number = |value: &Compared<'_>| is_number(value.item) && value.twin.is_some_and(is_number);
    let is_another_tensor = |value: &Compared<'_>| {
        value.item.tensor().is_some() && (value.deviation.what != What::Numbers || value.deviation.relative > SURE)
    };
    let mut inputs = call.differing().filter(|value| value.item.value.section.is_input());
    call.differing().any(|value| value.item.value.section == Section::Parameter)
        || (call.differing().any(is_another_number) && !inputs.any(is_another_tensor))
}

fn is_in_place(call: &Call<'_>) -> bool {
    call.name.is_some_and(|name| name.operation().ends_with('_') && !name.operation().ends_with("__"))
}

fn largest(call: &Call<'_>) -> f64 {
    let apart = call.differing().map(|value| value.deviation.relative);
    apart.filter(|apart| *apart <= SURE).fold(0.0, f64::max)
}

/// Whether one side has gradients of parameters behind a place that the other lacks.
fn lacks_a_gradient(comparer: Comparer<'_>, first: usize) -> bool {
    let alone = comparer.aligned.operators[first..].iter().filter(|(one, other)| one.is_none() != other.is_none());
    let mut names = alone.filter_map(|&(one, other)| OperatorName::parse(&comparer.of_one_side([one, other])?.name));
    names.any(|name| name.direction == Direction::ParameterGradient)
}

/// Whether one side makes a call at some places that computes anything, and the other does not.
fn computes_alone(comparer: Comparer<'_>, places: std::ops::Range<usize>) -> bool {
    let operators = comparer.aligned.operators.get(places.start..).unwrap_or_default();
    let mut alone = operators.iter().take(places.len()).filter(|(one, other)| one.is_none() != other.is_none());
    alone.any(|&(one, other)| {
        let operator = comparer.of_one_side([one, other]);
        let name = operator.and_then(|operator| OperatorName::parse(&operator.name));
        name.is_some_and(|name| !only_moves(name) && !gives_view(name) && !makes_of_nothing(name))
    })
}
