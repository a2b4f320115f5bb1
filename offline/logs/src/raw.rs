//! What the readers of all formats give: rows of named numbers, as they stand in the file.

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use crate::columns::is_time;

/// A log before anybody knows which column is what.
#[derive(Debug, Default)]
pub(crate) struct RawLog {
    /// The columns, in the order in which they first came.
    pub(crate) names: Vec<String>,
    ids: HashMap<String, u32>,
    /// The row, counted from 1, in which each column was filled last by [`Self::point`].
    filled: Vec<usize>,
    pub(crate) rows: Vec<RawRow>,
    /// Cells that hold no number, by column.
    pub(crate) unread: BTreeMap<u32, UnreadCells>,
    /// What is not as it should be, a sentence each.
    pub(crate) notes: Vec<String>,
    /// What is worth knowing and no fault, a sentence each.
    pub(crate) remarks: Vec<String>,
}

/// One row.
#[derive(Clone, Debug, Default)]
pub(crate) struct RawRow {
    /// Its number in the file, from 1: a line, a record.
    pub(crate) place: u64,
    /// Its step, where the format itself has one.
    pub(crate) step: Option<i64>,
    /// When it was written, in seconds since 1970, where the format itself tells.
    pub(crate) time: Option<f64>,
    /// Columns and numbers.
    pub(crate) cells: Vec<(u32, f64)>,
}

/// Cells of a column that hold no number.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnreadCells {
    /// How many hold `null`.
    pub(crate) nulls: u64,
    /// How many hold something else.
    pub(crate) others: u64,
    /// The first of those, and its place.
    pub(crate) first: Option<(String, u64)>,
}

/// Characters of a cell that are shown.
const SHOWN: usize = 24;

impl RawLog {
    /// The number of a column, by its name.
    pub(crate) fn column(&mut self, name: &str) -> u32 {
        if let Some(&id) = self.ids.get(name) {
            return id;
        }
        let id = self.names.len() as u32;
        self.names.push(name.to_owned());
        self.ids.insert(name.to_owned(), id);
        id
    }

    /// The number of a column that is there.
    pub(crate) fn find(&self, name: &str) -> Option<u32> {
        self.ids.get(name).copied()
    }

    /// Adds a point of a format that keeps a step with each number. Points of one step that follow each other share a row.
    pub(crate) fn point(&mut self, place: u64, step: i64, time: f64, (name, value): (&str, f64)) {
        let column = self.column(name);
        self.filled.resize(self.names.len(), 0);
        let last = self.rows.len();
        let filled = std::mem::replace(&mut self.filled[column as usize], last);
        if let Some(row) = self.rows.last_mut().filter(|row| row.step == Some(step) && filled != last) {
            row.cells.push((column, value));
            return;
        }
        self.filled[column as usize] = last + 1;
        self.rows.push(RawRow { place, step: Some(step), time: Some(time), cells: vec![(column, value)] });
    }

    /// Adds a cell of text to a row: a number, or a time in a column of times.
    pub(crate) fn text(&mut self, row: &mut RawRow, column: u32, text: &str) {
        let time = || if is_time(&self.names[column as usize]) { unix_seconds(text) } else { None };
        match number(text).or_else(time) {
            Some(value) => row.cells.push((column, value)),
            None => self.unread(column, text, row.place),
        }
    }

    /// Notes a cell that holds no number.
    pub(crate) fn unread(&mut self, column: u32, text: &str, place: u64) {
        let cells = self.unread.entry(column).or_default();
        cells.others += 1;
        cells.first.get_or_insert_with(|| (text.chars().take(SHOWN).collect(), place));
    }

    /// Notes a cell that holds `null`.
    pub(crate) fn null(&mut self, column: u32) {
        self.unread.entry(column).or_default().nulls += 1;
    }

    /// How many numbers each column has.
    pub(crate) fn counts(&self) -> Vec<u64> {
        let mut counts = vec![0; self.names.len()];
        for (column, _) in self.rows.iter().flat_map(|row| &row.cells) {
            counts[*column as usize] += 1;
        }
        counts
    }
}

/// A number as loggers print it: decimal, or one of the spellings of NaN and infinity.
pub(crate) fn number(text: &str) -> Option<f64> {
    let text = text.trim();
    // Rust reads `nan`, `inf` and `infinity` in any case, with a sign.
    text.parse().ok()
}

/// A time as text, in seconds since 1970: `2026-11-20T16:05:09Z`; without a zone it is taken for UTC.
pub(crate) fn unix_seconds(text: &str) -> Option<f64> {
    let text = text.trim();
    let civil = || TimeZone::UTC.to_timestamp(text.parse::<DateTime>().ok()?).ok();
    let time = text.parse::<Timestamp>().ok().or_else(civil)?;
    Some(time.as_duration().as_secs_f64())
}
