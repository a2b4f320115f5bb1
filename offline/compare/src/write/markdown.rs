//! Markdown with the rows that do not pass, for a report or a ticket.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::pieces::{Channel, Sink, TableSource, unrendered};
use super::rows::{Rows, WriteError};

/// The largest number of rows: a ticket needs no more.
const ROWS: usize = 200;
const COLUMNS: [&str; 8] =
    ["NPU Name", "Bench Name", "NPU Dtype", "NPU Tensor Shape", "Result", "Err_message", "Deviation", "Bound"];

pub(super) fn channel<'s>(source: &TableSource<'_>, path: &Path) -> Channel<'s> {
    let place = |name: &&str| source.headers.iter().position(|header| header == name);
    let columns: Vec<usize> = COLUMNS.iter().filter_map(place).collect();
    let mut text = line(columns.iter().map(|&column| source.headers[column].to_owned()));
    text += &line(columns.iter().map(|_| "---".to_owned()));
    let file = MarkdownFile { path: path.to_path_buf(), columns, text, remarkable: 0, count: 0 };
    (unrendered(), Box::new(file))
}

fn line(cells: impl Iterator<Item = String>) -> String {
    let cells: Vec<String> = cells.collect();
    format!("| {} |\n", cells.join(" | "))
}

struct MarkdownFile {
    path: PathBuf,
    columns: Vec<usize>,
    text: String,
    remarkable: usize,
    count: usize,
}

impl Sink for MarkdownFile {
    fn take(&mut self, rows: &dyn Rows, _: usize, _: &[u8]) -> Result<(), WriteError> {
        self.count += rows.count();
        for index in (0..rows.count()).filter(|&index| rows.is_remarkable(index)) {
            self.remarkable += 1;
            if self.remarkable > ROWS {
                continue;
            }
            let mut cells = Vec::new();
            rows.visit(index, &mut |cell| cells.push(cell.text().into_owned()));
            let shown = self.columns.iter().map(|&column| cells[column].replace('|', "\\|").replace('\n', " "));
            self.text += &line(shown);
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), WriteError> {
        let mut text = format!("{} of {} values do not pass.\n\n{}", self.remarkable, self.count, self.text);
        if self.remarkable > ROWS {
            // Writing into a String cannot fail.
            _ = writeln!(text, "\n{} more are in the other formats.", self.remarkable - ROWS);
        }
        std::fs::write(&self.path, text).map_err(|source| WriteError::Io { path: self.path, source })
    }
}
