//! Reads runs of one rank side by side, step by step.

use std::collections::BTreeSet;

use serde::Serialize;

use super::error::ReadRunError;
use super::found::Judged;
use super::judge::Judge;
use super::names::Names;
use super::rank_reader::RankReader;
use super::source::RankSource;
use super::steps::StepRows;
use super::writers::are_two;

/// The steps of two runs.
#[derive(Clone, Debug, Default, Serialize)]
pub struct StepRange {
    /// The number of steps compared.
    pub common: u64,
    /// The first and the last step compared.
    pub range: Option<(u64, u64)>,
    /// The first and the last step of the target.
    pub target: Option<(u64, u64)>,
    /// The first and the last step of the first golden run.
    pub golden: Option<(u64, u64)>,
    /// The number of steps that only the target has.
    pub only_target: u64,
    /// The number of steps that only the first golden run has.
    pub only_golden: u64,
}

/// The result for one rank.
#[derive(Debug)]
pub struct PairedRank {
    /// The steps compared.
    pub steps: StepRange,
    /// The findings.
    pub judged: Judged,
    /// Warnings about skipped parts of the files.
    pub warnings: BTreeSet<String>,
    /// The smaller number of decimals to which the two runs are rounded.
    pub rounded_to: Option<u16>,
}

/// Compares one rank with one or more golden ones. `computed_in` is the unit round-off of the computation, if the files
/// do not contain it; else 0. `tell` receives the number of bytes read.
///
/// # Errors
/// A table is damaged (with file, line and column); a journal cannot be read.
pub fn compare_rank(
    target: &RankSource,
    golden: &[&RankSource],
    computed_in: f64,
    tell: &mut dyn FnMut(u64),
) -> Result<PairedRank, ReadRunError> {
    let (mut names, rank) = (Names::default(), target.rank);
    let are_two_writers = golden.first().is_some_and(|golden| are_two(target, golden));
    let mut target = RankReader::open(target, &mut names, None)?;
    let mut golden =
        golden.iter().map(|source| RankReader::open(source, &mut names, None)).collect::<Result<Vec<_>, _>>()?;
    let mut judge = Judge::new(rank, golden.len(), computed_in);
    judge.are_two_writers = are_two_writers;
    let mut steps = StepRange::default();
    while let (Some(of_target), Some(of_golden)) = (target.step(), golden[0].step()) {
        if of_target == of_golden {
            for other in &mut golden[1..] {
                while other.step().is_some_and(|step| step < of_target) {
                    other.advance(&mut names)?;
                }
            }
            let like = |reader: &'_ RankReader| reader.step() == Some(of_target);
            let rows: Vec<Option<&StepRows>> =
                golden.iter().map(|reader| like(reader).then_some(&reader.rows)).collect();
            judge.step(&mut names, &target.rows, &rows);
            steps.common += 1;
            widen(&mut steps.range, of_target);
        }
        steps.saw(of_target, of_golden);
        if of_target <= of_golden {
            target.advance(&mut names)?;
        }
        if of_golden <= of_target {
            golden[0].advance(&mut names)?;
        }
        tell(target.bytes_read() + golden.iter().map(RankReader::bytes_read).sum::<u64>());
    }
    while let Some(step) = target.step() {
        widen(&mut steps.target, step);
        steps.only_target += 1;
        target.advance(&mut names)?;
    }
    while let Some(step) = golden[0].step() {
        widen(&mut steps.golden, step);
        steps.only_golden += 1;
        golden[0].advance(&mut names)?;
    }
    let warnings = golden.iter().chain([&target]).flat_map(|reader| reader.warnings().iter().cloned()).collect();
    let rounded_to = [target.rounded_to(), golden[0].rounded_to()].into_iter().flatten().min();
    Ok(PairedRank { steps, judged: judge.finish(&names), warnings, rounded_to })
}

impl StepRange {
    /// Records a pair of steps.
    fn saw(&mut self, of_target: u64, of_golden: u64) {
        if of_target <= of_golden {
            widen(&mut self.target, of_target);
            self.only_target += u64::from(of_target < of_golden);
        }
        if of_golden <= of_target {
            widen(&mut self.golden, of_golden);
            self.only_golden += u64::from(of_golden < of_target);
        }
    }
}

fn widen(range: &mut Option<(u64, u64)>, step: u64) {
    let (first, last) = range.unwrap_or((step, step));
    *range = Some((first.min(step), last.max(step)));
}
