//! `steps.csv`: one line per step about the run and about the monitor itself.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use trainmon_core::{DropReason, Phase, StepBatch};

use super::file::LineFile;
use super::number::push_float;
use crate::ExportError;

pub(crate) const HEADER: &str = "step,unix_seconds,step_seconds,loss,learning_rate,grad_norm,framework_grad_norm,grad_norm_ratio,\
                      measure_seconds,launch_seconds,offer_seconds,bytes_read,records,observed_total,\
                      not_sampled_total,dropped_total,skipped_steps,sampling_ratio\n";

/// The file beside msprobe's; its tools pass over names they do not know.
pub(super) struct StepsFile {
    path: PathBuf,
    file: Option<LineFile>,
}

impl StepsFile {
    pub(super) fn new(directory: &Path) -> Self {
        Self { path: directory.join("steps.csv"), file: None }
    }

    /// Appends the step's line.
    pub(super) fn append(&mut self, batch: &StepBatch) -> Result<(), ExportError> {
        let file = match self.file.take().filter(|file| file.continues(&self.path, HEADER.as_bytes())) {
            Some(file) => self.file.insert(file),
            None => self.file.insert(LineFile::open(self.path.clone(), HEADER.as_bytes())?),
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
    let unix = batch.time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let seconds = |phase| batch.cost.get(phase).as_secs_f64();
    for value in [
        Some(unix.as_secs_f64()),
        batch.duration.map(|duration| duration.as_secs_f64()),
        batch.loss,
        batch.learning_rate,
        batch.grad_norm(),
        batch.framework_grad_norm,
        batch.grad_norm_check().map(|check| check.ratio()),
        Some(seconds(Phase::Measure)),
        Some(seconds(Phase::Launch)),
        Some(seconds(Phase::Offer)),
    ] {
        out.push(b',');
        // Nobody told it: an empty cell. `nan` is a number that is none.
        if let Some(value) = value {
            push_float(&mut out, value);
        }
    }
    let dropped: u64 = DropReason::ALL.into_iter().map(|reason| batch.books.dropped[reason as usize]).sum();
    let counts = [
        batch.bytes_read,
        batch.records.len() as u64,
        batch.books.observed,
        batch.books.not_sampled,
        dropped,
        batch.skipped_steps,
    ];
    for count in counts {
        out.extend_from_slice(format!(",{count}").as_bytes());
    }
    out.push(b',');
    push_float(&mut out, batch.sampling_ratio());
    out.push(b'\n');
    out
}
