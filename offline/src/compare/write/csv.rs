//! CSV, a million rows a file: what a spreadsheet program still opens.

use std::path::{Path, PathBuf};

use super::{Rows, WriteError};
use crate::compare::compat::Cell;

const ROWS: usize = 1_000_000;

pub(super) fn write(table: &dyn Rows, directory: &Path, stem: &str) -> Result<Vec<PathBuf>, WriteError> {
    let parts = table.len().div_ceil(ROWS).max(1);
    let name = |part: usize| if parts == 1 { format!("{stem}.csv") } else { format!("{stem}_part_{part}.csv") };
    let paths: Vec<PathBuf> = (0..parts).map(|part| directory.join(name(part))).collect();
    for (part, path) in paths.iter().enumerate() {
        let failed = |source| WriteError::Io { path: path.clone(), source };
        let file = std::fs::File::create(path).map_err(failed)?;
        let mut writer = csv::Writer::from_writer(std::io::BufWriter::with_capacity(1 << 18, file));
        let rows = (part * ROWS)..((part + 1) * ROWS).min(table.len());
        let written = writer.write_record(table.headers()).and_then(|()| {
            for row in rows {
                writer.write_record(table.row(row).iter().map(Cell::csv))?;
            }
            Ok(())
        });
        written.map_err(|error| failed(error.into())).and_then(|()| writer.flush().map_err(failed))?;
    }
    Ok(paths)
}
