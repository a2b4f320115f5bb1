//! Findings without a movement: rows that stop, a layer unlike its siblings, a slow step, a parameter that grew.

use std::collections::{BTreeMap, BTreeSet};

use trainmon_core::{Kind, layer_of, shown_name};
use trainmon_history::{ABSENT, AxisDocument, CurveDocument, HeatMap, curves};

use super::document::{StandsOut, StandsOutKind};
use crate::rank_history::RankHistory;

/// The number of measured columns that a series needs before its end, and that other series need after it.
const LEAST_BEFORE: usize = 12;
const LEAST_BEHIND: usize = 10;
/// The share of the columns before its end in which a series must be measured.
const REGULAR: f64 = 0.9;
/// How many times its siblings' median a parameter's norm must be to count as a finding. Layers of one kind start alike
/// and train to within a factor of two.
const UNLIKE_PARAMETER: f64 = 5.0;
/// The same for the median update ratio. The ratios of equally shaped tensors lie within a factor of three.
const UNLIKE_UPDATE: f64 = 10.0;
/// With fewer siblings, the odd one cannot be identified.
const LEAST_SIBLINGS: usize = 3;
/// The growth of a parameter's norm, both absolute and relative to the median growth, that counts as a finding.
const GROWN: f64 = 3.0;
/// A norm below this share of the median parameter's norm started near zero and has to grow.
const BEGAN_NEAR_ZERO: f64 = 0.05;
/// A step that took this many times the median step, and this many seconds, is a stall.
const SLOW: f64 = 10.0;
const SLOW_SECONDS: f64 = 1.0;
/// The first steps compile, allocate and open files.
const FIRST_STEPS: u64 = 5;

fn short(value: f64) -> String {
    trainmon_core::short(value, 4)
}

/// The findings among one kind's tensors.
///
/// `is_sampled`: some steps measured only a part of the layers, so a missing row does not mean that it stopped.
pub(super) fn of_map(map: &HeatMap, rank: u32, is_sampled: bool) -> Vec<StandsOut> {
    let rows: Vec<Row<'_>> = map
        .names
        .iter()
        .zip(map.values.chunks(map.columns.first.len().max(1)))
        .map(|(name, values)| Row { name, values })
        .collect();
    let is = |kinds: &[Kind]| kinds.iter().any(|kind| kind.name() == map.kind);
    let mut found = Vec::new();
    if is(&[Kind::GradReduced, Kind::GradUnreduced]) && !is_sampled {
        found.extend(stopped(map, &rows, rank));
    }
    if is(&[Kind::ParamOrigin, Kind::ParamUpdated]) {
        found.extend(unlike(&rows, &map.kind, UNLIKE_PARAMETER, rank));
        found.extend(grown(&rows, rank));
    }
    if is(&[Kind::UpdateRatio]) {
        found.extend(unlike(&rows, &map.kind, UNLIKE_UPDATE, rank));
    }
    found
}

/// Seconds without a new row after which a rank without a recorded end counts as not running.
const SILENT_SECONDS: u64 = 120;

/// How a rank ended.
pub(super) struct RankEnd {
    rank: u32,
    last_step: Option<u64>,
    /// `None`: unknown, or the rank may still be running.
    ended: Option<bool>,
}

impl From<&RankHistory> for RankEnd {
    fn from(history: &RankHistory) -> Self {
        Self {
            rank: history.run.rank.0,
            last_step: history.range.map(|(_, last)| last),
            ended: history
                .has_ended
                .filter(|ended| *ended || history.silent_for.is_some_and(|quiet| quiet >= SILENT_SECONDS)),
        }
    }
}

/// Ranks that did not end cleanly while others did: a killed rank stops the whole run. If no rank has ended, the run
/// may still be training.
pub(super) fn killed(ends: &[RankEnd]) -> Vec<StandsOut> {
    if !ends.iter().any(|one| one.ended == Some(true)) {
        return Vec::new();
    }
    let told = |RankEnd { rank, last_step, .. }: &RankEnd| {
        let step = last_step.map_or_else(|| "it has no step".to_owned(), |step| format!("its last step is {step}"));
        StandsOut {
            kind: StandsOutKind::Killed,
            step: *last_step,
            rank: *rank,
            name: format!("rank {rank}"),
            words: format!(
                "rank {rank} did not end in order, as other ranks did: {step}. Its process was killed, or died"
            ),
        }
    };
    ends.iter().filter(|one| one.ended == Some(false)).map(told).collect()
}

struct Row<'a> {
    name: &'a str,
    values: &'a [f32],
}

impl Row<'_> {
    fn measured(&self) -> impl DoubleEndedIterator<Item = (usize, f64)> + '_ {
        let values = self.values.iter().enumerate();
        values.filter(|(_, value)| **value != ABSENT).map(|(column, value)| (column, f64::from(*value)))
    }

    fn median(&self) -> Option<f64> {
        let mut values: Vec<f64> = self.measured().map(|(_, value)| value).filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    }
}

/// Layers whose gradients stop while others continue: frozen, or no longer part of the loss.
fn stopped(map: &HeatMap, rows: &[Row<'_>], rank: u32) -> Vec<StandsOut> {
    let end = rows.iter().filter_map(|row| row.measured().next_back()).map(|(column, _)| column).max().unwrap_or(0);
    let mut layers: BTreeMap<(u64, &str), u64> = BTreeMap::new();
    for row in rows {
        let Some((last, _)) = row.measured().next_back() else { continue };
        let Some((first, _)) = row.measured().next() else { continue };
        let (count, span) = (row.measured().count(), last + 1 - first);
        if count >= LEAST_BEFORE && end - last >= LEAST_BEHIND && count as f64 >= REGULAR * span as f64 {
            *layers.entry((map.columns.last[last], layer_of(row.name))).or_default() += 1;
        }
    }
    let told = |((step, layer), tensors): ((u64, &str), u64)| {
        let noun = if tensors == 1 { "tensor" } else { "tensors" };
        StandsOut {
            kind: StandsOutKind::Stopped,
            step: Some(step),
            rank,
            name: layer.to_owned(),
            words: format!(
                "no gradient of layer {layer} ({tensors} {noun}) was measured after step {step} on rank {rank}; other \
                 layers have gradients"
            ),
        }
    };
    layers.into_iter().map(told).collect()
}

/// The name without one of its numbers, and that number: equal among layers of one kind. At least two parts must follow
/// the number, so that it numbers blocks and not adjacent tensors of different shapes.
fn patterns(name: &str) -> impl Iterator<Item = (String, u32)> + '_ {
    let parts: Vec<&str> = name.split('.').collect();
    let numbers: Vec<(usize, u32)> =
        (0..parts.len().saturating_sub(2)).filter_map(|place| Some((place, parts[place].parse().ok()?))).collect();
    numbers.into_iter().map(move |(place, number)| {
        let mut parts = parts.clone();
        parts[place] = "*";
        (parts.join("."), number)
    })
}

/// A tensor far from the tensors of the same name in other layers, which are alike.
fn unlike(rows: &[Row<'_>], kind: &str, bound: f64, rank: u32) -> Vec<StandsOut> {
    let mut siblings: BTreeMap<String, Vec<(&str, f64)>> = BTreeMap::new();
    let mut numbers: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
    for row in rows {
        let Some(median) = row.median().filter(|median| *median > 0.0) else { continue };
        for (pattern, number) in patterns(row.name) {
            numbers.entry(pattern.clone()).or_default().insert(number);
            siblings.entry(pattern).or_default().push((row.name, median));
        }
    }
    // Numbers with gaps do not number blocks of one kind.
    let are_blocks = |pattern: &String| {
        numbers.get(pattern).is_some_and(|of| {
            of.iter().zip(of.iter().skip(1)).all(|(one, next)| next - one == 1) && of.len() >= LEAST_SIBLINGS
        })
    };
    let mut found = Vec::new();
    for (pattern, of_pattern) in siblings.iter().filter(|(pattern, _)| are_blocks(pattern)) {
        let Some((name, ratio)) = odd_one(of_pattern, bound) else { continue };
        let what = if kind == Kind::UpdateRatio.name() { "update ratio" } else { "parameter norm" };
        let how = if ratio >= 1.0 { format!("{} times", short(ratio)) } else { format!("1/{} of", short(1.0 / ratio)) };
        let others = of_pattern.len() - 1;
        found.push(StandsOut {
            kind: StandsOutKind::Unlike,
            step: None,
            rank,
            name: name.to_owned(),
            words: format!(
                "the {what} of {name} is {how} the median of the {others} others named {pattern} (rank {rank})"
            ),
        });
    }
    found
}

/// The one value beyond the bound from the others' median, if the others lie close together.
fn odd_one<'a>(of_pattern: &[(&'a str, f64)], bound: f64) -> Option<(&'a str, f64)> {
    let mut odd = of_pattern.iter().enumerate().filter_map(|(place, (name, value))| {
        let mut others: Vec<f64> =
            of_pattern.iter().enumerate().filter(|(other, _)| *other != place).map(|(_, (_, value))| *value).collect();
        others.sort_by(f64::total_cmp);
        let median = others[others.len() / 2];
        let are_together = others.iter().all(|other| (other / median).max(median / other) <= bound.sqrt());
        let ratio = value / median;
        (are_together && ratio.max(1.0 / ratio) >= bound).then_some((*name, ratio))
    });
    odd.next()
}

/// The parameter that grew most over the run, if it grew much more than the others.
fn grown(rows: &[Row<'_>], rank: u32) -> Option<StandsOut> {
    let ends = |row: &Row<'_>| Some((row.measured().next()?.1, row.measured().next_back()?.1));
    let all: Vec<(&str, f64, f64)> = rows
        .iter()
        .filter_map(|row| ends(row).map(|(first, last)| (row.name, first, last)))
        .filter(|(_, first, last)| *first > 0.0 && last.is_finite())
        .collect();
    let median = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    };
    let usual = median(all.iter().map(|(_, first, _)| *first).collect())?;
    let growth: Vec<(&str, f64, f64)> = all
        .iter()
        .filter(|(_, first, _)| *first >= BEGAN_NEAR_ZERO * usual)
        .map(|(name, first, last)| (*name, *last, last / first))
        .collect();
    let median = median(growth.iter().map(|(.., factor)| *factor).collect())?;
    let (name, last, factor) = growth.into_iter().max_by(|a, b| a.2.total_cmp(&b.2))?;
    (factor >= GROWN && factor >= GROWN * median).then(|| StandsOut {
        kind: StandsOutKind::Grown,
        step: None,
        rank,
        name: name.to_owned(),
        words: format!(
            "the parameter {} grew most over the run: its norm is {} at the end, {} times the first (the median parameter's: {} times; rank {rank})",
            shown_name(name),
            short(last),
            short(factor),
            short(median)
        ),
    })
}

/// The longest step, if it is a stall.
pub(super) fn slow_step(steps: &AxisDocument, all: &[CurveDocument], rank: u32) -> Option<StandsOut> {
    let curve = all.iter().find(|curve| curve.name == curves::STEP_SECONDS)?;
    let (usual, high) = (&curve.last, if curve.high.is_empty() { &curve.last } else { &curve.high });
    let mut values: Vec<f64> = usual.iter().copied().flatten().filter(|value| value.is_finite()).collect();
    values.sort_by(f64::total_cmp);
    let median = values.get(values.len() / 2).copied().filter(|_| values.len() >= LEAST_BEFORE)?;
    let began = steps.first.first().copied()?;
    let slow = |bin: &usize| {
        let is_late = steps.first[*bin] >= began + FIRST_STEPS;
        let value = high[*bin].filter(|_| is_late)?;
        (value >= SLOW * median && value >= SLOW_SECONDS).then_some((*bin, value))
    };
    let found: Vec<(usize, f64)> = (0..high.len().min(steps.first.len())).filter_map(|bin| slow(&bin)).collect();
    let (bin, seconds) = found.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let (first, last) = (steps.first[bin], steps.last[bin]);
    let when = if first == last { format!("step {first}") } else { format!("a step of {first} to {last}") };
    // Evaluations and checkpoints recur and take about the same time each time.
    let mut others: Vec<f64> = found.iter().filter(|(other, _)| *other != bin).map(|(_, seconds)| *seconds).collect();
    others.sort_by(f64::total_cmp);
    let usual_pause = others.get(others.len() / 2);
    if others.len() >= 2 && usual_pause.is_some_and(|pause| seconds < SLOW * pause) {
        return None;
    }
    let more = match others.len() {
        0 => String::new(),
        1 => format!("; 1 other step took more than {SLOW:.0} times the median too"),
        more => format!("; {more} other steps took more than {SLOW:.0} times the median too"),
    };
    Some(StandsOut {
        kind: StandsOutKind::SlowStep,
        step: Some(first),
        rank,
        name: curves::STEP_SECONDS.to_owned(),
        words: format!(
            "{when} took {} s on rank {rank}, {:.0} times the median step ({} s), from the end of the step before{more}",
            short(seconds),
            seconds / median,
            short(median)
        ),
    })
}

#[cfg(test)]
mod tests {
    use trainmon_history::AxisState;

    use super::*;

    fn axis(columns: u64) -> AxisDocument {
        AxisDocument {
            state: AxisState { generation: 1, width: 1, bins: columns as usize },
            from: 0,
            first: (0..columns).collect(),
            last: (0..columns).collect(),
            time: vec![0.0; columns as usize],
        }
    }

    fn words(kind: Kind, rows: &[(&str, Vec<f32>)]) -> Vec<String> {
        let columns = rows.iter().map(|(_, values)| values.len()).max().unwrap_or(0);
        let map = HeatMap {
            kind: kind.name().to_owned(),
            statistic: "norm".to_owned(),
            columns: axis(columns as u64),
            names: rows.iter().map(|(name, _)| (*name).into()).collect(),
            values: rows.iter().flat_map(|(_, values)| values.clone()).collect(),
            version: 0,
            layers: Vec::new(),
            layer_of: Vec::new(),
            rows: rows.len(),
        };
        of_map(&map, 0, false).into_iter().map(|one| one.words).collect()
    }

    #[test]
    fn a_layer_whose_gradients_stop_is_told_and_one_that_is_rarely_measured_is_not() {
        let whole = vec![1.0; 40];
        let stops: Vec<f32> = (0..40).map(|column| if column < 25 { 1.0 } else { ABSENT }).collect();
        let rare: Vec<f32> = (0..40).map(|column| if column % 7 == 0 && column < 25 { 1.0 } else { ABSENT }).collect();
        let rows = [("h.0.w", whole), ("h.1.w", stops.clone()), ("h.1.b", stops), ("h.2.experts.3.w", rare)];
        assert_eq!(
            words(Kind::GradReduced, &rows),
            ["no gradient of layer h.1 (2 tensors) was measured after step 24 on rank 0; other layers have gradients"]
        );
    }

    #[test]
    fn a_layer_unlike_its_siblings_is_told_where_these_are_alike() {
        let row = |name: &'static str, value: f32| (name, vec![value; 20]);
        let mut rows = vec![row("h.0.fc.w", 3.0), row("h.1.fc.w", 150.0), row("h.2.fc.w", 3.3), row("h.3.fc.w", 2.9)];
        rows.extend([row("h.0.x.b", 1.0), row("h.1.x.b", 10.0), row("h.2.x.b", 100.0), row("h.3.x.b", 1000.0)]);
        // Too few, of other shapes in a row, and with holes.
        rows.extend([row("out.0.x.w", 1.0), row("out.1.x.w", 100.0)]);
        rows.extend([row("net.0.w", 13.0), row("net.1.w", 13.0), row("net.2.w", 1.8)]);
        rows.extend([row("f.0.c.w", 2.0), row("f.2.c.w", 19.0), row("f.5.c.w", 19.0)]);
        assert_eq!(
            words(Kind::ParamUpdated, &rows),
            ["the parameter norm of h.1.fc.w is 50 times the median of the 3 others named h.*.fc.w (rank 0)"]
        );
        assert_eq!(words(Kind::Actv, &rows), [""; 0]);
    }

    #[test]
    fn what_grew_far_more_than_the_rest_is_told_and_what_began_near_zero_is_not() {
        let from_to = |name: &'static str, first: f32, last: f32| (name, vec![first, last]);
        let calm = [from_to("a", 1.0, 1.1), from_to("b", 2.0, 2.1), from_to("bias", 1e-3, 1.0), from_to("c", 1.0, 1.2)];
        assert_eq!(words(Kind::ParamUpdated, &calm), [""; 0]);
        let mut rows = calm.to_vec();
        rows[1].1[1] = 24.0;
        let told = words(Kind::ParamUpdated, &rows);
        assert!(
            told[0]
                .starts_with("the parameter b grew most over the run: its norm is 24 at the end, 12 times the first"),
            "{told:?}"
        );
    }

    #[test]
    fn a_rank_that_died_is_told_where_others_ended() {
        let end = |rank, ended| RankEnd { rank, last_step: Some(199), ended };
        let told = |ends: &[RankEnd]| killed(ends).into_iter().map(|one| (one.rank, one.step)).collect::<Vec<_>>();
        assert_eq!(told(&[end(0, Some(true)), end(1, Some(false)), end(2, None)]), [(1, Some(199))]);
        assert_eq!(told(&[end(0, Some(false)), end(1, Some(false))]), [], "the run may still train");
        assert_eq!(told(&[end(0, Some(true)), end(1, Some(true))]), []);
    }

    #[test]
    fn a_step_that_took_long_is_told() {
        let curve = |at: usize, seconds: f64| CurveDocument {
            name: curves::STEP_SECONDS.to_owned(),
            last: (0..40).map(|step| Some(if step == at { seconds } else { 0.02 })).collect(),
            low: Vec::new(),
            high: Vec::new(),
            broken: Vec::new(),
        };
        let told = |at, seconds| slow_step(&axis(40), &[curve(at, seconds)], 1).map(|one| one.words);
        let words = told(20, 2.0).unwrap();
        assert!(words.starts_with("step 20 took 2 s on rank 1, 100 times the median step (0.02 s)"), "{words}");
        assert_eq!(told(0, 2.0), None, "the first step");
        assert_eq!(told(20, 0.5), None, "too short to matter");
        let mut evaluated = curve(20, 2.0);
        for step in [10, 30] {
            evaluated.last[step] = Some(1.8);
        }
        assert_eq!(slow_step(&axis(40), &[evaluated.clone()], 1), None, "evaluations");
        evaluated.last[25] = Some(60.0);
        let words = slow_step(&axis(40), &[evaluated], 1).unwrap().words;
        let others = "; 3 other steps took more than 10 times the median too";
        assert!(words.starts_with("step 25 took 60 s") && words.ends_with(others), "{words}");
    }
}
