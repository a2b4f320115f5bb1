//! Sums of tensors per layer and group, which limit the number of series.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use trainmon_core::catalog::{
    LAYER_ABS_MAX, LAYER_MEAN, LAYER_NORM, LAYER_PART_ABS_MAX, LAYER_PART_ELEMENTS, LAYER_PART_MEAN, LAYER_PART_NORM,
    LAYER_PART_ZEROS_RATIO, Metric, PARAMETER_NORM, PARAMETER_PART_NORM, ZERO_ELEMENTS_RATIO,
};
use trainmon_core::{
    Group, Kind, PartTable, Record, Share, Statistic, StatisticSet, TensorInfo, TensorStats, combine_norms, largest,
    layer_of,
};

use crate::MeasuredStatistics;

/// A figure computed from the sums of a cell.
#[derive(Clone, Copy, Debug)]
enum Figure {
    Norm,
    AbsMax,
    Mean,
    ZerosRatio,
    Elements,
}

impl Figure {
    /// Whether it can be computed from readings with these statistics, and is useful then.
    fn is_measured(self, statistics: StatisticSet) -> bool {
        let has = |statistic| statistics.contains(statistic);
        match self {
            Self::Norm => has(Statistic::Norm),
            Self::AbsMax => has(Statistic::AbsMax),
            Self::Mean => has(Statistic::Mean),
            Self::ZerosRatio => has(Statistic::Zeros),
            // Required as weights in sums of the two.
            Self::Elements => has(Statistic::Mean) || has(Statistic::Zeros),
        }
    }
}

/// The families of the layer tier, each with its figure.
const LAYER_FAMILIES: [(Metric, Figure); 4] = [
    (LAYER_NORM, Figure::Norm),
    (LAYER_ABS_MAX, Figure::AbsMax),
    (LAYER_MEAN, Figure::Mean),
    (ZERO_ELEMENTS_RATIO, Figure::ZerosRatio),
];
/// The families that can be summed over ranks.
const LAYER_PART_FAMILIES: [(Metric, Figure); 5] = [
    (LAYER_PART_NORM, Figure::Norm),
    (LAYER_PART_ABS_MAX, Figure::AbsMax),
    (LAYER_PART_MEAN, Figure::Mean),
    (LAYER_PART_ZEROS_RATIO, Figure::ZerosRatio),
    (LAYER_PART_ELEMENTS, Figure::Elements),
];
const PARAMETER_FAMILIES: [(Metric, Figure); 1] = [(PARAMETER_NORM, Figure::Norm)];
const PARAMETER_PART_FAMILIES: [(Metric, Figure); 1] = [(PARAMETER_PART_NORM, Figure::Norm)];
/// The maximum number of families of a tier.
#[cfg(feature = "prometheus")]
pub(crate) const MAX_FAMILIES: usize = LAYER_PART_FAMILIES.len();

/// How tensors are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tier {
    /// By layer and group.
    Layer,
    /// This rank's contribution to sums over ranks, by layer and group of the whole model. Empty if every rank holds
    /// everything.
    LayerPart,
    /// Not combined: by name.
    #[cfg_attr(not(feature = "prometheus"), expect(dead_code, reason = "the page's alone"))]
    Parameter,
    /// This rank's contribution to sums over ranks, by name.
    ParameterPart,
}

impl Tier {
    fn families(self) -> &'static [(Metric, Figure)] {
        match self {
            Self::Layer => &LAYER_FAMILIES,
            Self::LayerPart => &LAYER_PART_FAMILIES,
            Self::Parameter => &PARAMETER_FAMILIES,
            Self::ParameterPart => &PARAMETER_PART_FAMILIES,
        }
    }

    fn is_of_parts(self) -> bool {
        matches!(self, Self::LayerPart | Self::ParameterPart)
    }

    /// The families of this tier, in order.
    pub(crate) fn metrics(self) -> impl Iterator<Item = Metric> {
        self.families().iter().map(|&(metric, _)| metric)
    }
}

/// The identity of a cell, from which the labels of its series are created once.
#[derive(Clone, Debug)]
pub(crate) struct CellName {
    tier: Tier,
    tensor: TensorInfo,
    kind: Kind,
}

impl CellName {
    /// Label names and values, in the catalogue's order. `scope` is empty if there is none.
    pub(crate) fn labels(&self) -> [(&'static str, Cow<'_, str>); 4] {
        let (signal, scope) = (tensor_label(self.kind), scope_label(self.kind));
        let name = &*self.tensor.name;
        let stage = self.tensor.vpp_stage;
        let (first, second) = match self.tier {
            Tier::Layer | Tier::LayerPart => {
                let layer = layer_of(name);
                // Every chunk of a virtual pipeline counts its layers from 0: without the prefix, they would be summed
                // up.
                let layer = if stage == 0 { Cow::Borrowed(layer) } else { Cow::Owned(format!("{stage}:{layer}")) };
                (("layer", layer), ("group", Cow::Borrowed(Group::of(name).name())))
            }
            Tier::Parameter => (("name", Cow::Borrowed(name)), ("vpp_stage", Cow::Owned(stage.to_string()))),
            // Names in the whole model include the stage.
            Tier::ParameterPart => (("name", Cow::Borrowed(name)), ("vpp_stage", Cow::Borrowed(""))),
        };
        [first, second, ("tensor", Cow::Borrowed(signal)), ("scope", Cow::Borrowed(scope))]
    }

    /// A key that is equal for equal labels.
    fn key(&self) -> Box<str> {
        self.labels().map(|(_, value)| value).join("\u{1f}").into()
    }
}

/// The `tensor` label. Both gradients are `grad`; `scope` distinguishes them.
pub(crate) const fn tensor_label(kind: Kind) -> &'static str {
    match kind {
        Kind::GradUnreduced | Kind::GradReduced => "grad",
        Kind::ParamUpdated => "param",
        other => other.name(),
    }
}

/// The `scope` label; empty if there is none.
pub(crate) const fn scope_label(kind: Kind) -> &'static str {
    match kind {
        Kind::GradUnreduced => "unreduced",
        Kind::GradReduced => "reduced",
        _ => "",
    }
}

/// The running sums of one layer, group and signal in one step.
#[derive(Clone, Copy, Debug)]
struct Sums {
    tensors: u32,
    norm: f64,
    abs_max: f64,
    /// The sum of the elements: mean times count.
    total: f64,
    elements: f64,
    zeros: f64,
}

impl Sums {
    const NONE: Self = Self { tensors: 0, norm: 0.0, abs_max: 0.0, total: 0.0, elements: 0.0, zeros: 0.0 };

    fn add(&mut self, reading: &TensorStats) {
        self.tensors += 1;
        self.norm = combine_norms(self.norm, reading.norm);
        // Uses the shape instead of `count`, which is an optional statistic.
        let elements = reading.shape.elements() as f64;
        if elements > 0.0 {
            self.abs_max = largest(self.abs_max, reading.abs_max);
            self.total += reading.mean * elements;
            self.elements += elements;
            self.zeros += reading.zeros as f64;
        }
    }

    /// `None` without elements.
    fn value(&self, figure: Figure) -> Option<f64> {
        match figure {
            Figure::Norm => Some(self.norm),
            _ if self.elements == 0.0 => None,
            Figure::AbsMax => Some(self.abs_max),
            Figure::Mean => Some(self.total / self.elements),
            Figure::ZerosRatio => Some(self.zeros / self.elements),
            Figure::Elements => Some(self.elements),
        }
    }
}

#[derive(Debug)]
struct Cell {
    name: CellName,
    statistics: StatisticSet,
    sums: Sums,
    /// Whether the contribution of a tensor is unknown; the cell then has no sums.
    is_incomplete: bool,
}

/// A value of one cell after a step.
#[derive(Debug)]
pub(crate) struct CellValue<'a> {
    /// The cell, numbered from 0 in order of appearance.
    pub(crate) cell: usize,
    /// The index of its metric in [`Tier::metrics`].
    pub(crate) family: usize,
    /// The value.
    pub(crate) value: f64,
    /// The identity of the cell.
    pub(crate) name: &'a CellName,
}

/// All cells of a tier, with the cell of each tensor.
#[derive(Debug)]
pub(crate) struct Cells {
    tier: Tier,
    measured: MeasuredStatistics,
    parts: Arc<PartTable>,
    /// By tensor and kind: the cell, or one of the two constants below.
    routes: Vec<[u32; Kind::ALL.len()]>,
    by_labels: HashMap<Box<str>, u32>,
    all: Vec<Cell>,
    touched: Vec<u32>,
}

const UNKNOWN: u32 = u32::MAX;
const NOT_SERVED: u32 = u32::MAX - 1;

impl Cells {
    pub(crate) fn new(tier: Tier, measured: MeasuredStatistics, parts: &Arc<PartTable>) -> Self {
        let (by_labels, parts) = (HashMap::new(), Arc::clone(parts));
        Self { tier, measured, parts, routes: Vec::new(), by_labels, all: Vec::new(), touched: Vec::new() }
    }

    /// Whether it accepts readings: the parts of parameters are known with the first step.
    pub(crate) fn is_open(&self) -> bool {
        !self.tier.is_of_parts() || self.parts.is_set()
    }

    /// Adds one reading. Cost: a few nanoseconds once the tensor is known.
    pub(crate) fn add(&mut self, tensor: &TensorInfo, record: &Record, reading: &TensorStats) {
        let place = record.tensor.index();
        if self.routes.len() <= place {
            self.routes.resize(place + 1, [UNKNOWN; Kind::ALL.len()]);
        }
        let mut route = self.routes[place][record.kind as usize];
        if route == UNKNOWN {
            route = self.find_route(tensor, record.kind, reading);
            self.routes[place][record.kind as usize] = route;
        }
        if route == NOT_SERVED {
            return;
        }
        let sums = &mut self.all[route as usize].sums;
        if sums.tensors == 0 {
            self.touched.push(route);
        }
        sums.add(reading);
    }

    fn find_route(&mut self, tensor: &TensorInfo, kind: Kind, reading: &TensorStats) -> u32 {
        let statistics = self.statistics(kind);
        if statistics.is_empty() {
            return NOT_SERVED;
        }
        if !self.tier.is_of_parts() {
            return self.cell(tensor.clone(), kind, statistics);
        }
        let Some((name, share)) = self.parts.find(kind, tensor).filter(|(_, share)| *share != Share::OfAnother) else {
            return NOT_SERVED;
        };
        let cell = self.cell(TensorInfo { name, vpp_stage: 0 }, kind, statistics);
        // State of another shape than the parameter: its parts do not add up to a whole.
        let is_whole = |elements: Option<u64>| elements.is_none_or(|count| count == reading.shape.elements() as u64);
        self.all[cell as usize].is_incomplete |= !matches!(share, Share::Counted(elements) if is_whole(elements));
        cell
    }

    fn cell(&mut self, tensor: TensorInfo, kind: Kind, statistics: StatisticSet) -> u32 {
        let name = CellName { tier: self.tier, tensor, kind };
        let key = name.key();
        if let Some(&cell) = self.by_labels.get(&key) {
            return cell;
        }
        let cell = self.all.len() as u32;
        self.by_labels.insert(key, cell);
        self.all.push(Cell { name, statistics, sums: Sums::NONE, is_incomplete: false });
        cell
    }

    /// The statistics that the tier exports for a kind: the measured ones that are meaningful for it.
    fn statistics(&self, kind: Kind) -> StatisticSet {
        let sensible = match kind {
            // Update ratios are exported as largest and median over the run. Features, the tensors of collective
            // operations and those that a script passes are only in their CSV files.
            kind if !kind.value_columns().is_empty() => StatisticSet::EMPTY,
            Kind::Adhoc | Kind::Comm => StatisticSet::EMPTY,
            // A share without a number of elements.
            Kind::MgDirection if self.tier.is_of_parts() => StatisticSet::EMPTY,
            Kind::MgDirection => StatisticSet::EMPTY.with(Statistic::Mean),
            _ => self.measured.of(kind),
        };
        if self.tier.families().iter().any(|&(_, figure)| figure.is_measured(sensible)) {
            sensible
        } else {
            StatisticSet::EMPTY
        }
    }

    /// Ends the step: passes the values of its cells to `take`.
    pub(crate) fn flush(&mut self, mut take: impl FnMut(CellValue<'_>)) {
        for route in self.touched.drain(..) {
            let cell = &mut self.all[route as usize];
            let sums = std::mem::replace(&mut cell.sums, Sums::NONE);
            for (family, &(_, figure)) in self.tier.families().iter().enumerate() {
                // The maximum over all ranks does not depend on who holds which part.
                if cell.is_incomplete && !matches!(figure, Figure::AbsMax) {
                    continue;
                }
                let Some(value) = sums.value(figure).filter(|_| figure.is_measured(cell.statistics)) else { continue };
                take(CellValue { cell: route as usize, family, value, name: &cell.name });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn norms_combine_beyond_the_range_of_their_squares_and_keep_nan() {
        assert!((combine_norms(3e200, 4e200) / 5e200 - 1.0).abs() < 1e-15);
        assert_eq!(combine_norms(f64::INFINITY, 1.0), f64::INFINITY);
        assert!(combine_norms(f64::INFINITY, f64::NAN).is_nan());
        assert!(combine_norms(f64::NAN, 0.0).is_nan());
        assert!(largest(f64::NAN, 1.0).is_nan() && largest(1.0, f64::NAN).is_nan());
        assert_eq!(largest(-2.0, -1.0), -1.0);
    }
}
