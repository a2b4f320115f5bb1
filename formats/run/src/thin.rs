//! Thins out a table by steps. Remaining rows are unchanged byte for byte.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::Path;

use csv::{ByteRecord, Reader, ReaderBuilder, Terminator, WriterBuilder};

use crate::columns::named;

/// The extension of the new file until it replaces the old one.
pub const TEMPORARY: &str = "thinning";

/// Reads a table row by row, with the columns that identify a row.
struct Rows {
    reader: Reader<fs::File>,
    header: ByteRecord,
    step: usize,
    /// The columns that identify a series.
    series: Vec<usize>,
}

impl Rows {
    fn open(path: &Path) -> io::Result<Self> {
        let reader = ReaderBuilder::new().has_headers(false).flexible(true).from_path(path);
        let mut reader = reader.map_err(io::Error::other)?;
        let mut header = ByteRecord::new();
        reader.read_byte_record(&mut header).map_err(io::Error::other)?;
        let place = |name: &str| header.iter().position(|cell| cell == name.as_bytes());
        let series = [named::VPP_STAGE, named::NAME, named::MODULE_NAME, named::SCOPE, named::MICRO_STEP];
        let series = series.into_iter().filter_map(place).collect();
        let Some(step) = place(named::STEP) else {
            let found = format!("`{}` has no column `{}`", path.display(), named::STEP);
            return Err(io::Error::new(io::ErrorKind::InvalidData, found));
        };
        Ok(Self { reader, header, step, series })
    }

    fn next(&mut self, row: &mut ByteRecord) -> io::Result<bool> {
        self.reader.read_byte_record(row).map_err(io::Error::other)
    }

    fn step_of(&self, row: &ByteRecord) -> Option<u64> {
        row.get(self.step).and_then(|cell| std::str::from_utf8(cell).ok()?.parse().ok())
    }

    fn series_of(&self, row: &ByteRecord) -> Vec<u8> {
        self.series.iter().filter_map(|place| row.get(*place)).collect::<Vec<_>>().join(&b'\0')
    }
}

/// The smallest distance between two steps of a table.
///
/// # Errors
/// The file cannot be read, or is not a table.
pub fn interval_of(path: &Path) -> io::Result<u64> {
    let (mut rows, mut row) = (Rows::open(path)?, ByteRecord::new());
    let (mut last, mut least): (Option<u64>, Option<u64>) = (None, None);
    while rows.next(&mut row)? {
        let step = rows.step_of(&row);
        let distance = step.zip(last).and_then(|(step, last)| step.checked_sub(last)).filter(|distance| *distance > 0);
        least = [least, distance].into_iter().flatten().min();
        last = step.or(last);
    }
    Ok(least.unwrap_or(1))
}

/// Keeps the first row of each series in every `every` steps, in a file that replaces this one; returns the number of
/// bytes removed.
///
/// # Errors
/// The file cannot be read or written; it is unchanged.
pub fn thin(path: &Path, every: u64) -> io::Result<u64> {
    let thinned = keep(path, every);
    if thinned.is_err() {
        let _gone = fs::remove_file(path.with_extension(TEMPORARY)).is_ok();
    }
    thinned
}

fn keep(path: &Path, every: u64) -> io::Result<u64> {
    let before = fs::metadata(path)?.len();
    let mut rows = Rows::open(path)?;
    let temporary = path.with_extension(TEMPORARY);
    let kept = WriterBuilder::new().flexible(true).terminator(Terminator::Any(b'\n')).from_path(&temporary);
    let mut kept = kept.map_err(io::Error::other)?;
    kept.write_byte_record(&rows.header).map_err(io::Error::other)?;
    let mut last: HashMap<Vec<u8>, u64> = HashMap::new();
    let mut row = ByteRecord::new();
    while rows.next(&mut row)? {
        let part = rows.step_of(&row).map(|step| step / every);
        // Several rows of one step, as for a module that is called several times, stay or go together.
        let step = rows.step_of(&row).unwrap_or(0);
        let is_kept = part.is_none_or(|part| {
            let kept = last.entry(rows.series_of(&row)).or_insert(step);
            if *kept / every != part {
                *kept = step;
            }
            *kept == step
        });
        if is_kept {
            kept.write_byte_record(&row).map_err(io::Error::other)?;
        }
    }
    kept.flush()?;
    drop(kept);
    let after = fs::metadata(&temporary)?.len();
    fs::rename(&temporary, path)?;
    Ok(before.saturating_sub(after))
}
