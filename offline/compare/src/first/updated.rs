//! Whether an input differs by what an uncaptured optimizer made of rounding.

use trainmon_capture_files::{Operator, Section};

use crate::deviation::What;
use crate::judge::coarse;
use crate::name::{Direction, OperatorName};

use super::call::Call;
use super::finding::Compared;
use super::learnt::Bounds;
use super::magnitude::{Magnitude, PRODUCTS, takes_weights};
use super::memory::{Shift, is_inside, key, numbers, path};
use crate::fingerprint::Fingerprint;

impl<'c> Bounds<'_, 'c> {
    /// Whether a parameter differs by what an uncaptured optimizer made of rounding.
    pub(super) fn is_updated_by_rounding(&self, call: &Call<'c>, input: &Compared<'c>) -> bool {
        if !self.learnt.rounding.is_seen || input.deviation.what != What::Numbers || !call.is_forward() {
            return false;
        }
        let parameters = &self.learnt.rounding.parameters;
        let Some(tensor) = input.item.tensor() else { return false };
        let key = match call.name.filter(|_| input.item.value.section == Section::Parameter) {
            Some(name) => key(name.callee, &input.item.value.place),
            None => parameters.names.get(&Fingerprint::of(tensor)).cloned(),
        };
        let count = tensor.elements().unwrap_or(1).max(1) as f64;
        let twin = input.twin.and_then(|twin| twin.tensor());
        let key = key.filter(|key| twin.is_some_and(|twin| parameters.is_golden(key, twin)));
        key.is_some_and(|key| {
            parameters.explains(&key)
                || parameters.is_few_elements(&key, count)
                || parameters.follows_gradients(&key, count)
        })
    }

    /// Whether an input differs as a bias that an optimizer made of rounding, without further effect: the running mean of a
    /// batch norm, the keys of an attention.
    pub(super) fn is_shifted(&self, call: &Call<'c>, input: &Compared<'c>) -> bool {
        let (Some(name), Some(tensor), Some(twin)) =
            (call.name, input.item.tensor(), input.twin.and_then(|twin| twin.tensor()))
        else {
            return false;
        };
        if input.deviation.what != What::Numbers || name.direction != Direction::Forward {
            return false;
        }
        let is_second = &*input.item.value.place == ".input.1";
        let is_kept_mean = is_second && matches!(name.function(), "batch_norm" | "instance_norm");
        let is_fused = name.function() == "scaled_dot_product_attention";
        // Attention scores written out, or tensors derived from keys on the way to them: views of a projection's result are not
        // captured.
        let is_parameter = self.learnt.rounding.parameters.names.contains_key(&Fingerprint::of(tensor))
            || tensor.sizes().is_none_or(|sizes| sizes.len() < 2);
        let is_unrecorded =
            self.learnt.rounding.of_this_step(tensor).is_none() && !takes_weights(name.function()) && !is_parameter;
        let is_of_module = !is_fused && !self.is_update(Some(name));
        let is_written_out = is_of_module && (is_unrecorded || PRODUCTS.contains(&name.function()));
        let (Some(one), Some(other)) = (numbers(tensor), numbers(twin)) else { return false };
        let apart = (0..3).map(|at| (one[at] - other[at]).abs()).fold(0.0, f64::max);
        let module = self.module_around(input.item.operator);
        let accounts = |shift: &Shift| {
            let is_around = is_inside(module, &shift.parent);
            let is_key = (is_fused && is_second) || (is_written_out && shift.is_open);
            let is_of_it = (is_key && is_around) || (is_kept_mean && tensor.elements() == Some(shift.elements));
            is_of_it && apart <= shift.by
        };
        self.learnt.rounding.parameters.shifts.iter().any(accounts)
    }

    /// The module in which an operator runs, as parameters are named; the model itself if it was not captured.
    pub(super) fn module_around(&self, operator: &Operator) -> &'c str {
        let parent = self.comparer.sides.target.parent(&operator.name).and_then(|parent| parent.name.as_deref());
        parent.and_then(OperatorName::parse).map_or("Module", |parent| path(parent.callee))
    }

    /// The possible difference of results that the statistics of the inputs do not show: elements of half precision behind an
    /// update in a finer dtype, and single elements of a parameter.
    ///
    /// An element of a gradient that is nearly zero has a large relative error, and an adaptive update scales it to a full
    /// step. Max, min and norm of the parameter hardly show it, the mean does. If the parameter is a factor, one term of a sum
    /// is off by that times the other factor.
    pub(super) fn unseen_bound(&self, call: &Call<'c>) -> f64 {
        let Call { operator, name, ref inputs, ref outputs, .. } = *call;
        let Some(name) = name.filter(|name| self.learnt.rounding.is_seen && name.direction == Direction::Forward)
        else {
            return 0.0;
        };
        if self.is_update(Some(name)) && self.learnt.rounding.coarse > coarse(operator) {
            return self.fresh_bound(operator).min(self.learnt.rounding.coarse);
        }
        let largest =
            |value: &Compared<'c>| value.item.tensor().and_then(Magnitude::of).map_or(0.0, |found| found.size);
        let (Some(first), true) = (inputs.first(), takes_weights(name.function())) else {
            return self.learnt.rounding.parameters.unseen(self.module_around(operator));
        };
        let weights = inputs.iter().skip(1).filter_map(|input| {
            let tensor = input.item.tensor()?;
            let count = tensor.elements().unwrap_or(1) as f64;
            let key = self.learnt.rounding.parameters.names.get(&Fingerprint::of(tensor))?;
            Some(self.learnt.rounding.parameters.single_element(key, count))
        });
        let size = outputs.iter().map(largest).fold(0.0, f64::max);
        let apart = weights.fold(0.0, f64::max) * largest(first);
        if size > 0.0 { apart / size } else { 0.0 }
    }
}
