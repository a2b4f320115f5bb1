//! Judges one number of one row: its difference from the golden runs', and its tolerance.

use trainmon_core::Dtype;
use trainmon_noise::{SINGLE, unit_roundoff};

use super::drift::Apart;
use super::found::Divergence;
use super::judge::{Judge, Pair, Series, Upstream};
use super::names::{Names, TensorKey};
use super::noise::{
    Bound, BoundSource, DETERMINISTIC_STEPS, EARLY_GROWTH, EARLY_STEPS, FAINT_GROWTH, GROWTH, KindClass, SAME_BITS,
    SETTING, StatisticClass, is_exact, round_off, spread_factor,
};
use super::steps::{LOSS, RUN_KIND};
use super::suspects::Suspect;

/// Digits this coarse are useless: the value is less than a hundred of their units.
const COARSE: f64 = 1e-2;
/// Digits this fine show every bit of a float32.
const FINE: f64 = 1e-9;

/// The marker for a shape, which is not a series.
const NO_SERIES: usize = usize::MAX;

/// The terms of a loss have a size of about 1. If they cancel, as for a policy compared with itself, the rest is
/// rounding of up to this many units of float32.
const UNITS_OF_A_LOSS: f64 = 16.0;

/// The position of a number in a row.
#[derive(Clone, Copy)]
struct Cell {
    statistic: u16,
    class: StatisticClass,
    /// The position among the tensor's series.
    series: usize,
}

/// The number in every run.
struct Values {
    target: f64,
    golden: Vec<f64>,
    /// The combined error of the target's and the first golden run's number from printing.
    half_units: f64,
}

/// Whether both runs' losses are only the rounding of cancelling terms.
fn is_nothing_of_loss(names: &Names, pair: &Pair<'_>, values: [f64; 2]) -> bool {
    let tensor = &names.tensors[pair.target.0.tensor as usize];
    let is_loss = names.kind_name(tensor.kind) == RUN_KIND && names.bearer_name(tensor.bearer) == LOSS;
    is_loss && values.iter().all(|value| value.abs() <= UNITS_OF_A_LOSS * SINGLE)
}

/// The difference of a value.
struct Difference {
    /// The difference from the nearest golden run, relative to the tensor's magnitude.
    relative: f64,
    /// The tolerance for the printed digits, relative to the same magnitude.
    digits: f64,
    /// The difference of golden runs from each other, if there are several.
    spread: Option<f64>,
}

impl Judge {
    /// Judges the numbers of a row.
    pub(super) fn judge_row(&mut self, names: &Names, pair: &Pair<'_>, upstream: Upstream) {
        let row = pair.target.0;
        if let (Some(one), Some(other)) = (row.shape, pair.golden[0].0.shape)
            && one != other
        {
            if !std::mem::replace(&mut self.tensors[row.tensor as usize].has_other_shape, true) {
                self.is_equal_so_far = false;
                let note = Some(format!("{} against {}", names.shape_text(one), names.shape_text(other)));
                let divergence = Divergence { note, ..self.divergence(names, pair, "shape", [f64::NAN; 2]) };
                self.suspect(pair, NO_SERIES, divergence);
            }
            return;
        }
        let plan = self.plan(names, row.columns);
        if row.columns != pair.golden[0].0.columns {
            self.note_statistics(names, pair);
        }
        for (column, &(statistic, class)) in plan.columns.iter().enumerate() {
            if class != StatisticClass::NotJudged
                && let Some(values) = self.values(pair, column, statistic)
            {
                let series = self.series_of(row.tensor as usize, statistic);
                self.judge_value(names, pair, Cell { statistic, class, series }, &values, upstream);
            }
        }
    }

    /// Records the statistics that only one run has.
    fn note_statistics(&mut self, names: &Names, pair: &Pair<'_>) {
        let (target, golden) = (self.plan(names, pair.target.0.columns), self.plan(names, pair.golden[0].0.columns));
        for (side, (one, other)) in [(&target, &golden), (&golden, &target)].into_iter().enumerate() {
            let is_one_sided = |(statistic, class): &&(u16, StatisticClass)| {
                *class != StatisticClass::NotJudged && other.place_of(*statistic).is_none()
            };
            for (statistic, _) in one.columns.iter().filter(is_one_sided) {
                let (kind, statistic) = (names.kind_name(pair.kind), names.statistic_name(*statistic));
                self.found.statistics[side].insert((kind.to_owned(), statistic.to_owned()));
            }
        }
    }

    /// `None` if the first golden run lacks the statistic.
    fn values(&self, pair: &Pair<'_>, column: usize, statistic: u16) -> Option<Values> {
        let (row, rows) = pair.target;
        let target = rows.values[row.first + column];
        let half_unit = rows.digits.half_unit(row.table, column);
        let like = |(row, rows): &(&super::steps::RowHead, &super::steps::StepRows)| {
            let column = self.plans.get(usize::from(row.columns))?.as_ref()?.place_of(statistic)?;
            Some((rows.values[row.first + column], rows.digits.half_unit(row.table, column)))
        };
        let (first, other_half_unit) = pair.golden.first().and_then(like)?;
        let others = pair.golden.iter().skip(1).filter_map(like).map(|(value, _)| value);
        let golden = std::iter::once(first).chain(others).collect();
        Some(Values { target, golden, half_units: half_unit + other_half_unit })
    }

    fn judge_value(&mut self, names: &Names, pair: &Pair<'_>, cell: Cell, values: &Values, upstream: Upstream) {
        let (target, first) = (values.target, values.golden[0]);
        let is_same = |other: f64| target == other || (target.is_nan() && other.is_nan());
        self.found.values += 1;
        self.found.equal += u64::from(is_same(first));
        self.is_equal_so_far &= is_same(first);
        let tensor = pair.target.0.tensor as usize;
        if self.tensors[tensor].series[cell.series].has_parted {
            return;
        }
        let name = names.statistic_name(cell.statistic);
        let is_count = cell.class == StatisticClass::Count;
        let is_broken = |number: f64| if is_count { number != 0.0 } else { !number.is_finite() };
        if is_count || is_broken(target) || is_broken(first) {
            let is_like = |&golden: &f64| is_same(golden) || (is_broken(golden) == is_broken(target) && is_count);
            if !values.golden.iter().any(is_like) {
                self.suspect(pair, cell.series, self.divergence(names, pair, name, [target, first]));
            }
            return;
        }
        let difference = difference_of(pair, cell, values);
        let is_blank = values.half_units > 0.0 && target == 0.0 && first == 0.0;
        self.found.coarse += u64::from(difference.digits > COARSE || is_blank);
        let bound = self.bound(pair, cell, &difference, upstream);
        let spread = difference.spread.unwrap_or(0.0);
        let faint = self.faint_bound(pair, cell, &difference, upstream);
        let series = &mut self.tensors[tensor].series[cell.series];
        series.seen += 1;
        series.spread = series.spread.max(spread);
        let is_beyond = |bound: &Bound| difference.relative > bound.value;
        if let Some(passed) = [Some(bound), faint].into_iter().flatten().find(is_beyond) {
            let (values, difference, is_faint) = ([target, first], difference.relative, !is_beyond(&bound));
            let bearer = (names.tensors[tensor].bearer, pair.place.0);
            let apart = Apart { class: cell.class, values, elements: pair.elements.unwrap_or(1.0) };
            // Before the first rounding error there is nothing that an optimizer could amplify.
            let is_noisy = pair.facts.has_noisy_inputs && passed.source != BoundSource::EqualUntilThen;
            if is_nothing_of_loss(names, pair, values) {
                return;
            }
            if is_noisy && self.drift.explains(bearer, apart) {
                series.farthest = series.farthest.max(difference);
                let TensorKey { kind, name, .. } = names.key(pair.target.0.tensor);
                self.found.unsure.entry((kind, name)).or_insert(pair.target.1.step);
                return;
            }
            let Bound { value: bound, source: bound_source } = passed;
            let beyond = self.divergence(names, pair, name, values);
            self.suspect(pair, cell.series, Divergence { difference, bound, bound_source, is_faint, ..beyond });
            return;
        }
        series.farthest = series.farthest.max(difference.relative);
        if bound.value > 0.0 {
            series.closest = series.closest.max(difference.relative / bound.value);
        }
        let group = self.groups.entry((pair.kind, cell.statistic)).or_default();
        group.class = Some((pair.facts.kind, cell.class));
        group.now.push(difference.relative);
        group.spreads_now.push(spread);
    }

    /// The tolerance of this series in this step.
    fn bound(&self, pair: &Pair<'_>, cell: Cell, difference: &Difference, upstream: Upstream) -> Bound {
        let &Difference { digits, spread, .. } = difference;
        let series = &self.tensors[pair.target.0.tensor as usize].series[cell.series];
        let is_deterministic = self.equal_steps >= DETERMINISTIC_STEPS && self.equal_steps == self.steps;
        if is_deterministic && digits < FINE {
            return Bound { value: digits + SAME_BITS, source: BoundSource::EqualUntilThen };
        }
        if is_exact(pair.facts) && cell.class != StatisticClass::Share {
            return Bound { value: digits + SETTING, source: BoundSource::Exact };
        }
        let group = self.groups.get(&(pair.kind, cell.statistic));
        let floor = round_off(cell.class, pair.facts);
        let measured = spread.map(|spread| spread.max(series.spread).max(group.map_or(0.0, |group| group.spread)));
        let (floor, (other, source)) = match measured {
            // A measured spread overrides a computed tolerance.
            Some(measured) if measured > 0.0 => {
                let bound = spread_factor(self.golden_runs) * measured;
                (floor.min(16.0 * pair.facts.unit), (bound, BoundSource::GoldenSpread))
            }
            _ => (floor, (grown(pair, series, group.map_or(0.0, |group| group.level), upstream), BoundSource::Growth)),
        };
        let (value, source) = if other > floor { (other, source) } else { (floor, BoundSource::RoundOff) };
        let source = if digits > value { BoundSource::PrintedDigits } else { source };
        // Converting decimals to binary adds a small error.
        Bound { value: digits * (1.0 + 1e-9) + value, source }
    }

    /// A tolerance below round-off for a series that has never come near it over a long time. Not for types coarser
    /// than float32, whose values stay equal for long and then change by a whole unit.
    fn faint_bound(&self, pair: &Pair<'_>, cell: Cell, difference: &Difference, upstream: Upstream) -> Option<Bound> {
        let series = &self.tensors[pair.target.0.tensor as usize].series[cell.series];
        let level = self.groups.get(&(pair.kind, cell.statistic)).map_or(0.0, |group| group.level);
        let past = series.farthest.max(level);
        let is_fine = pair.facts.coarsest <= unit_roundoff(Dtype::F32);
        let is_known = is_fine && series.seen > EARLY_STEPS && past > 0.0 && difference.spread.is_none();
        let value = 2.0 * (difference.digits + pair.facts.unit) + FAINT_GROWTH * upstream.growth * past;
        is_known.then_some(Bound { value, source: BoundSource::Growth })
    }

    fn series_of(&mut self, tensor: usize, statistic: u16) -> usize {
        let series = &mut self.tensors[tensor].series;
        series.iter().position(|known| known.statistic == statistic).unwrap_or_else(|| {
            series.push(Series { statistic, ..Series::default() });
            series.len() - 1
        })
    }

    /// The divergence of a value for which no tolerance applies.
    fn divergence(&self, names: &Names, pair: &Pair<'_>, statistic: &str, [target, golden]: [f64; 2]) -> Divergence {
        Divergence {
            rank: Some(self.rank),
            step: pair.target.1.step,
            tensor: names.key(pair.target.0.tensor),
            statistic: statistic.to_owned(),
            target,
            golden,
            difference: f64::INFINITY,
            bound: 0.0,
            bound_source: BoundSource::NoBound,
            note: None,
            is_faint: false,
            place: pair.place,
            dimensions: pair.target.0.shape.map(|shape| names.dimensions(shape)),
        }
    }

    fn suspect(&mut self, pair: &Pair<'_>, series: usize, divergence: Divergence) {
        self.suspects.push(Suspect { tensor: pair.target.0.tensor, series, divergence });
    }
}

fn difference_of(pair: &Pair<'_>, cell: Cell, values: &Values) -> Difference {
    let &Values { target, half_units, .. } = values;
    let scale = pair.magnitude.scale(cell.class, [target, values.golden[0]], pair.least, pair.elements);
    let relative = |difference: f64| if difference == 0.0 { 0.0 } else { difference / scale };
    let finite = || values.golden.iter().copied().filter(|golden| golden.is_finite());
    let nearest = finite().map(|golden| (target - golden).abs()).fold(f64::INFINITY, f64::min);
    let (least, most) = (finite().fold(f64::INFINITY, f64::min), finite().fold(f64::NEG_INFINITY, f64::max));
    let digits = if half_units > 0.0 && scale > 0.0 { half_units / scale } else { 0.0 };
    let spread = (values.golden.len() > 1).then(|| relative(most - least));
    Difference { relative: relative(nearest), digits, spread }
}

/// The noise that this step may have. Parameters and moments are computed from gradients: one without noise before
/// becomes as noisy as these.
fn grown(pair: &Pair<'_>, series: &Series, level: f64, upstream: Upstream) -> f64 {
    let past = series.farthest.max(level);
    let is_early = series.seen < EARLY_STEPS;
    match pair.facts.kind {
        _ if is_early => EARLY_GROWTH * past.max(upstream.level),
        KindClass::Elementwise | KindClass::Parameter => GROWTH * (upstream.growth * past).max(upstream.level),
        KindClass::Reduction | KindClass::Exact => GROWTH * upstream.growth * past,
    }
}
