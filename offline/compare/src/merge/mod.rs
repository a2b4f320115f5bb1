//! Merges the tables of several ranks: for each requested column, a table with a row per value and a column per rank.

mod error;
mod read;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::Deserialize;

pub use error::MergeError;
pub use write::Format;
use write::Merged;

use read::{Cell, RankTable};

/// The choice of values and columns, as in msprobe's configuration file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Choice {
    /// Prefixes of names of values; by default, all values.
    #[serde(default)]
    pub api: Vec<String>,
    /// The columns; by default, those of [`COLUMNS`] that the tables have.
    #[serde(default)]
    pub compare_index: Vec<String>,
}

impl Choice {
    /// Reads the file.
    ///
    /// # Errors
    /// It cannot be read, or is invalid.
    pub fn read(path: &Path) -> Result<Self, MergeError> {
        let text = std::fs::read_to_string(path).map_err(|source| MergeError::read(path, source))?;
        serde_saphyr::from_str(&text)
            .map_err(|source| MergeError::Choice { path: path.to_path_buf(), source: Box::new(source) })
    }
}

/// The columns that are merged by default.
pub const COLUMNS: [&str; 8] =
    ["Result", "Deviation", "Max diff", "L2norm diff", "NormRelativeErr", "Cosine", "MaxAbsErr", "MaxRelativeErr"];

/// Cells without a number: the two maxima, which may show the reason, replace them.
const NO_NUMBERS: [&str; 3] = ["N/A", "unsupported", "Nan"];

/// Merges the tables `compare_result_rank*.csv` and `.xlsx` of `input` into `output`, and returns the files.
///
/// # Errors
/// See [`MergeError`]. No files are left in `output` then.
pub fn merge(input: &Path, output: &Path, choice: &Choice, formats: &[Format]) -> Result<Vec<PathBuf>, MergeError> {
    let ranks = read::ranks(input)?;
    let columns = columns(&ranks, choice, input)?;
    let ranks_numbers: Vec<u64> = ranks.iter().map(|table| table.rank).collect();
    let merged: Result<Vec<Merged>, MergeError> =
        columns.into_iter().map(|column| merged(&ranks, column, choice)).collect();
    write::write(output, &ranks_numbers, &merged?, formats)
}

fn columns(ranks: &[RankTable], choice: &Choice, input: &Path) -> Result<Vec<String>, MergeError> {
    let has = |name: &str| ranks.iter().all(|table| table.column(name).is_some());
    if choice.compare_index.is_empty() {
        return Ok(COLUMNS.into_iter().filter(|name| has(name)).map(str::to_owned).collect());
    }
    let missing = |name: &String| {
        let table = ranks.iter().find(|table| table.column(name).is_none())?;
        let (path, column) = (table.path.clone(), name.clone());
        Some(MergeError::NoSuchColumn { path, column, columns: table.headers.join(", ") })
    };
    match choice.compare_index.iter().find_map(missing) {
        Some(error) => Err(error),
        None if ranks.is_empty() => Err(MergeError::NoTables { path: input.to_path_buf() }),
        None => {
            let mut seen = BTreeSet::new();
            Ok(choice.compare_index.iter().filter(|name| seen.insert(name.as_str())).cloned().collect())
        }
    }
}

fn merged(ranks: &[RankTable], column: String, choice: &Choice) -> Result<Merged, MergeError> {
    let mut rows: BTreeMap<String, Vec<Option<Cell>>> = BTreeMap::new();
    for (at, table) in ranks.iter().enumerate() {
        let (names, values) = (table.required("NPU Name")?, table.required(&column)?);
        let golden_names = table.column("Bench Name");
        let maxima = table.column("NPU max").zip(table.column("Bench max"));
        for row in &table.rows {
            let cell = |index: usize| row.get(index).cloned().unwrap_or_default();
            // A value of the baseline only has the baseline's name.
            let name = match cell(names).text() {
                "N/A" => golden_names.map_or_else(String::new, |index| cell(index).text().to_owned()),
                name => name.to_owned(),
            };
            if !choice.api.is_empty() && !choice.api.iter().any(|prefix| name.starts_with(prefix)) {
                continue;
            }
            let value = match (cell(values), maxima) {
                (Cell::Text(text), Some((target, golden))) if NO_NUMBERS.contains(&&*text) => {
                    Cell::Text(format!("NPU:{}  Bench:{}", cell(target).text(), cell(golden).text()).into())
                }
                (value, _) => value,
            };
            rows.entry(name).or_insert_with(|| vec![None; ranks.len()])[at] = Some(value);
        }
    }
    Ok(Merged { column, rows })
}
