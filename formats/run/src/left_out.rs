//! Rows that are left out since others say the same: the file that tells readers, and people, which, and the rows put in
//! again as [`trainmon_core::Repeats`] left them out.

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

/// Its name, in a rank's directory.
pub const LEFT_OUT_FILE: &str = "left_out.json";

/// Writes the file into a rank's directory, which is made if it is not there.
///
/// # Errors
/// The file cannot be written.
pub fn write_left_out(directory: &Path, left_out: LeftOut) -> io::Result<()> {
    let told: Map<_, _> = left_out.kinds().map(|kind| (kind.name().to_owned(), Value::from(in_words(kind)))).collect();
    fs::create_dir_all(directory)?;
    fs::write(directory.join(LEFT_OUT_FILE), format!("{:#}\n", Value::Object(told)))
}

/// What the file says in a rank's directory; nothing is left out where there is none.
///
/// # Errors
/// The file cannot be read, or is no object.
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

/// Which rows of a kind are left out.
fn in_words(kind: Kind) -> &'static str {
    match kind {
        Kind::GradUnreduced => "rows that equal those of grad_reduced in the same step",
        _ => "rows that equal those of param_updated in the step before",
    }
}

/// A row that may be left out: kind, model chunk and tensor.
type RowKey = (Kind, u32, String);

/// A row that says the same as one that may be left out.
struct Twin<F> {
    /// Of the one that may be left out.
    key: RowKey,
    is_empty: bool,
    facts: Arc<TableFacts<F>>,
    cells: StringRecord,
}

/// What the rows of a rank are read with.
pub(crate) struct LeftOutRows<F> {
    left_out: LeftOut,
    /// The rows that the step has after all, or that it says it has not.
    there: HashSet<RowKey>,
    /// Of the step.
    twins: Vec<Twin<F>>,
    /// What the parameters became in the step read last.
    updated: HashMap<RowKey, Twin<F>>,
    of_step: Option<u64>,
}

impl<F> LeftOutRows<F> {
    pub(crate) fn new(left_out: LeftOut) -> Self {
        Self { left_out, there: HashSet::new(), twins: Vec::new(), updated: HashMap::new(), of_step: None }
    }

    /// Whether reading a step needs the rows of the step before.
    pub(crate) fn looks_back(&self) -> bool {
        self.left_out.parameters
    }

    /// Looks at a row of the step. Whether it says no more than that there is none.
    pub(crate) fn takes(&mut self, row: &ReadRow<'_, F>) -> bool {
        let Some(kind) = Kind::from_name(row.of.kind) else { return false };
        let key = |kind| (kind, row.of.vpp_stage, row.of.name.to_owned());
        if self.left_out.has(kind) {
            self.there.insert(key(kind));
            return row.of.is_empty;
        }
        if let Some(left_out) = self.left_out.kinds().find(|left_out| LeftOut::twin_of(*left_out) == Some(kind)) {
            let (is_empty, facts, cells) = (row.of.is_empty, Arc::clone(row.facts), row.cells.cells.clone());
            self.twins.push(Twin { key: key(left_out), is_empty, facts, cells });
        }
        false
    }

    /// Hands out what was left out of the step, all of whose rows were looked at.
    pub(crate) fn hand_out(
        &mut self,
        step: u64,
        warn: &mut dyn FnMut(String),
        read: &mut impl FnMut(&mut ReadRow<'_, F>) -> Result<(), RunError>,
    ) -> Result<(), RunError> {
        let follows = self.of_step.is_some_and(|before| before.checked_add(1) == Some(step));
        for twin in self.twins.iter().filter(|twin| !self.there.contains(&twin.key)) {
            let said_by = match twin.key {
                // Of a parameter that is measured in this step, too.
                (Kind::ParamOrigin, ..) => self.updated.get(&twin.key).filter(|_| follows),
                _ => Some(twin),
            };
            if let Some(Twin { key: (kind, ..), facts, cells, .. }) = said_by.filter(|twin| !twin.is_empty) {
                facts.hand_out(cells, Some(kind.name()), warn, read)?;
            }
        }
        let updated = self.twins.drain(..).filter(|twin| twin.key.0 == Kind::ParamOrigin);
        self.updated = updated.map(|twin| (twin.key.clone(), twin)).collect();
        self.of_step = Some(step);
        self.there.clear();
        Ok(())
    }
}
