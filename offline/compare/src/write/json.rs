//! JSON: a list with an object for each row.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use trainmon_capture_files::Plain;

use super::pieces::{Channel, Sink, TableSource};
use super::rows::{Rows, WriteError};
use crate::compat::Cell;

pub(super) fn channel<'s>(source: &TableSource<'_>, path: &Path) -> Result<Channel<'s>, WriteError> {
    let headers = source.headers.clone();
    let render = move |rows: &dyn Rows, first: usize, to: &mut Vec<u8>| {
        for index in 0..rows.count() {
            to.extend_from_slice(if first + index == 0 { b"\n " } else { b",\n " });
            let mut row = Map::with_capacity(headers.len());
            let mut headers = headers.iter();
            rows.visit(index, &mut |cell| row.extend(headers.next().map(|header| ((*header).to_owned(), value(cell)))));
            // Writing into memory cannot fail.
            _ = serde_json::to_writer(&mut *to, &row);
        }
    };
    let made = File::create(path).map(BufWriter::new).and_then(|mut file| file.write_all(b"[").map(|()| file));
    let file = made.map_err(|source| WriteError::Io { path: path.to_path_buf(), source })?;
    Ok((Box::new(render), Box::new(JsonFile { path: path.to_path_buf(), file })))
}

struct JsonFile {
    path: PathBuf,
    file: BufWriter<File>,
}

impl JsonFile {
    fn failed(&self, source: io::Error) -> WriteError {
        WriteError::Io { path: self.path.clone(), source }
    }
}

impl Sink for JsonFile {
    fn take(&mut self, _: &dyn Rows, _: usize, rendered: &[u8]) -> Result<(), WriteError> {
        self.file.write_all(rendered).map_err(|source| self.failed(source))
    }

    fn finish(mut self: Box<Self>) -> Result<(), WriteError> {
        self.file.write_all(b"\n]\n").and_then(|()| self.file.flush()).map_err(|source| self.failed(source))
    }
}

/// Numbers stay numbers; NaN and the infinities, which JSON lacks, are texts.
fn value(cell: &Cell) -> Value {
    match cell {
        Cell::Number(Plain::Int(value)) => Value::from(*value),
        Cell::Number(Plain::Float(number)) if number.is_finite() => Value::from(*number),
        Cell::Bool(value) => Value::from(*value),
        Cell::Texts(texts) => texts.texts().iter().map(|text| Value::from(&**text)).collect(),
        other => Value::from(other.text()),
    }
}
