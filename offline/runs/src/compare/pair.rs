//! Runs of one rank side by side, step by step.

use std::collections::BTreeSet;

use serde::Serialize;

use super::csv::CsvReader;
use super::error::CompareRunsError;
use super::found::Judged;
use super::journal::JournalReader;
use super::judge::Judge;
use super::names::Names;
use super::steps::StepRows;
use crate::run::{Files, RankSource};

/// Which steps two runs have.
#[derive(Clone, Debug, Default, Serialize)]
pub struct StepRange {
    /// Steps that were compared.
    pub common: u64,
    /// The first and the last of them.
    pub range: Option<(u64, u64)>,
    /// The first and last step of the target, and of the first golden run.
    pub target: Option<(u64, u64)>,
    /// As above.
    pub golden: Option<(u64, u64)>,
    /// Steps only the target has, and only the first golden run.
    pub only_target: u64,
    /// As above.
    pub only_golden: u64,
}

/// One rank of one run, and the step it stands at.
pub(super) struct Lane {
    reader: Reader,
    pub(super) rows: StepRows,
    /// Whether `rows` is a step; not so behind the end.
    pub(super) is_at_step: bool,
    bytes: u64,
}

enum Reader {
    Csv(Box<CsvReader>),
    Journal(Box<JournalReader>),
}

impl Lane {
    /// Stands at the first step. Of CSV files only those with the prefixes are read, if any are given.
    pub(super) fn open(
        source: &RankSource,
        names: &mut Names,
        only: Option<&BTreeSet<String>>,
    ) -> Result<Self, CompareRunsError> {
        let reader = match &source.files {
            Files::Csv(run) => Reader::Csv(Box::new(CsvReader::new(run, only)?)),
            Files::Journal => Reader::Journal(Box::new(JournalReader::open(&source.path)?)),
        };
        let mut lane = Self { reader, rows: StepRows::default(), is_at_step: true, bytes: source.bytes() };
        lane.advance(names)?;
        Ok(lane)
    }

    pub(super) fn advance(&mut self, names: &mut Names) -> Result<(), CompareRunsError> {
        if self.is_at_step {
            self.is_at_step = match &mut self.reader {
                Reader::Csv(reader) => reader.next(names, &mut self.rows)?,
                Reader::Journal(reader) => reader.next(names, &mut self.rows),
            };
        }
        Ok(())
    }

    pub(super) fn step(&self) -> Option<u64> {
        self.is_at_step.then_some(self.rows.step)
    }

    pub(super) fn bytes_read(&self) -> u64 {
        match &self.reader {
            Reader::Csv(reader) => reader.bytes(),
            Reader::Journal(reader) => {
                let (read, all) = reader.steps();
                (self.bytes as f64 * read as f64 / all.max(1) as f64) as u64
            }
        }
    }

    pub(super) fn warnings(&self) -> &BTreeSet<String> {
        match &self.reader {
            Reader::Csv(reader) => &reader.warnings,
            Reader::Journal(reader) => &reader.warnings,
        }
    }

    /// The decimals the numbers are rounded to, as far as they were read.
    pub(super) fn rounded_to(&self) -> Option<u16> {
        matches!(self.reader, Reader::Csv(_)).then(|| self.rows.digits.rounded_to()).flatten()
    }
}

/// What came of one rank.
pub(super) struct PairedRank {
    pub(super) steps: StepRange,
    pub(super) judged: Judged,
    pub(super) warnings: BTreeSet<String>,
    /// The fewer decimals of those the two runs are rounded to.
    pub(super) rounded_to: Option<u16>,
}

/// Compares one rank. `tell` hears how many bytes were read.
pub(super) fn compare_rank(
    target: &RankSource,
    golden: &[&RankSource],
    computed_in: f64,
    tell: &mut dyn FnMut(u64),
) -> Result<PairedRank, CompareRunsError> {
    let (mut names, rank) = (Names::default(), target.rank);
    let mut target = Lane::open(target, &mut names, None)?;
    let mut golden = golden.iter().map(|source| Lane::open(source, &mut names, None)).collect::<Result<Vec<_>, _>>()?;
    let mut judge = Judge::new(rank, golden.len(), computed_in);
    let mut steps = StepRange::default();
    while let (Some(of_target), Some(of_golden)) = (target.step(), golden[0].step()) {
        if of_target == of_golden {
            for other in &mut golden[1..] {
                while other.step().is_some_and(|step| step < of_target) {
                    other.advance(&mut names)?;
                }
            }
            let like = |lane: &'_ Lane| lane.step() == Some(of_target);
            let rows: Vec<Option<&StepRows>> = golden.iter().map(|lane| like(lane).then_some(&lane.rows)).collect();
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
        tell(target.bytes_read() + golden.iter().map(Lane::bytes_read).sum::<u64>());
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
    let warnings = golden.iter().chain([&target]).flat_map(|lane| lane.warnings().iter().cloned()).collect();
    let rounded_to = [target.rounded_to(), golden[0].rounded_to()].into_iter().flatten().min();
    Ok(PairedRank { steps, judged: judge.finish(&names), warnings, rounded_to })
}

impl StepRange {
    /// Notes two steps that stand side by side.
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
