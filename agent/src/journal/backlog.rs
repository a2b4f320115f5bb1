//! The journal as a backlog, from which an exporter reads earlier steps.

use std::ops::RangeInclusive;

use trainmon_core::{Step, StepBatch};
use trainmon_exporters::otlp::Backlog;
use trainmon_journal::JournalView;

/// The steps that the journal still has.
pub(crate) struct JournalBacklog(pub(crate) JournalView);

impl Backlog for JournalBacklog {
    fn held(&self) -> Option<(Step, Step)> {
        self.0.held()
    }

    fn read(&self, range: RangeInclusive<Step>) -> Vec<StepBatch> {
        self.0.read_steps(range)
    }
}
