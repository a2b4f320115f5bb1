//! The evidence in one rank's history.

use trainmon_core::{Alert, AlertPhase, FiniteCalls, Kind, layer_of};
use trainmon_history::{ABSENT, AxisDocument, CurveDocument, HeatMap, Overview};

use super::document::{Certainty, CurveSummary, Moved, RankSummary, ReportedAlert, StandsOut};
use super::movement::{Direction, Point, SeriesDeparture, first_departure};
use super::{order, stands_out};
use crate::rank_history::RankHistory;

/// The number of departures and alerts kept for a rank: more than a report can hold.
const MOST: usize = 400;

/// The evidence of one rank.
#[derive(Debug)]
pub(super) struct Evidence {
    pub(super) summary: RankSummary,
    pub(super) moved: Vec<Moved>,
    pub(super) stands_out: Vec<StandsOut>,
    pub(super) alerts: Vec<ReportedAlert>,
    pub(super) curves: Vec<CurveSummary>,
    /// The number of examined series.
    pub(super) series: u64,
    /// The number of series with too few values to examine.
    pub(super) too_short: u64,
    pub(super) steps_per_value: u64,
    pub(super) steps_per_tensor_value: u64,
    pub(super) rows_left_out: u64,
}

impl Evidence {
    pub(super) fn of(history: &RankHistory) -> Self {
        let rank = history.run.rank.0;
        let overview = history.overview();
        let mut search = Search { rank, moved: Vec::new(), series: 0, too_short: 0 };
        for curve in overview.curves.iter().filter(|curve| !order::is_no_evidence(&curve.name)) {
            search.curve(&overview.steps, curve);
        }
        let mut stands_out: Vec<StandsOut> =
            stands_out::slow_step(&overview.steps, &overview.curves, rank).into_iter().collect();
        for kind in &overview.tables.kinds {
            // The first statistic is the norm, or the kind's first number: one departure per tensor is enough.
            let map = kind.statistics.first().and_then(|statistic| history.history.heat_map(&kind.name, statistic, 0));
            if let Some(map) = map {
                search.tensors(&map);
                stands_out.extend(stands_out::of_map(&map, rank, history.sampled_steps > 0));
            }
        }
        let Search { mut moved, series, too_short, .. } = search;
        let count = moved.len() as u64;
        earliest_and_farthest(&mut moved);
        let begun = |alert: &&Alert| alert.phase == AlertPhase::Begins;
        Self {
            summary: RankSummary {
                rank,
                steps: history.steps,
                range: history.range,
                measured_steps: history.measured_steps,
                alerts: history.alerts.iter().filter(begun).count() as u64,
                moved: count,
                dropped: history.dropped(),
            },
            moved,
            stands_out,
            alerts: history.alerts.iter().filter(begun).take(MOST).map(reported).collect(),
            curves: overview.curves.iter().map(|curve| curve_summary(rank, &overview.steps, curve)).collect(),
            series,
            too_short,
            steps_per_value: overview.steps.state.width,
            steps_per_tensor_value: columns_width(&overview),
            rows_left_out: overview.tables.rows_left_out,
        }
    }
}

fn columns_width(overview: &Overview) -> u64 {
    overview.tables.columns.width
}

/// Sorts by step, causes first. Of too many entries, keeps the earliest and the farthest.
fn earliest_and_farthest(moved: &mut Vec<Moved>) {
    order::sort(moved);
    if moved.len() > MOST {
        let mut rest = moved.split_off(MOST / 2);
        rest.sort_by(|a, b| b.deviations.total_cmp(&a.deviations));
        rest.truncate(MOST / 2);
        moved.append(&mut rest);
        order::sort(moved);
    }
}

struct Search {
    rank: u32,
    moved: Vec<Moved>,
    series: u64,
    too_short: u64,
}

impl Search {
    fn curve(&mut self, steps: &AxisDocument, curve: &CurveDocument) {
        let points = |ends: &[Option<f64>]| -> Vec<Point> {
            let value = |bin: usize| match ends.get(bin).copied().flatten() {
                Some(_) if curve.is_broken(bin, steps.from) => Some(f64::NAN),
                value => value,
            };
            let point =
                |bin| Some(Point { first_step: steps.first[bin], last_step: steps.last[bin], value: value(bin)? });
            let points = (0..steps.first.len()).filter_map(point);
            // A parameter that starts at zero has no ratio yet.
            let has_no_ratio = |point: &Point| curve.name.starts_with("update_ratio") && !point.value.is_finite();
            points.skip_while(has_no_ratio).collect()
        };
        let departure = if curve.high.is_empty() {
            self.look(&points(&curve.last))
        } else {
            // In a bin of several steps, a rise shows in the largest value and a fall in the smallest.
            let fall = first_departure(&points(&curve.low)).filter(|fall| fall.direction == Direction::Falls);
            earlier(self.look(&points(&curve.high)), fall)
        };
        if let Some(departure) = departure {
            self.moved.push(moved(self.rank, &departure, &curve.name, None, None));
        }
    }

    fn tensors(&mut self, map: &HeatMap) {
        let width = map.columns.first.len();
        let rows = || map.names.iter().zip(map.values.chunks(width.max(1)));
        let activations = rows().filter(|_| map.kind == Kind::Actv.name());
        // The rule `NonFinite` has the same exception.
        let calls = FiniteCalls::of(
            activations.map(|(name, values)| (&**name, (), values.iter().all(|value| value.is_finite()))),
        );
        for (name, values) in rows() {
            let is_infinite = values.contains(&f32::INFINITY) && !values.iter().any(|value| value.is_nan());
            if is_infinite && calls.are_given(name, ()) {
                self.series += 1;
                continue;
            }
            // A parameter that starts at zero has no ratio yet.
            let has_no_ratio = |value: &f32| map.kind == Kind::UpdateRatio.name() && !value.is_finite();
            let without_ratio = values.iter().take_while(|value| **value == ABSENT || has_no_ratio(value)).count();
            let points: Vec<Point> = values
                .iter()
                .enumerate()
                .skip(without_ratio)
                .filter(|(_, value)| **value != ABSENT)
                .map(|(column, &value)| Point {
                    first_step: map.columns.first[column],
                    last_step: map.columns.last[column],
                    value: f64::from(value),
                })
                .collect();
            if let Some(departure) = self.look(&points) {
                self.moved.push(moved(self.rank, &departure, &map.kind, Some(&map.statistic), Some(name)));
            }
        }
    }

    fn look(&mut self, points: &[Point]) -> Option<SeriesDeparture> {
        self.series += 1;
        if points.len() <= super::movement::LEAST {
            self.too_short += 1;
        }
        first_departure(points)
    }
}

/// The departure that began first; within one bin, the farther one.
fn earlier(one: Option<SeriesDeparture>, other: Option<SeriesDeparture>) -> Option<SeriesDeparture> {
    match (one, other) {
        (Some(one), Some(other)) => {
            let is_later = other.at.first_step > one.at.first_step;
            let is_nearer = other.at.first_step == one.at.first_step && other.deviations <= one.deviations;
            Some(if is_later || is_nearer { one } else { other })
        }
        (one, other) => one.or(other),
    }
}

fn moved(rank: u32, departure: &SeriesDeparture, signal: &str, statistic: Option<&str>, tensor: Option<&str>) -> Moved {
    let SeriesDeparture { at, usual, direction, deviations, held_against, returned } = *departure;
    Moved {
        step: at.first_step,
        step_up_to: at.last_step,
        rank,
        signal: signal.to_owned(),
        statistic: statistic.map(str::to_owned),
        tensor: tensor.map(str::to_owned),
        layer: tensor.map(|tensor| layer_of(tensor).to_owned()),
        direction,
        value: at.value,
        usual,
        deviations,
        held_against,
        certainty: Certainty::of(deviations),
        returned,
    }
}

fn reported(alert: &Alert) -> ReportedAlert {
    let Alert { rule, severity, phase, findings, step, rank, series, value, expected, moved_first, message, .. } =
        alert;
    let passed = |bound: &f64, is_upper: bool| if is_upper { *value > *bound } else { *value < *bound };
    let bound =
        expected.upper.filter(|upper| passed(upper, true)).or(expected.lower.filter(|lower| passed(lower, false)));
    ReportedAlert {
        step: step.0,
        rank: rank.0,
        rule: *rule,
        severity: *severity,
        phase: *phase,
        findings: *findings,
        series: series.to_string(),
        layer: series.layer.clone(),
        value: *value,
        usual: expected.typical,
        bound,
        moved_first: moved_first.as_ref().map(ToString::to_string),
        message: message.clone(),
    }
}

fn curve_summary(rank: u32, steps: &AxisDocument, curve: &CurveDocument) -> CurveSummary {
    let CurveDocument { name, last, low, high, broken: _ } = curve;
    // While each bin holds one step, both are the value itself.
    let (low, high) = if high.is_empty() { (last, last) } else { (low, high) };
    let finite = |values: &[Option<f64>]| -> Vec<(usize, f64)> {
        let with_place = values.iter().enumerate().filter_map(|(bin, value)| Some((bin, (*value)?)));
        with_place.filter(|(_, value)| value.is_finite()).collect()
    };
    let largest = finite(high).into_iter().reduce(|a, b| if b.1 > a.1 { b } else { a });
    CurveSummary {
        rank,
        name: name.clone(),
        first: last.iter().copied().find_map(|value| value),
        last: last.iter().rev().copied().find_map(|value| value),
        smallest: finite(low).into_iter().map(|(_, value)| value).reduce(f64::min),
        largest: largest.map(|(_, value)| value),
        largest_at: largest.and_then(|(bin, _)| steps.first.get(bin).copied()),
        not_finite: (0..last.len()).filter(|&bin| curve.is_broken(bin, steps.from)).count() as u64,
    }
}

#[cfg(test)]
mod tests {
    use trainmon_history::AxisState;

    use super::*;

    #[test]
    fn a_fall_of_one_step_within_a_bin_of_several_is_found() {
        const BINS: u64 = 60;
        let state = AxisState { generation: 1, width: 4, bins: BINS as usize };
        let steps = AxisDocument {
            state,
            from: 0,
            first: (0..BINS).map(|bin| 4 * bin).collect(),
            last: (0..BINS).map(|bin| 4 * bin + 3).collect(),
            time: vec![0.0; BINS as usize],
        };
        let level = |bin: u64| 2.0 + 0.1 * (bin as f64 * 1.7).sin();
        let values = |of: &dyn Fn(u64) -> f64| (0..BINS).map(|bin| Some(of(bin))).collect::<Vec<_>>();
        let curve = CurveDocument {
            name: "loss".to_owned(),
            last: values(&level),
            low: values(&|bin| if bin == 40 { 0.01 } else { level(bin) - 0.05 }),
            high: values(&|bin| level(bin) + 0.05),
            broken: Vec::new(),
        };
        let search = |curve: &CurveDocument| {
            let mut search = Search { rank: 0, moved: Vec::new(), series: 0, too_short: 0 };
            search.curve(&steps, curve);
            assert_eq!(search.series, 1);
            search.moved.pop().map(|moved| (moved.step, moved.step_up_to, moved.direction))
        };
        assert_eq!(search(&curve), Some((160, 163, Direction::Falls)));
        let broken = CurveDocument { low: curve.low[..40].to_vec(), broken: vec![30], ..curve.clone() };
        assert_eq!(search(&broken), Some((120, 123, Direction::NotFinite)));
        let calm = CurveDocument { low: values(&|bin| level(bin) - 0.05), ..curve };
        assert_eq!(search(&calm), None);
    }
}
