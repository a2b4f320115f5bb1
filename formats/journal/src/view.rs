//! Reads a journal that is being written, from other threads of the same process.

use std::ops::RangeInclusive;
use std::sync::Arc;

use trainmon_core::{Step, StepBatch};

use super::error::JournalError;
use super::frame::FrameHeader;
use super::number_names::{NumberNames, StoredNames};
use super::step::decode_step;
use super::store::Shared;

/// Reads steps back and flushes. Cheap to clone.
///
/// The writer waits for a reader only while it looks at the index, never for a read of the file: that read is
/// concurrent, and checked afterwards.
#[derive(Clone, Debug)]
pub struct JournalView {
    shared: Arc<Shared>,
    number_names: Arc<NumberNames>,
}

impl JournalView {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, number_names: Arc::new(NumberNames::of(&StoredNames::current())) }
    }

    /// The steps of `range` that the ring still holds, oldest first, as they were appended.
    ///
    /// Cost: each step is read and decoded separately.
    pub fn read_steps(&self, range: RangeInclusive<Step>) -> Vec<StepBatch> {
        let wanted: Vec<FrameHeader> = {
            let store = self.shared.store();
            store.index.iter().filter(|frame| range.contains(&Step(frame.step))).copied().collect()
        };
        wanted.iter().filter_map(|frame| self.read(frame)).collect()
    }

    /// The oldest and the newest step in the ring.
    pub fn held(&self) -> Option<(Step, Step)> {
        let store = self.shared.store();
        Some((Step(store.index.front()?.step), Step(store.index.back()?.step)))
    }

    /// Waits until all appended data are on the disk. It may take as long as the disk: do not call it on a thread that
    /// others wait for.
    ///
    /// # Errors
    /// The disk failed.
    pub fn flush(&self) -> Result<(), JournalError> {
        self.shared.medium.check()?;
        self.shared.medium.flush()
    }

    /// Reads a step, unless it was overwritten in the meantime.
    fn read(&self, frame: &FrameHeader) -> Option<StepBatch> {
        self.shared.medium.check().ok()?;
        // Concurrent with the writer, which may overwrite the frame: the checksum detects that.
        let region = self.shared.store().steps;
        let content = region.read(&self.shared.medium, frame).ok()?;
        if crc32fast::hash(&content) != frame.content_crc {
            return None;
        }
        Some(decode_step(&content, &self.number_names).ok()?.batch)
    }
}
