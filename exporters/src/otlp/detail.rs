//! Per-parameter detail: every record with every configured statistic, as in the CSV files.

use std::sync::Arc;

use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use trainmon_core::catalog::{
    Metric, PARAMETER_ABS_MAX, PARAMETER_COUNT, PARAMETER_CRC32, PARAMETER_ID, PARAMETER_INFS, PARAMETER_MAX,
    PARAMETER_MEAN, PARAMETER_MIN, PARAMETER_NANS, PARAMETER_NORM, PARAMETER_STD, PARAMETER_VALUE, PARAMETER_XOR64,
    PARAMETER_ZEROS,
};
use trainmon_core::config::{Config, Plan};
use trainmon_core::{Kind, Reading, Record, Scalar, Statistic, StepBatch, StepCalls, TensorInfo, TensorStats};

use super::points::Points;
use super::resource::{number, text};
use crate::summary::{scope_label, tensor_label};

const fn metric_of(statistic: Statistic) -> &'static Metric {
    match statistic {
        Statistic::Min => &PARAMETER_MIN,
        Statistic::Max => &PARAMETER_MAX,
        Statistic::Mean => &PARAMETER_MEAN,
        Statistic::Norm => &PARAMETER_NORM,
        Statistic::AbsMax => &PARAMETER_ABS_MAX,
        Statistic::Std => &PARAMETER_STD,
        Statistic::Nans => &PARAMETER_NANS,
        Statistic::Infs => &PARAMETER_INFS,
        Statistic::Zeros => &PARAMETER_ZEROS,
        Statistic::Count => &PARAMETER_COUNT,
        Statistic::Crc32 => &PARAMETER_CRC32,
        Statistic::Xor64 => &PARAMETER_XOR64,
        Statistic::Id => &PARAMETER_ID,
    }
}

/// The statistics sent for each kind.
#[derive(Debug)]
pub(crate) struct Detail {
    config: Config,
    /// The plan that changed it during the run.
    plan: Option<Arc<Plan>>,
    configured: [Vec<Statistic>; Kind::ALL.len()],
}

impl Detail {
    pub(crate) fn new(config: &Config) -> Self {
        Self { config: config.clone(), plan: None, configured: statistics(config) }
    }

    fn follow(&mut self, plan: &Arc<Plan>) {
        if self.plan.as_ref().is_none_or(|known| !Arc::ptr_eq(known, plan)) {
            self.plan = Some(Arc::clone(plan));
            self.configured = statistics(&self.config.with_plan(plan));
        }
    }

    /// Adds the points of every record. The step is in their time: as an attribute, it would make every point a series.
    pub(crate) fn push(&mut self, points: &mut Points, now: u64, names: &[TensorInfo], batch: &StepBatch) {
        if let Some(plan) = &batch.plan {
            self.follow(plan);
        }
        let all = StepCalls::put_together(&batch.records);
        let records: Vec<(Vec<KeyValue>, &Record, &Reading)> = all
            .iter()
            // Those are points of the step in any case.
            .filter(|record| record.kind != Kind::Scalar)
            .filter_map(|record| {
                let reading = record.reading.as_ref()?;
                Some((attributes(names.get(record.tensor.index())?, record), record, reading))
            })
            .collect();
        for statistic in Statistic::ALL {
            for (attributes, record, reading) in &records {
                let ops = batch.ops.as_deref().unwrap_or(&self.configured[record.kind as usize]);
                let stats = reading.tensor().filter(|_| ops.contains(&statistic));
                if let Some(value) = stats.and_then(|stats| value_of(stats, statistic)) {
                    points.gauge(metric_of(statistic), now, attributes.clone(), value);
                }
            }
        }
        for (attributes, record, reading) in &records {
            for (column, &value) in record.kind.value_columns().iter().zip(reading.values()) {
                let mut attributes = attributes.clone();
                attributes.push(text("value", *column));
                points.gauge(&PARAMETER_VALUE, now, attributes, Value::AsDouble(value));
            }
        }
    }
}

fn statistics(config: &Config) -> [Vec<Statistic>; Kind::ALL.len()] {
    Kind::ALL.map(|kind| config.signal(kind).map_or_else(Vec::new, |signal| signal.ops.clone()))
}

fn attributes(tensor: &TensorInfo, record: &Record) -> Vec<KeyValue> {
    let mut attributes = vec![text("name", &*tensor.name), text("tensor", tensor_label(record.kind))];
    let scope = scope_label(record.kind);
    if !scope.is_empty() {
        attributes.push(text("scope", scope));
    }
    if tensor.vpp_stage > 0 {
        attributes.push(number("vpp_stage", i64::from(tensor.vpp_stage)));
    }
    // Two micro-batches of one step have the same time: without this attribute, they would be one series with two
    // values.
    if record.micro_step.0 > 0 {
        attributes.push(number("micro_step", i64::from(record.micro_step.0)));
    }
    attributes
}

/// Counts and whole numbers as integers; `None` for the value of a tensor with dimensions.
fn value_of(reading: &TensorStats, statistic: Statistic) -> Option<Value> {
    let scalar = |scalar: Scalar| match scalar {
        Scalar::Int(value) => Value::AsInt(value),
        Scalar::UInt(value) => i64::try_from(value).map_or(Value::AsDouble(value as f64), Value::AsInt),
        Scalar::Bool(value) => Value::AsInt(i64::from(value)),
        Scalar::Float(value) => Value::AsDouble(value),
    };
    let count = |count: u64| Value::AsInt(i64::try_from(count).unwrap_or(i64::MAX));
    Some(match statistic {
        Statistic::Min => scalar(reading.min),
        Statistic::Max => scalar(reading.max),
        Statistic::Id => scalar(reading.id()?),
        Statistic::Nans => count(reading.nans),
        Statistic::Infs => count(reading.infs),
        Statistic::Count => count(reading.count),
        Statistic::Crc32 => Value::AsInt(i64::from(reading.crc32)),
        // The bits, regardless of the sign: a float would lose the lower ones.
        Statistic::Xor64 => Value::AsInt(reading.xor64 as i64),
        Statistic::Mean | Statistic::Norm | Statistic::AbsMax | Statistic::Std | Statistic::Zeros => {
            Value::AsDouble(reading.value(statistic))
        }
    })
}
