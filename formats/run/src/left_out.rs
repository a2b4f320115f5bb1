//! Rows that are omitted because they repeat other rows: the file that lists their kinds, and the reader that inserts
//! the rows that [`trainmon_core::Repeats`] omitted.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use csv::StringRecord;
use serde_json::{Map, Value};
use trainmon_core::{Kind, LeftOut};

use crate::cursor::{ReadRow, TableFacts};
use crate::error::RunError;

/// The name of the file in a rank's directory.
pub const LEFT_OUT_FILE: &str = "left_out.json";

/// Writes the file into a rank's directory, which is created if necessary.
///
/// # Errors
/// The file cannot be written.
pub fn write_left_out(directory: &Path, left_out: LeftOut) -> io::Result<()> {
    let told: Map<_, _> = left_out.kinds().map(|kind| (kind.name().to_owned(), Value::from(in_words(kind)))).collect();
    fs::create_dir_all(directory)?;
    fs::write(directory.join(LEFT_OUT_FILE), format!("{:#}\n", Value::Object(told)))
}

/// Reads the file in a rank's directory. Without a file, no rows are omitted.
///
/// # Errors
/// The file cannot be read, or is not a JSON object.
pub fn read_left_out(directory: &Path) -> io::Result<LeftOut> {
    match fs::read(directory.join(LEFT_OUT_FILE)) {
        Ok(text) => {
            let told: Map<String, Value> = serde_json::from_slice(&text)?;
            let says = |kind: Kind| told.contains_key(kind.name());
            Ok(LeftOut { gradients: says(Kind::GradUnreduced), parameters: says(Kind::ParamOrigin) })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(LeftOut::default()),
        Err(error) => Err(error),
    }
}

/// A description of the omitted rows of a kind.
fn in_words(kind: Kind) -> &'static str {
    match kind {
        Kind::GradUnreduced => "rows that equal those of grad_reduced in the same step",
        _ => "rows that equal those of param_updated in the step before",
    }
}

/// The key of a row that may be omitted: kind, model chunk and tensor.
type RowKey = (Kind, u32, String);

/// A row that equals one that may be omitted.
struct RepeatedRow<F> {
    /// The key of the row that may be omitted.
    key: RowKey,
    is_empty: bool,
    facts: Arc<TableFacts<F>>,
    cells: StringRecord,
}

/// Inserts the omitted rows while a rank is read.
pub(crate) struct LeftOutRows<F> {
    left_out: LeftOut,
    /// Rows that the step contains after all, or that are marked as absent.
    present: HashSet<RowKey>,
    /// The rows of this step that omitted rows repeat.
    repeated: Vec<RepeatedRow<F>>,
    /// The updated parameters of the previous step.
    updated: HashMap<RowKey, RepeatedRow<F>>,
    of_step: Option<u64>,
}

impl<F> LeftOutRows<F> {
    pub(crate) fn new(left_out: LeftOut) -> Self {
        Self { left_out, present: HashSet::new(), repeated: Vec::new(), updated: HashMap::new(), of_step: None }
    }

    /// Whether reading a step requires the rows of the previous step.
    pub(crate) fn looks_back(&self) -> bool {
        self.left_out.parameters
    }

    /// Examines a row of the step; returns whether it only marks an absent row.
    pub(crate) fn takes(&mut self, row: &ReadRow<'_, F>) -> bool {
        let Some(kind) = Kind::from_name(row.of.kind) else { return false };
        let key = |kind| (kind, row.of.vpp_stage, row.of.name.to_owned());
        if self.left_out.has(kind) {
            self.present.insert(key(kind));
            return row.of.is_empty;
        }
        if let Some(left_out) = self.left_out.kinds().find(|left_out| LeftOut::twin_of(*left_out) == Some(kind)) {
            let (is_empty, facts, cells) = (row.of.is_empty, Arc::clone(row.facts), row.cells.cells.clone());
            self.repeated.push(RepeatedRow { key: key(left_out), is_empty, facts, cells });
        }
        false
    }

    /// Passes on the omitted rows of the step, after all its other rows.
    pub(crate) fn hand_out(
        &mut self,
        step: u64,
        warn: &mut dyn FnMut(String),
        read: &mut impl FnMut(&mut ReadRow<'_, F>) -> Result<(), RunError>,
    ) -> Result<(), RunError> {
        let follows = self.of_step.is_some_and(|before| before.checked_add(1) == Some(step));
        for repeated in self.repeated.iter().filter(|repeated| !self.present.contains(&repeated.key)) {
            let source = match repeated.key {
                // Only for a parameter that is measured in this step, too.
                (Kind::ParamOrigin, ..) => self.updated.get(&repeated.key).filter(|_| follows),
                _ => Some(repeated),
            };
            if let Some(RepeatedRow { key: (kind, ..), facts, cells, .. }) =
                source.filter(|repeated| !repeated.is_empty)
            {
                facts.hand_out(cells, Some(kind.name()), warn, read)?;
            }
        }
        let updated = self.repeated.drain(..).filter(|repeated| repeated.key.0 == Kind::ParamOrigin);
        self.updated = updated.map(|repeated| (repeated.key.clone(), repeated)).collect();
        self.of_step = Some(step);
        self.present.clear();
        Ok(())
    }
}
