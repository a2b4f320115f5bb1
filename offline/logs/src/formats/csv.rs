//! Tables: cells separated by comma, semicolon or tab, with names in the first row.

use csv::{ByteRecord, Reader, ReaderBuilder};

use crate::raw::{RawLog, RawRow, number};
use trainmon_report::counted;

/// The share of numeric cells from which on a column counts as numeric.
const SHARE_OF_NUMBERS: f64 = 0.5;

/// Reads a table; `None` for text without a numeric column.
pub(crate) fn read(text: &[u8]) -> Option<RawLog> {
    let first = text.split(|byte| *byte == b'\n').find(|line| !line.trim_ascii().is_empty())?;
    let count = |delimiter: u8| first.split(|byte| *byte == delimiter).count();
    let delimiter = [b',', b'\t', b';'].into_iter().max_by_key(|delimiter| (count(*delimiter), *delimiter == b','))?;
    let mut reader = ReaderBuilder::new().delimiter(delimiter).flexible(true).has_headers(false).from_reader(text);
    let (mut raw, mut record) = (RawLog::default(), ByteRecord::new());
    let columns = header(&mut reader, &mut record, &mut raw)?;
    let (mut short, mut row_number) = (ShortRows::default(), 1_u64);
    while reader.read_byte_record(&mut record).ok()? {
        row_number += 1;
        let is_last = reader.position().byte() >= text.len() as u64;
        if record.len() < columns.len() {
            short.note(row_number);
            // The last cell of a truncated row may be an incomplete number.
            if is_last && !text.ends_with(b"\n") {
                short.is_torn = true;
                continue;
            }
        }
        short.longer += u64::from(record.len() > columns.len());
        let mut row = RawRow { place: row_number, ..RawRow::default() };
        for (&column, cell) in columns.iter().zip(record.iter()) {
            let text = String::from_utf8_lossy(cell);
            match text.trim() {
                "" => {}
                "null" | "None" | "NA" => raw.null(column),
                text => raw.text(&mut row, column, text),
            }
        }
        raw.rows.push(row);
    }
    short.say(&mut raw);
    // Prose with commas has no numeric column.
    let counts = raw.counts();
    let is_table = (0..).zip(&counts).any(|(column, &count)| {
        let others = raw.unread.get(&column).map_or(0, |cells| cells.others);
        count > 0 && count as f64 >= SHARE_OF_NUMBERS * (count + others) as f64
    });
    is_table.then_some(raw)
}

/// The names of the columns: the cells of the first row, or their numbers if that row is numeric.
fn header(reader: &mut Reader<&[u8]>, record: &mut ByteRecord, raw: &mut RawLog) -> Option<Vec<u32>> {
    if !reader.read_byte_record(record).ok()? {
        return None;
    }
    let cells: Vec<String> = record.iter().map(|cell| String::from_utf8_lossy(cell).trim().to_owned()).collect();
    let has_names = cells.iter().any(|cell| !cell.is_empty() && number(cell).is_none());
    let names = (1..).zip(cells.iter()).map(|(place, cell): (usize, &String)| match cell.as_str() {
        cell if has_names && !cell.is_empty() => cell.trim_start_matches("# ").to_owned(),
        _ => place.to_string(),
    });
    let columns: Vec<u32> = names.map(|name| raw.column(&name)).collect();
    if !has_names {
        raw.notes.push("no header row: columns are named 1, 2, …; use `--step 1 --loss 2`".to_owned());
        let numbers = columns.iter().zip(&cells).filter_map(|(column, cell)| Some((*column, number(cell)?)));
        let row = RawRow { place: 1, cells: numbers.collect(), ..RawRow::default() };
        raw.rows.push(row);
    }
    Some(columns)
}

/// Rows with fewer or more cells than the header.
#[derive(Debug, Default)]
struct ShortRows {
    shorter: u64,
    first: u64,
    longer: u64,
    is_torn: bool,
}

impl ShortRows {
    fn note(&mut self, row: u64) {
        self.first = if self.shorter == 0 { row } else { self.first };
        self.shorter += 1;
    }

    fn say(&self, raw: &mut RawLog) {
        let shorter = self.shorter - u64::from(self.is_torn);
        if self.is_torn {
            raw.notes.push("ignored the last row, which is truncated".to_owned());
        }
        if shorter > 0 {
            raw.notes.push(format!(
                "{} fewer cells than the header, first row {}",
                counted(shorter, "row has", "rows have"),
                self.first
            ));
        }
        if self.longer > 0 {
            raw.notes.push(format!(
                "{} more cells than the header: ignored these cells",
                counted(self.longer, "row has", "rows have")
            ));
        }
    }
}
