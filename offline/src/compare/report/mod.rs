//! The whole comparison as one HTML file: what a browser shows of it needs no network and no server.

mod distribution;
mod page;
mod place;
mod rows;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::answer::{Answer, StepCaptures};
use super::input::Capture;
use super::thresholds::Thresholds;
use super::write::Rows;
use place::Place;
use rows::{CollectedRows, MOST_ROWS};

/// A report in the making. It keeps the rows, not the captures: a number for each cell and each text once, and the place where the runs part.
pub(super) struct Report {
    rows: CollectedRows,
    place: Option<Place>,
}

impl Report {
    pub(super) fn new() -> Self {
        Self { rows: CollectedRows::new(MOST_ROWS), place: None }
    }

    /// Looks at a step while its captures are in memory.
    pub(super) fn step(&mut self, step: &StepCaptures, thresholds: &Thresholds) {
        if let (None, Some(divergence)) = (&self.place, &step.divergence) {
            self.place = Place::of(step, divergence, thresholds);
        }
    }

    /// Takes in a rank's table.
    pub(super) fn table(&mut self, table: &dyn Rows, step: &StepCaptures, rank: u64, target: &Capture) {
        self.rows.add(table, (step.step, &step.part, rank), target);
    }

    /// Writes the page.
    ///
    /// # Errors
    /// `to` refuses.
    pub(super) fn write(
        &self,
        answer: &Answer,
        (target, goldens): (&Path, &[PathBuf]),
        to: &mut dyn Write,
    ) -> io::Result<()> {
        page::write(self, answer, (target, goldens), to)
    }
}

/// JSON that may stand inside HTML: no `<` can end the script it is in.
fn json_in_html(json: &str) -> String {
    json.replace('<', "\\u003c")
}
