//! A rank's CSV files as batches.
//!
//! ```text
//! one cursor per kind of file ─▶ the lowest step any of them stands at ─▶ its rows, of all of them
//! ```

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use trainmon_core::config::{Activations, AttentionOrder, Collectives, Config, Features, Signal, Signals, WeightGrad};
use trainmon_core::{GradNorm, Kind, Repeats, Statistic, Step, StepBatch};
use trainmon_exporters::MeasuredStatistics;

use super::cursor::{Kept, Names, take};
use super::error::ReadRunError;
use super::facts::FactsCursor;
use super::times::StepTimes;
use crate::run::{FileUse, MIXED_PREFIX, RunDirectory, RunError, TableCursor, came_again};

/// Not of tensors: call stacks.
const NOT_READ: &str = "stack_info";

/// Reads one rank's files.
pub(super) struct CsvReader {
    cursors: Vec<TableCursor<Kept>>,
    facts: Option<(PathBuf, FactsCursor)>,
    repeats: Repeats,
    pub(super) names: Names,
    pub(super) measured: MeasuredStatistics,
    pub(super) config: Config,
    pub(super) times: StepTimes,
    /// Whether the step read last has a time of its own.
    pub(super) has_time: bool,
}

impl CsvReader {
    pub(super) fn open(run: &RunDirectory, how: FileUse, warnings: &mut Vec<String>) -> Result<Self, ReadRunError> {
        for stranger in &run.strangers {
            warnings.push(format!("`{}` is no table of a monitor: left out", stranger.display()));
        }
        let mut cursors = Vec::with_capacity(run.tables.len());
        let mut measured = MeasuredStatistics::of_kinds(|_| trainmon_core::StatisticSet::EMPTY);
        let mut ops: Vec<(Kind, Vec<Statistic>)> = Vec::new();
        for (prefix, paths) in run.tables.iter().filter(|(prefix, _)| *prefix != NOT_READ) {
            let mut cursor = TableCursor::new(prefix, paths, true, Kept::of).with_files(how);
            if let Some(Kept { columns, .. }) = cursor.begin(&mut |warning| warnings.push(warning))? {
                for kind in kinds_of(prefix) {
                    measured.set(kind, columns.measured());
                    ops.push((kind, columns.ops()));
                }
            }
            cursors.push(cursor);
        }
        if run.left_out.gradients && !ops.iter().any(|(kind, _)| *kind == Kind::GradUnreduced) {
            // Each of its rows was left out.
            let twin = ops.iter().find(|(kind, _)| *kind == Kind::GradReduced).map(|(_, ops)| ops.clone());
            measured.set(Kind::GradUnreduced, measured.of(Kind::GradReduced));
            ops.extend(twin.map(|twin| (Kind::GradUnreduced, twin)));
        }
        let facts = match &run.steps {
            Some(path) => FactsCursor::open(path, how, warnings)?.map(|facts| (path.clone(), facts)),
            None => None,
        };
        let times = if facts.is_some() { StepTimes::Known } else { StepTimes::OfFiles };
        let (repeats, names, config) = (Repeats::new(run.left_out), Names::default(), config_of(&ops));
        Ok(Self { cursors, facts, repeats, names, measured, config, times, has_time: false })
    }

    /// The number of the next step; `None` at the end.
    pub(super) fn peek(&mut self, warnings: &mut Vec<String>) -> Result<Option<u64>, RunError> {
        let mut lowest = self.facts.as_mut().map_or(Ok(None), |(_, facts)| facts.peek())?;
        for cursor in &mut self.cursors {
            let step = cursor.peek(&mut |warning| warn_once(warnings, warning))?;
            lowest = [lowest, step].into_iter().flatten().min();
        }
        Ok(lowest)
    }

    /// Reads the next step. `false` at the end.
    pub(super) fn next(&mut self, batch: &mut StepBatch, warnings: &mut Vec<String>) -> Result<bool, RunError> {
        let mut names = std::mem::take(&mut self.names);
        let read = self.next_with(&mut names, batch, warnings);
        self.names = names;
        read
    }

    /// As [`Self::next`], with names that several readers share.
    pub(super) fn next_with(
        &mut self,
        names: &mut Names,
        batch: &mut StepBatch,
        warnings: &mut Vec<String>,
    ) -> Result<bool, RunError> {
        batch.reset();
        let next = self.peek(warnings)?;
        let mut warn = |warning| warn_once(warnings, warning);
        let Some(step) = next else {
            if let Some((path, facts)) = &mut self.facts
                && let Some(range) = facts.again.take()
            {
                warn(came_again(path, range));
            }
            return Ok(false);
        };
        batch.step = Step(step);
        let mut written: f64 = 0.0;
        for cursor in &mut self.cursors {
            while cursor.peek(&mut warn)? == Some(step) {
                let Some(taken) = take(cursor, names, &mut warn)? else { continue };
                written = written.max(taken.written);
                let Some(record) = taken.record else { continue };
                let asked = self.config.signal(record.kind).filter(|_| record.kind.value_columns().is_empty());
                if batch.ops.is_none() && asked.is_some_and(|signal| signal.ops[..] != taken.ops[..]) {
                    batch.ops = Some(taken.ops);
                }
                batch.records.push(record);
            }
            cursor.finish_step(step);
        }
        self.repeats.fill_in(batch);
        batch.collected = !batch.records.is_empty();
        batch.grad_norm = GradNorm::OfRecords;
        let has_time = match &mut self.facts {
            Some((_, facts)) => facts.peek()? == Some(step) && facts.take(batch)?,
            None => false,
        };
        self.has_time = has_time;
        if !has_time {
            // As good as is known: the files were written up to then.
            batch.time = SystemTime::UNIX_EPOCH + Duration::try_from_secs_f64(written).unwrap_or_default();
            if self.times == StepTimes::Known {
                self.times = StepTimes::OfFiles;
            }
        }
        Ok(true)
    }

    /// Whether the run kept a table of what it did and cost, step by step.
    pub(super) fn has_facts(&self) -> bool {
        self.facts.is_some()
    }

    pub(super) fn bytes_read(&self) -> u64 {
        let of_facts = self.facts.as_ref().map_or(0, |(_, facts)| facts.bytes_read());
        self.cursors.iter().map(TableCursor::bytes_read).sum::<u64>() + of_facts
    }
}

fn warn_once(warnings: &mut Vec<String>, warning: String) {
    if !warnings.contains(&warning) {
        warnings.push(warning);
    }
}

/// The kinds that rows of a file may be of.
fn kinds_of(prefix: &str) -> Vec<Kind> {
    match prefix {
        MIXED_PREFIX => vec![Kind::MgDirection],
        "module" => vec![Kind::Actv, Kind::ActvGrad],
        "weight_grad" => vec![Kind::GradUnreduced, Kind::GradReduced],
        "param" => vec![Kind::ParamOrigin, Kind::ParamUpdated],
        "cc" => vec![Kind::Comm],
        "optimizer" => Kind::ALL.into_iter().filter(|kind| kind.is_moment()).collect(),
        prefix => Kind::from_name(prefix).into_iter().collect(),
    }
}

/// A config that measures these kinds with these statistics.
fn config_of(ops: &[(Kind, Vec<Statistic>)]) -> Config {
    let signal = |is_of: fn(Kind) -> bool| {
        let (_, ops) = ops.iter().find(|(kind, _)| is_of(*kind))?;
        Some(Signal { ops: ops.clone(), eps: 0.0 })
    };
    let has = |kind: Kind| ops.iter().any(|(known, _)| *known == kind);
    let modules = |kind: Kind| has(kind).then(Vec::new);
    let is_feature = ops.iter().any(|(kind, _)| kind.is_feature());
    Config {
        signals: Signals {
            weight_grad: signal(Kind::is_gradient).map(|signal| WeightGrad {
                signal,
                every_micro_batch: false,
                micro_batches: None,
            }),
            moments: signal(Kind::is_moment),
            param: signal(|kind| matches!(kind, Kind::ParamOrigin | Kind::ParamUpdated)),
            activations: signal(|kind| matches!(kind, Kind::Actv | Kind::ActvGrad)).map(|signal| Activations {
                signal,
                forward: has(Kind::Actv),
                backward: has(Kind::ActvGrad),
                all: true,
            }),
            mg_direction: signal(|kind| kind == Kind::MgDirection),
            update: signal(|kind| kind == Kind::Update),
        },
        adhoc: signal(|kind| kind == Kind::Adhoc),
        collectives: signal(|kind| kind == Kind::Comm)
            .map(|signal| Collectives { before: true, ..Collectives::of(signal) }),
        features: is_feature.then(|| Features {
            attention: modules(Kind::AttentionHook),
            linear: modules(Kind::LinearHook),
            router_weight: modules(Kind::MoeRouterWeightHook),
            router_logit: modules(Kind::MoeRouterLogitHook),
            order: AttentionOrder::SequenceFirst,
        }),
        ..Config::default()
    }
}
