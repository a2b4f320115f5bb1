//! Reads a rank's CSV files step by step for the comparison. Memory holds one step and one row per kind of file.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use trainmon_core::{Dtype, GradNorm, StepBatch};
use trainmon_noise::unit_roundoff;
use trainmon_run_files::{
    FileUse, RankFiles, ReadRow, RowLayout, RunDirectory, RunError, STACKS, Selection, StepColumn, Table,
};

use super::error::ReadRunError;
use super::names::Names;
use super::steps::{RUN_KIND, RowHead, StepRows, push_run_numbers};

/// Kinds that measure the host, tensors that cannot be paired, and numbers that a script logs (for example tokens per
/// second).
const NOT_COMPARED: [&str; 3] = ["comm_time", "scalar", STACKS];
/// The columns of `steps.csv` that belong to the training, not to the monitor.
const OF_TRAINING: [StepColumn; 4] =
    [StepColumn::Loss, StepColumn::LearningRate, StepColumn::GradNorm, StepColumn::SkippedSteps];

/// Reads the CSV files of one rank.
pub(super) struct CsvReader {
    files: RankFiles<Kept>,
    /// The values of the step in `steps.csv`.
    numbers: StepBatch,
    pub(super) warnings: BTreeSet<String>,
}

/// The state kept per table: the row's numbers, and its names once a row was returned.
struct Kept {
    values: Vec<(usize, String)>,
    columns: OnceLock<u16>,
}

impl Kept {
    fn of(_: &Table, layout: &RowLayout) -> Self {
        Self { values: layout.values.clone(), columns: OnceLock::new() }
    }
}

impl CsvReader {
    /// Opens the tables of a directory; only those with the given prefixes, if any are given.
    pub(super) fn new(run: &RunDirectory, only: Option<&BTreeSet<String>>) -> Result<Self, ReadRunError> {
        let is_asked = |prefix: &str| only.is_none_or(|only| only.contains(prefix));
        let selection = Selection {
            tables: &|prefix| !NOT_COMPARED.contains(&prefix) && is_asked(prefix),
            empty_rows: false,
            steps: if is_asked(RUN_KIND) { &OF_TRAINING } else { &[] },
            file_use: FileUse::Held,
        };
        let mut warnings = BTreeSet::new();
        let files = RankFiles::open(run, &selection, Kept::of, &mut |warning| _ = warnings.insert(warning))?;
        Ok(Self { files, numbers: StepBatch::default(), warnings })
    }

    /// Reads the next step. Returns `false` at the end.
    pub(super) fn next(&mut self, names: &mut Names, into: &mut StepRows) -> Result<bool, ReadRunError> {
        let mut warn = |warning| _ = self.warnings.insert(warning);
        let Some(step) = self.files.peek(&mut warn)? else { return Ok(false) };
        into.begin(step);
        self.files.rows(step, &mut warn, |row| take(row, names, into))?;
        self.numbers.reset();
        // Here, only the file contains it.
        self.numbers.grad_norm = GradNorm::Unknown;
        self.files.numbers(step, &mut self.numbers)?;
        push_run_numbers(names, into, &self.numbers);
        Ok(true)
    }

    /// Skips the tables that end before a step.
    pub(super) fn pass_over(&mut self, step: u64) {
        self.files.pass_over(step);
    }

    /// The number of bytes read so far.
    pub(super) fn bytes(&self) -> u64 {
        self.files.bytes_read()
    }
}

/// Adds a row to the step.
fn take(row: &mut ReadRow<'_, Kept>, names: &mut Names, into: &mut StepRows) -> Result<(), RunError> {
    let ReadRow { cursor, kept: Kept { values, columns }, cells, of, .. } = row;
    let table = u16::try_from(*cursor).unwrap_or(u16::MAX);
    let columns = *columns.get_or_init(|| names.columns(values.iter().map(|(_, column)| column.as_str())));
    let kind = names.kind(of.kind);
    let first = names.tensor(kind, of.vpp_stage, of.name, of.micro_step);
    // V2's files do not number micro-batches: each has a row of the same name.
    let tensor = match (of.micro_step, into.again(first)) {
        (None, again) if again > 0 => names.tensor(kind, of.vpp_stage, of.name, Some(again)),
        _ => first,
    };
    let unit = of.dtype.and_then(Dtype::from_torch_name).map(unit_roundoff);
    let shape = of.shape.map(|shape| names.shape(shape));
    into.rows.push(RowHead { tensor, columns, first: into.values.len(), shape, unit, table: Some(table) });
    for (column, (place, _)) in values.iter().enumerate() {
        into.values.push(cells.number(*place)?);
        into.digits.learn(table, column, cells.text(*place));
    }
    Ok(())
}
