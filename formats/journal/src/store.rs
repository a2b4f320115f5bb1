//! The state shared by the writer and concurrent readers: the file and the contents of its regions.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::error::JournalError;
use super::frame::{FrameHeader, FrameKind};
use super::layout::STATE_AT;
use super::medium::Medium;
use super::region::{Label, RegionWriter};
use super::state::State;

/// The state shared by the writer and concurrent readers.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) medium: Medium,
    pub(super) store: Mutex<Store>,
}

impl Shared {
    /// Locks the state: the writer while it copies one frame, readers while they look at the index.
    pub(super) fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The regions and their contents.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) journal: u64,
    pub(super) state: State,
    pub(super) names: RegionWriter,
    pub(super) alerts: RegionWriter,
    pub(super) steps: RegionWriter,
    /// The steps in the ring, oldest first.
    pub(super) index: VecDeque<FrameHeader>,
}

impl Store {
    pub(super) fn write_state(&mut self, medium: &Medium) -> Result<(), JournalError> {
        self.state.generation += 1;
        let copy = STATE_AT[(self.state.generation % 2) as usize];
        medium.write(copy, &self.state.encode(self.journal))
    }

    pub(super) fn append_step(&mut self, medium: &Medium, label: Label, content: &[u8]) -> Result<u64, JournalError> {
        let floor = self.steps.floor_after(content.len());
        // Before the first byte is written: the index must not contain a frame that is being overwritten.
        while self.index.front().is_some_and(|oldest| oldest.at < floor) {
            self.index.pop_front();
        }
        self.state.steps_begun = self.steps.next_seq() + 1;
        self.state.steps_end = self.steps.end_after(content.len());
        self.write_state(medium)?;
        let header = self.steps.append(medium, self.journal, label, content)?;
        if header.kind == FrameKind::Step {
            self.index.push_back(header);
        }
        Ok(header.total())
    }

    /// Writes a frame without content for a step that was too large.
    pub(super) fn note_lost(&mut self, medium: &Medium, label: Label) -> Result<(), JournalError> {
        self.state.lost_steps += 1;
        self.state.lost_records += u64::from(label.records);
        self.append_step(medium, Label { kind: FrameKind::LostStep, ..label }, &[]).map(drop)
    }
}
