//! Reads a rank's journal step by step. Its numbers are not rounded.

use std::collections::BTreeSet;
use std::path::Path;

use trainmon_journal::Recovered;

use super::batch::BatchReader;
use super::error::ReadRunError;
use super::names::Names;
use super::steps::StepRows;

/// Reads the journal of one rank.
pub(super) struct JournalReader {
    recovered: Recovered,
    batches: BatchReader,
    next: usize,
    last: Option<u64>,
    pub(super) warnings: BTreeSet<String>,
}

impl JournalReader {
    pub(super) fn open(path: &Path) -> Result<Self, ReadRunError> {
        let recovered = Recovered::open(path)?;
        let warnings = recovered.faults().iter().map(|fault| format!("`{}`: {fault}", path.display())).collect();
        let batches = BatchReader::new(recovered.config());
        Ok(Self { recovered, batches, next: 0, last: None, warnings })
    }

    /// Continues at the last step before this one, without reading those between.
    pub(super) fn pass_over(&mut self, step: u64) {
        let rest = self.recovered.step_numbers().skip(self.next);
        self.next += rest.take_while(|number| number.0 < step).count().saturating_sub(1);
    }

    /// Reads the next step. Returns `false` at the end.
    pub(super) fn next(&mut self, names: &mut Names, into: &mut StepRows) -> bool {
        while let Some(step) = self.recovered.step(self.next) {
            self.next += 1;
            let step = match step {
                Ok(step) => step,
                Err(fault) => {
                    self.warnings.insert(format!("`{}`: {fault}", self.recovered.path().display()));
                    continue;
                }
            };
            let number = step.batch.step.0;
            if self.last.is_some_and(|last| number <= last) {
                continue;
            }
            self.last = Some(number);
            self.batches.read(self.recovered.names(), &step.batch, names, into);
            return true;
        }
        false
    }

    /// The number of steps read so far, and of all steps.
    pub(super) fn steps(&self) -> (u64, u64) {
        (self.next as u64, self.recovered.step_numbers().len() as u64)
    }
}
