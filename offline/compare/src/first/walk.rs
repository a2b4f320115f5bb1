//! One rank's operators in the order they ran, up to the first that is not explained by what came before.

use std::collections::HashSet;

use trainmon_dump::capture::{Operator, Section};

use crate::buffers::{Buffers, may_be_unwritten};
use crate::deviation::{Deviation, What};
use crate::evaluation::Sides;
use crate::judge::{Judge, coarse};
use crate::matching::Alignment;
use crate::name::{Direction, OperatorName};
use crate::rounding::coarsest;

use super::compared::{Comparer, lacks_a_digest};
use super::finding::{Candidate, Compared, Excuse, Finding, Kind, Rewritten, Walked};
use super::kink::is_kinked;
use super::magnitude::{Magnitude, takes_weights, unit};
use super::memory::ATTENTIONS;
use super::noise::{Produced, Rounding};
use super::parting::{is_another_node, is_another_tensor, is_of_one_shape};
use super::walker::{Excused, Walker};
use crate::fingerprint::Fingerprint;

/// What is made of a value that is all rounding counts as that up to this many times its difference.
const GROWTH_OF_ALL_ROUNDING: f64 = 4.0;

/// Looks at a rank's operators of a step in order. `rounding` is what earlier steps had, and is given back with this one's.
pub(crate) fn walk(sides: Sides<'_>, aligned: &Alignment, rounding: Rounding, judge: Judge<'_>) -> (Walked, Rounding) {
    let mut rounding = rounding.next_step();
    rounding.parameters.step(sides.target, sides.golden, aligned);
    let mut walker = Walker {
        target: sides.target,
        golden: sides.golden,
        comparer: Comparer { sides, aligned, judge },
        judge,
        buffers: Buffers::of(sides.target),
        rounding,
        gradient: None,
        parted: Vec::new(),
        given: HashSet::new(),
        changed: HashSet::new(),
        unsure: HashSet::new(),
        is_blind: false,
        is_uneven: is_uneven(sides, aligned),
        region: HashSet::new(),
        excused: Excused::default(),
        walked: Walked::default(),
    };
    for (place, &pair) in aligned.operators.iter().enumerate() {
        match pair {
            (Some(one), Some(other)) => {
                if walker.walked.finding.is_some() {
                    walker.follow(one, other);
                } else {
                    walker.look(place, one, other);
                }
            }
            (Some(one), None) => walker.one_sided(place, Kind::TargetOnly, Some(one), None),
            (None, Some(other)) => walker.one_sided(place, Kind::GoldenOnly, None, Some(other)),
            (None, None) => {}
        }
    }
    walker.end()
}

/// Whether one side has parameters fused, and calls of its own among the updates.
fn is_uneven(sides: Sides<'_>, aligned: &Alignment) -> bool {
    if sides.target.joined.is_empty() && sides.golden.joined.is_empty() {
        return false;
    }
    let direction = |operator: &Operator| OperatorName::parse(&operator.name).map(|name| name.direction);
    let mut is_behind = false;
    aligned.operators.iter().any(|&(one, other)| {
        let target = one.map(|index| &sides.target.document.operators[index as usize]);
        let golden = other.map(|index| &sides.golden.document.operators[index as usize]);
        let direction = target.or(golden).and_then(direction);
        is_behind |= direction == Some(Direction::Backward);
        is_behind && direction == Some(Direction::Forward) && one.is_none() != other.is_none()
    })
}

impl<'c> Walker<'c> {
    fn look(&mut self, place: usize, one: u32, other: u32) {
        let (operator, golden) = (self.operator(one), &self.golden.document.operators[other as usize]);
        let name = OperatorName::parse(&operator.name);
        if name.is_some_and(|name| self.judge.thresholds.ignores(name)) {
            return;
        }
        let compared = self.comparer.compare(one, other);
        self.walked.unread += compared.iter().filter(|compared| compared.is_unread).count();
        let is_finer = |it: &&Compared<'_>| it.deviation.what == What::Dtype && it.deviation.relative.is_finite();
        self.walked.finer += compared.iter().filter(is_finer).count();
        self.walked.parts += compared.iter().filter(|it| it.deviation.what == What::Part).count();
        self.walked.compared += 1;
        if compared.iter().any(|compared| compared.deviation.is_some()) {
            self.walked.differing += 1;
            self.walked.first_differing.get_or_insert_with(|| (place, operator.name.to_string()));
        }
        let is_unseen = |compared: &Compared<'_>| compared.deviation.what == What::Unseen;
        let is_joined = self.is_joined(operator, golden);
        let is_blind = is_joined && compared.iter().any(lacks_a_digest);
        let is_all_unseen = !compared.is_empty() && compared.iter().all(is_unseen);
        if is_all_unseen || (is_blind && compared.iter().any(is_unseen)) {
            self.walked.unseen += 1;
        }
        if self.is_unjudged(operator, name) {
            self.walked.unjudged += 1;
            self.note_judged(&compared, Excuse::Unassigned);
            if let Some(found) = self.other_argument(operator, name, &compared) {
                self.found(place, (one, other), found, &[]);
            }
            return;
        }
        if self.region.contains(&place) || self.is_excused(name, &compared) {
            self.excuse(&compared);
            return;
        }
        let (inputs, outputs): (Vec<_>, Vec<_>) =
            compared.into_iter().partition(|compared| compared.item.value.section.is_input());
        if self.buffers.has(one) && self.is_told_by_unwritten(operator, name, &inputs, &outputs) {
            self.note_judged(inputs.iter().chain(&outputs), Excuse::Unwritten);
            return;
        }
        if let Some(found) = self.fresh_input(operator, name, &inputs) {
            let fresh: Vec<&Compared<'_>> =
                inputs.iter().filter(|input| self.is_fresh(operator, name, input)).collect();
            let tensors =
                fresh.iter().flat_map(|input| [input.item.tensor(), input.twin.and_then(|twin| twin.tensor())]);
            let fingerprints: Vec<Fingerprint> = tensors.flatten().map(Fingerprint::of).collect();
            if !self.agrees_again(place, operator, &fresh, &fingerprints) {
                self.found(place, (one, other), found, &fingerprints);
                return;
            }
        }
        if let Some(found) = self.parting(operator, name, &inputs, &outputs) {
            self.found(place, (one, other), found, &[]);
            return;
        }
        self.is_blind |= is_blind;
        self.note_bounds((operator, name), &inputs, &outputs);
        if name.is_some_and(|name| takes_weights(name.function())) {
            let apart = self.unseen_bound(operator, name, &inputs, &outputs);
            let module = self.module_around(operator);
            self.rounding.parameters.note_unseen(module, apart);
        }
        if is_joined {
            self.expect_rounding(operator);
        }
        self.keep(one, name, &inputs, &outputs);
        let is_in_place = self.is_update(name) && name.is_some_and(|name| name.function().ends_with('_'));
        if let (true, Some(before), Some(after)) = (is_in_place, inputs.first(), outputs.first())
            && let (Some(before), Some(after)) = (before.item.tensor(), after.item.tensor())
        {
            self.rounding.parameters.note_change(before, after);
        }
        if name.is_some_and(|name| name.direction == Direction::Forward && ATTENTIONS.contains(&name.function())) {
            let module = self.module_around(operator);
            self.rounding.parameters.close_shifts(module);
        }
    }

    /// Whether a call that looks at a buffer, or fills one, would be a finding for what may be memory that nobody has written yet.
    fn is_told_by_unwritten(
        &self,
        operator: &'c Operator,
        name: Option<OperatorName<'_>>,
        inputs: &[Compared<'c>],
        outputs: &[Compared<'c>],
    ) -> bool {
        let is_number = |what: What| matches!(what, What::Numbers | What::NotFinite | What::Digest);
        let is_content = |input: &Compared<'_>| may_be_unwritten(input.item.value) && is_number(input.deviation.what);
        let mut fresh = inputs.iter().filter(|input| self.is_fresh(operator, name, input)).peekable();
        if fresh.peek().is_some() {
            return fresh.all(is_content);
        }
        let parted = self.parting(operator, name, inputs, outputs);
        parted.is_some_and(|found| found.suspects.iter().all(|suspect| is_number(suspect.deviation.what)))
    }

    /// Takes in what an operator shows of rounding, and what it gave.
    fn keep(&mut self, one: u32, name: Option<OperatorName<'_>>, inputs: &[Compared<'c>], outputs: &[Compared<'c>]) {
        let operator = self.operator(one);
        let mut inherited = 0.0_f64;
        for input in inputs {
            let is_residue = self.producer(input).is_some_and(|producer| producer.is_all_rounding)
                || self.is_updated_by_rounding(name, input)
                || self.is_shifted(name, input);
            if is_residue {
                let is_apart = input.deviation.is_some();
                self.walked.first_residue =
                    self.walked.first_residue.take().or(is_apart.then(|| operator.name.to_string()));
                let is_beyond = input.deviation.relative > self.allowed_input(operator, name, input).bound;
                if is_beyond && self.is_updated_by_rounding(name, input) {
                    self.note_unsure(input);
                }
                self.rounding.parameters.note_shift(input);
                inherited = inherited.max(input.deviation.relative);
            } else {
                self.note_rounding(operator, input.deviation);
            }
        }
        if name.is_some_and(|name| name.direction == Direction::Backward) {
            let gradients = inputs.iter().filter_map(|input| Magnitude::of(input.item.tensor()?));
            self.gradient = gradients.max_by(Magnitude::order).or(self.gradient);
        }
        let input = inputs.iter().map(|input| input.deviation.relative).fold(self.rounding.largest, f64::max);
        let bound = self.judge.bound(operator, input).bound;
        let is_another = is_another_node(outputs);
        let is_gradient = name.is_some_and(|name| name.direction != Direction::Forward);
        let is_kinked = name.is_some_and(is_kinked);
        for output in outputs {
            let deviation = output.deviation.relative;
            if is_another && is_another_tensor(output, bound) {
                continue;
            }
            // What is made of rounding alone is no further apart than that was, times little.
            let is_made_of_it = inherited > 0.0 && deviation <= inherited * GROWTH_OF_ALL_ROUNDING;
            let is_updated = self.is_updated(operator, name, inputs, output);
            // What jumped, or was known to where it was made, says nothing of the size of rounding if it is beyond the usual.
            let is_beyond = || deviation > self.judge.bound(operator, self.rounding.largest).bound;
            let has_jumped = (is_gradient && self.was_judged(name, output))
                || (self.has_jumped(name, inputs, output) && is_beyond());
            let is_all_rounding = deviation > 0.0
                && ((is_another && !is_of_one_shape(output))
                    || is_made_of_it
                    || is_updated
                    || has_jumped
                    || self.is_cancelled(operator, name, output));
            if is_all_rounding {
                self.walked.first_residue.get_or_insert_with(|| operator.name.to_string());
                self.note_judged([output], Excuse::Residue);
                if let Some(name) = name.filter(|name| name.direction == Direction::ParameterGradient) {
                    self.rounding.parameters.note_residue(name, &output.item.value.place);
                }
                if is_updated {
                    self.walked.unsure.push(output.item.name());
                }
            } else {
                self.note_rounding(operator, output.deviation);
            }
            if let Some(name) = name.filter(|name| name.direction == Direction::ParameterGradient) {
                self.rounding.parameters.note_gradient(name, &output.item.value.place, deviation);
            }
            if let Some(tensor) = output.item.tensor() {
                let twin = output.twin.and_then(|twin| twin.tensor());
                self.rounding.keep(
                    tensor,
                    twin,
                    Produced { deviation, is_all_rounding, unit: unit(tensor), is_gradient, is_kinked },
                    name.is_some_and(|name| name.direction == Direction::ParameterGradient),
                );
            }
        }
    }

    fn found(&mut self, place: usize, (one, other): (u32, u32), found: Candidate, fingerprints: &[Fingerprint]) {
        let Candidate { kind, suspects, input } = found;
        if self.is_blind && suspects.iter().all(|suspect| suspect.deviation.what == What::Digest) {
            for suspect in &suspects {
                self.walked.is_untold |= suspect.deviation.relative.is_infinite();
                self.note_rounding(self.operator(one), suspect.deviation);
            }
            self.note_judged(&self.comparer.compare(one, other), Excuse::Untold);
            return;
        }
        let operator = self.operator(one).name.to_string();
        let is_update = self.is_update(OperatorName::parse(&operator));
        let parameter = is_update.then(|| self.updated(one)).flatten();
        let at = Finding::at(kind, operator, place, [Some(one), Some(other)]);
        let finding = Finding { suspects, input, parameter, ..at };
        if kind != Kind::Argument && self.enter_rewritten(&finding, fingerprints) {
            self.excuse(&self.comparer.compare_behind(one, other));
            return;
        }
        // A call that only one side made accounts for an input that nobody produced.
        if kind == Kind::Between
            && let Some(parted) = self.missing_producer(fingerprints)
        {
            self.walked.finding = Some(Finding { suspects: finding.suspects, ..parted });
            return;
        }
        self.walked.finding = Some(finding);
    }

    /// One large product rounds otherwise than several small ones, and statistics of a part's view otherwise than of the part
    /// alone: what follows differs by round-off whether it is seen here or not.
    fn expect_rounding(&mut self, operator: &Operator) {
        self.rounding.is_seen = true;
        self.rounding.coarse = self.rounding.coarse.max(coarse(operator));
        self.rounding.largest = self.rounding.largest.max(coarsest(operator));
    }

    pub(super) fn note_rounding(&mut self, operator: &Operator, deviation: Deviation) {
        // An argument that is a little apart tells what it is made of, and that is known already.
        if !deviation.is_some() || deviation.relative.is_infinite() || deviation.what == What::Argument {
            return;
        }
        self.rounding.is_seen = true;
        self.rounding.coarse = self.rounding.coarse.max(coarse(operator));
        self.rounding.largest = self.rounding.largest.max(deviation.relative);
        self.walked.largest_rounding = self.walked.largest_rounding.max(deviation.relative);
        self.walked.first_rounding.get_or_insert_with(|| (operator.name.to_string(), deviation.relative));
    }

    /// After the finding: who differs too.
    fn follow(&mut self, one: u32, other: u32) {
        let operator = self.operator(one);
        let bound = self.fresh_bound(operator).max(self.judge.bound(operator, 0.0).bound);
        let compared = self.comparer.compare_behind(one, other);
        let mut outputs = compared.iter().filter(|compared| compared.item.value.section >= Section::Output);
        if outputs.any(|output| output.deviation.relative > bound) {
            self.walked.spread.push(operator.name.to_string());
        }
    }

    fn is_joined(&self, operator: &Operator, golden: &Operator) -> bool {
        self.target.joined.operator(&operator.name).is_some() || self.golden.joined.operator(&golden.name).is_some()
    }

    pub(super) fn operator(&self, index: u32) -> &'c Operator {
        &self.target.document.operators[index as usize]
    }

    fn end(mut self) -> (Walked, Rounding) {
        let is_told = self.walked.is_untold || !self.walked.rewritten.is_empty();
        if self.walked.finding.is_some() || self.parted.is_empty() || is_told {
            return (self.walked, self.rounding);
        }
        let calls = std::mem::take(&mut self.parted);
        let last = calls.last().map_or(0, |call| call.place);
        let first = calls.into_iter().next();
        match (first, self.walked.first_differing.clone()) {
            // Rounding begins with calls of one side alone: they compute the same otherwise.
            (Some(finding), Some((place, until))) if place > finding.place => {
                let (apart, places) = (self.walked.largest_rounding, finding.place..=last.max(place));
                self.walked.rewritten.push(Rewritten { finding, until, apart, places });
            }
            // Nothing differs in value, but the calls do: the first of them is all there is to say.
            (first, _) => self.walked.finding = first,
        }
        (self.walked, self.rounding)
    }
}
