//! The meaning of rows in a monitor's tables, in either layout.

use trainmon_core::is_number_column;

use crate::columns::named;
use crate::error::RunError;
use crate::kinds::{MIXED_PREFIX, kind_of_row, name_of_row};
use crate::table::{Row, Table};

/// The columns of a table.
pub struct RowLayout {
    vpp_stage: usize,
    step: usize,
    name: usize,
    /// V2: the column with a row's kind.
    scope: Option<usize>,
    micro_step: Option<usize>,
    shape: Option<usize>,
    dtype: Option<usize>,
    /// Columns of numbers, with their names.
    pub values: Vec<(usize, String)>,
}

/// The name columns of a row; its numbers are in the columns [`RowLayout::values`].
#[derive(Clone, Copy, Debug)]
pub struct MonitorRow<'a> {
    /// The step.
    pub step: u64,
    /// The model chunk.
    pub vpp_stage: u32,
    /// The kind: the prefix of its V1 file.
    pub kind: &'a str,
    /// The tensor.
    pub name: &'a str,
    /// The micro-batch as the file counts it: from 0 in V1, from 1 in V2.
    pub micro_step: Option<u32>,
    /// Whether it is V1's row for a hook without a tensor.
    pub is_empty: bool,
    /// The shape as in the file: `[3, 4]`.
    pub shape: Option<&'a str>,
    /// The dtype as in the file: `torch.float32`.
    pub dtype: Option<&'a str>,
}

impl RowLayout {
    /// Finds the columns.
    ///
    /// # Errors
    /// A column that every table has is missing.
    pub fn of(table: &Table) -> Result<Self, RunError> {
        let is_v2 = table.place_of(named::MODULE_NAME).is_some();
        let (vpp_stage, step) = (table.place(named::VPP_STAGE)?, table.place(named::STEP)?);
        let name = table.place(if is_v2 { named::MODULE_NAME } else { named::NAME })?;
        let scope = if is_v2 { Some(table.place(named::SCOPE)?) } else { None };
        let [micro_step, shape, dtype] =
            [named::MICRO_STEP, named::SHAPE, named::DTYPE].map(|column| table.place_of(column));
        let others = [Some(vpp_stage), Some(step), Some(name), scope, micro_step, shape, dtype];
        let is_value = |(place, column): &(usize, &str)| !others.contains(&Some(*place)) && is_number_column(column);
        let values = table.header().iter().enumerate().filter(is_value);
        let values = values.map(|(place, column)| (place, column.to_owned())).collect();
        Ok(Self { vpp_stage, step, name, scope, micro_step, shape, dtype, values })
    }

    /// Whether it is msprobe's V2 layout.
    pub fn is_v2(&self) -> bool {
        self.scope.is_some()
    }

    /// Whether rows contain the shape of their tensor.
    pub fn has_shape(&self) -> bool {
        self.shape.is_some()
    }

    /// Reads the name columns of a row of a table with this prefix. `None` for a row of msprobe's collectives, whose
    /// columns differ from the header.
    ///
    /// # Errors
    /// The row is longer or shorter than the header, or a cell does not fit its column.
    pub fn read<'a>(&self, prefix: &'a str, row: &Row<'a>) -> Result<Option<MonitorRow<'a>>, RunError> {
        match self.meaning(prefix, row) {
            Ok(found) => Ok(Some(found)),
            Err(error) if prefix == MIXED_PREFIX && is_of_collective(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn meaning<'a>(&self, prefix: &'a str, row: &Row<'a>) -> Result<MonitorRow<'a>, RunError> {
        row.check_length()?;
        let step = row.integer(self.step)?;
        // V2 writes -1 for a model that is not split into chunks, and an empty cell for collectives.
        let vpp_stage = match row.text(self.vpp_stage) {
            "" | "-1" => 0,
            _ => row.integer(self.vpp_stage)?,
        };
        let scope = self.scope.map(|place| row.text(place));
        let name = name_of_row(prefix, row.text(self.name), scope);
        let micro_step = self.micro_step.map(|place| row.integer(place)).transpose()?;
        let (shape, dtype) = (self.shape.map(|place| row.text(place)), self.dtype.map(|place| row.text(place)));
        let kind = kind_of_row(prefix, scope);
        Ok(MonitorRow { step, vpp_stage, kind, name, micro_step, is_empty: dtype == Some("nan"), shape, dtype })
    }
}

/// Whether a row has the form of msprobe's rows of collectives: too long, with the operation in its first cell.
fn is_of_collective(error: &RunError) -> bool {
    match error {
        RunError::RowLength { .. } => true,
        RunError::Cell { column, .. } => column == named::VPP_STAGE,
        _ => false,
    }
}
