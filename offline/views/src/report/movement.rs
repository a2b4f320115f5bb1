//! Finds where a series leaves its usual range.

use serde::Serialize;

/// The number of preceding values that a value is compared with.
const WINDOW: usize = 32;
/// The smallest number of values for a usual level.
pub(super) const LEAST: usize = 12;
/// The farthest value is searched in this many values after the first.
const FARTHEST_WITHIN: usize = 8;
/// The deviations from which on a value is reported: beyond chance among the series of a large model.
const TOLD_FROM: f64 = 8.0;
/// The smallest relative scatter: series that scatter less count as constant, and a change of 2 % is not reported.
const LEAST_SCATTER: f64 = 0.02;
/// The factor from a median absolute deviation to a normal distribution's standard deviation.
const NORMAL: f64 = 1.4826;
/// A lower limit for logarithms, because zero has none.
const SMALLEST: f64 = 1e-30;

/// A value of a series: of one step, or of several steps that share a bin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) first_step: u64,
    pub(super) last_step: u64,
    pub(super) value: f64,
}

/// The direction in which a series moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Above its usual range.
    Rises,
    /// Below its usual range.
    Falls,
    /// NaN or infinite.
    NotFinite,
}

/// A departure of one series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SeriesDeparture {
    /// The first value outside the usual range, and its steps.
    pub(super) at: Point,
    /// The median of the values before.
    pub(super) usual: Option<f64>,
    pub(super) direction: Direction,
    /// The distance of the farthest of the first nine values from the values before, in deviations.
    pub(super) deviations: f64,
    /// The number of values that the first one was compared with.
    pub(super) held_against: usize,
    /// Whether the series returned to its usual range by the end.
    pub(super) returned: bool,
}

/// Returns the first departure of a series: a non-finite value, or one far outside the scatter of the values before it.
/// A slow trend is none, because its baseline moves with it.
///
/// Magnitudes are compared by their logarithms, series with negative values directly.
pub(super) fn first_departure(points: &[Point]) -> Option<SeriesDeparture> {
    let is_magnitude = !points.iter().any(|point| point.value < 0.0);
    let level = |value: f64| if is_magnitude { value.max(SMALLEST).ln() } else { value };
    let mut before: Vec<f64> = Vec::with_capacity(points.len());
    let mut found: Option<(SeriesDeparture, Baseline)> = None;
    let mut since = 0;
    for &point in points {
        if !point.value.is_finite() {
            // A departure that returned is separate from the next one.
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
            // Later values show where the series went afterwards.
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

/// The baseline of the preceding values.
struct Baseline {
    median: f64,
    /// The standard deviation, estimated from the median of distances or of differences between neighbours, whichever
    /// is smaller.
    scatter: f64,
    /// The standard deviation, estimated from the median of distances only.
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
        // A series with a trend is far from its median most of the time: its scatter is the size of its changes per
        // step.
        let strides = recent.windows(2).map(|pair| (pair[1] - pair[0]).abs() / f64::sqrt(2.0)).collect();
        Some(Self { median, scatter: around.min(NORMAL * self::median(strides)), around })
    }

    /// Deviations from the median, or from the preceding value if that is nearer. A series with a trend, such as
    /// gradients in the first steps, leaves its median with every step without a jump.
    fn leap(&self, value: f64, last: Option<f64>, is_magnitude: bool) -> f64 {
        let rise = self.distance(value, self.around, is_magnitude);
        if rise >= TOLD_FROM {
            // Independent of the number of steps: a divergence is not always a jump.
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
