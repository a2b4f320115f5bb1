//! CSV with a million rows per file: the limit of spreadsheet programs.

use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use trainmon_core::cell_of;

use super::pieces::{Channel, Sink, TableSource};
use super::rows::{Rows, WriteError};

const ROWS: usize = 1_000_000;

pub(super) fn channel<'s>(
    source: &'s TableSource<'_>,
    directory: &Path,
    stem: &str,
) -> Result<(Channel<'s>, Vec<PathBuf>), WriteError> {
    let parts = source.count().div_ceil(ROWS).max(1);
    let name = |part: usize| if parts == 1 { format!("{stem}.csv") } else { format!("{stem}_part_{part}.csv") };
    let paths: Vec<PathBuf> = (0..parts).map(|part| directory.join(name(part))).collect();
    let file = begin(&paths[0], &source.headers)?;
    let render = |rows: &dyn Rows, _: usize, to: &mut Vec<u8>| render(rows, 0..rows.count(), to);
    let sink = CsvFiles { headers: &source.headers, paths: paths.clone(), part: 0, file };
    Ok(((Box::new(render), Box::new(sink)), paths))
}

/// A file with its header.
fn begin(path: &Path, headers: &[&'static str]) -> Result<File, WriteError> {
    let make = || -> io::Result<File> {
        let mut file = File::create(path)?;
        let mut head = csv::Writer::from_writer(Vec::new());
        head.write_record(headers)?;
        file.write_all(&head.into_inner().map_err(csv::IntoInnerError::into_error)?)?;
        Ok(file)
    };
    make().map_err(|source| WriteError::Io { path: path.to_path_buf(), source })
}

struct CsvFiles<'s> {
    headers: &'s [&'static str],
    paths: Vec<PathBuf>,
    part: usize,
    file: File,
}

impl CsvFiles<'_> {
    fn put(&mut self, rendered: &[u8]) -> Result<(), WriteError> {
        self.file.write_all(rendered).map_err(|source| WriteError::Io { path: self.paths[self.part].clone(), source })
    }
}

impl Sink for CsvFiles<'_> {
    fn take(&mut self, rows: &dyn Rows, first: usize, rendered: &[u8]) -> Result<(), WriteError> {
        let end = (self.part + 1) * ROWS;
        if first + rows.count() <= end {
            return self.put(rendered);
        }
        // A file ends within the piece.
        let kept = end - first;
        let mut part = Vec::new();
        render(rows, 0..kept, &mut part);
        self.put(&part)?;
        self.part += 1;
        self.file = begin(&self.paths[self.part], self.headers)?;
        part.clear();
        render(rows, kept..rows.count(), &mut part);
        self.put(&part)
    }
}

/// Renders rows as lines. Writing into memory cannot fail.
fn render(rows: &dyn Rows, which: Range<usize>, to: &mut Vec<u8>) {
    let mut writer = csv::Writer::from_writer(to);
    let mut room = String::new();
    for row in which {
        rows.visit(row, &mut |cell| {
            _ = cell.with_csv(&mut room, |text| writer.write_field(cell_of(text).as_bytes()));
        });
        _ = writer.write_record(None::<&[u8]>);
    }
    _ = writer.flush();
}
