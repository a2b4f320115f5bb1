//! The common output of the readers of all formats: rows of named numbers, as in the file.

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use crate::columns::is_time;

/// A log whose columns have no roles yet.
#[derive(Debug, Default)]
pub(crate) struct RawLog {
    /// The columns, in the order of their first occurrence.
    pub(crate) names: Vec<String>,
    ids: HashMap<String, u32>,
    /// The row, counted from 1, in which [`Self::point`] last filled each column.
    filled: Vec<usize>,
    pub(crate) rows: Vec<RawRow>,
    /// Cells without a number, by column.
    pub(crate) unread: BTreeMap<u32, UnreadCells>,
    /// Problems, one sentence each.
    pub(crate) notes: Vec<String>,
    /// Remarks that are not problems, one sentence each.
    pub(crate) remarks: Vec<String>,
}

/// One row.
#[derive(Clone, Debug, Default)]
pub(crate) struct RawRow {
    /// The number of the line or record in the file, from 1.
    pub(crate) place: u64,
    /// The step, if the format itself stores one.
    pub(crate) step: Option<i64>,
    /// The time in seconds since 1970, if the format itself stores one.
    pub(crate) time: Option<f64>,
    /// Column indices and numbers.
    pub(crate) cells: Vec<(u32, f64)>,
}

/// The cells of a column that hold no number.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnreadCells {
    /// The number of `null` cells.
    pub(crate) nulls: u64,
    /// The number of other cells.
    pub(crate) others: u64,
    /// The first of the other cells, and its place.
    pub(crate) first: Option<(String, u64)>,
}

/// The number of characters shown of a cell.
const SHOWN: usize = 24;

impl RawLog {
    /// The index of a column, which is added if it is new.
    pub(crate) fn column(&mut self, name: &str) -> u32 {
        if let Some(&id) = self.ids.get(name) {
            return id;
        }
        let id = self.names.len() as u32;
        self.names.push(name.to_owned());
        self.ids.insert(name.to_owned(), id);
        id
    }

    /// The index of an existing column.
    pub(crate) fn find(&self, name: &str) -> Option<u32> {
        self.ids.get(name).copied()
    }

    /// Adds a point of a format that stores a step with each number. Consecutive points of one step share a row.
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

    /// Adds a text cell to a row: a number, or a time in a column of times.
    pub(crate) fn text(&mut self, row: &mut RawRow, column: u32, text: &str) {
        let time = || if is_time(&self.names[column as usize]) { unix_seconds(text) } else { None };
        match number(text).or_else(time) {
            Some(value) => row.cells.push((column, value)),
            None => self.unread(column, text, row.place),
        }
    }

    /// Counts a cell that holds no number.
    pub(crate) fn unread(&mut self, column: u32, text: &str, place: u64) {
        let cells = self.unread.entry(column).or_default();
        cells.others += 1;
        cells.first.get_or_insert_with(|| (text.chars().take(SHOWN).collect(), place));
    }

    /// Counts a `null` cell.
    pub(crate) fn null(&mut self, column: u32) {
        self.unread.entry(column).or_default().nulls += 1;
    }

    /// The number of values in each column.
    pub(crate) fn counts(&self) -> Vec<u64> {
        let mut counts = vec![0; self.names.len()];
        for (column, _) in self.rows.iter().flat_map(|row| &row.cells) {
            counts[*column as usize] += 1;
        }
        counts
    }
}

/// Parses a number as loggers print it: decimal, or a spelling of NaN or infinity.
pub(crate) fn number(text: &str) -> Option<f64> {
    let text = text.trim();
    // Rust parses `nan`, `inf` and `infinity` in any case, with a sign.
    text.parse().ok()
}

/// Parses a time such as `2026-11-20T16:05:09Z` as seconds since 1970; without a zone, as UTC.
pub(crate) fn unix_seconds(text: &str) -> Option<f64> {
    let text = text.trim();
    let civil = || TimeZone::UTC.to_timestamp(text.parse::<DateTime>().ok()?).ok();
    let time = text.parse::<Timestamp>().ok().or_else(civil)?;
    Some(time.as_duration().as_secs_f64())
}
