//! msprobe's CSV files. After every step, complete rows are with the operating system.
//!
//! A step's rows of one file are written with one call, so a SIGKILL between steps leaves no partial row. A SIGKILL
//! during the call can cut that file's last row, never an earlier step. A partial write on a full disk is reverted.
//! Rows that cannot be written are counted, and writing is retried with the next step's rows.

mod continued;
mod growth;
mod space_limit;
mod thinning;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use trainmon_core::config::{Config, Csv, Dialect, FileLayout, Plan};
use trainmon_core::{Kind, LeftOut, Record, Repeats, Statistic, Step, StepBatch, StepCalls, TensorInfo};

use trainmon_run_files::{
    FileClass, LineFile, Lines, StepsWriter, Style, TableName, file_class, first_step, write_left_out,
};

use self::continued::run_to_continue;
use self::growth::Growth;
use self::space_limit::SpaceLimit;
use crate::{ExportError, ExportFailure, Exporter, RunInfo};

/// Writes msprobe's CSV layout, V1 or V2 as configured.
pub struct CsvExporter {
    config: Config,
    csv: Csv,
    directory: PathBuf,
    /// One entry per measured kind; several kinds may share a file.
    classes: HashMap<Kind, FileClass>,
    /// The plan of the classes, after a change during the training.
    plan: Option<Arc<Plan>>,
    open: HashMap<&'static str, LineFile>,
    steps: StepsWriter,
    has_chunks: bool,
    growth: Growth,
    steps_per_file: u64,
    space: Option<SpaceLimit>,
    /// The filter for repeated rows, if enabled.
    repeats: Option<Repeats>,
    /// The metadata about filtered rows, until it is written.
    left_out: Option<LeftOut>,
}

impl CsvExporter {
    /// Prepares to append to this rank's newest run directory in `base` that was created within `csv.append_output`.
    /// `None` if that is not set or there is none.
    ///
    /// # Errors
    /// The directories in `base` cannot be listed.
    pub fn continuing(config: &Config, csv: &Csv, base: &Path, run: &RunInfo) -> Result<Option<Self>, ExportError> {
        let Some(window) = csv.append_output else { return Ok(None) };
        let found = run_to_continue(base, run.rank, window)
            .map_err(|source| ExportError::List { path: base.to_path_buf(), source })?;
        Ok(found.map(|directory| Self::in_directory(config, csv, directory)))
    }

    /// Prepares to write into this directory. It is created with the first rows, so this cannot fail.
    pub fn in_directory(config: &Config, csv: &Csv, directory: PathBuf) -> Self {
        Self {
            classes: classes_of(config),
            plan: None,
            config: config.clone(),
            csv: csv.clone(),
            steps: StepsWriter::new(&directory),
            directory,
            open: HashMap::new(),
            has_chunks: false,
            growth: Growth::new(config.window.step_interval),
            steps_per_file: csv.steps_per_file(),
            space: None,
            repeats: None,
            left_out: None,
        }
    }

    /// Omits repeated rows if the config requests it, for a run of this many processes.
    #[must_use]
    pub fn without_repeats(mut self, processes: u32) -> Self {
        let is_asked = !self.csv.repeats_rows && self.config.dialect == Dialect::V1;
        if is_asked && self.csv.layout == Some(FileLayout::Run) {
            let has_each = self.config.signals.weight_grad.as_ref().is_some_and(|grad| grad.every_micro_batch);
            let left_out = LeftOut { gradients: processes == 1 && !has_each, parameters: true };
            self.repeats = Some(Repeats::new(left_out));
            self.left_out = Some(left_out);
        }
        self
    }

    /// Thins out older steps if the files of this many ranks together exceed `csv_budget_mib`.
    #[must_use]
    pub fn within_budget(mut self, ranks: u32) -> Self {
        let limit = self.csv.budget_bytes().map(|bytes| bytes / u64::from(ranks.max(1)));
        self.space = limit.map(|limit| SpaceLimit::new(self.directory.clone(), limit));
        self
    }

    /// Makes space when files are complete. The size of a step is known with the second measured step.
    fn free_space(&mut self, step: Step) {
        let Some(space) = &mut self.space else { return };
        let fewer = self.growth.per_step().map(|bytes| space.steps_per_file(self.steps_per_file, bytes));
        let first = |per_file| first_step(&self.config, step, per_file);
        // From the next boundary on, so that the step range in a file's name stays valid.
        if let Some(fewer) =
            fewer.filter(|fewer| *fewer < self.steps_per_file && first(*fewer) == first(self.steps_per_file))
        {
            self.begin_smaller_files(first(fewer), fewer);
        }
        let first = first_step(&self.config, step, self.steps_per_file);
        if self.space.as_mut().is_some_and(|space| space.look(first)) {
            // An open file would use disk space after a smaller one has replaced it.
            self.open.clear();
        }
    }

    /// Names the files that begin with this step by the reduced number of steps.
    fn begin_smaller_files(&mut self, first: u64, steps: u64) {
        let before = std::mem::replace(&mut self.steps_per_file, steps);
        for file in self.open.values_mut() {
            let holds = |name: &TableName<'_>| (name.first, name.last) == (first, first + before - 1);
            let Some(name) = TableName::of(file.path()).filter(holds) else { continue };
            let path = file.path().with_file_name(TableName { last: first + steps - 1, ..name }.to_string());
            if std::fs::rename(file.path(), &path).is_ok() {
                file.move_to(path);
            }
        }
    }

    /// The directory of this run's files.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Applies a plan from this step on.
    fn set_plan(&mut self, plan: &Arc<Plan>) {
        if self.plan.as_ref().is_none_or(|known| !Arc::ptr_eq(known, plan)) {
            self.plan = Some(Arc::clone(plan));
            self.classes = classes_of(&self.config.with_plan(plan));
        }
    }

    /// Sets the columns from this step on. A file with other columns is set aside when the next row is written.
    fn set_ops(&mut self, ops: &[Statistic]) {
        let of_tensors = self.classes.values_mut().map(|class| &mut class.columns).filter(|c| c.values.is_empty());
        for columns in of_tensors.filter(|columns| columns.ops != ops) {
            columns.ops = ops.to_vec();
        }
    }

    fn write_file(
        &mut self,
        class: &FileClass,
        names: &[TensorInfo],
        batch: &StepBatch,
        rows: &Rows<'_>,
    ) -> Result<(), ExportError> {
        let path = self.directory.join(class.file_name(&self.config, batch.step, self.steps_per_file));
        let style = Style { dialect: self.config.dialect, ndigits: self.csv.ndigits, has_chunks: self.has_chunks };
        let mut lines = Lines::new(style);
        let written = match rows {
            Rows::Records(records) => records
                .iter()
                .try_for_each(|record| lines.push(&class.columns, batch.step, &names[record.tensor.index()], record)),
            Rows::Calls(calls) => calls.iter().try_for_each(|calls| {
                lines.push_calls(&class.columns, batch.step, &names[calls.tensor.index()], calls)
            }),
        };
        let bytes = written
            .and_then(|()| lines.into_bytes())
            .map_err(|error| ExportError::Write { path: path.clone(), source: error.into() })?;
        let header = class.header(self.config.dialect);
        if self.open.get(class.prefix).is_none_or(|file| !file.continues(&path, &header)) {
            self.open.insert(class.prefix, LineFile::open(path, &header)?);
        }
        let Some(file) = self.open.get_mut(class.prefix) else { return Ok(()) };
        let written = file.append(&bytes);
        self.growth.bytes += bytes.len() as u64;
        if written.is_err() || self.steps_per_file == 1 {
            // A file of one step is complete; a failed one is reopened, in case its disk has vanished.
            self.open.remove(class.prefix);
        }
        Ok(written?)
    }
}

impl Exporter for CsvExporter {
    fn name(&self) -> &'static str {
        "csv"
    }

    fn export(&mut self, names: &[TensorInfo], batch: &StepBatch) -> Result<(), ExportFailure> {
        self.has_chunks = self.has_chunks || names.iter().any(|info| info.vpp_stage > 0);
        if let Some(plan) = &batch.plan {
            self.set_plan(plan);
        }
        if let Some(ops) = &batch.ops {
            self.set_ops(ops);
        }
        let mut failure: Option<ExportFailure> = None;
        let mut lost_kind = None;
        if let Some(left_out) = self.left_out.take_if(|_| !batch.records.is_empty())
            && write_left_out(&self.directory, left_out).is_err()
        {
            // Without this note, a reader would take omitted rows for unmeasured ones.
            self.repeats = None;
        }
        let written = self.repeats.as_mut().map(|repeats| repeats.written(batch));
        let records = written.as_deref().unwrap_or(&batch.records);
        let files = records_by_file(self.config.dialect, &self.classes, names, records);
        for (class, rows) in files.into_iter().chain(calls_by_file(&self.classes, &batch.records)) {
            let lost = rows.records();
            let is_of_lost = lost_kind.and_then(LeftOut::twin_of).is_some_and(|twin| twin.name() == class.prefix);
            if let Some(failure) = failure.as_mut().filter(|_| is_of_lost) {
                // Rows that differ from the omitted ones are lost: next to these, they would be taken for equal.
                failure.lost_records += lost;
            } else if let Err(source) = self.write_file(&class, names, batch, &rows) {
                lost_kind = self.repeats.as_ref().and_then(|_| Kind::from_name(class.prefix));
                match &mut failure {
                    Some(failure) => failure.lost_records += lost,
                    None => failure = Some(ExportFailure { lost_records: lost, source }),
                }
            }
        }
        if let Some(repeats) = self.repeats.as_mut().filter(|_| failure.is_some()) {
            repeats.forget();
        }
        self.growth.end_step(batch);
        self.free_space(batch.step);
        if let Err(source) = self.steps.append(batch) {
            failure.get_or_insert(ExportFailure { lost_records: 0, source: source.into() });
        }
        failure.map_or(Ok(()), Err)
    }

    fn takes_alerts(&self) -> bool {
        false
    }

    fn remark(&mut self) -> Option<String> {
        self.growth.remark()
    }

    fn warning(&mut self) -> Option<String> {
        self.space.as_mut().and_then(SpaceLimit::warning)
    }

    fn shutdown(&mut self, deadline: Instant) -> Result<(), ExportError> {
        self.open.clear();
        if let Some(space) = &mut self.space {
            space.finish(deadline);
        }
        Ok(())
    }

    fn locations(&self) -> Vec<String> {
        vec![self.directory.display().to_string()]
    }
}

fn classes_of(config: &Config) -> HashMap<Kind, FileClass> {
    Kind::ALL.into_iter().filter_map(|kind| Some((kind, file_class(config, kind)?))).collect()
}

/// The rows of one file in a step.
enum Rows<'a> {
    /// One row each.
    Records(Vec<&'a Record>),
    /// One row for all calls of an operation.
    Calls(Vec<StepCalls<'a>>),
}

impl Rows<'_> {
    /// The number of records in the rows.
    fn records(&self) -> u64 {
        match self {
            Self::Records(records) => records.len() as u64,
            Self::Calls(calls) => calls.iter().map(|calls| calls.count() as u64).sum(),
        }
    }
}

/// The calls of collective operations in a step, by file.
fn calls_by_file<'a>(classes: &HashMap<Kind, FileClass>, records: &'a [Record]) -> Vec<(FileClass, Rows<'a>)> {
    let (tensors, times): (Vec<_>, Vec<_>) =
        StepCalls::of(records).into_iter().partition(|calls| calls.kind == Kind::Comm);
    let file = |(kind, calls): (Kind, Vec<StepCalls<'a>>)| {
        Some((classes.get(&kind).filter(|_| !calls.is_empty())?.clone(), Rows::Calls(calls)))
    };
    [(Kind::Comm, tensors), (Kind::CommTime, times)].into_iter().filter_map(file).collect()
}

/// A batch's other records, by file in the order of kinds, each in its file's row order.
fn records_by_file<'a>(
    dialect: Dialect,
    classes: &HashMap<Kind, FileClass>,
    names: &[TensorInfo],
    records: &'a [Record],
) -> Vec<(FileClass, Rows<'a>)> {
    let mut files: Vec<(FileClass, Vec<&Record>)> = Vec::new();
    for kind in Kind::ALL.into_iter().filter(|kind| !kind.is_of_calls()) {
        let Some(class) = classes.get(&kind) else { continue };
        // V2 has no row for a hook without tensor; V1 fills one with `nan`.
        let has_row = |record: &Record| record.reading.is_some() || dialect == Dialect::V1;
        let of_kind = |record: &&Record| record.kind == kind && has_row(record);
        let mut rows: Vec<&Record> = records.iter().filter(of_kind).collect();
        if rows.is_empty() {
            continue;
        }
        if kind == Kind::Actv && dialect == Dialect::V1 {
            group_by_module(names, &mut rows);
        }
        match files.iter_mut().find(|(known, _)| known.prefix == class.prefix) {
            Some((_, shared)) => {
                shared.extend(rows);
                if kind == Kind::ActvGrad {
                    // Forward and backward in order, micro-batch by micro-batch. All are elements of one slice.
                    shared.sort_by_key(|record| std::ptr::from_ref(*record));
                }
            }
            None => files.push((class.clone(), rows)),
        }
    }
    files.into_iter().map(|(class, rows)| (class, Rows::Records(rows))).collect()
}

/// Groups V1's rows of a module for all micro-batches, with modules in the order in which their first calls ended. The
/// inputs of a module may have been measured long before, when its call began.
fn group_by_module(names: &[TensorInfo], rows: &mut [&Record]) {
    let parts = |record: &Record| {
        let info = &names[record.tensor.index()];
        let (module, end) = info.name.rsplit_once('.').unwrap_or((&info.name, ""));
        ((info.vpp_stage, module.to_owned()), end.starts_with("output"))
    };
    let mut first_end: HashMap<(u32, String), usize> = HashMap::new();
    let (outputs, inputs): (Vec<_>, Vec<_>) =
        rows.iter().map(|record| parts(record)).partition(|&(_, is_output)| is_output);
    // Modules without measured output come after those that ended.
    for (module, _) in outputs.into_iter().chain(inputs) {
        let next = first_end.len();
        first_end.entry(module).or_insert(next);
    }
    let order: HashMap<*const Record, usize> =
        rows.iter().map(|record| (std::ptr::from_ref(*record), first_end[&parts(record).0])).collect();
    rows.sort_by_key(|record| order[&std::ptr::from_ref(*record)]);
}
