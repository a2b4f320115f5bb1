//! The panels of a picture: which curves, on which scale, with which marks.

use trainmon_history::{AxisDocument, CurveDocument, Overview, curves};

/// One curve with its scale.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Panel {
    pub(super) title: String,
    /// Steps and finite values. A missing or non-finite value breaks the line.
    pub(super) lines: Vec<Vec<(f64, f64)>>,
    /// The step with the smallest and the largest value, where several steps share one place.
    pub(super) band: Vec<(f64, f64, f64)>,
    /// The steps with a non-finite value.
    pub(super) non_finite: Vec<f64>,
    /// The range of the values, widened so that no line touches the edge.
    pub(super) range: (f64, f64),
    pub(super) is_logarithmic: bool,
}

/// The curves that every run should have, in display order.
const PANELS: [(&str, &str); 7] = [
    (curves::LOSS, "loss"),
    (curves::GRAD_NORM, "gradient norm"),
    (curves::STEP_SECONDS, "step time (s)"),
    (curves::LEARNING_RATE, "learning rate"),
    (curves::UPDATE_NORM, "update norm"),
    (curves::UPDATE_RATIO_MAX, "largest update ratio"),
    (curves::UPDATE_RATIO_MEDIAN, "median update ratio"),
];
/// The number of places across a panel.
const MOST_PLACES: usize = 480;
/// The number of panels that fit into a picture.
const MOST: usize = 4;
/// Values that span at least this ratio get a logarithmic scale.
const LOGARITHMIC_FROM: f64 = 50.0;

/// At most four panels, one for each curve that has values.
pub(super) fn panels(overview: &Overview) -> Vec<Panel> {
    let known = PANELS.iter().filter_map(|(name, title)| Some((find(overview, name)?, (*title).to_owned())));
    // A curve of rank numbers is not a quantity.
    let is_own = |curve: &&CurveDocument| curve.name.starts_with("scalar/") && !curves::is_label(&curve.name);
    let own = overview.curves.iter().filter(is_own).map(|curve| (curve, curve.name.replacen("scalar/", "", 1)));
    known.chain(own).filter_map(|(curve, title)| panel(&overview.steps, curve, title)).take(MOST).collect()
}

fn find<'a>(overview: &'a Overview, name: &str) -> Option<&'a CurveDocument> {
    overview.curves.iter().find(|curve| curve.name == name)
}

fn panel(steps: &AxisDocument, curve: &CurveDocument, title: String) -> Option<Panel> {
    let (mut lines, mut line, mut non_finite) = (Vec::new(), Vec::new(), Vec::new());
    let (mut band, mut range) = (Vec::new(), (f64::INFINITY, f64::NEG_INFINITY));
    let bins_per_place = steps.last.len().div_ceil(MOST_PLACES).max(1);
    let bins: Vec<usize> = (0..steps.last.len().min(curve.last.len())).collect();
    for bins in bins.chunks(bins_per_place) {
        let place = Place::of(steps, curve, bins);
        if place.has_non_finite {
            non_finite.push(place.step);
        }
        if let Some((low, high)) = place.range {
            range = (range.0.min(low), range.1.max(high));
            if high > low {
                band.push((place.step, low, high));
            }
        }
        match place.last {
            Some(value) => line.push((place.step, value)),
            None if !line.is_empty() => lines.push(std::mem::take(&mut line)),
            None => {}
        }
    }
    lines.extend((!line.is_empty()).then_some(line));
    let (low, high) = range;
    if low > high && non_finite.is_empty() {
        return None;
    }
    let is_logarithmic = low > 0.0 && high / low > LOGARITHMIC_FROM;
    Some(Panel { title, lines, band, non_finite, range: widened(low, high, is_logarithmic), is_logarithmic })
}

/// Bins that share a place: a picture has fewer pixels than a run has steps.
struct Place {
    /// The step of the last bin.
    step: f64,
    /// The smallest and the largest finite value.
    range: Option<(f64, f64)>,
    /// The newest finite value.
    last: Option<f64>,
    has_non_finite: bool,
}

impl Place {
    fn of(steps: &AxisDocument, curve: &CurveDocument, bins: &[usize]) -> Self {
        let step = bins.last().map_or(0.0, |&bin| steps.last[bin] as f64);
        let mut place = Self { step, range: None, last: None, has_non_finite: false };
        for &bin in bins {
            let extreme = |of: &[Option<f64>]| of.get(bin).copied().flatten();
            let values = [extreme(&curve.low), extreme(&curve.high), curve.last[bin]];
            for value in values.into_iter().flatten() {
                if value.is_finite() {
                    let (low, high) = place.range.unwrap_or((value, value));
                    place.range = Some((low.min(value), high.max(value)));
                }
            }
            place.has_non_finite |= curve.is_broken(bin, steps.from);
            place.last = curve.last[bin].filter(|value| value.is_finite()).or(place.last);
        }
        place
    }
}

fn widened(low: f64, high: f64, is_logarithmic: bool) -> (f64, f64) {
    if low > high {
        // No finite value.
        return (0.0, 1.0);
    }
    if is_logarithmic {
        let margin = (high / low).powf(0.06);
        return (low / margin, high * margin);
    }
    let span = high - low;
    let margin = if span > 0.0 { 0.06 * span } else { 0.1 * high.abs().max(1e-12) };
    (low - margin, high + margin)
}

/// The steps in which alerts began, each once, in order.
pub(super) fn alert_steps(overview: &Overview) -> Vec<u64> {
    let begun = overview.alerts.iter().filter(|alert| alert.phase == trainmon_core::AlertPhase::Begins);
    let mut steps: Vec<u64> = begun.map(|alert| alert.step.0).collect();
    steps.sort_unstable();
    steps.dedup();
    steps
}

/// A number as an axis label: few digits, a power of ten where it would be long.
pub(super) fn label(value: f64) -> String {
    let magnitude = value.abs();
    if value == 0.0 {
        return "0".to_owned();
    }
    if !(1e-3..1e5).contains(&magnitude) {
        return trimmed(&format!("{value:.2e}"));
    }
    let decimals = (3.0 - magnitude.log10().floor()).clamp(0.0, 6.0) as usize;
    trimmed(&format!("{value:.decimals$}"))
}

/// Removes trailing zeros after the decimal point.
fn trimmed(text: &str) -> String {
    let (number, power) = text.find('e').map_or((text, ""), |place| text.split_at(place));
    let number = if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number };
    format!("{number}{power}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_on_an_axis_are_short() {
        for (value, expected) in [
            (0.0, "0"),
            (1.0, "1"),
            (1234.0, "1234"),
            (0.025, "0.025"),
            (1e-7, "1e-7"),
            (123_456.0, "1.23e5"),
            (-2.5, "-2.5"),
        ] {
            assert_eq!(label(value), expected);
        }
    }

    fn document(last: &[Option<f64>]) -> (AxisDocument, CurveDocument) {
        let steps: Vec<u64> = (0..last.len() as u64).collect();
        let time = vec![0.0; last.len()];
        let axis = AxisDocument {
            state: trainmon_history::AxisState::default(),
            from: 0,
            first: steps.clone(),
            last: steps,
            time,
        };
        (
            axis,
            CurveDocument {
                name: "loss".to_owned(),
                last: last.to_vec(),
                low: Vec::new(),
                high: Vec::new(),
                broken: Vec::new(),
            },
        )
    }

    #[test]
    fn a_line_is_broken_where_a_value_is_missing_or_not_finite() {
        let (axis, curve) = document(&[Some(1.0), Some(2.0), None, Some(3.0), Some(f64::NAN), Some(4.0)]);
        let panel = panel(&axis, &curve, "loss".to_owned()).unwrap();
        assert_eq!(panel.lines, [vec![(0.0, 1.0), (1.0, 2.0)], vec![(3.0, 3.0)], vec![(5.0, 4.0)]]);
        assert_eq!((panel.non_finite, panel.is_logarithmic), (vec![4.0], false));
        assert!(panel.range.0 < 1.0 && panel.range.1 > 4.0);
    }

    #[test]
    fn of_a_long_run_no_spike_is_lost_and_few_places_are_left() {
        let values: Vec<Option<f64>> = (0..10_000).map(|step| Some(if step == 5_001 { 9.0 } else { 1.0 })).collect();
        let (axis, curve) = document(&values);
        let panel = panel(&axis, &curve, "loss".to_owned()).unwrap();
        assert_eq!((panel.lines.len(), panel.lines[0].len() <= MOST_PLACES), (1, true));
        assert_eq!(panel.band.iter().map(|&(_, low, high)| (low, high)).collect::<Vec<_>>(), [(1.0, 9.0)]);
        assert!(panel.range.1 > 9.0);
    }

    #[test]
    fn a_rank_is_no_panel() {
        let mut history = trainmon_history::History::new(trainmon_history::Limits::default());
        for name in ["scalar/straggler_rank/world", "scalar/accuracy"] {
            let curve = history.curve(name).unwrap();
            for step in 0..3 {
                history.step(step, 0.0, false);
                history.record(curve, step, 1.0);
            }
        }
        let titles: Vec<String> = panels(&history.overview()).into_iter().map(|panel| panel.title).collect();
        assert_eq!(titles, ["accuracy"]);
    }

    #[test]
    fn a_curve_of_nothing_is_no_panel_and_one_of_nan_alone_is() {
        let (axis, curve) = document(&[None, None]);
        assert_eq!(panel(&axis, &curve, "loss".to_owned()), None);
        let (axis, curve) = document(&[Some(f64::NAN)]);
        assert_eq!(panel(&axis, &curve, "loss".to_owned()).unwrap().non_finite, [0.0]);
    }

    #[test]
    fn values_over_orders_of_magnitude_are_drawn_on_a_logarithmic_scale() {
        let (axis, curve) = document(&[Some(1e-3), Some(10.0)]);
        assert!(panel(&axis, &curve, "lr".to_owned()).unwrap().is_logarithmic);
        let (axis, curve) = document(&[Some(0.0), Some(10.0)]);
        assert!(!panel(&axis, &curve, "lr".to_owned()).unwrap().is_logarithmic, "zero has no logarithm");
    }
}
