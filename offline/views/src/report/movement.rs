//! Where a series leaves what it was before.

use serde::Serialize;

/// A value is held against so many before it.
const WINDOW: usize = 32;
/// With fewer there is no usual level.
pub(super) const LEAST: usize = 12;
/// The farthest value is looked for in so many behind the first.
const FARTHEST_WITHIN: usize = 8;
/// Deviations from which on a value is told of: beyond chance, among the series of a large model.
const TOLD_FROM: f64 = 8.0;
/// Series that scatter by less than 2 % are as good as constant, and a change of 2 % is no news.
const LEAST_SCATTER: f64 = 0.02;
/// What makes a normal distribution's standard deviation of a median absolute deviation.
const NORMAL: f64 = 1.4826;
/// Zero has no logarithm.
const SMALLEST: f64 = 1e-30;

/// A value of a series: of one step, or of the several that share a bin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) first_step: u64,
    pub(super) last_step: u64,
    pub(super) value: f64,
}

/// How a series moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Above what it was before.
    Rises,
    /// Below what it was before.
    Falls,
    /// NaN or infinite.
    NotFinite,
}

/// A departure of one series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SeriesDeparture {
    /// The first value beyond, and its steps.
    pub(super) at: Point,
    /// The median of the values before.
    pub(super) usual: Option<f64>,
    pub(super) direction: Direction,
    /// The farthest of the values from that step on, in deviations of what was before it: of the first nine.
    pub(super) deviations: f64,
    /// Values that the first one was held against.
    pub(super) held_against: usize,
    /// Whether the series ends where it was before.
    pub(super) returned: bool,
}

/// The first departure of a series, if there is one: a value that is not finite, or one far outside the scatter of those
/// before it. A slow trend is none: what was before moves with it.
///
/// Magnitudes are compared by their logarithms, series with negative values as they are.
pub(super) fn first_departure(points: &[Point]) -> Option<SeriesDeparture> {
    let is_magnitude = !points.iter().any(|point| point.value < 0.0);
    let level = |value: f64| if is_magnitude { value.max(SMALLEST).ln() } else { value };
    let mut before: Vec<f64> = Vec::with_capacity(points.len());
    let mut found: Option<(SeriesDeparture, Baseline)> = None;
    let mut since = 0;
    for &point in points {
        if !point.value.is_finite() {
            // What departed and came back is another matter.
            if let Some((departure, _)) = found
                && !departure.returned
            {
                return Some(departure);
            }
            return Some(SeriesDeparture {
                at: point,
                usual: Baseline::of(&before).map(|baseline| unlevel(baseline.median, is_magnitude)),
                direction: Direction::NotFinite,
                deviations: f64::INFINITY,
                held_against: before.len().min(WINDOW),
                returned: points.last().is_some_and(|last| last.value.is_finite()),
            });
        }
        let value = level(point.value);
        if let Some((departure, baseline)) = &mut found {
            let deviations = baseline.deviations(value, is_magnitude);
            let is_same_way = (deviations > 0.0) == (departure.direction == Direction::Rises);
            since += 1;
            // Later it is where the series has gone since.
            if is_same_way && since <= FARTHEST_WITHIN {
                departure.deviations = departure.deviations.max(deviations.abs());
            }
            departure.returned = deviations.abs() < TOLD_FROM;
        } else if let Some(baseline) = Baseline::of(&before) {
            let deviations = baseline.leap(value, before.last().copied(), is_magnitude);
            if deviations.abs() >= TOLD_FROM {
                let departure = SeriesDeparture {
                    at: point,
                    usual: Some(unlevel(baseline.median, is_magnitude)),
                    direction: if deviations > 0.0 { Direction::Rises } else { Direction::Falls },
                    deviations: deviations.abs(),
                    held_against: before.len().min(WINDOW),
                    returned: false,
                };
                found = Some((departure, baseline));
            }
        }
        before.push(value);
    }
    found.map(|(departure, _)| departure)
}

fn unlevel(value: f64, is_magnitude: bool) -> f64 {
    if is_magnitude { value.exp() } else { value }
}

/// What the last values were.
struct Baseline {
    median: f64,
    /// A standard deviation, by the median of distances or of strides from value to value, whichever is smaller.
    scatter: f64,
    /// The same by the median of distances alone.
    around: f64,
}

impl Baseline {
    fn of(before: &[f64]) -> Option<Self> {
        let recent = &before[before.len().saturating_sub(WINDOW)..];
        if recent.len() < LEAST {
            return None;
        }
        let median = median(recent.to_vec());
        let around = NORMAL * self::median(recent.iter().map(|value| (value - median).abs()).collect());
        // A series on its way somewhere is far from its median most of the time: what scatters is how far it goes in a step.
        let strides = recent.windows(2).map(|pair| (pair[1] - pair[0]).abs() / f64::sqrt(2.0)).collect();
        Some(Self { median, scatter: around.min(NORMAL * self::median(strides)), around })
    }

    /// Deviations from the median, or from the value just before where that is nearer: a series on its way down or up, as gradients
    /// in the first steps are, leaves its median with every step and leaps with none.
    fn leap(&self, value: f64, last: Option<f64>, is_magnitude: bool) -> f64 {
        let rise = self.distance(value, self.around, is_magnitude);
        if rise >= TOLD_FROM {
            // However many steps it took: what diverges does not always leap.
            return rise;
        }
        let from_median = self.deviations(value, is_magnitude);
        let Some(last) = last else { return from_median };
        let from_last = from_median - self.deviations(last, is_magnitude);
        if (from_last > 0.0) != (from_median > 0.0) {
            return 0.0;
        }
        if from_last.abs() < from_median.abs() { from_last } else { from_median }
    }

    fn deviations(&self, value: f64, is_magnitude: bool) -> f64 {
        self.distance(value, self.scatter, is_magnitude)
    }

    fn distance(&self, value: f64, scatter: f64, is_magnitude: bool) -> f64 {
        let least = if is_magnitude { LEAST_SCATTER } else { LEAST_SCATTER * self.median.abs().max(SMALLEST) };
        (value - self.median) / scatter.max(least)
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len().is_multiple_of(2) { f64::midpoint(values[middle - 1], values[middle]) } else { values[middle] }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(values: impl IntoIterator<Item = f64>) -> Vec<Point> {
        let point = |(step, value)| Point { first_step: step, last_step: step, value };
        (0..).zip(values).map(point).collect()
    }

    fn noisy(step: u64) -> f64 {
        1.0 + 0.05 * (f64::from(u32::try_from(step).unwrap()) * 1.7).sin()
    }

    #[test]
    fn a_spike_is_found_at_its_step_and_has_returned() {
        let departure = first_departure(&points((0..60).map(|s| if s == 40 { 30.0 } else { noisy(s) }))).unwrap();
        assert_eq!((departure.at.first_step, departure.direction), (40, Direction::Rises));
        assert!(departure.returned && departure.deviations > 25.0, "{departure:?}");
        assert!((departure.usual.unwrap() - 1.0).abs() < 0.05);
    }

    #[test]
    fn a_lasting_fall_has_not_returned_and_tells_the_farthest_value() {
        let fallen = |s: u64| if s < 40 { noisy(s) } else { noisy(s) / (2.0 + s as f64 - 40.0) };
        let departure = first_departure(&points((0..60).map(fallen))).unwrap();
        assert_eq!((departure.at.first_step, departure.direction, departure.returned), (40, Direction::Falls, false));
        assert!(departure.deviations > 2.0 * TOLD_FROM, "{departure:?}");
    }

    #[test]
    fn a_value_that_is_not_finite_is_one_at_once() {
        let departure = first_departure(&points([1.0, f64::NAN, 1.0])).unwrap();
        assert_eq!((departure.at.first_step, departure.direction), (1, Direction::NotFinite));
        assert_eq!((departure.usual, departure.held_against, departure.returned), (None, 1, true));
    }

    #[test]
    fn neither_noise_nor_a_trend_nor_the_first_steps_are_departures() {
        assert_eq!(first_departure(&points((0..500).map(noisy))), None);
        assert_eq!(first_departure(&points((0..500).map(|s| 10.0 * (-0.01 * s as f64).exp() * noisy(s)))), None);
        assert_eq!(first_departure(&points((0..500).map(|s| -3.0 + 0.01 * f64::from(s)))), None);
        assert_eq!(first_departure(&points([1.0, 100.0, 1.0, 1e-9])), None);
    }

    #[test]
    fn a_series_that_falls_quickly_in_its_first_steps_is_none() {
        let falling = |s: u64| noisy(s) * (0.2 + 8.0 * (-0.15 * s as f64).exp());
        assert_eq!(first_departure(&points((0..80).map(falling))), None);
        let with_spike = |s: u64| if s == 20 { 50.0 * falling(s) } else { falling(s) };
        assert_eq!(first_departure(&points((0..80).map(with_spike))).unwrap().at.first_step, 20);
    }

    #[test]
    fn a_rise_over_several_steps_is_one() {
        let rising =
            |s: u64| noisy(s) * if s < 60 { 1.0 } else { 1.5_f64.powi(i32::try_from(s - 59).unwrap().min(17)) };
        let departure = first_departure(&points((0..90).map(rising))).unwrap();
        assert!(
            (60..66).contains(&departure.at.first_step) && departure.direction == Direction::Rises,
            "{departure:?}"
        );
    }

    #[test]
    fn a_constant_that_changes_is_one() {
        let departure = first_departure(&points((0..60).map(|s| if s < 50 { 1e-3 } else { 1e-4 }))).unwrap();
        assert_eq!((departure.at.first_step, departure.direction), (50, Direction::Falls));
        assert_eq!(
            first_departure(&points((0..60).map(|s| if s < 50 { 0.0 } else { 1.0 }))).unwrap().at.first_step,
            50
        );
    }
}
