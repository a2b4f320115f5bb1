//! msprobe's rules, operator by operator, in its order.

use trainmon_capture_files::{Plain, Section};

use super::cell::Cell;
use super::columns::Mode;
use super::row::Row;
use crate::input::Capture;
use crate::name::OperatorName;

const INF_NAN: &str = "error: There is nan/inf/-inf in the maximum or minimum value of NPU.";
const RELATIVE: &str = "error: The NormRelativeErr of output is greater than 0.5.";
/// The text has 0.6; the rule is 0.1.
const THOUSANDTH: &str = "error: The input/parameters of One Thousandth Err Ratio > 0.9 while the output < 0.6.";
const REQUIRES_GRAD: &str = "error: The Required_Grad of NPU and Bench are inconsistent";
const PARAMETERS: &str = "error: The scalar parameters of NPU and Bench are inconsistent.";
const CRC32: &str = "error: The CRC-32 value of NPU differs from that of the bench.";
const UNMATCHED: &str = "warning: The parameter of NPU does not match the bench.";
const DTYPE: &str = "error: The dtype of NPU and Bench are inconsistent.";
const SHAPE: &str = "error: The shape of NPU and Bench are inconsistent.";
const TEN_TIMES: &str = "warning: The norm relative error of output is 10 times that of input.";
const COSINE: &str = "warning: The input/parameters of Cosine > 0.9, and input/parameters - output > 0.1";

/// Functions whose results are uninitialised or not computed.
const IGNORED: [&str; 9] = [
    "empty",
    "empty_like",
    "numpy",
    "to",
    "__setitem__",
    "empty_with_format",
    "new_empty_strided",
    "new_empty",
    "empty_strided",
];
/// Functions whose input is a buffer to write into.
const INPUT_IGNORED: [&str; 4] = ["_reduce_scatter_base", "_all_gather_base", "all_to_all_single", "batch_isend_irecv"];

/// Columns of [`Row::measured`].
const NORM_RELATIVE: usize = 7;
const COSINE_COLUMN: usize = 0;
const THOUSANDTH_COLUMN: usize = 4;

/// Writes the messages of the rules into the rows.
pub(super) fn judge(rows: &mut [Row], target: &Capture, mode: Mode) {
    for rows in rows.chunk_by_mut(|one, next| one.operator == next.operator) {
        let Some(first) = rows.first() else { continue };
        let name = &target.document.operators[first.operator as usize].name;
        let function = OperatorName::parse(name).map_or("", |name| name.function());
        let has_inputs = rows.iter().any(|row| row.section.is_input());
        if has_inputs && IGNORED.contains(&function) {
            continue;
        }
        judge_operator(rows, mode, INPUT_IGNORED.contains(&function));
    }
}

/// Whether a section is an output; parameter gradients are only judged value by value.
fn is_output(section: Section) -> bool {
    matches!(section, Section::Output | Section::Saved)
}

fn judge_operator(rows: &mut [Row], mode: Mode, is_input_ignored: bool) {
    let is_judged = |row: &Row| !(is_input_ignored && row.section.is_input());
    if mode == Mode::Digest {
        for row in rows.iter_mut().filter(|row| is_judged(row)) {
            row.messages.extend(digests(&row.measured));
        }
        return;
    }
    let across = Across::of(rows, mode);
    let first_output = rows.iter().position(|row| is_output(row.section));
    for (index, row) in rows.iter_mut().enumerate().filter(|(_, row)| is_judged(row)) {
        let is_first_output = Some(index) == first_output;
        let matched = !row.basic[1].is_none();
        let mut messages = Vec::new();
        messages.extend((matched && is_bad(&row.statistics)).then_some(INF_NAN));
        match mode {
            Mode::Tensor => messages.extend((is_first_output && across.is_thousandth_lost()).then_some(THOUSANDTH)),
            _ => messages.extend((is_output(row.section) && across.is_norm_lost(row)).then_some(RELATIVE)),
        }
        let both_filled = !row.basic[6].is_none() && !row.basic[7].is_none();
        messages.extend((both_filled && !row.is_requires_grad_consistent).then_some(REQUIRES_GRAD));
        messages.extend((matched && is_scalar_different(row)).then_some(PARAMETERS));
        let golden_name = row.basic[1].text();
        let is_fused = golden_name.contains("qkv") || golden_name.contains("gate_up");
        messages.extend((matched && !is_fused && row.basic[2] != row.basic[3]).then_some(DTYPE));
        messages.extend((matched && row.basic[4] != row.basic[5]).then_some(SHAPE));
        messages.extend((is_first_output && across.is_worse()).then_some(if mode == Mode::Tensor {
            COSINE
        } else {
            TEN_TIMES
        }));
        row.messages = messages;
    }
}

fn digests(digests: &[Cell]) -> Option<&'static str> {
    let [target, golden] = digests else { return None };
    let is_missing = |cell: &Cell| matches!(&*cell.text(), "N/A" | "Nan" | "");
    if target == golden {
        None
    } else if is_missing(target) || is_missing(golden) {
        Some(UNMATCHED)
    } else {
        Some(CRC32)
    }
}

fn is_bad(statistics: &[Cell]) -> bool {
    let is_bad = |cell: &Cell| match cell {
        Cell::Number(Plain::Float(value)) => !value.is_finite(),
        cell => matches!(&*cell.text(), "nan" | "inf" | "-inf"),
    };
    let [max, min, _, _, golden_max, golden_min, ..] = statistics else { return false };
    (is_bad(max) || is_bad(min)) && !is_bad(golden_max) && !is_bad(golden_min)
}

fn is_scalar_different(row: &Row) -> bool {
    let is_scalar = |dtype: &Cell, shape: &Cell| dtype.text().contains("class") && shape.text() == "[]";
    row.section == Section::Input
        && is_scalar(&row.basic[2], &row.basic[4])
        && is_scalar(&row.basic[3], &row.basic[5])
        && row.statistics.first().map(Cell::text) != row.statistics.get(4).map(Cell::text)
}

/// The values for rules about a whole operator.
struct Across {
    mode: Mode,
    /// The largest relative difference of a norm among the inputs; with tensors, the smallest share of close elements.
    input: f64,
    /// The same for the outputs.
    output: f64,
    input_cosine: f64,
    output_cosine: f64,
}

impl Across {
    fn of(rows: &[Row], mode: Mode) -> Self {
        let cells = |of_input: bool, column: usize| {
            let is_meant = move |section: Section| if of_input { section.is_input() } else { is_output(section) };
            rows.iter().filter(move |row| is_meant(row.section)).map(move |row| &row.measured[column])
        };
        let largest = |of_input| cells(of_input, NORM_RELATIVE).filter_map(percent).fold(0.0, f64::max);
        let smallest =
            |of_input, column| cells(of_input, column).filter_map(|cell| cell.text().parse().ok()).fold(1.0, f64::min);
        if mode == Mode::Tensor {
            return Self {
                mode,
                input: smallest(true, THOUSANDTH_COLUMN),
                output: smallest(false, THOUSANDTH_COLUMN),
                input_cosine: smallest(true, COSINE_COLUMN),
                output_cosine: smallest(false, COSINE_COLUMN),
            };
        }
        Self { mode, input: largest(true), output: largest(false), input_cosine: 1.0, output_cosine: 1.0 }
    }

    fn is_thousandth_lost(&self) -> bool {
        self.input > 0.9 && self.output < 0.1
    }

    fn is_norm_lost(&self, row: &Row) -> bool {
        let cell = &row.measured[NORM_RELATIVE];
        let own = if cell.text() == "inf" { Some(f64::INFINITY) } else { percent(cell) };
        self.input < 0.1 && own.is_some_and(|own| own > 0.5)
    }

    fn is_worse(&self) -> bool {
        if self.mode == Mode::Tensor {
            return self.input_cosine > 0.9 && self.input_cosine - self.output_cosine > 0.1;
        }
        if self.input == 0.0 { self.output > 0.1 } else { self.output / self.input > 10.0 }
    }
}

/// The fraction behind `12.5%`; texts like `inf`, `Nan` or `0` are skipped.
fn percent(cell: &Cell) -> Option<f64> {
    if let Cell::Percent(percent) = cell { Some(percent / 100.0) } else { None }
}
