//! Runs with different numbers of micro-batches per step: a module call then covers a different part of the same data.

use std::collections::HashMap;

use super::names::Names;
use super::noise::place_of;
use super::steps::StepRows;

/// Positions of a step's kinds that are measured once per call: activations and their gradients.
const PER_CALL: [u8; 2] = [3, 5];

/// The numbers of calls into which target and golden run divide a step, if the same elements pass through the modules
/// of both.
///
/// Cost: nothing if both have the same number of rows, as is usual; else a check of each row of both.
pub(super) fn division(names: &Names, target: &StepRows, golden: &StepRows) -> Option<[u32; 2]> {
    if target.rows.len() == golden.rows.len() {
        return None;
    }
    let [target, golden] = [target, golden].map(|rows| calls(names, rows));
    let mut found: HashMap<[u32; 2], usize> = HashMap::new();
    for (module, (calls, elements)) in &target {
        let Some((other_calls, other_elements)) = golden.get(module) else { continue };
        if calls != other_calls && elements == other_elements {
            *found.entry([*calls, *other_calls]).or_default() += 1;
        }
    }
    // A module that is called once, whatever the number of micro-batches, is not representative.
    found.into_iter().max_by_key(|(_, count)| *count).map(|(division, _)| division)
}

/// Whether a kind is measured once per micro-batch.
pub(super) fn is_per_call(place: u8) -> bool {
    PER_CALL.contains(&place)
}

/// The number of calls and the elements of all, by kind and name without the number of the call.
fn calls<'n>(names: &'n Names, rows: &StepRows) -> HashMap<(u16, u32, &'n str), (u32, f64)> {
    let mut calls: HashMap<(u16, u32, &str), (u32, f64)> = HashMap::new();
    for row in &rows.rows {
        let tensor = &names.tensors[row.tensor as usize];
        let name = names.bearer_name(tensor.bearer);
        let Some((elements, _)) =
            names.size(row.shape).filter(|_| is_per_call(place_of(names.kind_name(tensor.kind), name)))
        else {
            continue;
        };
        let name = name.split_once('@').map_or(name, |(name, _)| name);
        let known = calls.entry((tensor.kind, names.bearer_stage(tensor.bearer), name)).or_default();
        *known = (known.0 + 1, known.1 + elements);
    }
    calls
}
