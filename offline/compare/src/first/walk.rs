//! Walks through one rank's operators in their order, up to the first that earlier ones do not explain.
//!
//! Each operator passes the same stages. Its values are compared ([`Call`]). It is skipped if its values prove nothing
//! ([`Passed`]). Its inputs are judged ([`Fresh`](super::fresh::Fresh)), then its outputs ([`Candidate`]). A candidate may
//! start rewritten code ([`Parts`]), or be the finding. All other operators show the size of rounding
//! ([`Lesson`](super::learn::Lesson)).

use trainmon_capture_files::Operator;

use super::call::Call;
use super::compared::{Comparer, lacks_a_digest};
use super::completed::as_completed;
use super::finding::{Candidate, Compared, Excuse, Finding, Kind, OneSidedCall, Rewritten, Walked};
use super::gradients::Gradients;
use super::learnt::{Bounds, Learnt};
use super::noise::Rounding;
use super::operands::{inputs, results};
use super::rewritten::{Entered, Parts};
use crate::buffers::{Buffers, may_be_unwritten};
use crate::deviation::{Deviation, What};
use crate::fingerprint::Fingerprint;
use crate::name::OperatorName;

/// Walks through a rank's operators of a step in order. `rounding` has the rounding of earlier steps, and is returned with this
/// step's.
pub(super) fn walk(comparer: Comparer<'_>, rounding: Rounding) -> (Walked, Rounding) {
    let Comparer { sides, aligned, .. } = comparer;
    let mut rounding = rounding.next_step();
    rounding.parameters.step(sides.target, sides.golden, aligned);
    let mut walker = Walker {
        comparer,
        buffers: Buffers::of(sides.target),
        learnt: Learnt { rounding, ..Learnt::default() },
        parts: Parts::of(comparer),
        walked: Walked::default(),
    };
    for place in as_completed(comparer) {
        match aligned.operators[place] {
            (Some(one), Some(other)) => walker.pair(place, (one, other)),
            (Some(one), None) => walker.one_sided(place, Kind::TargetOnly, [Some(one), None]),
            (None, Some(other)) => walker.one_sided(place, Kind::GoldenOnly, [None, Some(other)]),
            (None, None) => {}
        }
    }
    walker.end()
}

/// The state of a walk through a rank's operators.
struct Walker<'c> {
    comparer: Comparer<'c>,
    /// Calls that read memory that may be unwritten.
    buffers: Buffers,
    learnt: Learnt,
    parts: Parts,
    walked: Walked,
}

/// Why an operator is not compared within tolerances.
enum Passed {
    /// It is part of an update of an unknown parameter. An argument that no such call has is a finding nevertheless.
    Unassigned(Option<Candidate>),
    /// It belongs to rewritten code.
    Rewritten,
    /// It only reads memory that may be unwritten.
    Unwritten,
}

impl<'c> Walker<'c> {
    fn bounds(&self) -> Bounds<'_, 'c> {
        self.learnt.bounds(self.comparer)
    }

    /// An operator that both sides have.
    fn pair(&mut self, place: usize, at: (u32, u32)) {
        if self.walked.finding.is_some() {
            self.follow(&Call::behind(self.comparer, place, at));
            return;
        }
        let name = OperatorName::parse(&self.comparer.operator(at.0).name);
        if !name.is_some_and(|name| self.comparer.judge.thresholds.ignores(name)) {
            self.look(&Call::of(self.comparer, place, at));
        }
    }

    /// An operator that one side alone has.
    fn one_sided(&mut self, place: usize, kind: Kind, at: [Option<u32>; 2]) {
        let Some(operator) = self.comparer.of_one_side(at) else { return };
        let given: Vec<Fingerprint> = results(operator).map(Fingerprint::of).collect();
        let name = OperatorName::parse(&operator.name);
        let is_update = self.bounds().is_update(name);
        let parameter = inputs(operator).filter(|_| is_update).find_map(|tensor| self.bounds().named(tensor));
        if is_update && name.is_some_and(|name| name.function().ends_with('_')) {
            self.learnt.changed.extend(given.iter().copied());
        }
        self.learnt.given.extend(given);
        let (operator, is_target) = (operator.name.to_string(), kind == Kind::TargetOnly);
        self.walked.one_sided.push(OneSidedCall { operator: operator.clone(), place, is_target });
        if self.walked.finding.is_none() {
            self.parts.parted.push(Finding { parameter, is_update, ..Finding::at(kind, operator, place, at) });
        }
    }

    fn look(&mut self, call: &Call<'c>) {
        self.learnt.begin(call);
        self.walked.count(call, call.is_joined(self.comparer));
        if let Some(passed) = self.passed(call) {
            self.pass(call, passed);
            return;
        }
        if let Some(fresh) = self.bounds().fresh(call) {
            if !self.parts.joins(self.learnt.bounds(self.comparer), call, &fresh) {
                self.part(call, fresh.candidate, &fresh.fingerprints);
                return;
            }
            for input in fresh.values {
                self.note_rounding(call.operator, input.deviation);
            }
        }
        if let Some(candidate) = self.bounds().diverging_outputs(call) {
            self.part(call, candidate, &[]);
            return;
        }
        if let Some(candidate) = self.bounds().reordered(call) {
            let finding = self.finding(call, candidate);
            self.parts.reordered.push(finding);
        }
        let lesson = self.learnt.learn(self.comparer, call);
        self.walked.take_in(call, lesson);
        let is_broadcast = |input: &&Compared<'_>| input.at.is_some_and(|at| self.comparer.broadcast.contains(&at));
        self.walked.note_judged(call.inputs.iter().filter(is_broadcast), Excuse::Broadcast);
    }

    fn passed(&self, call: &Call<'c>) -> Option<Passed> {
        if self.parts.is_unassigned(self.bounds(), call) {
            return Some(Passed::Unassigned(self.comparer.other_argument(call)));
        }
        if self.parts.have(self.bounds(), call) {
            return Some(Passed::Rewritten);
        }
        (self.buffers.has(call.at.0) && self.is_told_by_unwritten(call)).then_some(Passed::Unwritten)
    }

    fn pass(&mut self, call: &Call<'c>, passed: Passed) {
        match passed {
            Passed::Unassigned(candidate) => {
                self.walked.unjudged += 1;
                self.walked.note_judged(call.values(), Excuse::Unassigned);
                if let Some(candidate) = candidate {
                    self.part(call, candidate, &[]);
                }
            }
            Passed::Rewritten => self.excuse(call),
            Passed::Unwritten => self.walked.note_judged(call.values(), Excuse::Unwritten),
        }
    }

    /// Whether a call that reads or fills a buffer would be a finding because of memory that may be unwritten.
    fn is_told_by_unwritten(&self, call: &Call<'c>) -> bool {
        let is_number = |what: What| matches!(what, What::Numbers | What::NotFinite | What::Digest);
        let is_content = |input: &&Compared<'_>| may_be_unwritten(input.item.value) && is_number(input.deviation.what);
        if let Some(fresh) = self.bounds().fresh(call) {
            return fresh.values.iter().all(is_content);
        }
        let parted = self.bounds().diverging_outputs(call);
        parted.is_some_and(|found| found.suspects.iter().all(|suspect| is_number(suspect.deviation.what)))
    }

    /// Handles a difference that nothing before explains: the start of rewritten code, or the finding.
    fn part(&mut self, call: &Call<'c>, found: Candidate, fingerprints: &[Fingerprint]) {
        let Candidate { kind, suspects, input } = found;
        if self.learnt.is_blind && suspects.iter().all(|suspect| suspect.deviation.what == What::Digest) {
            for suspect in &suspects {
                self.walked.is_untold |= suspect.deviation.relative.is_infinite();
                self.note_rounding(call.operator, suspect.deviation);
            }
            self.walked.note_judged(call.values(), Excuse::Untold);
            return;
        }
        let finding = self.finding(call, Candidate { kind, suspects, input });
        if kind == Kind::Argument && self.bounds().is_called_otherwise(call) {
            self.parts.note_call(self.comparer, finding);
            self.excuse(call);
            return;
        }
        let may_enter = kind != Kind::Argument || call.has_effect() || call.is_given_others();
        if may_enter && self.enters_part(&finding, fingerprints) {
            self.excuse(call);
            return;
        }
        // A one-sided call explains an input that no operator produced, or one in another order.
        let cause = match kind {
            Kind::Between => self.parts.missing_producer(self.comparer, fingerprints),
            Kind::Operator => self.parts.inside_of(self.comparer, call),
            _ => None,
        };
        let cause = cause.or_else(|| self.parts.reordering(self.comparer, call));
        self.walked.finding = Some(match cause {
            // A reordered input already names what differs.
            Some(cause) if !cause.suspects.is_empty() => cause,
            Some(cause) => Finding { suspects: finding.suspects, ..cause },
            None => finding,
        });
    }

    fn finding(&self, call: &Call<'c>, Candidate { kind, suspects, input }: Candidate) -> Finding {
        let is_update = self.bounds().is_update(call.name);
        let parameter = is_update.then(|| self.bounds().updated(call.at.0)).flatten();
        let at = [Some(call.at.0), Some(call.at.1)];
        Finding { suspects, input, parameter, ..Finding::at(kind, call.operator.name.to_string(), call.place, at) }
    }

    fn enters_part(&mut self, finding: &Finding, fingerprints: &[Fingerprint]) -> bool {
        let entered = self.parts.enter(self.learnt.bounds(self.comparer), finding, fingerprints);
        self.learnt.rounding.is_accumulated |= entered == Entered::Accumulation;
        entered != Entered::No
    }

    /// Skips an operator in rewritten code.
    fn excuse(&mut self, call: &Call<'c>) {
        self.walked.note_judged(call.values(), Excuse::Rewritten);
        self.learnt.note_gradients(call);
        self.parts.pass(call);
    }

    fn note_rounding(&mut self, operator: &Operator, deviation: Deviation) {
        if let Some(rounding) = self.learnt.note_rounding(operator, deviation) {
            self.walked.note_rounding(&operator.name, rounding);
        }
    }

    /// Records the differing operators after the finding.
    fn follow(&mut self, call: &Call<'c>) {
        let bound = self.bounds().fresh_bound(call.operator);
        let bound = bound.max(self.comparer.judge.bound(call.operator, 0.0).bound);
        if call.outputs.iter().any(|output| output.deviation.relative > bound) {
            self.walked.spread.push(call.operator.name.to_string());
        }
    }

    fn end(self) -> (Walked, Rounding) {
        let Self { comparer, learnt, parts, mut walked, .. } = self;
        walked.rewritten = parts.rewritten;
        // Gradients that one side lacks are not rewritten code.
        if walked.finding.is_none() && !walked.rewritten.is_empty() {
            let lacking = Gradients::of(comparer).lacking();
            walked.finding = parts.parted.iter().find(|call| lacking.contains(&call.place)).cloned();
        }
        let is_told = walked.is_untold || !walked.rewritten.is_empty();
        if walked.finding.is_some() || parts.parted.is_empty() || is_told {
            return (walked, learnt.rounding);
        }
        let last = parts.parted.last().map_or(0, |call| call.place);
        let first = parts.parted.into_iter().next();
        match (first, walked.first_differing.clone()) {
            // If rounding starts with one-sided calls, these are rewritten code.
            (Some(finding), Some((place, until))) if place > finding.place => {
                let (apart, places) = (walked.largest_rounding, finding.place..=last.max(place));
                walked.rewritten.push(Rewritten { finding, until, apart, places });
            }
            // No value differs, only the calls: the first of them is the answer.
            (first, _) => walked.finding = first,
        }
        (walked, learnt.rounding)
    }
}

impl Walked {
    /// Counts a common operator and its visible properties.
    fn count(&mut self, call: &Call<'_>, is_joined: bool) {
        let is = |value: &Compared<'_>, what: What| value.deviation.what == what;
        let is_finer = |value: &&Compared<'_>| is(value, What::Dtype) && value.deviation.relative.is_finite();
        self.unread += call.values().filter(|value| value.is_unread).count();
        self.finer += call.values().filter(is_finer).count();
        self.parts += call.values().filter(|value| is(value, What::Part)).count();
        self.compared += 1;
        if call.differing().next().is_some() {
            self.differing += 1;
            self.first_differing.get_or_insert_with(|| (call.place, call.operator.name.to_string()));
        }
        let mut unseen = call.values().filter(|value| is(value, What::Unseen)).peekable();
        let is_blind = is_joined && call.values().any(lacks_a_digest);
        if unseen.peek().is_some() && (is_blind || unseen.count() == call.values().count()) {
            self.unseen += 1;
        }
    }
}
