//! `steps.csv`, a line per step, as the parts of a batch that it was written from.

use std::path::Path;
use std::time::{Duration, SystemTime};

use csv::StringRecord;
use trainmon_core::{DropReason, GradNorm, LedgerSnapshot, Phase, PhaseTimes, StepBatch};

use crate::run::{FileUse, Row, RunError, Table, ToldNumbers};

/// Reads `steps.csv` line by line.
pub(super) struct FactsCursor {
    table: Table,
    step: usize,
    columns: Vec<(usize, Column)>,
    told: ToldNumbers,
    cells: StringRecord,
    pending: Option<u64>,
    last: Option<u64>,
    /// First and last of the steps that came again.
    pub(super) again: Option<(u64, u64)>,
}

/// What a column of the file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    UnixSeconds,
    StepSeconds,
    Loss,
    LearningRate,
    GradNorm,
    FrameworkGradNorm,
    Cost(Phase),
    BytesRead,
    Observed,
    NotSampled,
    Dropped,
    SkippedSteps,
    SamplingRatio,
}

const COLUMNS: [(&str, Column); 14] = [
    ("unix_seconds", Column::UnixSeconds),
    ("step_seconds", Column::StepSeconds),
    ("loss", Column::Loss),
    ("learning_rate", Column::LearningRate),
    ("grad_norm", Column::GradNorm),
    ("framework_grad_norm", Column::FrameworkGradNorm),
    ("measure_seconds", Column::Cost(Phase::Measure)),
    ("launch_seconds", Column::Cost(Phase::Launch)),
    ("offer_seconds", Column::Cost(Phase::Offer)),
    ("bytes_read", Column::BytesRead),
    ("observed_total", Column::Observed),
    ("not_sampled_total", Column::NotSampled),
    ("dropped_total", Column::Dropped),
    ("skipped_steps", Column::SkippedSteps),
];

impl FactsCursor {
    /// `None` for a file without even a header.
    pub(super) fn open(path: &Path, how: FileUse, warnings: &mut Vec<String>) -> Result<Option<Self>, RunError> {
        let Some(table) = Table::open_as(path, how)? else { return Ok(None) };
        if let Some(line) = table.torn_line {
            warnings.push(format!("`{}` line {line}: torn off at the file's end: left out", path.display()));
        }
        let step = table.place("step")?;
        let known = COLUMNS.into_iter().chain([("sampling_ratio", Column::SamplingRatio)]);
        let columns = known.filter_map(|(name, column)| Some((table.place_of(name)?, column))).collect();
        let (told, cells) = (ToldNumbers::default(), StringRecord::new());
        Ok(Some(Self { table, step, columns, told, cells, pending: None, last: None, again: None }))
    }

    /// The step of the line that comes next.
    pub(super) fn peek(&mut self) -> Result<Option<u64>, RunError> {
        while self.pending.is_none() {
            let Some(row) = self.table.next(&mut self.cells)? else { return Ok(None) };
            row.check_length()?;
            let step = row.integer(self.step)?;
            if self.last.is_none_or(|last| step > last) {
                self.pending = Some(step);
            } else {
                let (first, last) = self.again.unwrap_or((step, step));
                self.again = Some((first.min(step), last.max(step)));
            }
        }
        Ok(self.pending)
    }

    /// Puts the line that [`Self::peek`] found into a batch. Whether it told the time.
    pub(super) fn take(&mut self, batch: &mut StepBatch) -> Result<bool, RunError> {
        self.last = self.pending.take();
        let row = self.table.row(&self.cells);
        let mut has_time = false;
        self.told.begin(&row);
        for (place, column) in &self.columns {
            if let Some(value) = self.told.number(&row, *place)? {
                has_time |= *column == Column::UnixSeconds;
                set(batch, *column, value, &row, *place)?;
            }
        }
        let LedgerSnapshot { observed, not_sampled, dropped, .. } = batch.books;
        batch.books.offered = observed.saturating_sub(not_sampled);
        batch.books.accepted = batch.books.offered.saturating_sub(dropped.iter().sum());
        Ok(has_time)
    }

    pub(super) fn bytes_read(&self) -> u64 {
        self.table.bytes_read()
    }
}

fn set(batch: &mut StepBatch, column: Column, value: f64, row: &Row<'_>, place: usize) -> Result<(), RunError> {
    match column {
        Column::UnixSeconds => {
            let time = duration(value).and_then(|since| SystemTime::UNIX_EPOCH.checked_add(since));
            batch.time = time.ok_or_else(|| row.fault(place, "seconds since 1970"))?;
        }
        Column::StepSeconds => batch.duration = duration(value),
        Column::Loss => batch.loss = Some(value),
        Column::LearningRate => batch.learning_rate = Some(value),
        Column::GradNorm => batch.grad_norm = GradNorm::Known(value),
        Column::FrameworkGradNorm => batch.framework_grad_norm = Some(value),
        Column::Cost(phase) => {
            let mut cost = PhaseTimes::default();
            for other in Phase::ALL {
                cost.add(
                    other,
                    if other == phase { duration(value).unwrap_or_default() } else { batch.cost.get(other) },
                );
            }
            batch.cost = cost;
        }
        Column::BytesRead => batch.bytes_read = row.integer(place)?,
        Column::Observed => batch.books.observed = row.integer(place)?,
        Column::NotSampled => batch.books.not_sampled = row.integer(place)?,
        // The file has their sum alone.
        Column::Dropped => batch.books.dropped[DropReason::QueueFull as usize] = row.integer(place)?,
        Column::SkippedSteps => batch.skipped_steps = row.integer(place)?,
        Column::SamplingRatio if value > 0.0 => batch.sampling_stride = (1.0 / value).round().max(1.0) as u32,
        Column::SamplingRatio => {}
    }
    Ok(())
}

/// `None` for what is no length of time.
fn duration(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds).ok()
}
