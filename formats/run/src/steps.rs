//! `steps.csv`, a line per step about the run and the monitor itself: its columns, writing them from a batch, and
//! reading them back.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use trainmon_core::{DropReason, GradNorm, LedgerSnapshot, Phase, StepBatch};

use crate::columns::named::STEP;
use crate::error::{RunError, WriteError};
use crate::file_use::FileUse;
use crate::line_file::LineFile;
use crate::names::STEPS_FILE;
use crate::number::push_float;
use crate::table::{LoggedNumbers, Row, Table, widen};

/// A column of the file after the step column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepColumn {
    /// The time at which the step ended.
    UnixSeconds,
    /// The time since the end of the previous step.
    StepSeconds,
    /// The loss that the script logged.
    Loss,
    /// The learning rate that the script logged.
    LearningRate,
    /// The norm of all gradients.
    GradNorm,
    /// The framework's gradient norm.
    FrameworkGradNorm,
    /// The ratio of trainmon's gradient norm to the framework's.
    GradNormRatio,
    /// The time spent on measuring.
    MeasureSeconds,
    /// The time spent on measuring on a device.
    LaunchSeconds,
    /// The time spent on handing the step to the worker.
    OfferSeconds,
    /// Bytes of measured tensors.
    BytesRead,
    /// Records of the step.
    Records,
    /// The ledger's observed records.
    Observed,
    /// The ledger's records that were not sampled.
    NotSampled,
    /// The ledger's dropped records, for all reasons.
    Dropped,
    /// Steps that the optimizer skipped since the previous step.
    SkippedSteps,
    /// The share of steps that are measured within the overhead budget.
    SamplingRatio,
}

/// The content of a cell.
enum Cell {
    /// Empty if the number was not logged, because `nan` is a number.
    Real(Option<f64>),
    Count(u64),
}

impl StepColumn {
    /// All columns, in the file's order.
    pub const ALL: [Self; 17] = [
        Self::UnixSeconds,
        Self::StepSeconds,
        Self::Loss,
        Self::LearningRate,
        Self::GradNorm,
        Self::FrameworkGradNorm,
        Self::GradNormRatio,
        Self::MeasureSeconds,
        Self::LaunchSeconds,
        Self::OfferSeconds,
        Self::BytesRead,
        Self::Records,
        Self::Observed,
        Self::NotSampled,
        Self::Dropped,
        Self::SkippedSteps,
        Self::SamplingRatio,
    ];

    /// The column's name in the header.
    pub const fn name(self) -> &'static str {
        match self {
            Self::UnixSeconds => "unix_seconds",
            Self::StepSeconds => "step_seconds",
            Self::Loss => "loss",
            Self::LearningRate => "learning_rate",
            Self::GradNorm => "grad_norm",
            Self::FrameworkGradNorm => "framework_grad_norm",
            Self::GradNormRatio => "grad_norm_ratio",
            Self::MeasureSeconds => "measure_seconds",
            Self::LaunchSeconds => "launch_seconds",
            Self::OfferSeconds => "offer_seconds",
            Self::BytesRead => "bytes_read",
            Self::Records => "records",
            Self::Observed => "observed_total",
            Self::NotSampled => "not_sampled_total",
            Self::Dropped => "dropped_total",
            Self::SkippedSteps => "skipped_steps",
            Self::SamplingRatio => "sampling_ratio",
        }
    }

    /// Whether the column describes the training, not the monitor.
    pub const fn is_of_training(self) -> bool {
        (self as u8) < Self::MeasureSeconds as u8
    }

    /// The column's number for a step; `None` if it was not logged.
    pub fn number(self, batch: &StepBatch) -> Option<f64> {
        match self.cell(batch) {
            Cell::Real(number) => number,
            Cell::Count(count) => Some(count as f64),
        }
    }

    fn cell(self, batch: &StepBatch) -> Cell {
        let seconds = |time: Option<Duration>| Cell::Real(time.map(|time| time.as_secs_f64()));
        match self {
            Self::UnixSeconds => seconds(Some(batch.time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())),
            Self::StepSeconds => seconds(batch.duration),
            Self::Loss => Cell::Real(batch.loss),
            Self::LearningRate => Cell::Real(batch.learning_rate),
            Self::GradNorm => Cell::Real(batch.grad_norm()),
            Self::FrameworkGradNorm => Cell::Real(batch.framework_grad_norm),
            Self::GradNormRatio => Cell::Real(batch.grad_norm_check().map(|check| check.ratio())),
            Self::MeasureSeconds => seconds(Some(batch.cost.get(Phase::Measure))),
            Self::LaunchSeconds => seconds(Some(batch.cost.get(Phase::Launch))),
            Self::OfferSeconds => seconds(Some(batch.cost.get(Phase::Offer))),
            Self::BytesRead => Cell::Count(batch.bytes_read),
            Self::Records => Cell::Count(batch.records.len() as u64),
            Self::Observed => Cell::Count(batch.counts.observed),
            Self::NotSampled => Cell::Count(batch.counts.not_sampled),
            Self::Dropped => {
                Cell::Count(DropReason::ALL.into_iter().map(|reason| batch.counts.dropped[reason as usize]).sum())
            }
            Self::SkippedSteps => Cell::Count(batch.skipped_steps),
            Self::SamplingRatio => Cell::Real(Some(batch.sampling_ratio())),
        }
    }

    /// Sets the column's value in a batch; a value that follows from others is ignored.
    fn set(self, batch: &mut StepBatch, value: f64, row: &Row<'_>, place: usize) -> Result<(), RunError> {
        match self {
            Self::UnixSeconds => {
                let time = duration(value).and_then(|since| SystemTime::UNIX_EPOCH.checked_add(since));
                batch.time = time.ok_or_else(|| row.fault(place, "seconds since 1970"))?;
            }
            Self::StepSeconds => batch.duration = duration(value),
            Self::Loss => batch.loss = Some(value),
            Self::LearningRate => batch.learning_rate = Some(value),
            Self::GradNorm => batch.grad_norm = GradNorm::Known(value),
            Self::FrameworkGradNorm => batch.framework_grad_norm = Some(value),
            Self::MeasureSeconds => batch.cost.add(Phase::Measure, duration(value).unwrap_or_default()),
            Self::LaunchSeconds => batch.cost.add(Phase::Launch, duration(value).unwrap_or_default()),
            Self::OfferSeconds => batch.cost.add(Phase::Offer, duration(value).unwrap_or_default()),
            Self::BytesRead => batch.bytes_read = row.integer(place)?,
            Self::Observed => batch.counts.observed = row.integer(place)?,
            Self::NotSampled => batch.counts.not_sampled = row.integer(place)?,
            // The file contains only the sum over all reasons.
            Self::Dropped => batch.counts.dropped[DropReason::QueueFull as usize] = row.integer(place)?,
            Self::SkippedSteps => batch.skipped_steps = row.integer(place)?,
            Self::SamplingRatio if value > 0.0 => batch.sampling_stride = (1.0 / value).round().max(1.0) as u32,
            Self::SamplingRatio | Self::GradNormRatio | Self::Records => {}
        }
        Ok(())
    }
}

/// The duration; `None` if it is negative or not finite.
fn duration(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds).ok()
}

/// Writes the file; msprobe's tools ignore unknown file names.
pub struct StepsWriter {
    path: PathBuf,
    header: Vec<u8>,
    file: Option<LineFile>,
}

impl StepsWriter {
    /// A writer for a rank's directory. The file is created with the first line.
    pub fn new(directory: &Path) -> Self {
        let columns = StepColumn::ALL.map(StepColumn::name).join(",");
        Self { path: directory.join(STEPS_FILE), header: format!("{STEP},{columns}\n").into_bytes(), file: None }
    }

    /// Appends the step's line.
    ///
    /// # Errors
    /// The file cannot be created or written. The next call tries again.
    pub fn append(&mut self, batch: &StepBatch) -> Result<(), WriteError> {
        let file = match self.file.take().filter(|file| file.continues(&self.path, &self.header)) {
            Some(file) => self.file.insert(file),
            None => self.file.insert(LineFile::open(self.path.clone(), &self.header)?),
        };
        let result = file.append(&line(batch));
        if result.is_err() {
            self.file = None;
        }
        result
    }
}

fn line(batch: &StepBatch) -> Vec<u8> {
    let mut out = batch.step.to_string().into_bytes();
    for column in StepColumn::ALL {
        out.push(b',');
        match column.cell(batch) {
            Cell::Real(Some(value)) => push_float(&mut out, value),
            Cell::Real(None) => {}
            Cell::Count(count) => out.extend_from_slice(count.to_string().as_bytes()),
        }
    }
    out.push(b'\n');
    out
}

/// Reads the file line by line. If steps occur again, the first ones are read.
pub struct StepsReader {
    table: Table,
    step: usize,
    columns: Vec<(usize, StepColumn)>,
    told: LoggedNumbers,
    pending: Option<u64>,
    last: Option<u64>,
    /// The first and last of the steps that occurred again.
    again: Option<(u64, u64)>,
}

impl StepsReader {
    /// Opens the file for those of these columns that it has. `None` for a file without a header. `warn` receives
    /// warnings about ignored content.
    ///
    /// # Errors
    /// The file cannot be read, or has no column `step`.
    pub fn open(
        path: &Path,
        how: FileUse,
        wanted: &[StepColumn],
        warn: &mut dyn FnMut(String),
    ) -> Result<Option<Self>, RunError> {
        let Some(table) = Table::open(path, how)? else { return Ok(None) };
        table.torn_line_in_words().into_iter().for_each(warn);
        let step = table.place(STEP)?;
        // Columns that follow from others are not read, so their cells are not checked.
        let known = wanted.iter().filter(|column| !matches!(column, StepColumn::GradNormRatio | StepColumn::Records));
        let columns = known.filter_map(|column| Some((table.place_of(column.name())?, *column))).collect();
        let told = LoggedNumbers::default();
        Ok(Some(Self { table, step, columns, told, pending: None, last: None, again: None }))
    }

    /// The step of the next line; `None` at the end.
    ///
    /// # Errors
    /// The line is damaged.
    pub fn peek(&mut self) -> Result<Option<u64>, RunError> {
        while self.pending.is_none() {
            let Some(row) = self.table.next_row()? else { return Ok(None) };
            row.check_length()?;
            let step = row.integer(self.step)?;
            if self.last.is_none_or(|last| step > last) {
                self.pending = Some(step);
            } else {
                widen(&mut self.again, step);
            }
        }
        Ok(self.pending)
    }

    /// Adds the line that [`Self::peek`] found to a batch that was reset before; returns whether it includes the time.
    ///
    /// # Errors
    /// A cell does not fit its column.
    pub fn take(&mut self, batch: &mut StepBatch) -> Result<bool, RunError> {
        self.last = self.pending.take();
        let row = self.table.row();
        let mut has_time = false;
        self.told.begin(&row);
        for (place, column) in &self.columns {
            if let Some(value) = self.told.number(&row, *place)? {
                has_time |= *column == StepColumn::UnixSeconds;
                column.set(batch, value, &row, *place)?;
            }
        }
        let LedgerSnapshot { observed, not_sampled, dropped, .. } = batch.counts;
        batch.counts.offered = observed.saturating_sub(not_sampled);
        batch.counts.accepted = batch.counts.offered.saturating_sub(dropped.iter().sum());
        Ok(has_time)
    }

    /// The warning about steps that were trained twice; returned once.
    pub fn came_again(&mut self) -> Option<String> {
        let range = self.again.take()?;
        Some(self.table.came_again(range))
    }

    /// The number of bytes read so far.
    pub fn bytes_read(&self) -> u64 {
        self.table.bytes_read()
    }
}

#[cfg(test)]
mod tests {
    use trainmon_core::{LedgerSnapshot, Step};

    use super::*;

    #[test]
    fn a_line_is_read_back_as_it_was_written() {
        let directory = tempfile::tempdir().unwrap();
        let mut writer = StepsWriter::new(directory.path());
        let mut written = StepBatch {
            step: Step(7),
            time: SystemTime::UNIX_EPOCH + Duration::from_millis(1_500),
            duration: Some(Duration::from_millis(250)),
            loss: Some(f64::NAN),
            grad_norm: GradNorm::Known(2.0),
            framework_grad_norm: Some(4.0),
            bytes_read: 12,
            skipped_steps: 1,
            sampling_stride: 4,
            counts: LedgerSnapshot { observed: 9, not_sampled: 2, ..LedgerSnapshot::default() },
            ..StepBatch::default()
        };
        written.counts.dropped[DropReason::QueueFull as usize] = 3;
        written.cost.add(Phase::Launch, Duration::from_millis(125));
        writer.append(&written).unwrap();
        writer.append(&StepBatch { step: Step(8), grad_norm: GradNorm::Unknown, ..StepBatch::default() }).unwrap();
        let path = directory.path().join(STEPS_FILE);
        let text = std::fs::read_to_string(&path).unwrap();
        let header = "step,unix_seconds,step_seconds,loss,learning_rate,grad_norm,framework_grad_norm,grad_norm_ratio,\
                      measure_seconds,launch_seconds,offer_seconds,bytes_read,records,observed_total,not_sampled_total,\
                      dropped_total,skipped_steps,sampling_ratio";
        let first = "7,1.5,0.25,nan,,2.0,4.0,0.5,0.0,0.125,0.0,12,0,9,2,3,1,0.25";
        assert_eq!(text.lines().take(2).collect::<Vec<_>>(), [header, first]);
        let warn = &mut |warning| panic!("{warning}");
        let mut reader = StepsReader::open(&path, FileUse::Held, &StepColumn::ALL, warn).unwrap().unwrap();
        let mut read = StepBatch::default();
        assert_eq!(reader.peek().unwrap(), Some(7));
        assert!(reader.take(&mut read).unwrap());
        assert!(read.loss.is_some_and(f64::is_nan) && read.learning_rate.is_none());
        assert_eq!((read.time, read.duration, read.cost), (written.time, written.duration, written.cost));
        assert_eq!((read.grad_norm, read.framework_grad_norm), (written.grad_norm, written.framework_grad_norm));
        assert_eq!((read.bytes_read, read.skipped_steps, read.sampling_stride), (12, 1, 4));
        assert_eq!((read.counts.offered, read.counts.accepted), (7, 4));
        assert_eq!(reader.peek().unwrap(), Some(8));
        let mut read = StepBatch { grad_norm: GradNorm::Unknown, ..StepBatch::default() };
        reader.take(&mut read).unwrap();
        assert_eq!((read.grad_norm(), read.loss, read.duration), (None, None, None));
        assert_eq!(reader.peek().unwrap(), None);
    }
}
