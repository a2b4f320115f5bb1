//! Learns about rounding from operators without a finding.

use super::call::Call;
use super::compared::{Comparer, lacks_a_digest};
use super::finding::{Compared, Excuse, Judged, Walked};
use super::kink::is_kinked;
use super::learnt::{Bounds, Learnt};
use super::magnitude::{Magnitude, takes_weights, unit};
use super::memory::ATTENTIONS;
use super::noise::Produced;
use super::outputs::{is_another_node, is_another_tensor, is_of_one_shape};
use crate::fingerprint::Fingerprint;
use crate::item::Address;
use crate::name::Direction;

/// A value derived from pure rounding counts as such up to this multiple of its difference.
const GROWTH_OF_ALL_ROUNDING: f64 = 4.0;

/// The result of learning from an operator.
#[derive(Default)]
pub(super) struct Lesson {
    /// The tolerances of differing values.
    judged: Vec<(Address, Judged)>,
    /// Differences of the size of rounding.
    roundings: Vec<f64>,
    /// Whether a differing value is only rounding.
    has_residue: bool,
    /// Its results of that kind.
    residues: Vec<Address>,
    /// Optimizer tensors whose difference may be amplified rounding.
    unsure: Vec<String>,
}

impl Learnt {
    /// The bounds for the next operator.
    pub(super) fn bounds<'w, 'c>(&'w self, comparer: Comparer<'c>) -> Bounds<'w, 'c> {
        Bounds { comparer, learnt: self }
    }

    /// Learns from an operator's rounding, and keeps its outputs.
    pub(super) fn learn<'c>(&mut self, comparer: Comparer<'c>, call: &Call<'c>) -> Lesson {
        let bounds = self.bounds(comparer);
        let mut lesson = Lesson { judged: bounds.judged(call), ..Lesson::default() };
        let is_joined = call.is_joined(comparer);
        let module = bounds.module_around(call.operator);
        if call.name.is_some_and(|name| takes_weights(name.function())) {
            let apart = bounds.unseen_bound(call);
            self.rounding.parameters.note_unseen(module, apart);
        }
        self.is_blind |= is_joined && call.values().any(lacks_a_digest);
        if is_joined {
            self.expect_rounding(call.operator);
        }
        let inherited = self.learn_of_inputs(comparer, call, &mut lesson);
        self.learn_of_outputs(comparer, call, inherited, &mut lesson);
        self.learn_of_parameters(call, module);
        self.note_gradients(call);
        lesson
    }

    /// Starts an operator. A forward call in a module, or one with weights, begins another forward pass: later operators no
    /// longer follow gradients.
    pub(super) fn begin(&mut self, call: &Call<'_>) {
        self.compared += 1;
        let is_of_model = call.name.is_some_and(|name| !name.is_operator || takes_weights(name.function()));
        if call.is_forward() && is_of_model {
            self.gradient = None;
        }
    }

    /// Records the size of gradients that an operator produced.
    pub(super) fn note_gradients(&mut self, call: &Call<'_>) {
        let tensors = call.outputs.iter().filter_map(|output| output.item.tensor());
        for Magnitude { size, elements, .. } in
            tensors.filter_map(Magnitude::of).filter(|_| call.goes(Direction::Backward))
        {
            let largest = self.gradients.entry(elements).or_default();
            *largest = largest.max(size);
        }
    }

    /// Returns the difference of inputs that are only rounding.
    fn learn_of_inputs<'c>(&mut self, comparer: Comparer<'c>, call: &Call<'c>, lesson: &mut Lesson) -> f64 {
        let mut inherited = 0.0_f64;
        for input in &call.inputs {
            let bounds = self.bounds(comparer);
            let is_updated = bounds.is_updated_by_rounding(call, input);
            let is_made_of_it = bounds.producer(input).is_some_and(|producer| producer.is_all_rounding);
            let is_left = bounds.is_left_of_gradients(call, input);
            if !is_made_of_it && !is_updated && !is_left && !bounds.is_shifted(call, input) {
                lesson.roundings.extend(self.note_rounding(call.operator, input.deviation));
                continue;
            }
            lesson.has_residue |= input.deviation.is_some();
            let is_beyond = input.deviation.relative > bounds.allowed_input(call, input).bound;
            let looks = input.item.tensor().map(Fingerprint::of).filter(|_| is_beyond && is_updated);
            if looks.is_some_and(|looks| !self.unsure.contains(&looks)) {
                lesson.unsure.push(bounds.parameter(input.item).unwrap_or_else(|| input.item.name()));
                self.unsure.extend(looks);
            }
            self.rounding.parameters.note_shift(input);
            inherited = inherited.max(input.deviation.relative);
        }
        if call.name.is_some() && call.goes(Direction::Backward) {
            let gradients = call.inputs.iter().filter_map(|input| Magnitude::of(input.item.tensor()?));
            self.gradient = gradients.max_by(Magnitude::order).or(self.gradient);
        }
        inherited
    }

    fn learn_of_outputs<'c>(&mut self, comparer: Comparer<'c>, call: &Call<'c>, inherited: f64, lesson: &mut Lesson) {
        let of_inputs = call.inputs.iter().map(|input| input.deviation.relative);
        let bound = comparer.judge.bound(call.operator, of_inputs.fold(self.rounding.largest, f64::max)).bound;
        let is_another = is_another_node(&call.outputs);
        let is_gradient = call.name.is_some() && !call.is_forward();
        let is_kinked = call.name.is_some_and(is_kinked);
        for output in &call.outputs {
            if is_another && is_another_tensor(output, bound) {
                continue;
            }
            let is_of_another = is_another && !is_of_one_shape(output);
            let is_all_rounding = output.deviation.relative > 0.0
                && (is_of_another || self.is_residue(comparer, call, output, inherited, lesson));
            let name = call.name.filter(|name| name.direction == Direction::ParameterGradient);
            let (place, deviation) = (&output.item.value.place, output.deviation.relative);
            if is_all_rounding {
                lesson.has_residue = true;
                lesson.residues.extend(output.at);
                if let Some(name) = name {
                    self.rounding.parameters.note_residue(name, place);
                }
            } else {
                lesson.roundings.extend(self.note_rounding(call.operator, output.deviation));
            }
            if let Some(name) = name {
                self.rounding.parameters.note_gradient(name, place, deviation);
            }
            if let Some(tensor) = output.item.tensor() {
                let twin = output.twin.and_then(|twin| twin.tensor());
                let produced = Produced { deviation, is_all_rounding, unit: unit(tensor), is_gradient, is_kinked };
                self.rounding.keep(tensor, twin, produced, name.is_some());
            }
        }
    }

    /// Whether a differing result is only rounding: a sum that cancels, or a value or update derived from one.
    fn is_residue<'c>(
        &self,
        comparer: Comparer<'c>,
        call: &Call<'c>,
        output: &Compared<'c>,
        inherited: f64,
        lesson: &mut Lesson,
    ) -> bool {
        let bounds = self.bounds(comparer);
        let deviation = output.deviation.relative;
        let is_updated = bounds.is_updated(call, output);
        if is_updated {
            lesson.unsure.push(output.item.name());
        }
        // A value derived from pure rounding differs by little more than that.
        let is_made_of_it = inherited > 0.0 && deviation <= inherited * GROWTH_OF_ALL_ROUNDING;
        // A jump, or a known difference from an earlier operator, shows nothing about the size of rounding beyond the usual.
        let is_beyond = || deviation > comparer.judge.bound(call.operator, self.rounding.largest).bound;
        let is_gradient = call.name.is_some() && !call.is_forward();
        is_updated
            || is_made_of_it
            || (is_gradient && bounds.was_judged(call, output))
            || (bounds.has_jumped(call, output) && is_beyond())
            || bounds.is_cancelled(call, output)
    }

    fn learn_of_parameters(&mut self, call: &Call<'_>, module: &str) {
        let is_in_place = self.gradient.is_some() && call.is_forward();
        let is_in_place = is_in_place && call.name.is_some_and(|name| name.function().ends_with('_'));
        if let (true, Some(before), Some(after)) = (is_in_place, call.inputs.first(), call.outputs.first())
            && let (Some(before), Some(after)) = (before.item.tensor(), after.item.tensor())
        {
            self.rounding.parameters.note_change(before, after);
        }
        if call.is_forward() && call.name.is_some_and(|name| ATTENTIONS.contains(&name.function())) {
            self.rounding.parameters.close_shifts(module);
        }
    }
}

impl Walked {
    /// Adds the lesson of an operator.
    pub(super) fn take_in(&mut self, call: &Call<'_>, lesson: Lesson) {
        let name = &call.operator.name;
        self.judged.extend(lesson.judged);
        for rounding in lesson.roundings {
            self.note_rounding(name, rounding);
        }
        if lesson.has_residue {
            self.first_residue.get_or_insert_with(|| name.to_string());
        }
        let residues = call.outputs.iter().filter(|output| output.at.is_some_and(|at| lesson.residues.contains(&at)));
        self.note_judged(residues, Excuse::Residue);
        self.unsure.extend(lesson.unsure);
    }

    /// Records a difference of the size of rounding.
    pub(super) fn note_rounding(&mut self, operator: &str, apart: f64) {
        self.largest_rounding = self.largest_rounding.max(apart);
        self.first_rounding.get_or_insert_with(|| (operator.to_owned(), apart));
    }
}
