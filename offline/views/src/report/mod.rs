//! `trainmon report`: what a run shows, as evidence of bounded size: for a ticket, a chat, a language model.
//!
//! ```text
//! rank after rank: history ─▶ movement, evidence: what left its usual level, since when ─▶ gaps: what was not measured
//!                                                                                        ─▶ advice: what would settle it
//!                                       all of it ─▶ bounded: what fits ─▶ document: JSON, markdown
//! ```
//!
//! Memory: one rank's history at a time, whatever the run's size.

mod advice;
mod bounded;
mod document;
mod error;
mod evidence;
mod gaps;
mod markdown;
mod movement;
mod order;
mod stands_out;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::Path;

use trainmon_history::Limits;
use trainmon_report::{Progress, write_new};
use trainmon_runs::steps::{ColumnNames, Log, RankChoice, RecordedRun};

use self::advice::Subject;
pub use self::bounded::MOST_BYTES;
pub use self::document::{
    Certainty, CurveSummary, Direction, LeftOut, Method, Moved, NextStep, RankSummary, Report, ReportedAlert,
    StandsOut, StandsOutKind, VERSION,
};
pub use self::error::ReportError;
use self::evidence::Evidence;
use self::gaps::Coverage;
use self::stands_out::RankEnd;
use crate::rank_history::RankHistory;

/// How departures are found.
const METHOD: &str = "The report examines each curve, and for each tensor the norm (or the number measured instead), step by \
    step. It lists a value at least 8 deviations from the median of up to 32 values before it. A deviation is 1.48 times \
    their median distance from the median, and at least 2 %. In a series with a trend, the distance between \
    neighbouring values counts instead. Magnitudes are compared by their logarithms. A usual level requires 12 values. \
    A trend is not a departure, and an earlier step does not prove a cause.";

/// More series than a page: the report examines every tensor that fits.
const LIMITS: Limits = Limits { steps: 4096, curves: 128, columns: 384, rows: 16_384, alerts: 1 };

/// The output format of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportFormat {
    /// Markdown, for people.
    Markdown,
    /// JSON, for programs.
    Json,
}

/// Examines all ranks of the run in `path`, or one rank, or another tool's log. `columns` names columns of such a log.
///
/// # Errors
/// There is no run, no such rank, or a file is damaged.
pub fn report(
    path: &Path,
    rank: Option<u32>,
    columns: &ColumnNames,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report, ReportError> {
    let choice = rank.map_or(RankChoice::All, RankChoice::Only);
    let run = RecordedRun::open_any(path, choice, columns)?;
    let (total, mut done) = (run.bytes(), 0);
    let mut coverage = Coverage::default();
    let mut report = empty(&run);
    let mut ends: Vec<RankEnd> = Vec::new();
    for rank in &run.ranks {
        let history = RankHistory::read(rank, LIMITS, &mut |bytes| progress(Progress { done: done + bytes, total }))?;
        let evidence = Evidence::of(&history);
        coverage.add(&history, &evidence);
        ends.push((&history).into());
        let method = &mut report.method;
        method.steps_per_value = method.steps_per_value.max(evidence.steps_per_value);
        method.steps_per_tensor_value = method.steps_per_tensor_value.max(evidence.steps_per_tensor_value);
        report.left_out.moved += evidence.summary.moved.saturating_sub(evidence.moved.len() as u64);
        report.left_out.alerts += evidence.summary.alerts.saturating_sub(evidence.alerts.len() as u64);
        report.moved.extend(evidence.moved);
        report.stands_out.extend(evidence.stands_out);
        report.alerts.extend(evidence.alerts);
        report.curves.extend(evidence.curves);
        report.ranks.push(evidence.summary);
        report.warnings.extend(history.warnings);
        done += rank.bytes();
    }
    order::sort(&mut report.moved);
    report.stands_out.extend(stands_out::killed(&ends));
    sort_out(&mut report.stands_out);
    report.alerts.sort_by_key(|alert| (alert.step, order::place_of_series(&alert.series), alert.rank));
    report.method.series = coverage.series();
    report.not_measured = coverage.gaps(run.world_size, run.log.is_some());
    let subject = Subject::new(path, columns, run.log.is_some());
    let finish = |report: &mut Report| {
        report.summary = advice::summary(report, &coverage);
        report.next = advice::next_steps(report, &coverage, &subject);
    };
    Ok(bounded::fit(report, finish)?)
}

/// Sorts the most informative first and merges a finding that several ranks or kinds share.
fn sort_out(stands_out: &mut Vec<StandsOut>) {
    stands_out.sort_by_cached_key(|one| (one.kind, one.step, one.name.clone(), one.rank));
    let mut seen = BTreeSet::new();
    // Times belong to one rank, and each rank reports only its longest step.
    stands_out.retain(|one| one.kind == StandsOutKind::SlowStep || seen.insert((one.kind, one.name.clone())));
}

/// The log's format and columns, one sentence each.
fn read_of(log: &Log) -> Vec<String> {
    let lines = log.in_words();
    let own = "the alerts come from the default rules (use `trainmon alerts --config` for others)".to_owned();
    lines.lines().map(|line| line.trim().to_owned()).chain([own]).collect()
}

fn empty(run: &RecordedRun) -> Report {
    Report {
        version: VERSION,
        trainmon: env!("CARGO_PKG_VERSION"),
        run: run.name.clone(),
        newest: run.newest.clone(),
        read: run.log.as_deref().map(read_of).unwrap_or_default(),
        world_size: run.world_size,
        summary: String::new(),
        next: Vec::new(),
        moved: Vec::new(),
        stands_out: Vec::new(),
        alerts: Vec::new(),
        curves: Vec::new(),
        ranks: Vec::new(),
        not_measured: Vec::new(),
        method: Method { words: METHOD, ..Method::default() },
        warnings: Vec::new(),
        left_out: LeftOut::default(),
    }
}

impl Report {
    /// The report as text, at most [`MOST_BYTES`].
    ///
    /// # Errors
    /// The report cannot be serialized as JSON.
    pub fn text(&self, format: ReportFormat) -> Result<String, ReportError> {
        Ok(match format {
            ReportFormat::Markdown => markdown::markdown(self),
            ReportFormat::Json => bounded::json(self)?,
        })
    }
}

/// Writes a report to a new file.
///
/// # Errors
/// The file exists or cannot be written.
pub fn write(text: &str, out: &Path) -> Result<(), ReportError> {
    let written = write_new(out, |file| file.write_all(text.as_bytes()));
    written.map_err(|error| error.at(out).into())
}
