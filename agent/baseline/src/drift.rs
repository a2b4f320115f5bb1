//! Fused biases of attentions. The gradient of the keys' part is only rounding, which an adaptive optimizer turns into
//! arbitrary updates; statistics of the whole bias do not show which part differs.

use std::collections::HashMap;

use trainmon_noise::{Moved, Numbers, may_hold_keys};

use super::magnitude::ColumnsPlan;
use super::names::Names;
use super::noise::StatisticClass;
use super::steps::{RowHead, StepRows};

/// Positions of a step's kinds ([`super::noise::place_of`]) that show rounding amplified by an optimizer.
const PARAMETERS: [u8; 2] = [0, 12];
const ACTIVATIONS: u8 = 3;
const UPDATES: u8 = 11;

/// The known fused biases, by bearer.
#[derive(Debug, Default)]
pub(super) struct Drift {
    /// `None` for a bearer that is not a fused bias.
    of: HashMap<u32, Option<Moved>>,
    /// The bias's bearer, by the bearer of the projection's output.
    outputs: HashMap<u32, u32>,
}

/// A value of a row in both runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Apart {
    pub(super) class: StatisticClass,
    pub(super) values: [f64; 2],
    pub(super) elements: f64,
}

impl Drift {
    /// Records a parameter's rows of both runs before they are judged.
    pub(super) fn note(
        &mut self,
        names: &mut Names,
        (bearer, place): (u32, u8),
        rows: [(&RowHead, &StepRows); 2],
        plans: [&ColumnsPlan; 2],
    ) {
        if !PARAMETERS.contains(&place) || self.of.get(&bearer).is_some_and(Option::is_none) {
            return;
        }
        let numbers = [0, 1].map(|side| numbers(names, rows[side], plans[side]));
        let (Some(one), Some(other)) = (numbers[0], numbers[1]) else { return };
        if let Some(Some(moved)) = self.of.get_mut(&bearer) {
            moved.step([one, other]);
            return;
        }
        let is_fused = is_fused(names, bearer, rows[0]);
        self.of.insert(bearer, is_fused.then(|| Moved::begin([one, other])));
        if is_fused {
            let stage = names.bearer_stage(bearer);
            // If the projection is not a module of its own, the module's output no longer contains the keys.
            let output = names.bearer_name(bearer).strip_suffix(".bias").map(|module| format!("{module}.output"));
            if let Some(output) = output {
                self.outputs.insert(names.bearer(stage, &output), bearer);
            }
        }
    }

    /// Whether updates from a gradient that is only rounding explain a value's difference. A fault of that size looks
    /// the same.
    pub(super) fn explains(&self, (bearer, place): (u32, u8), apart: Apart) -> bool {
        let bias = if place == ACTIVATIONS { self.outputs.get(&bearer).copied() } else { Some(bearer) };
        let Some(moved) = bias.and_then(|bias| self.of.get(&bias).copied().flatten()) else { return false };
        let is_update = place == UPDATES;
        if !is_update && place != ACTIVATIONS && !PARAMETERS.contains(&place) {
            return false;
        }
        let Apart { class, values: [target, golden], elements } = apart;
        let difference = (target - golden).abs();
        match class {
            StatisticClass::NotJudged | StatisticClass::Count => false,
            // A third of the elements move in random directions.
            _ if is_update => difference.is_finite(),
            StatisticClass::Norm => difference <= moved.reach() * elements.max(1.0).sqrt(),
            StatisticClass::Mean | StatisticClass::Extreme => difference <= moved.reach(),
            StatisticClass::Share | StatisticClass::Plain => false,
        }
    }
}

fn is_fused(names: &Names, bearer: u32, (row, rows): (&RowHead, &StepRows)) -> bool {
    let name = names.bearer_name(bearer);
    let Some((elements, _)) = names.size(row.shape).filter(|(elements, longest)| elements == longest) else {
        return false;
    };
    let sibling = format!("{}weight", name.strip_suffix("bias").unwrap_or_default());
    let is_sibling = |other: &&RowHead| {
        let other = &names.tensors[other.tensor as usize];
        names.bearer_name(other.bearer) == sibling
    };
    let weight = rows.rows.iter().find(is_sibling).and_then(|weight| names.size(weight.shape));
    may_hold_keys(name, elements, weight.map(|(elements, _)| elements))
}

/// Max, min, mean and norm; `None` if none was measured.
fn numbers(names: &Names, (row, rows): (&RowHead, &StepRows), plan: &ColumnsPlan) -> Option<Numbers> {
    let mut found = [None; 4];
    for (column, (statistic, _)) in plan.columns.iter().enumerate() {
        let at = ["max", "min", "mean", "norm"].iter().position(|name| *name == names.statistic_name(*statistic));
        if let Some(at) = at {
            found[at] = rows.values.get(row.first + column).copied().filter(|value| value.is_finite());
        }
    }
    // Without a measurement, nothing is known to have moved.
    found.iter().any(Option::is_some).then(|| found.map(Option::unwrap_or_default))
}
