//! Reads a rank's CSV files as batches.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use trainmon_core::config::{Activations, AttentionOrder, Collectives, Config, Features, Signal, Signals, WeightGrad};
use trainmon_core::{GradNorm, Kind, Statistic, Step, StepBatch};
use trainmon_exporters::MeasuredStatistics;
use trainmon_run_files::{FileUse, RankFiles, RunDirectory, RunError, STACKS, Selection, StepColumn, kinds_of};

use super::cursor::{Kept, Names, take};
use super::error::ReadRunError;
use super::times::StepTimes;

/// Reads one rank's files.
pub(super) struct CsvReader {
    files: RankFiles<Kept>,
    pub(super) measured: MeasuredStatistics,
    pub(super) config: Config,
    pub(super) times: StepTimes,
    /// Whether the last step has its own time.
    pub(super) has_time: bool,
}

impl CsvReader {
    pub(super) fn open(run: &RunDirectory, how: FileUse, warnings: &mut Vec<String>) -> Result<Self, ReadRunError> {
        for stranger in &run.other_files {
            warnings.push(format!("skipped `{}`: not a table of a monitor", stranger.display()));
        }
        let selection =
            Selection { tables: &|prefix| prefix != STACKS, empty_rows: true, steps: &StepColumn::ALL, file_use: how };
        let mut of_steps = Vec::new();
        let mut files = RankFiles::open(run, &selection, Kept::of, &mut |warning| of_steps.push(warning))?;
        let mut measured = MeasuredStatistics::of_kinds(|_| trainmon_core::StatisticSet::EMPTY);
        let mut ops: Vec<(Kind, Vec<Statistic>)> = Vec::new();
        files.begin(&mut |warning| warnings.push(warning), |prefix, Kept { columns, .. }| {
            for kind in kinds_of(prefix) {
                measured.set(kind, columns.measured());
                ops.push((kind, columns.ops()));
            }
        })?;
        warnings.append(&mut of_steps);
        if run.left_out.gradients && !ops.iter().any(|(kind, _)| *kind == Kind::GradUnreduced) {
            // All of its rows were omitted.
            let twin = ops.iter().find(|(kind, _)| *kind == Kind::GradReduced).map(|(_, ops)| ops.clone());
            measured.set(Kind::GradUnreduced, measured.of(Kind::GradReduced));
            ops.extend(twin.map(|twin| (Kind::GradUnreduced, twin)));
        }
        let times = if files.has_steps() { StepTimes::Known } else { StepTimes::OfFiles };
        Ok(Self { files, measured, config: config_of(&ops), times, has_time: false })
    }

    /// The number of the next step; `None` at the end.
    pub(super) fn peek(&mut self, warnings: &mut Vec<String>) -> Result<Option<u64>, RunError> {
        self.files.peek(&mut |warning| warn_once(warnings, warning))
    }

    /// Reads the next step. Returns `false` at the end.
    pub(super) fn next(
        &mut self,
        names: &mut Names,
        batch: &mut StepBatch,
        warnings: &mut Vec<String>,
    ) -> Result<bool, RunError> {
        batch.reset();
        let mut warn = |warning| warn_once(warnings, warning);
        let Some(step) = self.files.peek(&mut warn)? else {
            self.files.steps_came_again().into_iter().for_each(warn);
            return Ok(false);
        };
        batch.step = Step(step);
        let (mut written, config): (f64, _) = (0.0, &self.config);
        self.files.rows(step, &mut warn, |row| {
            written = written.max(row.kept.written);
            let Some(record) = take(row, names)? else { return Ok(()) };
            let ops = &row.kept.ops;
            let asked = config.signal(record.kind).filter(|_| record.kind.value_columns().is_empty());
            if batch.ops.is_none() && asked.is_some_and(|signal| signal.ops[..] != ops[..]) {
                batch.ops = Some(Arc::clone(ops));
            }
            batch.records.push(record);
            Ok(())
        })?;
        batch.collected = !batch.records.is_empty();
        batch.grad_norm = GradNorm::OfRecords;
        self.has_time = self.files.numbers(step, batch)?;
        if !self.has_time {
            // The best estimate: the time at which the files were written.
            batch.time = SystemTime::UNIX_EPOCH + Duration::try_from_secs_f64(written).unwrap_or_default();
            if self.times == StepTimes::Known {
                self.times = StepTimes::OfFiles;
            }
        }
        Ok(true)
    }

    /// Whether the run has `steps.csv`.
    pub(super) fn has_facts(&self) -> bool {
        self.files.has_steps()
    }

    pub(super) fn bytes_read(&self) -> u64 {
        self.files.bytes_read()
    }
}

fn warn_once(warnings: &mut Vec<String>, warning: String) {
    if !warnings.contains(&warning) {
        warnings.push(warning);
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
