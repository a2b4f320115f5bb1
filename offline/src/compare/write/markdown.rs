//! Markdown: the rows that are no pass, for a report or a ticket.

use std::fmt::Write as _;
use std::path::Path;

use super::{Rows, WriteError};

/// More rows than this nobody reads in a ticket.
const ROWS: usize = 200;

pub(super) fn write(table: &dyn Rows, path: &Path) -> Result<(), WriteError> {
    const COLUMNS: [&str; 8] =
        ["NPU Name", "Bench Name", "NPU Dtype", "NPU Tensor Shape", "Result", "Err_message", "Deviation", "Bound"];
    let headers = table.headers();
    let columns: Vec<usize> =
        COLUMNS.iter().filter_map(|name| headers.iter().position(|header| header == name)).collect();
    let remarkable: Vec<usize> = (0..table.count()).filter(|&index| table.is_remarkable(index)).collect();
    let mut text = format!("{} of {} values are no pass.\n\n", remarkable.len(), table.count());
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    text += &line(columns.iter().map(|&column| headers[column].to_owned()).collect());
    text += &line(columns.iter().map(|_| "---".to_owned()).collect());
    for &index in remarkable.iter().take(ROWS) {
        let mut cells = Vec::with_capacity(headers.len());
        table.visit(index, &mut |cell| cells.push(cell.text().into_owned()));
        let shown = columns.iter().map(|&column| cells[column].replace('|', "\\|").replace('\n', " "));
        text += &line(shown.collect());
    }
    if remarkable.len() > ROWS {
        let left = remarkable.len() - ROWS;
        // Writing into a String does not fail.
        _ = writeln!(text, "\n{left} more are in the other formats.");
    }
    std::fs::write(path, text).map_err(|source| WriteError::Io { path: path.to_path_buf(), source })
}
