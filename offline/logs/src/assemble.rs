//! Turns rows of named numbers into steps.

use std::path::Path;

use trainmon_report::{counted, first_of, quoted};

use crate::columns::ColumnNames;
use crate::detect::Found;
use crate::error::LogError;
use crate::format::LogFormat;
use crate::log::Log;
use crate::picker::{Doubts, Picker};
use crate::raw::{RawLog, UnreadCells};
use crate::roles::Roles;
use crate::spacing::Spacing;
use crate::steps::Steps;

/// The number of names listed in a sentence.
const SHOWN: usize = 8;

/// Assembles a log.
pub(crate) fn assemble(path: &Path, found: Found, raw: &RawLog, names: &ColumnNames) -> Result<Log, LogError> {
    let counts = raw.counts();
    let mut remarks = raw.remarks.clone();
    let mut warnings = raw.notes.clone();
    let picker = Picker { found: &found, raw, counts: &counts };
    let mut doubts = Doubts::default();
    let (roles, columns) = picker.pick(names, &mut doubts)?;
    warnings.extend(doubts.warnings);
    remarks.extend(doubts.remarks);
    let mut steps = Steps::default();
    let others = others_of(raw, &counts, roles);
    for (place, row) in raw.rows.iter().enumerate() {
        steps.add(row, place as u64 + 1, roles, &others);
    }
    if steps.taken.is_empty() {
        return Err(picker.no_numbers(steps.without_step, &columns));
    }
    steps.say(found.format, &columns, &mut warnings, &mut remarks);
    say_unread(raw, &counts, roles, found.format, &mut warnings, &mut remarks);
    let mut taken = steps.taken;
    taken.sort_by_key(|step| step.step);
    let followed: Vec<u64> =
        taken.iter().filter(|step| step.loss.is_some() || step.grad_norm.is_some()).map(|step| step.step).collect();
    remarks.extend(Spacing::of(&followed).iter().flat_map(Spacing::in_words));
    let names = names_of(raw, &others);
    let Found { file, format, name, bytes } = found;
    Ok(Log {
        path: path.to_path_buf(),
        source: file,
        name,
        format,
        bytes,
        columns,
        names,
        steps: taken,
        remarks,
        warnings,
    })
}

/// The index in [`Log::names`] of each column without a role; `None` for columns without a number.
fn others_of(raw: &RawLog, counts: &[u64], roles: Roles) -> Vec<Option<u32>> {
    let Roles { step, loss, grad_norm, learning_rate, time } = roles;
    let is_other = |column: u32| ![step, loss, grad_norm, learning_rate, time].contains(&Some(column));
    let mut next = 0;
    let mut number = |column: u32| {
        let has_place = counts[column as usize] > 0 && is_other(column);
        next += u32::from(has_place);
        has_place.then(|| next - 1)
    };
    (0..raw.names.len() as u32).map(&mut number).collect()
}

fn names_of(raw: &RawLog, others: &[Option<u32>]) -> Vec<String> {
    raw.names.iter().zip(others).filter(|(_, number)| number.is_some()).map(|(name, _)| name.clone()).collect()
}

/// Reports cells that hold no number.
fn say_unread(
    raw: &RawLog,
    counts: &[u64],
    roles: Roles,
    format: LogFormat,
    warnings: &mut Vec<String>,
    remarks: &mut Vec<String>,
) {
    let Roles { step, loss, grad_norm, learning_rate, .. } = roles;
    let mut without: Vec<String> = Vec::new();
    for (&column, UnreadCells { nulls, others, first }) in &raw.unread {
        let name = &raw.names[column as usize];
        if counts[column as usize] == 0 {
            without.push(quoted(name));
            continue;
        }
        let said =
            if [step, loss, grad_norm, learning_rate].contains(&Some(column)) { &mut *warnings } else { &mut *remarks };
        if *nulls > 0 {
            said.push(format!(
                "column `{name}`: ignored {} null, which some loggers write for NaN",
                counted(*nulls, "cell that is", "cells that are")
            ));
        }
        if let (Some((text, place)), 1..) = (first, *others) {
            let row = format.row();
            said.push(format!(
                "column `{name}`: ignored {} not a number, first `{text}` in {row} {place}",
                counted(*others, "cell that is", "cells that are")
            ));
        }
    }
    if !without.is_empty() {
        remarks.push(format!("ignored columns without numbers: {}", first_of(without.into_iter(), SHOWN)));
    }
}
