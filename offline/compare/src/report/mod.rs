//! The whole comparison as one HTML file that needs no network and no server.

mod distribution;
mod line;
mod page;
mod place;
mod rows;

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use super::answer::{CaptureAnswer, RankCaptures, StepCaptures};
use super::thresholds::Thresholds;
use super::write::{Channel, TableSource};
use place::Place;
use rows::{CollectedRows, MOST_ROWS};

/// A report that is being written. It keeps the first divergence; the rows are in a file.
pub(super) struct Report {
    rows: CollectedRows,
    place: Option<Place>,
}

impl Report {
    /// Creates a report. `directory` stores the rows until the page is written.
    pub(super) fn new(directory: &Path) -> io::Result<Self> {
        Ok(Self { rows: CollectedRows::new(MOST_ROWS, directory)?, place: None })
    }

    /// Adds a step while its captures are in memory.
    pub(super) fn step(&mut self, step: &StepCaptures, thresholds: &Thresholds) {
        if let (None, Some(divergence)) = (&self.place, &step.divergence) {
            self.place = Place::of(step, divergence, thresholds);
        }
    }

    /// Starts a rank's table: converts rows to lines of the page and collects them.
    pub(super) fn table<'c>(
        &'c mut self,
        source: &TableSource<'_>,
        step: &StepCaptures,
        rank: &'c RankCaptures,
    ) -> Channel<'c> {
        let golden = source.has_golden_only().then_some(&rank.golden);
        self.rows.table(&source.headers, (step.step, &step.part, rank.rank), (&rank.target, golden))
    }

    /// Writes the page.
    ///
    /// # Errors
    /// `to` fails, or the rows cannot be read again.
    pub(super) fn write(
        &mut self,
        answer: &CaptureAnswer,
        (target, goldens): (&Path, &[PathBuf]),
        to: &mut BufWriter<File>,
    ) -> io::Result<()> {
        page::write((&mut self.rows, self.place.as_ref()), answer, (target, goldens), to)
    }
}
