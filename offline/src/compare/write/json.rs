//! JSON: a list with an object for each row.

use std::io::{BufWriter, Write};
use std::path::Path;

use serde_json::{Map, Value};
use trainmon_dump::capture::Plain;

use super::{Rows, WriteError};
use crate::compare::compat::Cell;

pub(super) fn write(table: &dyn Rows, path: &Path) -> Result<(), WriteError> {
    let failed = |source| WriteError::Io { path: path.to_path_buf(), source };
    let mut to = BufWriter::new(std::fs::File::create(path).map_err(failed)?);
    let mut write = || -> std::io::Result<()> {
        to.write_all(b"[")?;
        for index in 0..table.count() {
            to.write_all(if index == 0 { b"\n " } else { b",\n " })?;
            let mut row = Map::with_capacity(table.headers().len());
            let mut headers = table.headers().iter();
            table
                .visit(index, &mut |cell| row.extend(headers.next().map(|header| ((*header).to_owned(), value(cell)))));
            serde_json::to_writer(&mut to, &row)?;
        }
        to.write_all(b"\n]\n")?;
        to.flush()
    };
    write().map_err(failed)
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
