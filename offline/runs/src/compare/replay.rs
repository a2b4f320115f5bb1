//! Reads the leading series again, value by value, for charts.

use std::collections::{BTreeMap, BTreeSet};

use trainmon_baseline::{Divergence, Names, RUN_KIND, RankPair, RankReader, RowHead, StepRows, TensorKey};
use trainmon_core::{Kind, LeftOut};

use super::error::CompareRunsError;

/// The number of charts.
const CURVES: usize = 6;
/// The largest number of points of a chart; in longer runs, every second is omitted, and so on.
const POINTS: usize = 2000;
/// The number of steps around the divergence that are always kept.
const KEPT_AROUND: u64 = 50;

/// A step of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The step.
    pub step: u64,
    /// The target's value.
    pub target: f64,
    /// The first baseline's value.
    pub golden: f64,
}

/// A series over all common steps.
#[derive(Clone, Debug)]
pub struct Curve {
    /// The rank; `None` for the merged rows of all ranks.
    pub rank: Option<u32>,
    /// The tensor.
    pub tensor: TensorKey,
    /// The statistic.
    pub statistic: String,
    /// Its divergence, if it has one.
    pub divergence: Option<Divergence>,
    /// Its values; a long run omits some steps.
    pub points: Vec<Point>,
}

impl Curve {
    /// The difference of a point, relative to the same size as that of the divergence.
    pub fn difference(&self, point: &Point) -> f64 {
        let difference = (point.target - point.golden).abs();
        let magnitude = point.target.abs().max(point.golden.abs());
        let scale = match &self.divergence {
            Some(divergence)
                if self.statistic != "norm" && divergence.difference.is_finite() && divergence.difference > 0.0 =>
            {
                (divergence.target - divergence.golden).abs() / divergence.difference
            }
            _ => magnitude,
        };
        if difference == 0.0 { 0.0 } else { difference / scale }
    }
}

/// The series to read.
#[derive(Clone, Debug)]
pub(super) struct SeriesKey {
    pub(super) rank: Option<u32>,
    pub(super) tensor: TensorKey,
    pub(super) statistic: String,
    pub(super) divergence: Option<Divergence>,
}

/// The leading series, one per tensor.
pub(super) fn wanted(divergences: &[Divergence], mut closest: Vec<(f64, SeriesKey)>) -> Vec<SeriesKey> {
    let mut found: Vec<SeriesKey> = Vec::new();
    let is_known = |found: &[SeriesKey], rank: Option<u32>, tensor: &TensorKey| {
        found.iter().any(|known| known.rank == rank && known.tensor == *tensor)
    };
    for divergence in divergences.iter().filter(|divergence| divergence.note.is_none()) {
        if found.len() == CURVES {
            return found;
        }
        let Divergence { rank, tensor, statistic, .. } = divergence;
        if !is_known(&found, *rank, tensor) {
            let (tensor, statistic) = (tensor.clone(), statistic.clone());
            found.push(SeriesKey { rank: *rank, tensor, statistic, divergence: Some(divergence.clone()) });
        }
    }
    if !divergences.is_empty() {
        return found;
    }
    closest.sort_by(|one, other| other.0.total_cmp(&one.0));
    for (_, wanted) in closest {
        if found.len() < CURVES && !is_known(&found, wanted.rank, &wanted.tensor) {
            found.push(wanted);
        }
    }
    found
}

/// Reads the series.
pub(super) fn curves(pairs: &[RankPair<'_>], wanted: &[SeriesKey]) -> Result<Vec<Curve>, CompareRunsError> {
    let mut curves: Vec<CurveReader> = wanted.iter().map(CurveReader::new).collect();
    for (target, golden) in pairs {
        let of_rank: Vec<&mut CurveReader> =
            curves.iter_mut().filter(|curve| curve.curve.rank.is_none_or(|rank| rank == target.rank)).collect();
        if of_rank.is_empty() {
            continue;
        }
        let prefixes: BTreeSet<String> =
            of_rank.iter().flat_map(|curve| prefixes_of(&curve.curve.tensor.kind)).collect();
        let mut names = Names::default();
        let mut target = RankReader::open(target, &mut names, Some(&prefixes))?;
        let mut golden = RankReader::open(golden[0], &mut names, Some(&prefixes))?;
        follow(&mut target, &mut golden, &mut names, of_rank)?;
    }
    Ok(curves.into_iter().map(|growing| growing.curve).collect())
}

fn follow(
    target: &mut RankReader,
    golden: &mut RankReader,
    names: &mut Names,
    mut curves: Vec<&mut CurveReader>,
) -> Result<(), CompareRunsError> {
    for growing in &mut curves {
        let TensorKey { kind, name, vpp_stage, micro_step } = &growing.curve.tensor;
        let kind = names.kind(kind);
        growing.tensor = names.tensor(kind, *vpp_stage, name, *micro_step);
    }
    while let (Some(of_target), Some(of_golden)) = (target.step(), golden.step()) {
        if of_target == of_golden {
            for growing in &mut curves {
                let value = |rows: &StepRows| value_of(names, rows, growing.tensor, &growing.curve.statistic);
                if let (Some(target), Some(golden)) = (value(&target.rows), value(&golden.rows)) {
                    growing.push(Point { step: of_target, target, golden });
                }
            }
        }
        if of_target <= of_golden {
            target.advance(names)?;
        }
        if of_golden <= of_target {
            golden.advance(names)?;
        }
    }
    Ok(())
}

/// A series of a rank in both runs, over all their steps.
pub(super) fn series(pairs: &[RankPair<'_>], wanted: &SeriesKey) -> Result<[BTreeMap<u64, f64>; 2], CompareRunsError> {
    let mut found: [BTreeMap<u64, f64>; 2] = Default::default();
    let Some((target, golden)) = pairs.iter().find(|(target, _)| wanted.rank.is_none_or(|rank| rank == target.rank))
    else {
        return Ok(found);
    };
    let prefixes: BTreeSet<String> = prefixes_of(&wanted.tensor.kind).into_iter().collect();
    for (source, found) in [*target, golden[0]].into_iter().zip(&mut found) {
        let mut names = Names::default();
        let mut reader = RankReader::open(source, &mut names, Some(&prefixes))?;
        let TensorKey { kind, name, vpp_stage, micro_step } = &wanted.tensor;
        let kind = names.kind(kind);
        let tensor = names.tensor(kind, *vpp_stage, name, *micro_step);
        while let Some(step) = reader.step() {
            found.extend(value_of(&names, &reader.rows, tensor, &wanted.statistic).map(|value| (step, value)));
            reader.advance(&mut names)?;
        }
    }
    Ok(found)
}

fn value_of(names: &Names, rows: &StepRows, tensor: u32, statistic: &str) -> Option<f64> {
    let &RowHead { columns, first, .. } = rows.rows.iter().rev().find(|row| row.tensor == tensor)?;
    let columns = names.columns_of(columns);
    let column = columns.iter().position(|&column| names.statistic_name(column) == statistic)?;
    rows.values.get(first + column).copied()
}

/// The files that may contain a kind.
fn prefixes_of(kind: &str) -> Vec<String> {
    if kind == RUN_KIND {
        return vec![kind.to_owned()];
    }
    // Rows omitted from a kind's files are read from its twin's.
    let twin = Kind::from_name(kind).and_then(LeftOut::twin_of).map(Kind::name);
    trainmon_run_files::prefixes_of(kind).into_iter().chain(twin).map(str::to_owned).collect()
}

/// A curve that is being read.
struct CurveReader {
    curve: Curve,
    tensor: u32,
    /// One in this number of steps is kept.
    stride: usize,
    seen: usize,
    kept: Vec<usize>,
}

impl CurveReader {
    fn new(wanted: &SeriesKey) -> Self {
        let SeriesKey { rank, tensor, statistic, divergence } = wanted.clone();
        let curve = Curve { rank, tensor, statistic, divergence, points: Vec::new() };
        Self { curve, tensor: 0, stride: 1, seen: 0, kept: Vec::new() }
    }

    fn push(&mut self, point: Point) {
        let number = self.seen;
        self.seen += 1;
        if !number.is_multiple_of(self.stride) && !self.is_near(point.step) {
            return;
        }
        self.curve.points.push(point);
        self.kept.push(number);
        if self.curve.points.len() > POINTS {
            self.stride *= 2;
            let (points, kept) = (std::mem::take(&mut self.curve.points), std::mem::take(&mut self.kept));
            for (point, number) in points.into_iter().zip(kept) {
                if number.is_multiple_of(self.stride) || self.is_near(point.step) {
                    self.curve.points.push(point);
                    self.kept.push(number);
                }
            }
        }
    }

    fn is_near(&self, step: u64) -> bool {
        self.curve.divergence.as_ref().is_some_and(|divergence| divergence.step.abs_diff(step) <= KEPT_AROUND)
    }
}
