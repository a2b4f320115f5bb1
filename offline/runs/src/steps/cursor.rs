//! Converts the rows of a run's tables to records.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use trainmon_core::{Kind, MicroStep, Record, Statistic, TensorId, TensorInfo};
use trainmon_run_files::{NumberColumns, ReadRow, RowLayout, RunError, Table, is_optimizer};

/// The names of all tensors, by ID.
#[derive(Debug, Default)]
pub(crate) struct Names {
    pub(super) all: Vec<TensorInfo>,
    by_stage: HashMap<u32, HashMap<Arc<str>, TensorId>>,
}

impl Names {
    fn id(&mut self, vpp_stage: u32, name: &str) -> TensorId {
        let of_stage = self.by_stage.entry(vpp_stage).or_default();
        if let Some(&id) = of_stage.get(name) {
            return id;
        }
        let (name, id): (Arc<str>, _) = (name.into(), TensorId(self.all.len() as u32));
        of_stage.insert(Arc::clone(&name), id);
        self.all.push(TensorInfo { name, vpp_stage });
        id
    }
}

/// The layout of a table.
pub(super) struct Kept {
    /// The number of the first micro-batch in its rows.
    first_micro_step: u32,
    /// The time of the last write, in Unix seconds.
    pub(super) written: f64,
    pub(super) columns: NumberColumns,
    /// The statistics of its columns, which may have changed during the training.
    pub(super) ops: Arc<[Statistic]>,
}

impl Kept {
    pub(super) fn of(table: &Table, layout: &RowLayout) -> Self {
        let columns = NumberColumns::of(layout);
        let ops = columns.ops().into();
        Self { first_micro_step: u32::from(layout.is_v2()), written: table.unix_seconds, columns, ops }
    }
}

/// The record of a row; `None` for an unknown kind.
pub(super) fn take(row: &mut ReadRow<'_, Kept>, names: &mut Names) -> Result<Option<Record>, RunError> {
    let ReadRow { of, kept: Kept { first_micro_step, columns, .. }, .. } = row;
    let (kind, name) = match Kind::from_name(of.kind) {
        Some(kind) => (kind, Cow::Borrowed(of.name)),
        // The state of an unknown optimizer.
        None if is_optimizer(row.prefix) => (Kind::OptimizerState, Cow::Owned(format!("{}.{}", of.name, of.kind))),
        None => {
            let what = format!("`{}`: rows of `{}`, which is not a kind of tensor", row.path.display(), of.kind);
            (row.warn)(format!("{what}: skipped"));
            return Ok(None);
        }
    };
    let reading = columns.reading(kind, of, &row.cells)?;
    let micro_step = MicroStep(of.micro_step.map_or(0, |number| number.saturating_sub(*first_micro_step)));
    Ok(Some(Record { tensor: names.id(of.vpp_stage, &name), kind, micro_step, reading }))
}
