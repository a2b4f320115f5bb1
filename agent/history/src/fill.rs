//! Fills the history from step batches: during training, and from a run's files.

use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

use trainmon_core::{
    GradNorm, Kind, Reading, Record, Statistic, StatisticSet, StepBatch, TensorId, TensorInfo, TensorStats,
};

use crate::curves;
use crate::history::{CurveId, History};
use crate::rows::{ABSENT, Cell, RowId, STATISTICS, cell_of, cell_value, larger};

/// A step's figures over all tensors; `None` for an unmeasured one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepFigures {
    /// The global gradient norm.
    pub grad_norm: Option<f64>,
    /// The norm of the change of all parameters.
    pub update_norm: Option<f64>,
    /// The largest and the median update ratio.
    pub update_ratios: Option<(f64, f64)>,
}

/// The row of a tensor and kind, if it was looked up.
#[derive(Clone, Copy, Debug)]
enum RowPlace {
    Unknown,
    Nowhere,
    At(RowId),
}

/// Fills a history from batches; caches the curve and row of each value.
///
/// Cost: a comparison per statistic of a record, a logarithm and its mean (`benches/history.rs`).
#[derive(Debug)]
pub struct HistoryFiller {
    /// The statistics in the readings of each kind.
    measured: [StatisticSet; Kind::ALL.len()],
    /// Whether readings contain these also after other statistics were requested.
    always: bool,
    /// By kind and tensor.
    rows: [Vec<RowPlace>; Kind::ALL.len()],
    /// By index in [`curves::BUILT_IN`].
    built_in: [Option<CurveId>; curves::BUILT_IN.len()],
    scalars: HashMap<TensorId, Option<CurveId>>,
    ratios: Vec<f64>,
    /// The cells of a step with several micro-batches, before those of one tensor are combined.
    cells: Vec<(RowId, Cell)>,
}

impl HistoryFiller {
    /// A filler for a running training. `measured`: the statistics that readings of a kind always contain, even if
    /// other ones are requested later; further statistics in a reading are ignored.
    pub fn of_training(measured: impl FnMut(Kind) -> StatisticSet) -> Self {
        Self { always: true, ..Self::of_recorded(measured) }
    }

    /// A filler for a recorded run, whose files contain the statistics `measured` until other ones were requested.
    pub fn of_recorded(measured: impl FnMut(Kind) -> StatisticSet) -> Self {
        Self {
            measured: Kind::ALL.map(measured),
            always: false,
            rows: Default::default(),
            built_in: [None; curves::BUILT_IN.len()],
            scalars: HashMap::new(),
            ratios: Vec::new(),
            cells: Vec::new(),
        }
    }

    /// The figures of a step, computed from its records.
    pub fn figures(&mut self, batch: &StepBatch) -> StepFigures {
        let has_norm = |kind: Kind| self.measured(batch, kind).contains(Statistic::Norm);
        let of_records = || {
            let is_unreduced = batch.records.iter().any(|record| record.kind == Kind::GradUnreduced);
            let kind = if is_unreduced { Kind::GradUnreduced } else { Kind::GradReduced };
            batch.sampling_stride <= 1 && has_norm(kind)
        };
        StepFigures {
            grad_norm: batch.grad_norm().filter(|_| batch.grad_norm != GradNorm::OfRecords || of_records()),
            update_norm: batch.update_norm().filter(|_| has_norm(Kind::Update)),
            update_ratios: batch.update_ratios(&mut self.ratios),
        }
    }

    /// Adds a step.
    ///
    /// For gradients, which accumulate over the micro-batches of a step, the last reading counts. For activations and
    /// other values that each micro-batch has separately, the largest counts, with NaN as the largest.
    pub fn add(&mut self, history: &mut History, names: &[TensorInfo], batch: &StepBatch, figures: &StepFigures) {
        let step = batch.step.0;
        let is_measured = batch.records.iter().any(|record| record.kind != Kind::Scalar);
        history.step(step, unix_seconds(batch.time), is_measured);
        self.add_curves(history, batch, figures);
        let last = batch.last_micro_steps();
        self.cells.clear();
        for record in &batch.records {
            let (Some(reading), Some(tensor)) = (&record.reading, names.get(record.tensor.index())) else { continue };
            let is_last = record.micro_step == last[record.kind as usize];
            if record.kind == Kind::Scalar {
                let curve = self.scalars.entry(record.tensor);
                let curve = *curve.or_insert_with(|| history.curve(&curves::scalar(&tensor.name)));
                if let (Some(curve), Some(&value), true) = (curve, reading.values().first(), is_last) {
                    history.record(curve, step, value);
                }
            } else if (is_last || !accumulates(record.kind))
                && let Some(row) = self.row(history, record, tensor)
            {
                let cell = cell(record.kind, reading, self.measured(batch, record.kind));
                if last[record.kind as usize].0 == 0 {
                    history.set(row, step, cell);
                } else {
                    self.cells.push((row, cell));
                }
            }
        }
        self.cells.sort_unstable_by_key(|&(row, _)| row);
        for of_row in self.cells.chunk_by(|(one, _), (other, _)| one == other) {
            if let Some((row, cell)) = of_row.iter().copied().reduce(|(row, all), (_, cell)| (row, larger(all, cell))) {
                history.set(row, step, cell);
            }
        }
    }

    fn add_curves(&mut self, history: &mut History, batch: &StepBatch, figures: &StepFigures) {
        let StepFigures { grad_norm, update_norm, update_ratios } = *figures;
        let times = batch.records.iter().filter(|record| record.kind == Kind::CommTime);
        let times = times.filter_map(|record| record.reading.as_ref()?.values().get(1).copied());
        let cost = batch.cost.in_step();
        for (name, value) in [
            (curves::LOSS, batch.loss),
            (curves::GRAD_NORM, grad_norm),
            (curves::FRAMEWORK_GRAD_NORM, batch.framework_grad_norm),
            (curves::UPDATE_NORM, update_norm),
            (curves::UPDATE_RATIO_MAX, update_ratios.map(|(max, _)| max)),
            (curves::UPDATE_RATIO_MEDIAN, update_ratios.map(|(_, median)| median)),
            (curves::LEARNING_RATE, batch.learning_rate),
            (curves::STEP_SECONDS, batch.duration.map(|duration| duration.as_secs_f64())),
            // A file without costs has none, and no step costs nothing.
            (curves::COLLECT_SECONDS, (!cost.is_zero()).then_some(cost.as_secs_f64())),
            (curves::COLLECTIVE_SECONDS, times.reduce(|a, b| a + b)),
        ] {
            let place = curves::BUILT_IN.iter().position(|built_in| *built_in == name);
            let (Some(value), Some(place)) = (value, place) else { continue };
            let curve = &mut self.built_in[place];
            if curve.is_none() {
                *curve = history.curve(name);
            }
            if let Some(curve) = *curve {
                history.record(curve, batch.step.0, value);
            }
        }
    }

    fn row(&mut self, history: &mut History, record: &Record, tensor: &TensorInfo) -> Option<RowId> {
        let (places, index) = (&mut self.rows[record.kind as usize], record.tensor.index());
        if places.len() <= index {
            places.resize(index + 1, RowPlace::Unknown);
        }
        if let RowPlace::Unknown = places[index] {
            let row = match tensor.vpp_stage {
                0 => history.row(record.kind.name(), &tensor.name),
                // Chunks of a virtual pipeline number their layers from 0: later chunks get their number as a prefix.
                stage => history.row(record.kind.name(), &format!("{stage}:{}", tensor.name)),
            };
            places[index] = row.map_or(RowPlace::Nowhere, RowPlace::At);
        }
        if let RowPlace::At(row) = places[index] { Some(row) } else { None }
    }

    /// The statistics in a batch's readings of a kind.
    fn measured(&self, batch: &StepBatch, kind: Kind) -> StatisticSet {
        let usual = self.measured[kind as usize];
        match &batch.ops {
            Some(ops) if self.always => ops.iter().fold(usual, |all, &statistic| all.with(statistic)),
            Some(ops) => ops.iter().copied().collect(),
            None => usual,
        }
    }
}

/// The cell of a reading; unmeasured statistics are absent.
fn cell(kind: Kind, reading: &Reading, measured: StatisticSet) -> Cell {
    const ASKED: [Statistic; STATISTICS] = [Statistic::Norm, Statistic::AbsMax, Statistic::Zeros];
    let mut cell = cell_of(kind, reading);
    let Some(stats) = reading.tensor() else { return cell };
    for (value, statistic) in cell.iter_mut().zip(ASKED) {
        if !measured.contains(statistic) {
            *value = ABSENT;
        }
    }
    if !measured.contains(Statistic::AbsMax) && measured.contains(Statistic::Min) && measured.contains(Statistic::Max) {
        cell[1] = cell_value(magnitude(stats));
    }
    cell
}

/// The largest magnitude of the extremes; NaN if one is NaN.
fn magnitude(stats: &TensorStats) -> f64 {
    trainmon_core::largest(stats.min.as_f64().abs(), stats.max.as_f64().abs())
}

/// Whether a step's later micro-batches add to the values of earlier ones.
fn accumulates(kind: Kind) -> bool {
    matches!(kind, Kind::GradUnreduced | Kind::GradReduced)
}

/// Unix seconds; 0 for earlier times.
pub fn unix_seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use trainmon_core::{Dtype, MicroStep, Shape, Step};

    use super::*;
    use crate::Limits;

    fn record(kind: Kind, micro_step: u32, norm: f64) -> Record {
        let stats = TensorStats { norm, abs_max: norm, ..TensorStats::empty(Dtype::F32, Shape::new(&[4]).unwrap()) };
        Record { tensor: TensorId(0), kind, micro_step: MicroStep(micro_step), reading: Some(stats.into()) }
    }

    fn everything(_: Kind) -> StatisticSet {
        Statistic::ALL.into_iter().collect()
    }

    fn filled(measured: impl FnMut(Kind) -> StatisticSet, limits: Limits, batches: &[StepBatch]) -> History {
        filled_by(HistoryFiller::of_recorded(measured), limits, batches)
    }

    fn filled_by(mut filler: HistoryFiller, limits: Limits, batches: &[StepBatch]) -> History {
        let mut history = History::new(limits);
        let names = ["h.0.w", "accuracy", "accuracy2"].map(|name| TensorInfo { name: name.into(), vpp_stage: 0 });
        for batch in batches {
            let figures = filler.figures(batch);
            filler.add(&mut history, &names, batch, &figures);
        }
        history
    }

    fn step(step: u64, records: Vec<Record>) -> StepBatch {
        StepBatch { step: Step(step), collected: true, records, ..StepBatch::default() }
    }

    #[test]
    fn of_what_each_micro_batch_has_its_own_of_none_is_hidden() {
        let actv = |norms: [f64; 3]| (0..).zip(norms).map(|(micro, norm)| record(Kind::Actv, micro, norm)).collect();
        let batches = [step(1, actv([1.0, 50.0, 2.0])), step(2, actv([f64::NAN, 1.0, 2.0]))];
        let history = filled(everything, Limits::default(), &batches);
        let map = history.heat_map("actv", "norm", 0).unwrap();
        assert_eq!(map.values[0], 50.0);
        assert!(map.values[1].is_nan(), "{:?}", map.values);
        let worst = &history.overview().tables.worst[0];
        assert!(worst.value.is_nan() && worst.step == 2, "{worst:?}");
    }

    #[test]
    fn of_gradients_the_last_micro_batch_holds_all() {
        let gradients = vec![record(Kind::GradUnreduced, 0, 9.0), record(Kind::GradUnreduced, 1, 2.0)];
        let history = filled(everything, Limits::default(), &[step(1, gradients)]);
        assert_eq!(history.heat_map("grad_unreduced", "norm", 0).unwrap().values, [2.0]);
    }

    #[test]
    fn what_was_not_measured_is_absent_and_a_magnitude_follows_from_the_extremes() {
        let extremes: StatisticSet = [Statistic::Min, Statistic::Max].into_iter().collect();
        let mut of_extremes = record(Kind::GradReduced, 0, 0.0);
        let (min, max) = (TensorStats::of_value(-3.0).min, TensorStats::of_value(2.0).max);
        if let Some(Reading::Tensor(stats)) = &mut of_extremes.reading {
            (stats.min, stats.max, stats.abs_max) = (min, max, f64::NAN);
        }
        let history = filled(|_| extremes, Limits::default(), &[step(1, vec![of_extremes])]);
        assert_eq!(history.heat_map("grad_reduced", "absmax", 0).unwrap().values, [3.0]);
        assert_eq!(history.heat_map("grad_reduced", "norm", 0).unwrap().values, [ABSENT]);
        assert!(history.overview().curves.iter().all(|curve| curve.name != curves::GRAD_NORM));
    }

    #[test]
    fn statistics_that_are_changed_while_the_training_runs_are_followed() {
        let of_norm =
            StepBatch { ops: Some([Statistic::Norm].into()), ..step(2, vec![record(Kind::GradReduced, 0, 3.0)]) };
        let of_all = step(1, vec![record(Kind::GradReduced, 0, 2.0)]);
        let batches = [of_all, of_norm];
        let recorded = filled(everything, Limits::default(), &batches);
        assert_eq!(recorded.heat_map("grad_reduced", "norm", 0).unwrap().values, [2.0, 3.0]);
        assert_eq!(recorded.heat_map("grad_reduced", "absmax", 0).unwrap().values, [2.0, ABSENT]);
        // While a training runs, what the exporters need is measured all the same.
        let live = filled_by(HistoryFiller::of_training(everything), Limits::default(), &batches);
        assert_eq!(live.heat_map("grad_reduced", "absmax", 0).unwrap().values, [2.0, 3.0]);
        let abs_max_only = |_| StatisticSet::EMPTY.with(Statistic::AbsMax);
        let live = filled_by(HistoryFiller::of_training(abs_max_only), Limits::default(), &batches);
        assert_eq!(live.heat_map("grad_reduced", "norm", 0).unwrap().values, [ABSENT, 3.0]);
    }

    #[test]
    fn built_in_curves_find_room_beside_the_scripts_and_one_left_out_is_counted_once() {
        let scalar = |tensor| Record {
            tensor: TensorId(tensor),
            kind: Kind::Scalar,
            micro_step: MicroStep(0),
            reading: Some(Reading::of_values(&[0.5])),
        };
        let told = |number| StepBatch { loss: Some(1.0), ..step(number, vec![scalar(1), scalar(2)]) };
        let limits = Limits { curves: 1, ..Limits::default() };
        // The numbers are there before there is a loss.
        let batches = [StepBatch { loss: None, ..told(1) }, told(2), told(3)];
        let overview = filled(everything, limits, &batches).overview();
        let names: Vec<&str> = overview.curves.iter().map(|curve| &*curve.name).collect();
        assert_eq!(names, ["scalar/accuracy", curves::LOSS]);
        assert_eq!(overview.curves_left_out, 1);
    }
}
