//! Rows that one side has and the other has not, for a listed reason.

use crate::case::Case;
use crate::replay::Played;
use crate::table::Table;

/// Takes the rows of `mg_direction` that the recorded tensors do not determine out of msprobe's table.
pub(crate) fn leave_out_directions(theirs: &mut Table, played: &Played) -> usize {
    if !theirs.file.starts_with("other_") {
        return 0;
    }
    let before = theirs.rows.len();
    let steps: Vec<String> = (0..before).map(|row| theirs.cell(row, "step").to_owned()).collect();
    let mut row = steps.iter();
    theirs.rows.retain(|_| {
        let step = row.next().unwrap();
        played.directions_left_out.iter().all(|left_out| left_out.to_string() != *step)
    });
    before - theirs.rows.len()
}

/// Takes the rows of V1 for which the step has no tensor, and which repeat those of an earlier step, out of msprobe's
/// table.
pub(crate) fn leave_out_stale_rows(case: &Case, answer: &[Table], theirs: &mut Table) -> usize {
    let prefix = theirs.prefix().to_owned();
    if case.is_v2() || !matches!(prefix.as_str(), "grad_unreduced" | "grad_reduced" | "actv" | "actv_grad") {
        return 0;
    }
    let before = theirs.rows.len();
    let is_stale = |row: usize| {
        let (step, name, micro) = (theirs.cell(row, "step"), theirs.cell(row, "name"), theirs.cell(row, "micro_step"));
        let key = format!("{prefix}/{step}/{name}");
        let recorded = case.tensors.iter().any(|t| t.key == key || t.key == format!("{key}/{micro}"));
        !recorded && theirs.cell(row, "dtype") != "nan" && has_earlier(answer, theirs, row)
    };
    let stale: Vec<bool> = (0..before).map(is_stale).collect();
    let mut row = stale.iter();
    theirs.rows.retain(|_| !row.next().unwrap());
    before - theirs.rows.len()
}

/// Whether a row has the numbers of the same tensor's row of an earlier step.
fn has_earlier(answer: &[Table], table: &Table, row: usize) -> bool {
    let step_of = |table: &Table, row: usize| table.cell(row, "step").parse::<u64>().unwrap();
    let step_column = table.header.iter().position(|name| name == "step").unwrap();
    let without_step = |cells: &[String]| -> Vec<String> {
        cells.iter().enumerate().filter(|&(column, _)| column != step_column).map(|(_, cell)| cell.clone()).collect()
    };
    let numbers = without_step(&table.rows[row]);
    answer.iter().filter(|other| other.prefix() == table.prefix()).any(|other| {
        (0..other.rows.len())
            .any(|at| step_of(other, at) < step_of(table, row) && without_step(&other.rows[at]) == numbers)
    })
}

/// Takes the rows of moments out of ours that came into being after msprobe had looked at the optimizer's state: it never
/// looks again.
pub(crate) fn leave_out_late_moments(case: &Case, theirs: &Table, ours: &mut Table) -> usize {
    let prefix = ours.prefix().to_owned();
    let of_prefix = || case.tensors.iter().filter_map(|tensor| tensor.key.strip_prefix(&format!("{prefix}/")));
    let first_step = of_prefix().map(|rest| rest.split('/').next().unwrap().parse::<u64>().unwrap()).min();
    let (Some(first_step), true) = (first_step, prefix.starts_with("exp_avg") && !case.is_v2()) else { return 0 };
    let known: Vec<String> = (0..theirs.rows.len()).map(|row| theirs.cell(row, "name").to_owned()).collect();
    let before = ours.rows.len();
    let is_late: Vec<bool> = (0..before)
        .map(|row| {
            let name = ours.cell(row, "name");
            let was_there = of_prefix().any(|rest| rest == format!("{first_step}/{name}"));
            !was_there && !known.iter().any(|known| known == name)
        })
        .collect();
    let mut row = is_late.iter();
    ours.rows.retain(|_| !row.next().unwrap());
    before - ours.rows.len()
}
