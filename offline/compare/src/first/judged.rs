//! The tolerances of differing values for tables, and why such a value is not the divergence.

use super::call::Call;
use super::finding::{Compared, Excuse, Judged, Walked};
use super::learnt::Bounds;
use super::outputs::{is_another_node, is_of_one_shape};
use crate::item::Address;
use crate::judge::{Bound, BoundSource};

impl<'c> Bounds<'_, 'c> {
    /// The tolerances of an operator's differing values.
    pub(super) fn judged(&self, call: &Call<'c>) -> Vec<(Address, Judged)> {
        let is_apart = |value: &&Compared<'c>| value.deviation.is_some();
        let mut judged = Vec::new();
        for input in call.inputs.iter().filter(is_apart) {
            let bound = self.allowed_input(call, input);
            judged.extend(input.at.map(|at| (at, Judged { bound, excuse: None })));
        }
        let mut differing = call.outputs.iter().filter(is_apart).peekable();
        if differing.peek().is_none() {
            return judged;
        }
        let usual = self.output_bound(call);
        let is_another = is_another_node(&call.outputs);
        for output in differing {
            let bound = usual.or_spread(output.spread);
            let is_of_another = is_another && !is_of_one_shape(output);
            let excuse = is_of_another.then_some(Excuse::Rewritten);
            judged.extend(output.at.map(|at| (at, Judged { bound, excuse })));
        }
        judged
    }
}

impl Walked {
    /// Records why differing values are no finding, whatever their tolerances.
    pub(super) fn note_judged<'v, 'c: 'v>(&mut self, values: impl Iterator<Item = &'v Compared<'c>>, excuse: Excuse) {
        for value in values.filter(|value| value.deviation.is_some()) {
            let Some(at) = value.at else { continue };
            let usual = || Bound { bound: 0.0, source: BoundSource::Rounding };
            let bound = self.judged.get(&at).map_or_else(usual, |judged| judged.bound);
            self.judged.insert(at, Judged { bound, excuse: Some(excuse) });
        }
    }
}
