//! Batches of recorded steps into a history.

use std::time::{Duration, SystemTime};

use trainmon_core::config::Config;
use trainmon_core::{Kind, MicroStep, Reading, Record, Statistic, StatisticSet, StepBatch, TensorInfo};
use trainmon_history::{ABSENT, Cell, CurveId, History, RowId, cell_of, cell_value, curves, statistics_of};

/// Puts batches into a history; remembers where each tensor's row is.
pub(crate) struct Recorder {
    /// By kind: which statistics its readings hold.
    measured: [StatisticSet; Kind::ALL.len()],
    /// By tensor and kind.
    rows: Vec<[RowPlace; Kind::ALL.len()]>,
    curves: Vec<(String, Option<CurveId>)>,
    ratios: Vec<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RowPlace {
    Unknown,
    None,
    At(RowId),
}

impl Recorder {
    pub(crate) fn new(config: &Config) -> Self {
        let measured = Kind::ALL.map(|kind| {
            let own = config.signal(kind).map_or(StatisticSet::EMPTY, trainmon_core::config::Signal::set);
            let has_extremes = own.contains(Statistic::Min) && own.contains(Statistic::Max);
            if has_extremes { own.with(Statistic::AbsMax) } else { own }
        });
        Self { measured, rows: Vec::new(), curves: Vec::new(), ratios: Vec::new() }
    }

    /// Takes a step in. Of several micro-batches the last counts, as on the live page.
    pub(crate) fn record(&mut self, history: &mut History, names: &[TensorInfo], batch: &StepBatch) {
        let step = batch.step.0;
        let is_measured = batch.records.iter().any(|record| record.kind != Kind::Scalar);
        history.step(step, unix_seconds(batch.time), is_measured);
        let mut last = [MicroStep(0); Kind::ALL.len()];
        for record in &batch.records {
            let of_kind = &mut last[record.kind as usize];
            *of_kind = record.micro_step.max(*of_kind);
        }
        let seconds = |time: Duration| time.as_secs_f64();
        self.ratios.clear();
        let (mut update_norm, mut collective_seconds): (Option<f64>, Option<f64>) = (None, None);
        for record in batch.records.iter().filter(|record| record.micro_step == last[record.kind as usize]) {
            let (Some(info), Some(reading)) = (names.get(record.tensor.index()), &record.reading) else { continue };
            match (record.kind, reading.values().first()) {
                (Kind::Scalar, Some(&value)) => self.curve(history, &curves::scalar(&info.name), step, Some(value)),
                (Kind::UpdateRatio, Some(&ratio)) => self.ratios.push(ratio),
                (Kind::CommTime, _) => {
                    *collective_seconds.get_or_insert(0.0) += reading.values().get(1).unwrap_or(&0.0);
                }
                (Kind::Update, _) => {
                    let norm = reading.tensor().map_or(f64::NAN, |stats| stats.norm);
                    update_norm = Some(update_norm.unwrap_or(0.0).hypot(norm));
                }
                _ => {}
            }
            self.row(history, info, record, reading, step);
        }
        let is_whole = batch.sampling_stride <= 1;
        let (largest, median) = extremes(&mut self.ratios);
        let cost = batch.cost.in_step();
        for (name, value) in [
            (curves::LOSS, batch.loss),
            (curves::LEARNING_RATE, batch.learning_rate),
            (curves::GRAD_NORM, batch.grad_norm().filter(|_| is_whole || !is_of_records(batch))),
            (curves::FRAMEWORK_GRAD_NORM, batch.framework_grad_norm),
            (curves::UPDATE_NORM, update_norm.filter(|_| is_whole)),
            (curves::UPDATE_RATIO_MAX, largest.filter(|_| is_whole)),
            (curves::UPDATE_RATIO_MEDIAN, median.filter(|_| is_whole)),
            (curves::STEP_SECONDS, batch.duration.map(seconds)),
            (curves::COLLECT_SECONDS, (cost > Duration::ZERO).then(|| seconds(cost))),
            (curves::COLLECTIVE_SECONDS, collective_seconds),
        ] {
            self.curve(history, name, step, value);
        }
    }

    fn curve(&mut self, history: &mut History, name: &str, step: u64, value: Option<f64>) {
        let Some(value) = value else { return };
        let known = self.curves.iter().find(|(known, _)| known == name).map(|(_, curve)| *curve);
        let curve = known.unwrap_or_else(|| {
            let curve = history.curve(name);
            self.curves.push((name.to_owned(), curve));
            curve
        });
        if let Some(curve) = curve {
            history.record(curve, step, value);
        }
    }

    fn row(&mut self, history: &mut History, info: &TensorInfo, record: &Record, reading: &Reading, step: u64) {
        let place = record.tensor.index();
        if self.rows.len() <= place {
            self.rows.resize(place + 1, [RowPlace::Unknown; Kind::ALL.len()]);
        }
        let slot = &mut self.rows[place][record.kind as usize];
        if *slot == RowPlace::Unknown {
            let has_rows = !statistics_of(record.kind.name()).is_empty();
            let row = if has_rows { history.row(record.kind.name(), &row_name(info)) } else { None };
            *slot = row.map_or(RowPlace::None, RowPlace::At);
        }
        if let RowPlace::At(row) = *slot {
            history.set(row, step, self.cell(record.kind, reading));
        }
    }

    /// What was not measured is absent.
    fn cell(&self, kind: Kind, reading: &Reading) -> Cell {
        let mut cell = cell_of(kind, reading);
        let Some(stats) = reading.tensor() else { return cell };
        let measured = self.measured[kind as usize];
        let statistics = [Statistic::Norm, Statistic::AbsMax, Statistic::Zeros];
        for (value, statistic) in cell.iter_mut().zip(statistics) {
            if !measured.contains(statistic) {
                *value = ABSENT;
            }
        }
        // A journal keeps what was asked for: the largest magnitude follows from the extremes.
        if measured.contains(Statistic::AbsMax) && stats.abs_max.is_nan() {
            let (min, max) = (stats.min.as_f64().abs(), stats.max.as_f64().abs());
            cell[1] = cell_value(if min.is_nan() || max.is_nan() { f64::NAN } else { min.max(max) });
        }
        cell
    }
}

/// Chunks of a virtual pipeline count their layers anew: later ones have their number in front.
fn row_name(info: &TensorInfo) -> String {
    match info.vpp_stage {
        0 => info.name.to_string(),
        stage => format!("{stage}:{}", info.name),
    }
}

fn is_of_records(batch: &StepBatch) -> bool {
    batch.grad_norm == trainmon_core::GradNorm::OfRecords
}

/// Largest and median; NaN counts as largest.
fn extremes(values: &mut [f64]) -> (Option<f64>, Option<f64>) {
    values.sort_by(f64::total_cmp);
    let largest = values.iter().copied().find(|value| value.is_nan()).or_else(|| values.last().copied());
    let middle = values.len() / 2;
    let median = match values.len() {
        0 => None,
        count if count.is_multiple_of(2) => Some(f64::midpoint(values[middle - 1], values[middle])),
        _ => Some(values[middle]),
    };
    (largest, median)
}

pub(crate) fn unix_seconds(time: SystemTime) -> f64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}
