//! Reads another tool's log as batches: loss, learning rate and gradient norm are the step's own, other columns are numbers of
//! a script.

use std::sync::Arc;
use std::time::SystemTime;

use serde::{Serialize as _, Serializer};
use serde_json::json;
use trainmon_alerts::RecordedRules;
use trainmon_core::config::{Alerting, Config, Signals};
use trainmon_core::{
    GradNorm, Kind, MicroStep, Rank, Reading, Record, StatisticSet, Step, StepBatch, TensorId, TensorInfo,
};
use trainmon_exporters::MeasuredStatistics;
use trainmon_logs::Log;

use super::alerts::RankAlerts;
use super::times::StepTimes;

/// Reads a log in memory.
pub(super) struct LogReader {
    log: Arc<Log>,
    next: usize,
    names: Vec<TensorInfo>,
    pub(super) measured: MeasuredStatistics,
    pub(super) config: Config,
    pub(super) times: StepTimes,
    /// Whether the last step has its own time.
    pub(super) has_time: bool,
    /// The time at which the log was last written: the best estimate for a step without a time.
    written: SystemTime,
}

impl LogReader {
    pub(super) fn new(log: Arc<Log>) -> Self {
        let info = |name: &String| TensorInfo { name: name.as_str().into(), vpp_stage: 0 };
        let names = log.names.iter().map(info).collect();
        let has_times = log.steps.iter().all(|step| step.time.is_some());
        let times = if has_times { StepTimes::Known } else { StepTimes::OfFiles };
        let written = log.source.metadata().and_then(|facts| facts.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
        let measured = MeasuredStatistics::of_kinds(|_| StatisticSet::EMPTY);
        let signals = Signals {
            weight_grad: None,
            moments: None,
            param: None,
            activations: None,
            mg_direction: None,
            update: None,
        };
        let config = Config { signals, adhoc: None, collectives: None, features: None, ..Config::default() };
        Self { log, next: 0, names, measured, config, times, has_time: false, written }
    }

    pub(super) fn names(&self) -> &[TensorInfo] {
        &self.names
    }

    pub(super) fn peek(&self) -> Option<u64> {
        self.log.steps.get(self.next).map(|step| step.step)
    }

    pub(super) fn next(&mut self, batch: &mut StepBatch) -> bool {
        batch.reset();
        let Some(step) = self.log.steps.get(self.next) else { return false };
        self.next += 1;
        batch.step = Step(step.step);
        let time = step.time.and_then(|since| SystemTime::UNIX_EPOCH.checked_add(since));
        self.has_time = time.is_some();
        batch.time = time.unwrap_or(self.written);
        (batch.loss, batch.learning_rate) = (step.loss, step.learning_rate);
        batch.grad_norm = step.grad_norm.map_or(GradNorm::OfRecords, GradNorm::Known);
        let record = |&(number, value): &(u32, f64)| Record {
            tensor: TensorId(number),
            kind: Kind::Scalar,
            micro_step: MicroStep(0),
            reading: Some(Reading::of_values(&[value])),
        };
        batch.records.extend(step.others.iter().map(record));
        batch.collected = !batch.records.is_empty();
        true
    }

    pub(super) fn bytes_read(&self) -> u64 {
        self.log.bytes * self.next as u64 / (self.log.steps.len() as u64).max(1)
    }
}

/// Serializes a log for JSON reports.
///
/// # Errors
/// Those of the serializer.
pub fn log_in_json<S: Serializer>(log: &Option<Arc<Log>>, to: S) -> Result<S::Ok, S::Error> {
    let log = log.as_deref().map(|log| {
        let Log { path, source, name: _, format, bytes, columns, names, steps, remarks, warnings: _ } = log;
        json!({
            "path": path, "source": source, "format": format, "bytes": bytes, "steps": steps.len(), "columns": columns,
            "other_columns": names, "remarks": remarks,
        })
    });
    log.serialize(to)
}

/// The findings of the default rules in a log, which has no alerts of its own.
pub(super) fn alerts_of_log(log: &Arc<Log>) -> RankAlerts {
    let mut reader = LogReader::new(Arc::clone(log));
    let config = Config { alert: Alerting::default(), ..reader.config.clone() };
    let mut rules = RecordedRules::new(&config, Rank(0));
    let mut found = RankAlerts { are_recorded: true, ..RankAlerts::default() };
    let mut batch = StepBatch::default();
    while reader.next(&mut batch) {
        found.alerts.extend(rules.look_at(&batch, reader.names()).alerts);
    }
    found
}
