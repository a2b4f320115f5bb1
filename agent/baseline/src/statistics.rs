//! Judges a step of runs that agree in their statistics only: which series are outside of their usual range.

use std::collections::HashSet;

use crate::departure::Departure;
use crate::levels::{Levels, SeriesId, Temper};
use crate::names::Names;
use crate::noise::{KindClass, SETTING, StatisticClass, class_of};
use crate::steps::{LOSS, RUN_KIND, RowHead, StepRows};

/// The smallest number of printed digits' units for which a few percent are visible.
const COARSE: f64 = 20.0;
const SETTING_SOURCE: &str = "a setting, which has no noise";
/// A marker in place of a statistic's number.
const SHAPE: u16 = u16::MAX;
const NUMBER_SOURCE: &str = "not a number, unlike in the golden run";

/// The state of all series of a rank.
#[derive(Debug, Default)]
pub(crate) struct Statistics {
    levels: Levels,
    /// Settings and shapes that differ, and series that are not numbers, already reported.
    told: HashSet<(u32, u16)>,
    /// The position of each tensor's row: in the target, and in each golden run.
    places: Vec<Vec<Option<u32>>>,
    /// The number of golden runs that had the last step.
    present: usize,
}

/// A number in the target and in the golden runs.
struct Cell<'a> {
    id: SeriesId,
    target: f64,
    golden: f64,
    /// The combined error of the two from printing.
    grain: f64,
    statistic: &'a str,
    class: StatisticClass,
}

impl Statistics {
    /// Judges a step that the first golden run has.
    pub(crate) fn look(&mut self, names: &Names, target: &StepRows, golden: &[Option<&StepRows>]) -> Vec<Departure> {
        let runs: Vec<&StepRows> = golden.iter().copied().flatten().collect();
        if runs.len() != self.present {
            // With fewer or more runs, the mean is different.
            self.present = runs.len();
            self.levels.forget();
        }
        self.places.resize_with(runs.len() + 1, Vec::new);
        for (places, rows) in self.places.iter_mut().zip(std::iter::once(target).chain(runs.iter().copied())) {
            places.clear();
            places.resize(names.tensors.len(), None);
            for (place, row) in rows.rows.iter().enumerate() {
                places[row.tensor as usize] = u32::try_from(place).ok();
            }
        }
        let places = std::mem::take(&mut self.places);
        let mut found = Vec::new();
        for (number, row) in target.rows.iter().enumerate() {
            let tensor = row.tensor as usize;
            // Of several rows of a tensor in a step the last one counts, as for the golden run.
            if places[0][tensor] != u32::try_from(number).ok() {
                continue;
            }
            let like = |(places, rows): (&Vec<Option<u32>>, &&'_ StepRows)| {
                rows.rows.get(places.get(tensor).copied().flatten()? as usize).copied()
            };
            let likes: Option<Vec<RowHead>> = places[1..].iter().zip(&runs).map(like).collect();
            let Some(likes) = likes else { continue };
            if likes.iter().any(|like| like.shape.is_some() && row.shape.is_some() && like.shape != row.shape) {
                found.extend(self.shape_departs(names, (row, number), target.step, likes[0].shape));
                continue;
            }
            self.look_at_row(names, (row, number), target, &likes, &runs, &mut found);
        }
        self.places = places;
        found
    }

    /// Forgets the usual distance of all series, which is then learnt again.
    pub(crate) fn forget(&mut self) {
        self.levels.forget();
    }

    /// Forgets which settings, shapes and invalid numbers were reported, because the report was discarded.
    pub(crate) fn forget_told(&mut self) {
        self.told.clear();
    }

    /// The number of settings, shapes and invalid numbers that still differ.
    pub(crate) fn still_wrong(&self) -> usize {
        self.told.len()
    }

    /// Reports a shape that differs from the golden run's, once per tensor. Shapes of activations depend on the batch
    /// and are ignored.
    fn shape_departs(
        &mut self,
        names: &Names,
        (row, number): (&RowHead, usize),
        step: u64,
        golden: Option<u16>,
    ) -> Option<Departure> {
        let kind = names.kind_name(names.tensors[row.tensor as usize].kind);
        let (one, other) = (row.shape?, golden?);
        if one == other || kind.starts_with("actv") || !self.told.insert((row.tensor, SHAPE)) {
            return None;
        }
        let note = format!("{} against {}", names.shape_text(one), names.shape_text(other));
        let departure = Departure::without_noise(step, names.key(row.tensor), "shape", [f64::NAN; 2], &note);
        Some(Departure { row: number, ..departure })
    }

    fn look_at_row(
        &mut self,
        names: &Names,
        (row, number): (&RowHead, usize),
        target: &StepRows,
        likes: &[RowHead],
        runs: &[&StepRows],
        found: &mut Vec<Departure>,
    ) {
        let known = &names.tensors[row.tensor as usize];
        let kind = class_of(names.kind_name(known.kind), names.bearer_name(known.bearer));
        let is_loss = names.kind_name(known.kind) == RUN_KIND && names.bearer_name(known.bearer) == LOSS;
        let temper = match kind {
            _ if is_loss => Temper::Signed,
            KindClass::Parameter => Temper::Parameter,
            KindClass::Elementwise => Temper::Accumulated,
            KindClass::Reduction | KindClass::Exact => Temper::Fresh,
        };
        for (column, &statistic) in names.columns_of(row.columns).iter().enumerate() {
            let text = names.statistic_name(statistic);
            let class = StatisticClass::of(text);
            if matches!(class, StatisticClass::NotJudged | StatisticClass::Share) {
                continue;
            }
            let value = |(row, rows): (&RowHead, &&StepRows)| {
                let columns = names.columns_of(row.columns);
                let column = columns.iter().position(|&other| other == statistic)?;
                Some((*rows.values.get(row.first + column)?, rows.digits.half_unit(row.table, column)))
            };
            let Some(golden) = likes.iter().zip(runs).map(value).collect::<Option<Vec<_>>>() else { continue };
            let grain = target.digits.half_unit(row.table, column) + golden[0].1;
            let cell = Cell {
                id: SeriesId { tensor: row.tensor, statistic, kind: known.kind, temper },
                target: target.values[row.first + column],
                golden: if is_loss { arithmetic_mean_of(&golden) } else { mean_of(&golden) },
                grain,
                statistic: text,
                class,
            };
            if let Some(mut departure) = self.look_at_cell(names, kind, target.step, &cell) {
                departure.row = number;
                found.push(departure);
            }
        }
    }

    fn look_at_cell(&mut self, names: &Names, kind: KindClass, step: u64, cell: &Cell<'_>) -> Option<Departure> {
        let &Cell { id, target, golden, grain, statistic, class } = cell;
        let values = [target, golden];
        let is_broken = |value: f64| if class == StatisticClass::Count { value != 0.0 } else { !value.is_finite() };
        let is_setting = kind == KindClass::Exact;
        let wrong = if is_broken(target) && !is_broken(golden) {
            Some(NUMBER_SOURCE)
        } else if is_setting && (target - golden).abs() > SETTING * target.abs().max(golden.abs()) + grain {
            Some(SETTING_SOURCE)
        } else {
            None
        };
        let series = (id.tensor, id.statistic);
        let Some(source) = wrong else {
            self.told.remove(&series);
            let has_level = matches!(class, StatisticClass::Norm | StatisticClass::Plain) || statistic == "absmax";
            let is_followed = has_level && !is_setting;
            if !is_followed || is_broken(golden) || (grain > 0.0 && target.abs().min(golden.abs()) < COARSE * grain) {
                return None;
            }
            let beyond = self.levels.take(id, step, target, golden)?;
            return Some(Departure::of_level(step, names.key(id.tensor), statistic, values, beyond));
        };
        let is_new = self.told.insert(series);
        is_new.then(|| Departure::without_noise(step, names.key(id.tensor), statistic, values, source))
    }
}

fn arithmetic_mean_of(golden: &[(f64, f64)]) -> f64 {
    golden.iter().map(|(value, _)| value).sum::<f64>() / golden.len() as f64
}

/// The geometric mean of several numbers; a single one is returned unchanged, with its sign.
fn mean_of(golden: &[(f64, f64)]) -> f64 {
    match golden {
        [(only, _)] => *only,
        _ if golden.iter().any(|(value, _)| *value == 0.0) => 0.0,
        _ => (golden.iter().map(|(value, _)| value.abs().ln()).sum::<f64>() / golden.len() as f64).exp(),
    }
}
