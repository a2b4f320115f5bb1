//! Where the reading of the files of one prefix stands.

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use csv::StringRecord;
use trainmon_core::{Kind, MicroStep, Record, TensorId, TensorInfo};

use super::columns::NumberColumns;
use crate::run::{RowLayout, RunError, Table};

/// The names of all tensors, by their ids.
#[derive(Debug, Default)]
pub(super) struct Names {
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

/// Reads the files of one prefix, row by row.
pub(super) struct Cursor {
    prefix: String,
    /// Rows count micro-batches from this number on.
    first_micro_step: u32,
    paths: VecDeque<PathBuf>,
    open: Option<OpenTable>,
    /// The last row read, not yet handed out, and its step.
    cells: StringRecord,
    pending: Option<u64>,
    /// The last step handed out: one that comes again was trained twice.
    pub(super) last: Option<u64>,
    /// First and last of the steps that came again in the open file.
    again: Option<(u64, u64)>,
    /// Bytes of the files before.
    passed: u64,
    /// When the last file read was last written, in Unix seconds.
    pub(super) written: f64,
}

struct OpenTable {
    path: PathBuf,
    table: Table,
    layout: RowLayout,
    columns: NumberColumns,
}

impl Cursor {
    pub(super) fn new(prefix: &str, paths: &[PathBuf]) -> Self {
        Self {
            prefix: prefix.to_owned(),
            first_micro_step: 0,
            paths: paths.iter().cloned().collect(),
            open: None,
            cells: StringRecord::new(),
            pending: None,
            last: None,
            again: None,
            passed: 0,
            written: 0.0,
        }
    }

    /// Opens the first file that has a header. Gives its columns.
    pub(super) fn begin(&mut self, warnings: &mut Vec<String>) -> Result<Option<&NumberColumns>, RunError> {
        while self.open.is_none() && self.open_next(warnings)? {}
        Ok(self.open.as_ref().map(|open| &open.columns))
    }

    /// The step of the row that comes next.
    pub(super) fn peek(&mut self, warnings: &mut Vec<String>) -> Result<Option<u64>, RunError> {
        while self.pending.is_none() {
            let Some(open) = &mut self.open else {
                if !self.open_next(warnings)? {
                    return Ok(None);
                }
                continue;
            };
            let Some(row) = open.table.next(&mut self.cells)? else {
                self.passed += open.table.bytes_read();
                if let Some(range) = self.again.take() {
                    warnings.push(came_again(&open.path, range));
                }
                self.open = None;
                continue;
            };
            let Some(of) = open.layout.read(&self.prefix, &row)? else {
                let rows = "rows of collectives that msprobe writes with other columns are left out";
                warn_once(warnings, format!("`{}`: {rows}", open.path.display()));
                continue;
            };
            if self.last.is_some_and(|last| of.step <= last) {
                let (first, last) = self.again.unwrap_or((of.step, of.step));
                self.again = Some((first.min(of.step), last.max(of.step)));
                continue;
            }
            self.pending = Some(of.step);
        }
        Ok(self.pending)
    }

    fn open_next(&mut self, warnings: &mut Vec<String>) -> Result<bool, RunError> {
        let Some(path) = self.paths.pop_front() else { return Ok(false) };
        let Some(table) = Table::open(&path)? else {
            warnings.push(format!("`{}` has no header: left out", path.display()));
            return Ok(true);
        };
        if let Some(line) = table.torn_line {
            warnings.push(format!("`{}` line {line}: torn off at the file's end: left out", path.display()));
        }
        let layout = RowLayout::of(&table)?;
        self.first_micro_step = u32::from(layout.is_v2());
        self.written = table.unix_seconds;
        let columns = NumberColumns::of(&layout);
        self.open = Some(OpenTable { path, table, layout, columns });
        Ok(true)
    }

    /// Hands out the row that [`Self::peek`] found. `None` for one of a kind that trainmon does not know.
    pub(super) fn take(&mut self, names: &mut Names, warnings: &mut Vec<String>) -> Result<Option<Record>, RunError> {
        self.pending = None;
        let Some(open) = &self.open else { return Ok(None) };
        let row = open.table.row(&self.cells);
        let Some(of) = open.layout.read(&self.prefix, &row)? else { return Ok(None) };
        let (kind, name) = match Kind::from_name(of.kind) {
            Some(kind) => (kind, of.name.to_owned()),
            // The state of an optimizer that nobody knows by name.
            None if self.prefix == "optimizer" => (Kind::OptimizerState, format!("{}.{}", of.name, of.kind)),
            None => {
                let what = format!("`{}`: rows of `{}`, which is no kind of tensor", open.path.display(), of.kind);
                warn_once(warnings, format!("{what}: left out"));
                return Ok(None);
            }
        };
        let reading = open.columns.reading(kind, &of, &row)?;
        let micro_step = MicroStep(of.micro_step.unwrap_or(0).saturating_sub(match of.micro_step {
            Some(_) => self.first_micro_step,
            None => 0,
        }));
        Ok(Some(Record { tensor: names.id(of.vpp_stage, &name), kind, micro_step, reading }))
    }

    /// Bytes read so far.
    pub(super) fn bytes_read(&self) -> u64 {
        self.passed + self.open.as_ref().map_or(0, |open| open.table.bytes_read())
    }
}

/// What is said of steps that were trained twice.
pub(super) fn came_again(path: &Path, (first, last): (u64, u64)) -> String {
    let steps = if first == last { format!("step {first} comes") } else { format!("steps {first} to {last} come") };
    format!("`{}`: {steps} again: what came first is read", path.display())
}

fn warn_once(warnings: &mut Vec<String>, warning: String) {
    if !warnings.contains(&warning) {
        warnings.push(warning);
    }
}
