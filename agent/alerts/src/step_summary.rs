//! Summary of one step: norms per layer and group, from which every wider series is computed.

use std::collections::BTreeSet;

use trainmon_core::{AlertSignal, GradNorm, Group, Kind, Record, Statistic, StepBatch, TensorId, combine_norms};

use super::masks;
use super::places::Places;

/// One per kind, one for the gradient (each tensor once), one for the parameters of the update ratios.
const SLOTS: usize = Kind::ALL.len() + 2;
const GRAD: usize = Kind::ALL.len();
const RATIO_PARAMETERS: usize = Kind::ALL.len() + 1;

/// The gradient on the other side of the reduction than `grad`, if both are measured.
pub(crate) const AFTER_REDUCTION: AlertSignal = AlertSignal::Kind(Kind::GradReduced);

/// The signals to sum up.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SummedSignals([bool; SLOTS]);

impl SummedSignals {
    pub(crate) fn add(&mut self, signal: AlertSignal) {
        match signal {
            AlertSignal::Grad => self.0[GRAD] = true,
            AlertSignal::Kind(kind) => self.0[kind as usize] = true,
            AlertSignal::Loss
            | AlertSignal::LearningRate
            | AlertSignal::GradNormRatio
            | AlertSignal::StepTime
            | AlertSignal::StragglerLag => {}
        }
    }
}

/// A norm over several tensors, and the tensor with the largest share of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Norm {
    /// The norm over all tensors; NaN if any is.
    pub(crate) total: f64,
    largest: f64,
    /// The first tensor that is not finite, else the largest.
    pub(crate) leader: Option<TensorId>,
}

impl Norm {
    fn add(&mut self, other: Self) {
        self.total = combine_norms(self.total, other.total);
        let is_first_bad = self.largest.is_finite() && !other.largest.is_finite();
        if self.leader.is_none() || is_first_bad || (self.largest.is_finite() && other.largest > self.largest) {
            (self.largest, self.leader) = (other.largest, other.leader);
        }
    }

    fn of(norm: f64, tensor: TensorId) -> Self {
        Self { total: norm, largest: norm, leader: Some(tensor) }
    }
}

/// The gradient norm of one tensor: the last one before reduction, else the one after it.
#[derive(Clone, Copy, Debug, Default)]
struct GradOfTensor {
    step: u64,
    rank: u32,
    norm: f64,
}

/// The sums of a step. The memory is reused for the next step.
#[derive(Debug, Default)]
pub(crate) struct StepSummary {
    wanted: SummedSignals,
    /// By slot and cell. A norm without leader was not measured.
    cells: [Vec<Norm>; SLOTS],
    /// By tensor. Entries of other steps are invalid.
    grads: Vec<GradOfTensor>,
    grad_tensors: Vec<TensorId>,
    /// Whether a gradient before the reduction was measured in this step.
    has_unreduced: bool,
    updates: Vec<(u64, f64)>,
    ratios: Vec<(TensorId, f64)>,
    /// The number of steps summed up, which distinguishes this step's entries from old ones.
    filled: u64,
    loss: Option<f64>,
    learning_rate: Option<f64>,
    /// The numbers that the script logs.
    scalars: Vec<(TensorId, f64)>,
    grad_norm: GradNorm,
    grad_norm_ratio: Option<f64>,
    /// One in this many layers and groups was measured; 1: all.
    stride: u32,
    /// The number of measured steps since layers are sampled.
    thinned_steps: u64,
    /// The positions of infinite mask records, which are excluded from all sums.
    masks: BTreeSet<usize>,
}

/// Which sums a rule can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Only complete sums, because incomplete ones are not comparable.
    Whole,
    /// Incomplete sums as well, for a rule that checks whether a sum is finite: if a part is not finite, the whole is
    /// not. A finite part counts only once per round of sampling, when all parts have been measured.
    Part,
}

impl StepSummary {
    pub(crate) fn new(wanted: SummedSignals) -> Self {
        Self { wanted, ..Self::default() }
    }

    /// Sums up a step. Cost: one pass over the records, about 20 ns each.
    pub(crate) fn fill(&mut self, places: &Places, batch: &StepBatch) {
        self.filled += 1;
        self.grad_tensors.clear();
        self.scalars.clear();
        self.has_unreduced = false;
        for cells in &mut self.cells {
            cells.clear();
            cells.resize(places.cells().len(), Norm::default());
        }
        (self.loss, self.learning_rate, self.grad_norm) = (batch.loss, batch.learning_rate, batch.grad_norm);
        self.grad_norm_ratio = None;
        self.stride = batch.sampling_stride.max(1);
        if !self.is_thinned() {
            self.thinned_steps = 0;
        } else if !batch.records.is_empty() {
            self.thinned_steps += 1;
        }
        self.masks = masks::given(places, batch);
        for (place, record) in batch.records.iter().enumerate() {
            if !self.is_mask(place) {
                self.take(places, record);
            }
        }
        self.sum_gradients(places);
        self.sum_ratios(places);
        // With the framework's norm, both are known here, so the ratio needs no second pass.
        if let (Some(framework), Some(ours)) = (batch.framework_grad_norm, self.global_grad(batch)) {
            self.grad_norm_ratio = Some(agreement(ours, framework));
        }
    }

    /// The numbers that the script logged.
    pub(crate) fn scalars(&self) -> &[(TensorId, f64)] {
        &self.scalars
    }

    fn global_grad(&self, batch: &StepBatch) -> Option<f64> {
        let is_summed = self.wanted.0[GRAD] && !self.is_thinned();
        if is_summed { self.global(AlertSignal::Grad, Reach::Whole) } else { batch.grad_norm() }
    }

    /// Whether only some layers and groups were measured.
    fn is_thinned(&self) -> bool {
        self.stride > 1
    }

    fn take(&mut self, places: &Places, record: &Record) {
        let Some(reading) = &record.reading else { return };
        let norm = reading.value(Statistic::Norm);
        let (kind, tensor) = (record.kind, record.tensor);
        if kind == Kind::Scalar {
            self.scalars.extend(reading.values().first().map(|&value| (tensor, value)));
            return;
        }
        if self.wanted.0[GRAD] && kind.is_gradient() {
            self.take_gradient(record, norm);
        }
        if self.wanted.0[Kind::UpdateRatio as usize] {
            match kind {
                Kind::Update => {
                    let filled = self.filled;
                    *slot(&mut self.updates, tensor) = (filled, norm);
                }
                Kind::UpdateRatio => self.ratios.extend(reading.values().first().map(|&ratio| (tensor, ratio))),
                _ => {}
            }
        }
        if self.wanted.0[kind as usize] && kind != Kind::UpdateRatio {
            self.add(places, kind as usize, tensor, norm);
        }
    }

    fn take_gradient(&mut self, record: &Record, norm: f64) {
        self.has_unreduced |= record.kind == Kind::GradUnreduced;
        let rank = if record.kind == Kind::GradUnreduced { record.micro_step.0.saturating_add(1) } else { 0 };
        let (step, tensor) = (self.filled, record.tensor);
        let known = slot(&mut self.grads, tensor);
        if known.step != step {
            self.grad_tensors.push(tensor);
            *known = GradOfTensor { step, rank, norm };
        } else if rank >= known.rank {
            *known = GradOfTensor { step, rank, norm };
        }
    }

    fn sum_gradients(&mut self, places: &Places) {
        let tensors = std::mem::take(&mut self.grad_tensors);
        for &tensor in &tensors {
            self.add(places, GRAD, tensor, self.grads[tensor.index()].norm);
        }
        self.grad_tensors = tensors;
    }

    /// Sums up update ratios. Over several tensors, the ratio is the norm of all changes divided by the norm of all
    /// parameters: a bias that started at zero has a huge ratio of its own and hardly counts.
    fn sum_ratios(&mut self, places: &Places) {
        let mut ratios = std::mem::take(&mut self.ratios);
        for (tensor, ratio) in ratios.drain(..) {
            let (filled, update) = self.updates.get(tensor.index()).copied().unwrap_or_default();
            let is_known = filled == self.filled && ratio != 0.0;
            if is_known {
                self.add(places, Kind::UpdateRatio as usize, tensor, update);
                self.add(places, RATIO_PARAMETERS, tensor, update / ratio);
            }
        }
        self.ratios = ratios;
    }

    fn add(&mut self, places: &Places, slot: usize, tensor: TensorId, norm: f64) {
        if let Some(cell) = places.cell_of(tensor) {
            self.cells[slot][cell].add(Norm::of(norm, tensor));
        }
    }

    /// Whether the record at this position is a mask, see [`masks`].
    pub(crate) fn is_mask(&self, place: usize) -> bool {
        self.masks.contains(&place)
    }

    /// Whether this step has gradients from before the reduction, so that `grad` is of that side and
    /// [`AFTER_REDUCTION`] of the other. If not, both are the same.
    pub(crate) fn has_both_sides(&self) -> bool {
        self.has_unreduced
    }

    /// The gradients of this step, each tensor once.
    pub(crate) fn gradients(&self) -> impl Iterator<Item = (TensorId, f64)> {
        self.grad_tensors.iter().map(|&tensor| (tensor, self.grads[tensor.index()].norm))
    }

    /// The run's value of a signal; `None` if it is unknown in this step.
    pub(crate) fn global(&self, signal: AlertSignal, reach: Reach) -> Option<f64> {
        match (signal, self.grad_norm) {
            (AlertSignal::Loss, _) => self.loss,
            (AlertSignal::LearningRate, _) => self.learning_rate,
            (AlertSignal::GradNormRatio, _) => self.grad_norm_ratio,
            (AlertSignal::StepTime | AlertSignal::StragglerLag, _) => None,
            (AlertSignal::Grad, GradNorm::Unknown) if reach == Reach::Whole => None,
            (AlertSignal::Grad, GradNorm::Known(norm)) => Some(norm),
            (AlertSignal::Grad | AlertSignal::Kind(_), _) => {
                let mut sums = Sums::default();
                self.each_cell(signal, reach, |_, norm, below| sums.add(norm, below));
                self.told(sums, signal)
            }
        }
    }

    /// The value of each group that has one.
    pub(crate) fn groups(&self, places: &Places, signal: AlertSignal, reach: Reach) -> [Option<f64>; Group::ALL.len()] {
        let mut sums = [Sums::default(); Group::ALL.len()];
        self.each_cell(signal, reach, |cell, norm, below| sums[places.cells()[cell].group as usize].add(norm, below));
        sums.map(|sums| self.told(sums, signal))
    }

    /// The value of each layer (`None` if unknown), with the tensor that contributes most.
    pub(crate) fn layers(
        &self,
        places: &Places,
        signal: AlertSignal,
        reach: Reach,
        found: &mut Vec<Option<(f64, TensorId)>>,
    ) {
        let mut sums = vec![Sums::default(); places.layers().len()];
        self.each_cell(signal, reach, |cell, norm, below| sums[places.cells()[cell].layer as usize].add(norm, below));
        found.clear();
        found.extend(sums.iter().map(|sums| Some((self.told(*sums, signal)?, sums.above.leader?))));
    }

    /// Calls `each` for every measured cell of a signal, with the denominator for ratios; not at all if only a part was
    /// measured and the whole is needed.
    fn each_cell(&self, signal: AlertSignal, reach: Reach, mut each: impl FnMut(usize, Norm, Norm)) {
        let slot = match signal {
            AlertSignal::Grad => GRAD,
            AlertSignal::Kind(kind) => kind as usize,
            _ => return,
        };
        // A part of a ratio is meaningless, because its denominator may be zero.
        let needs_whole = reach == Reach::Whole || signal == AlertSignal::Kind(Kind::UpdateRatio);
        if needs_whole && self.is_thinned() {
            return;
        }
        for (cell, norm) in self.cells[slot].iter().enumerate().filter(|(_, norm)| norm.leader.is_some()) {
            each(cell, *norm, self.cells[RATIO_PARAMETERS][cell]);
        }
    }

    /// The value of a sum, if it is usable.
    fn told(&self, sums: Sums, signal: AlertSignal) -> Option<f64> {
        let is_round_over = self.thinned_steps.is_multiple_of(u64::from(self.stride));
        sums.value(signal).filter(|value| !self.is_thinned() || is_round_over || !value.is_finite())
    }
}

/// A tensor's entry in a table that grows on demand.
fn slot<T: Clone + Default>(table: &mut Vec<T>, tensor: TensorId) -> &mut T {
    if table.len() <= tensor.index() {
        table.resize(tensor.index() + 1, T::default());
    }
    &mut table[tensor.index()]
}

/// `ours` divided by `framework`; 1 if both are NaN or the same infinity.
fn agreement(ours: f64, framework: f64) -> f64 {
    let check = trainmon_core::GradNormCheck { ours, framework };
    if ours.is_nan() && framework.is_nan() { 1.0 } else { check.ratio() }
}

/// The numerator and, for a ratio, the denominator.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    above: Norm,
    below: Norm,
}

impl Sums {
    fn add(&mut self, above: Norm, below: Norm) {
        self.above.add(above);
        self.below.add(below);
    }

    fn value(&self, signal: AlertSignal) -> Option<f64> {
        self.above.leader?;
        let is_ratio = signal == AlertSignal::Kind(Kind::UpdateRatio);
        Some(if is_ratio { self.above.total / self.below.total } else { self.above.total })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trainmon_core::{MicroStep, Reading, TensorInfo, TensorStats};

    fn record(tensor: u32, kind: Kind, micro: u32, value: f64) -> Record {
        let reading = Some(Reading::of_kind(kind, TensorStats::of_value(value)));
        Record { tensor: TensorId(tensor), kind, micro_step: MicroStep(micro), reading }
    }

    fn places() -> Places {
        let mut places = Places::default();
        let names = ["h.0.attn.w", "h.0.mlp.w", "h.1.attn.w", "head.w"];
        places.learn(&names.map(|name| TensorInfo { name: name.into(), vpp_stage: 0 }));
        places
    }

    fn filled(records: Vec<Record>) -> StepSummary {
        let mut wanted = SummedSignals::default();
        for signal in [AlertSignal::Grad, AlertSignal::Kind(Kind::ExpAvg), AlertSignal::Kind(Kind::UpdateRatio)] {
            wanted.add(signal);
        }
        let mut step_summary = StepSummary::new(wanted);
        step_summary.fill(&places(), &StepBatch { records, ..StepBatch::default() });
        step_summary
    }

    #[test]
    fn gradients_count_once_and_before_reduction_where_that_is_measured() {
        let step_summary = filled(vec![
            record(0, Kind::GradUnreduced, 0, 100.0),
            record(0, Kind::GradUnreduced, 1, 3.0),
            record(0, Kind::GradReduced, 1, 77.0),
            record(2, Kind::GradReduced, 1, 4.0),
        ]);
        assert_eq!(step_summary.global(AlertSignal::Grad, Reach::Whole), Some(5.0));
        assert_eq!(
            step_summary.gradients().map(|(tensor, norm)| (tensor.0, norm)).collect::<Vec<_>>(),
            [(0, 3.0), (2, 4.0)]
        );
        let mut layers = Vec::new();
        step_summary.layers(&places(), AlertSignal::Grad, Reach::Whole, &mut layers);
        assert_eq!(layers, [Some((3.0, TensorId(0))), Some((4.0, TensorId(2))), None]);
        assert_eq!(step_summary.groups(&places(), AlertSignal::Grad, Reach::Whole)[Group::Attn as usize], Some(5.0));
        assert_eq!(step_summary.groups(&places(), AlertSignal::Grad, Reach::Whole)[Group::Mlp as usize], None);
    }

    #[test]
    fn the_global_norm_is_that_of_the_batch() {
        let mut batch = StepBatch { framework_grad_norm: Some(10.0), ..StepBatch::default() };
        for (tensor, norm) in [(0, 3e200), (1, 4e200), (2, 1.0), (3, 2.0)] {
            batch.records.push(record(tensor, Kind::GradUnreduced, 0, norm));
        }
        let mut wanted = SummedSignals::default();
        wanted.add(AlertSignal::Grad);
        let mut step_summary = StepSummary::new(wanted);
        step_summary.fill(&places(), &batch);
        let (ours, batchs) =
            (step_summary.global(AlertSignal::Grad, Reach::Whole).unwrap(), batch.grad_norm().unwrap());
        assert!((ours / batchs - 1.0).abs() < 1e-14, "{ours} {batchs}");
        assert_eq!(step_summary.global(AlertSignal::GradNormRatio, Reach::Whole), Some(ours / 10.0));
        batch.grad_norm = GradNorm::Known(7.0);
        step_summary.fill(&places(), &batch);
        assert_eq!(step_summary.global(AlertSignal::Grad, Reach::Whole), Some(7.0));
        batch.grad_norm = GradNorm::Unknown;
        step_summary.fill(&places(), &batch);
        assert_eq!(
            (
                step_summary.global(AlertSignal::Grad, Reach::Whole),
                step_summary.global(AlertSignal::GradNormRatio, Reach::Whole)
            ),
            (None, None)
        );
    }

    #[test]
    fn nan_outranks_infinity_and_leads_where_it_came_first() {
        let step_summary = filled(vec![
            record(0, Kind::ExpAvg, 0, 9.0),
            record(1, Kind::ExpAvg, 0, f64::INFINITY),
            record(2, Kind::ExpAvg, 0, f64::NAN),
        ]);
        let signal = AlertSignal::Kind(Kind::ExpAvg);
        assert!(step_summary.global(signal, Reach::Whole).unwrap().is_nan());
        let mut layers = Vec::new();
        step_summary.layers(&places(), signal, Reach::Whole, &mut layers);
        assert_eq!(layers[0], Some((f64::INFINITY, TensorId(1))));
    }

    #[test]
    fn the_ratio_of_a_layer_is_that_of_its_norms() {
        let step_summary = filled(vec![
            record(0, Kind::Update, 0, 3.0),
            record(1, Kind::Update, 0, 4.0),
            record(0, Kind::UpdateRatio, 0, 0.03),
            record(1, Kind::UpdateRatio, 0, f64::INFINITY),
        ]);
        let mut layers = Vec::new();
        step_summary.layers(&places(), AlertSignal::Kind(Kind::UpdateRatio), Reach::Whole, &mut layers);
        let (ratio, _) = layers[0].unwrap();
        assert!((ratio - 0.05).abs() < 1e-12, "{ratio}");
        assert_eq!(layers[1], None);
    }

    #[test]
    fn a_thinned_step_has_no_sums() {
        let mut step_summary = filled(Vec::new());
        let records = vec![record(0, Kind::GradReduced, 0, 1.0)];
        step_summary.fill(&places(), &StepBatch { records, sampling_stride: 2, ..StepBatch::default() });
        assert_eq!(step_summary.global(AlertSignal::Grad, Reach::Whole), None);
        assert_eq!(step_summary.gradients().count(), 1);
    }

    #[test]
    fn a_part_says_that_it_is_not_finite_and_once_a_round_that_it_is() {
        let signal = AlertSignal::Kind(Kind::ExpAvg);
        let mut step_summary = filled(Vec::new());
        let mut look = |stride, values: &[f64]| {
            let records = values
                .iter()
                .enumerate()
                .map(|(tensor, &value)| record(tensor as u32, Kind::ExpAvg, 0, value))
                .collect();
            step_summary.fill(&places(), &StepBatch { records, sampling_stride: stride, ..StepBatch::default() });
            let mut layers = Vec::new();
            step_summary.layers(&places(), signal, Reach::Part, &mut layers);
            let group = step_summary.groups(&places(), signal, Reach::Part)[Group::Attn as usize];
            assert_eq!(step_summary.global(signal, Reach::Whole).is_some(), stride == 1);
            (step_summary.global(signal, Reach::Part), group, layers[0].map(|(value, _)| value))
        };
        assert_eq!(look(1, &[3.0]), (Some(3.0), Some(3.0), Some(3.0)));
        assert_eq!(look(2, &[3.0]), (None, None, None));
        assert_eq!(look(2, &[]), (None, None, None));
        assert_eq!(look(2, &[3.0]), (Some(3.0), Some(3.0), Some(3.0)));
        let inf = Some(f64::INFINITY);
        assert_eq!(look(2, &[f64::INFINITY]), (inf, inf, inf));
    }

    #[test]
    fn a_part_of_a_gradient_whose_norm_is_unknown_may_still_be_no_number() {
        let mut step_summary = filled(Vec::new());
        let records = vec![record(0, Kind::GradReduced, 0, f64::NAN)];
        step_summary.fill(&places(), &StepBatch { records, grad_norm: GradNorm::Unknown, ..StepBatch::default() });
        assert_eq!(step_summary.global(AlertSignal::Grad, Reach::Whole), None);
        assert!(step_summary.global(AlertSignal::Grad, Reach::Part).unwrap().is_nan());
    }
}
