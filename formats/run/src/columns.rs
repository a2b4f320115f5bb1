//! msprobe's two file layouts: the file of a record, its name and its header.

use trainmon_core::config::{Config, Dialect};
use trainmon_core::{CallsColumn, Kind, Statistic, Step, micro_step_column};

use crate::kinds::prefix_of;
use crate::names::TableName;

/// The columns that are not numbers; `steps.csv` also has the step column.
pub(crate) mod named {
    pub(crate) const VPP_STAGE: &str = "vpp_stage";
    pub(crate) const NAME: &str = "name";
    pub(crate) const MODULE_NAME: &str = "module_name";
    pub(crate) const SCOPE: &str = "scope";
    /// The step column, which every file has.
    pub const STEP: &str = "step";
    pub(crate) const MICRO_STEP: &str = "micro_step";
    pub(crate) const SHAPE: &str = "shape";
    pub(crate) const DTYPE: &str = "dtype";
}

/// The columns of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columns {
    /// Whether a `micro_step` column precedes the statistics.
    pub micro_step: bool,
    /// The statistics, in the configured order.
    pub ops: Vec<Statistic>,
    /// Whether a `shape` column follows (V1).
    pub shape: bool,
    /// Whether a `dtype` column follows (V1, and collective operations).
    pub dtype: bool,
    /// The columns of plain numbers that replace the statistics (`update_ratio`); empty for tensors.
    pub values: &'static [&'static str],
    /// The columns that summarize all calls of a row; empty where a row is one record.
    pub calls: &'static [CallsColumn],
}

/// A group of kinds that share a file: V1 has one per kind, V2 one per monitor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileClass {
    /// The prefix of the file name.
    pub prefix: &'static str,
    /// The columns of the file.
    pub columns: Columns,
}

/// The file of a kind's records; `None` if the config does not measure the kind.
pub fn file_class(config: &Config, kind: Kind) -> Option<FileClass> {
    if !config.measures(kind) {
        return None;
    }
    let values = kind.value_columns();
    let is_v1_tensor = config.dialect == Dialect::V1 && values.is_empty();
    let columns = Columns {
        micro_step: micro_step_column(config, kind),
        ops: config.signal(kind).filter(|_| values.is_empty()).map(|signal| signal.ops.clone()).unwrap_or_default(),
        shape: is_v1_tensor,
        dtype: is_v1_tensor || kind == Kind::CommTime,
        values,
        calls: if kind == Kind::CommTime { &CallsColumn::ALL } else { &[] },
    };
    Some(FileClass { prefix: prefix_of(config.dialect, kind), columns })
}

impl FileClass {
    /// The header line, with its newline.
    pub fn header(&self, dialect: Dialect) -> Vec<u8> {
        let mut names: Vec<&str> = match dialect {
            Dialect::V1 => vec![named::VPP_STAGE, named::NAME, named::STEP],
            Dialect::V2 => vec![named::VPP_STAGE, named::STEP, named::MODULE_NAME, named::SCOPE],
        };
        if self.columns.micro_step {
            names.push(named::MICRO_STEP);
        }
        names.extend(self.columns.values);
        names.extend(self.columns.calls.iter().map(|column| column.name()));
        names.extend(self.columns.ops.iter().map(|op| op.name()));
        names.extend(self.columns.shape.then_some(named::SHAPE));
        names.extend(self.columns.dtype.then_some(named::DTYPE));
        let mut line = names.join(",").into_bytes();
        line.push(b'\n');
        line
    }

    /// The name of the file that holds `step`.
    pub fn file_name(&self, config: &Config, step: Step, per_file: u64) -> String {
        let first = first_step(config, step, per_file);
        let last = first + per_file.max(1) - 1;
        TableName { prefix: self.prefix, dialect: config.dialect, first, last, set_aside: None }.to_string()
    }
}

/// The first step of the files that hold `step`: V1 counts in absolute multiples of `per_file`, V2 from its start step.
pub fn first_step(config: &Config, step: Step, per_file: u64) -> u64 {
    let per_file = per_file.max(1);
    let origin = match config.dialect {
        Dialect::V1 => 0,
        Dialect::V2 => config.window.start_step.min(step.0),
    };
    origin + (step.0 - origin) / per_file * per_file
}
