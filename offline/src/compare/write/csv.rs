//! CSV, a million rows a file: what a spreadsheet program still opens.

use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::{Rows, WriteError};

const ROWS: usize = 1_000_000;
/// Rows that one thread renders at a time; twice as many pieces as threads are in memory.
const PIECE: usize = 512;

pub(super) fn write(table: &dyn Rows, directory: &Path, stem: &str) -> Result<Vec<PathBuf>, WriteError> {
    let parts = table.count().div_ceil(ROWS).max(1);
    let name = |part: usize| if parts == 1 { format!("{stem}.csv") } else { format!("{stem}_part_{part}.csv") };
    let paths: Vec<PathBuf> = (0..parts).map(|part| directory.join(name(part))).collect();
    for (part, path) in paths.iter().enumerate() {
        let rows = (part * ROWS)..((part + 1) * ROWS).min(table.count());
        write_part(table, rows, path).map_err(|source| WriteError::Io { path: path.clone(), source })?;
    }
    Ok(paths)
}

fn write_part(table: &dyn Rows, rows: Range<usize>, path: &Path) -> std::io::Result<()> {
    let mut file = std::fs::File::create(path)?;
    let mut head = csv::Writer::from_writer(Vec::new());
    head.write_record(table.headers())?;
    file.write_all(&head.into_inner().map_err(csv::IntoInnerError::into_error)?)?;
    let pieces: Vec<Range<usize>> =
        rows.clone().step_by(PIECE).map(|from| from..(from + PIECE).min(rows.end)).collect();
    // Two sets of buffers for the whole file: one is written while the other is filled.
    let threads = rayon::current_num_threads().max(1);
    let (mut full, mut free) = (vec![Vec::new(); threads], vec![Vec::new(); threads]);
    for pieces in pieces.chunks(threads) {
        let (written, rendered) = rayon::join(
            || full.iter().try_for_each(|piece| file.write_all(piece)),
            || free.par_iter_mut().zip(pieces).try_for_each(|(buffer, rows)| render(table, rows.clone(), buffer)),
        );
        written?;
        rendered?;
        // The last set may be filled in part; what the others hold is written already.
        free.iter_mut().skip(pieces.len()).for_each(Vec::clear);
        std::mem::swap(&mut full, &mut free);
    }
    full.iter().try_for_each(|piece| file.write_all(piece))?;
    file.flush()
}

fn render(table: &dyn Rows, rows: Range<usize>, buffer: &mut Vec<u8>) -> std::io::Result<()> {
    buffer.clear();
    let mut writer = csv::Writer::from_writer(buffer);
    for row in rows {
        let mut result = Ok(());
        table.visit(row, &mut |cell| {
            if result.is_ok() {
                result = writer.write_field(cell.csv().as_bytes());
            }
        });
        result?;
        writer.write_record(None::<&[u8]>)?;
    }
    writer.flush()
}
