//! The order of msprobe's rows of activations.

use std::collections::HashMap;

use crate::table::Table;

/// msprobe writes modules (gradients: tensors) in the order in which the run first met them, we in that of the step. Sorts
/// our rows so; false where the table is of something else.
pub(crate) fn sort_as_first_seen(answer: &[Table], ours: &Table, rows: &mut [usize]) -> bool {
    let prefix = ours.prefix();
    if !matches!(prefix, "actv" | "actv_grad") {
        return false;
    }
    let step_of = |table: &Table, row: usize| table.cell(row, "step").parse::<u64>().unwrap();
    let who = |table: &Table, row: usize| {
        let name = table.cell(row, "name");
        let module = name.rsplit_once('.').map_or(name, |(module, _)| module);
        if prefix == "actv" { module.to_owned() } else { format!("{name}:{}", table.cell(row, "micro_step")) }
    };
    let mut seen: Vec<(u64, String)> = answer
        .iter()
        .filter(|table| table.prefix() == prefix)
        .flat_map(|table| (0..table.rows.len()).map(|row| (step_of(table, row), who(table, row))))
        .collect();
    // Stable: within a step the rows stand in msprobe's order.
    seen.sort_by_key(|&(step, _)| step);
    let mut place = HashMap::new();
    for (_, who) in seen {
        let next = place.len();
        place.entry(who).or_insert(next);
    }
    rows.sort_by_key(|&row| (step_of(ours, row), place.get(&who(ours, row)).copied()));
    true
}
