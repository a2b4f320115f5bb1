//! Holds our files against msprobe's: names, headers, rows, cells.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use crate::case::{Case, Recorded, run_directory};
use crate::cell::{Cell, Verdict};
use crate::deviations::Deviation;
use crate::left_out::{leave_out_directions, leave_out_late_moments, leave_out_stale_rows};
use crate::order;
use crate::replay::Played;
use crate::table::Table;

/// What a comparison found.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) files: usize,
    pub(crate) rows: usize,
    pub(crate) cells: usize,
    identical: usize,
    deviating: BTreeMap<Deviation, usize>,
    pub(crate) faults: Vec<String>,
}

impl Tally {
    pub(crate) fn add(&mut self, other: &Self) {
        self.files += other.files;
        self.rows += other.rows;
        self.cells += other.cells;
        self.identical += other.identical;
        for (&deviation, &count) in &other.deviating {
            *self.deviating.entry(deviation).or_default() += count;
        }
        self.faults.extend(other.faults.iter().cloned());
    }

    pub(crate) fn deviations(&self) -> impl Iterator<Item = (Deviation, usize)> {
        self.deviating.iter().map(|(&deviation, &count)| (deviation, count))
    }

    /// A cell that is the same.
    pub(crate) fn agree(&mut self) {
        self.identical += 1;
    }

    pub(crate) fn deviates(&mut self, deviation: Deviation, count: usize) {
        if count > 0 {
            *self.deviating.entry(deviation).or_default() += count;
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { files, rows, cells, identical, deviating, faults } = self;
        let listed: usize = deviating.values().sum();
        write!(
            f,
            "{files} files, {rows} rows, {cells} cells compared: {identical} identical, {} differ as listed; {} \
             unlisted differences ({listed} deviations, rows and files included)",
            cells - identical,
            faults.len()
        )
    }
}

/// Compares a replayed case.
pub(crate) fn run(case: &Case, played: &Played, output: &Path) -> Tally {
    let mut tally = Tally::default();
    let read = |directory: Option<std::path::PathBuf>| directory.map_or_else(Vec::new, |d| Table::read_all(&d));
    let (answer, ours) = (read(case.answer_directory()), read(run_directory(output)));
    for mut theirs in answer.iter().cloned() {
        if is_another_feature(&theirs.file) {
            continue;
        }
        let left_out = leave_out_directions(&mut theirs, played);
        tally.deviates(Deviation::DirectionNotRecorded, left_out);
        let stale = leave_out_stale_rows(case, &answer, &mut theirs);
        tally.deviates(Deviation::StaleRows, stale);
        if left_out + stale > 0 && theirs.rows.is_empty() {
            continue;
        }
        match ours.iter().find(|table| table.file == theirs.file) {
            Some(ours) => {
                let mut ours = ours.clone();
                tally.deviates(Deviation::LateMoments, leave_out_late_moments(case, &theirs, &mut ours));
                compare_tables(case, &mut tally, &answer, &theirs, &ours);
            }
            None if case.json["config"]["collect_times"] == 0 => tally.deviates(Deviation::CollectTimesZero, 1),
            None if is_of_window(&theirs, dynamic_windows(case).map(|(ours, theirs)| (theirs, ours))) => {
                tally.deviates(Deviation::DynamicFirstStep, 1);
            }
            None => tally.faults.push(format!("{}: `{}` is missing", case.name, theirs.file)),
        }
    }
    for extra in ours.iter().filter(|table| answer.iter().all(|theirs| theirs.file != table.file)) {
        match extra_file(case, extra) {
            Some(deviation) => tally.deviates(deviation, 1),
            None => tally.faults.push(format!("{}: msprobe has no `{}`", case.name, extra.file)),
        }
    }
    tally
}

/// Files of features that are not measuring: matrix features and stacks.
fn is_another_feature(file: &str) -> bool {
    ["linear_hook_", "attention_hook_", "moe_router_", "stack_info"].iter().any(|prefix| file.starts_with(prefix))
}

fn extra_file(case: &Case, table: &Table) -> Option<Deviation> {
    const MOMENTS: [&str; 5] = ["momentum_buffer", "square_avg", "grad_avg", "sum", "max_exp_avg_sq"];
    let of_moment = |name: &str| MOMENTS.contains(&name);
    let scopes_are_moments = || (0..table.rows.len()).all(|row| of_moment(table.cell(row, "scope")));
    let prefix = table.prefix();
    if table.file == "steps.csv" {
        Some(Deviation::StepsFile)
    } else if of_moment(prefix) || (prefix == "optimizer" && scopes_are_moments()) {
        Some(Deviation::MoreMoments)
    } else if case.json["config"]["module_ranks"].as_array().is_some_and(|ranks| !ranks.is_empty()) {
        Some(Deviation::RanksWithoutLauncher)
    } else if is_of_window(table, dynamic_windows(case)) {
        Some(Deviation::DynamicFirstStep)
    } else {
        None
    }
}

/// The steps that the dynamic mode measures first where the config file says `dynamic_on` from the start: ours, from the
/// first step on; and msprobe's, which looks at the file when a step is over.
fn dynamic_windows(case: &Case) -> Option<(Vec<u64>, Vec<u64>)> {
    let config = &case.json["config"];
    if case.json["dynamic"] != true || config["dynamic_on"] != true {
        return None;
    }
    let number = |key: &str, default: u64| config.get(key).map_or(default, |value| value.as_u64().unwrap());
    let (times, interval) = (number("collect_times", u64::from(u32::MAX)), number("step_interval", 1));
    let window = |first: u64| -> Vec<u64> {
        (0..times).map(|time| first + time * interval).take_while(|&step| step < case.number("steps", 1)).collect()
    };
    Some((window(0), window(1)))
}

/// Whether every row of a table is of a step that is in the first of two windows and not in the second.
fn is_of_window(table: &Table, windows: Option<(Vec<u64>, Vec<u64>)>) -> bool {
    let Some((one, other)) = windows else { return false };
    (0..table.rows.len()).all(|row| {
        let step = table.cell(row, "step").parse().unwrap();
        one.contains(&step) && !other.contains(&step)
    })
}

fn compare_tables(case: &Case, tally: &mut Tally, answer: &[Table], theirs: &Table, ours: &Table) {
    tally.files += 1;
    let place = format!("{}: {}", case.name, theirs.file);
    let is_more = |name: &&String| case.is_v2() && !theirs.header.contains(name) && V2_DROPS.contains(&name.as_str());
    let more = ours.header.iter().filter(is_more).count();
    tally.deviates(Deviation::V2MoreStatistics, more * ours.rows.len());
    let shared: Vec<&String> = ours.header.iter().filter(|name| !is_more(name)).collect();
    if !shared.iter().copied().eq(&theirs.header) {
        tally.faults.push(format!("{place}: header {:?}, msprobe has {:?}", ours.header, theirs.header));
        return;
    }
    let Some(kept) = paired_rows(case, tally, answer, theirs, ours) else { return };
    let object_columns = columns_with_bool(theirs);
    let is_direction = theirs.file.starts_with("other_");
    for (their_row, &our_row) in kept.iter().enumerate() {
        tally.rows += 1;
        for (column, name) in theirs.header.iter().enumerate() {
            let (our_cell, their_cell) = (ours.cell(our_row, name), theirs.rows[their_row][column].as_str());
            let cell = Cell {
                name,
                ours: our_cell,
                theirs: their_cell,
                ndigits: case.ndigits(),
                eps: case.json["config"].get("eps").map_or(1e-8, |eps| eps.as_f64().unwrap()),
                is_direction,
                elements: (is_direction || name == "zeros").then(|| elements(case, ours, our_row)).flatten(),
                shares_bool_column: object_columns.contains(&(module_key(theirs, their_row), name.clone())),
                dtype: ours.cell(our_row, "dtype"),
            };
            tally.cells += 1;
            match cell.judge() {
                Verdict::Identical => tally.identical += 1,
                Verdict::Listed(deviation) => tally.deviates(deviation, 1),
                Verdict::Different => tally.faults.push(format!(
                    "{place}: row {} column {name}: {our_cell}, msprobe has {their_cell}",
                    ours.row_key(our_row)
                )),
            }
        }
    }
}

/// Our rows in the order of msprobe's; `None`, and a fault, if they are not the same but for listed differences.
fn paired_rows(case: &Case, tally: &mut Tally, answer: &[Table], theirs: &Table, ours: &Table) -> Option<Vec<usize>> {
    let is_extra = |row: &usize| case.is_v2() && ours.cell(*row, "scope") == "unreduced";
    let extra: Vec<usize> = (0..ours.rows.len()).filter(is_extra).collect();
    let theirs_has_unreduced = (0..theirs.rows.len()).any(|row| theirs.cell(row, "scope") == "unreduced");
    let mut kept: Vec<usize> =
        (0..ours.rows.len()).filter(|row| theirs_has_unreduced || !extra.contains(row)).collect();
    if !theirs_has_unreduced {
        tally.deviates(Deviation::V2UnreducedRows, extra.len());
    }
    let mut our_keys: Vec<String> = kept.iter().map(|&row| ours.row_key(row)).collect();
    let their_keys: Vec<String> = (0..theirs.rows.len()).map(|row| theirs.row_key(row)).collect();
    if our_keys != their_keys && order::sort_as_first_seen(answer, ours, &mut kept) {
        our_keys = kept.iter().map(|&row| ours.row_key(row)).collect();
        tally.deviates(Deviation::FirstSeenOrder, usize::from(our_keys == their_keys));
    }
    if our_keys != their_keys {
        let first =
            our_keys.iter().zip(&their_keys).position(|(a, b)| a != b).unwrap_or(our_keys.len().min(their_keys.len()));
        tally.faults.push(format!(
            "{}: {}: {} rows, msprobe has {}; first difference at row {first}: {:?}, msprobe has {:?}",
            case.name,
            theirs.file,
            our_keys.len(),
            their_keys.len(),
            our_keys.get(first),
            their_keys.get(first)
        ));
        return None;
    }
    Some(kept)
}

/// The elements of the tensor that a row is about; of an agreement, of the parameter.
fn elements(case: &Case, table: &Table, row: usize) -> Option<f64> {
    if table.file.starts_with("other_") {
        let tail = format!("/{}", table.cell(row, "name"));
        let of_parameter = |key: &str| key.starts_with("exp_avg/") && key.ends_with(&tail);
        return case.tensors.iter().find(|tensor| of_parameter(&tensor.key)).map(Recorded::elements);
    }
    let sizes = table.cell(row, "shape").trim_matches(['[', ']']).split(", ").filter(|size| !size.is_empty());
    sizes.map(|size| size.parse::<f64>().ok()).product()
}

fn module_key(table: &Table, row: usize) -> String {
    let name = table.cell(row, "name");
    format!("{}|{}", table.cell(row, "step"), name.rsplit_once('.').map_or(name, |(module, _)| module))
}

/// The (module and step, column) pairs in which pandas met a bool and so kept Python objects.
fn columns_with_bool(table: &Table) -> Vec<(String, String)> {
    let mut columns = Vec::new();
    for row in 0..table.rows.len() {
        for (column, name) in table.header.iter().enumerate() {
            if matches!(table.rows[row][column].as_str(), "True" | "False") {
                columns.push((module_key(table, row), name.clone()));
            }
        }
    }
    columns
}

/// Statistics that msprobe's V2 takes in its config and leaves out of its files.
const V2_DROPS: [&str; 2] = ["zeros", "id"];
