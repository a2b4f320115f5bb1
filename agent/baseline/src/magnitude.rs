//! The magnitude of a tensor's elements, to which differences are relative.

use super::names::Names;
use super::noise::StatisticClass;
use super::steps::{RowHead, StepRows};

/// The columns of a row.
#[derive(Debug)]
pub(super) struct ColumnsPlan {
    /// Statistic and class, in order of the columns.
    pub(super) columns: Vec<(u16, StatisticClass)>,
    norm: Option<usize>,
    extremes: Vec<usize>,
}

impl ColumnsPlan {
    pub(super) fn of(names: &Names, columns: u16) -> Self {
        let statistics = names.columns_of(columns);
        let is = |wanted: &[&str], statistic: u16| wanted.contains(&names.statistic_name(statistic));
        let place = |wanted: &[&str]| statistics.iter().position(|&statistic| is(wanted, statistic));
        let numbered = statistics.iter().enumerate();
        let extremes = numbered.filter(|(_, statistic)| is(&["min", "max", "absmax"], **statistic));
        let extremes = extremes.map(|(place, _)| place).collect();
        let classed =
            statistics.iter().map(|&statistic| (statistic, StatisticClass::of(names.statistic_name(statistic))));
        Self { columns: classed.collect(), norm: place(&["norm"]), extremes }
    }

    pub(super) fn place_of(&self, statistic: u16) -> Option<usize> {
        self.columns.iter().position(|(known, _)| *known == statistic)
    }
}

/// The magnitudes of a row's tensor, as far as its statistics contain them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Magnitude {
    /// The root mean square of the elements.
    rms: Option<f64>,
    /// The largest element.
    largest: Option<f64>,
}

impl Magnitude {
    pub(super) fn of(row: &RowHead, rows: &StepRows, plan: &ColumnsPlan, elements: Option<f64>) -> Self {
        let value = |place: usize| rows.values[row.first + place].abs();
        let norm = plan.norm.map(value).filter(|norm| norm.is_finite());
        let rms = norm.zip(elements).map(|(norm, elements)| norm / elements.max(1.0).sqrt());
        let extremes = plan.extremes.iter().map(|&place| value(place)).filter(|value| value.is_finite());
        Self { rms, largest: extremes.reduce(f64::max) }
    }

    /// The larger value of each.
    pub(super) fn or(self, other: Self) -> Self {
        let larger = |one: Option<f64>, other: Option<f64>| one.into_iter().chain(other).reduce(f64::max);
        Self { rms: larger(self.rms, other.rms), largest: larger(self.largest, other.largest) }
    }

    /// The magnitude of a typical element.
    pub(super) fn typical(self) -> Option<f64> {
        self.rms.or(self.largest)
    }

    /// The scale for the difference between two values of a statistic. `least` is the lower limit for the magnitude of
    /// its elements.
    pub(super) fn scale(self, class: StatisticClass, values: [f64; 2], least: f64, elements: Option<f64>) -> f64 {
        let own = values[0].abs().max(values[1].abs());
        match class {
            StatisticClass::Share => 1.0,
            StatisticClass::Norm => own.max(least * elements.unwrap_or(1.0).max(1.0).sqrt()),
            StatisticClass::Mean => self.rms.or(self.largest).unwrap_or(own).max(own).max(least),
            StatisticClass::Extreme => self.largest.unwrap_or(own).max(self.rms.unwrap_or(own)).max(own).max(least),
            _ => own,
        }
    }
}

/// The median, or the quantile at another share; 0 without numbers.
pub fn quantile(numbers: &mut [f64], share: f64) -> f64 {
    let Some(last) = numbers.len().checked_sub(1) else { return 0.0 };
    let place = (last as f64 * share).round() as usize;
    *numbers.select_nth_unstable_by(place.min(last), f64::total_cmp).1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extreme_near_zero_is_measured_by_the_other_elements() {
        // The largest of elements around -0.01 is nearly 0, and the smallest was not asked for.
        let magnitude = Magnitude { rms: Some(1e-2), largest: Some(1e-5) };
        assert_eq!(magnitude.scale(StatisticClass::Extreme, [1e-5, -1e-5], 0.0, Some(32.0)), 1e-2);
        assert_eq!(magnitude.scale(StatisticClass::Mean, [1e-9, 2e-9], 0.0, Some(32.0)), 1e-2);
        assert_eq!(magnitude.scale(StatisticClass::Norm, [3.0, 2.0], 0.0, Some(32.0)), 3.0);
    }

    #[test]
    fn quantiles_are_numbers_of_the_list() {
        assert_eq!(quantile(&mut [3.0, 1.0, 2.0], 0.5), 2.0);
        assert_eq!(quantile(&mut [3.0, 1.0, 2.0], 1.0), 3.0);
        assert_eq!(quantile(&mut [], 0.5), 0.0);
    }
}
