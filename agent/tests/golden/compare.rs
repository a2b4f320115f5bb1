//! Holds our files against msprobe's: names, headers, rows, cells.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use crate::case::{Case, run_directory};
use crate::deviations::Deviation;
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
        let stale = leave_out_stale_rows(case, &mut theirs);
        tally.deviates(Deviation::StaleRows, stale);
        if left_out + stale > 0 && theirs.rows.is_empty() {
            continue;
        }
        match ours.iter().find(|table| table.file == theirs.file) {
            Some(ours) => compare_tables(case, &mut tally, &theirs, ours),
            None if case.json["config"]["collect_times"] == 0 => tally.deviates(Deviation::CollectTimesZero, 1),
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
    let prefix = table.file.rsplit_once('_').map_or("", |(prefix, _)| prefix);
    if table.file == "steps.csv" {
        Some(Deviation::StepsFile)
    } else if of_moment(prefix) || (prefix == "optimizer" && scopes_are_moments()) {
        Some(Deviation::MoreMoments)
    } else if case.json["config"]["module_ranks"].as_array().is_some_and(|ranks| !ranks.is_empty()) {
        Some(Deviation::RanksWithoutLauncher)
    } else {
        None
    }
}

fn compare_tables(case: &Case, tally: &mut Tally, theirs: &Table, ours: &Table) {
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
    let is_extra = |row: &usize| case.is_v2() && ours.cell(*row, "scope") == "unreduced";
    let extra: Vec<usize> = (0..ours.rows.len()).filter(is_extra).collect();
    let theirs_has_unreduced = (0..theirs.rows.len()).any(|row| theirs.cell(row, "scope") == "unreduced");
    let kept: Vec<usize> = (0..ours.rows.len()).filter(|row| theirs_has_unreduced || !extra.contains(row)).collect();
    if !theirs_has_unreduced {
        tally.deviates(Deviation::V2UnreducedRows, extra.len());
    }
    let our_keys: Vec<String> = kept.iter().map(|&row| ours.row_key(row)).collect();
    let their_keys: Vec<String> = (0..theirs.rows.len()).map(|row| theirs.row_key(row)).collect();
    if our_keys != their_keys {
        let first =
            our_keys.iter().zip(&their_keys).position(|(a, b)| a != b).unwrap_or(our_keys.len().min(their_keys.len()));
        tally.faults.push(format!(
            "{place}: {} rows, msprobe has {}; first difference at row {first}: {:?}, msprobe has {:?}",
            our_keys.len(),
            their_keys.len(),
            our_keys.get(first),
            their_keys.get(first)
        ));
        return;
    }
    let object_columns = columns_with_bool(theirs);
    for (their_row, &our_row) in kept.iter().enumerate() {
        tally.rows += 1;
        for (column, name) in theirs.header.iter().enumerate() {
            let (our_cell, their_cell) = (ours.cell(our_row, name), theirs.rows[their_row][column].as_str());
            let cell = Cell {
                name,
                ours: our_cell,
                theirs: their_cell,
                ndigits: case.ndigits(),
                is_direction: theirs.file.starts_with("other_"),
                shares_bool_column: object_columns.contains(&(module_key(theirs, their_row), name.clone())),
                dtype: ours.cell(our_row, "dtype"),
            };
            tally.cells += 1;
            match cell.judge() {
                Verdict::Identical => tally.identical += 1,
                Verdict::Listed(deviation) => tally.deviates(deviation, 1),
                Verdict::Different => tally.faults.push(format!(
                    "{place}: row {} column {name}: {our_cell}, msprobe has {their_cell}",
                    our_keys[their_row]
                )),
            }
        }
    }
}

/// Takes the rows of `mg_direction` that the recorded tensors do not determine out of msprobe's table.
fn leave_out_directions(theirs: &mut Table, played: &Played) -> usize {
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

/// Takes the rows of V1 for which the step has no tensor, yet which carry numbers, out of msprobe's table.
fn leave_out_stale_rows(case: &Case, theirs: &mut Table) -> usize {
    let prefix = theirs.file.rsplit_once('_').map_or("", |(prefix, _)| prefix).to_owned();
    if case.is_v2() || !matches!(prefix.as_str(), "grad_unreduced" | "actv" | "actv_grad") {
        return 0;
    }
    let before = theirs.rows.len();
    let is_stale = |row: usize| {
        let (step, name, micro) = (theirs.cell(row, "step"), theirs.cell(row, "name"), theirs.cell(row, "micro_step"));
        let key = format!("{prefix}/{step}/{name}");
        let recorded = case.tensors.iter().any(|t| t.key == key || t.key == format!("{key}/{micro}"));
        !recorded && theirs.cell(row, "dtype") != "nan"
    };
    let stale: Vec<bool> = (0..before).map(is_stale).collect();
    let mut row = stale.iter();
    theirs.rows.retain(|_| !row.next().unwrap());
    before - theirs.rows.len()
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

enum Verdict {
    Identical,
    Listed(Deviation),
    Different,
}

struct Cell<'a> {
    name: &'a str,
    ours: &'a str,
    theirs: &'a str,
    ndigits: Option<u32>,
    is_direction: bool,
    shares_bool_column: bool,
    dtype: &'a str,
}

impl Cell<'_> {
    fn judge(&self) -> Verdict {
        if self.ours == self.theirs {
            return Verdict::Identical;
        }
        if self.dtype.starts_with("torch.float8") && self.theirs == "nan" {
            return Verdict::Listed(Deviation::Float8Measured);
        }
        let (Ok(ours), Ok(theirs)) = (self.ours.parse::<f64>(), self.theirs.parse::<f64>()) else {
            return Verdict::Different;
        };
        let is_integer = self.name == "nans" || self.dtype.starts_with("torch.int") || self.dtype == "torch.uint8";
        if is_integer && ours == theirs {
            return Verdict::Listed(Deviation::CountsStayIntegers);
        }
        if ours == 0.0 && theirs == 0.0 {
            return Verdict::Listed(Deviation::SignOfZero);
        }
        if self.name == "zeros" && self.dtype == "torch.float16" && theirs == 0.0 {
            return Verdict::Listed(Deviation::HalfEps);
        }
        match self.ndigits {
            None => self.judge_v2(ours, theirs),
            Some(ndigits) => self.judge_v1(ours, theirs, ndigits),
        }
    }

    fn judge_v1(&self, ours: f64, theirs: f64, ndigits: u32) -> Verdict {
        let scale = 10f64.powi(ndigits as i32);
        let rounded = |value: f64| (value * scale).round_ties_even() / scale;
        if (self.name == "zeros" || self.is_direction) && rounded(f64::from(ours as f32)) == theirs {
            return Verdict::Listed(Deviation::RatioInFloat64);
        }
        if self.shares_bool_column && matches!(self.name, "min" | "max") && rounded(theirs) == ours {
            return Verdict::Listed(Deviation::BoolColumnUnrounded);
        }
        // One unit of the last decimal, and never more than a few units in the last place of a float64.
        let last_decimal = 1.000_001 / scale;
        let is_sum = matches!(self.name, "mean" | "norm");
        if is_sum && (ours - theirs).abs() <= last_decimal + 4.0 * f64::EPSILON * theirs.abs() {
            return Verdict::Listed(Deviation::SummationOrder);
        }
        Verdict::Different
    }

    fn judge_v2(&self, ours: f64, theirs: f64) -> Verdict {
        let (narrow, answer) = (ours as f32, theirs as f32);
        if f64::from(answer) != theirs {
            return Verdict::Different;
        }
        let one_unit_apart = narrow == answer.next_up() || narrow == answer.next_down();
        let is_sum = matches!(self.name, "mean" | "norm");
        if narrow == answer {
            Verdict::Listed(Deviation::V2InFloat64)
        } else if is_sum && one_unit_apart {
            Verdict::Listed(Deviation::SummationOrder)
        } else {
            Verdict::Different
        }
    }
}
