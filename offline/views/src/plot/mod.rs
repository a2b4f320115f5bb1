//! `trainmon plot`: draws a run as a page or a picture.

mod chart;
mod error;
mod font;
mod page;
mod panels;

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};
use trainmon_core::AlertPhase;
use trainmon_history::Limits;
use trainmon_report::{OutputError, Progress, counted, result_as_json, write_new};
use trainmon_runs::NewestRun;
use trainmon_runs::steps::{ColumnNames, Log, RankChoice, RecordedRun, log_in_json};

pub use self::error::PlotError;
use crate::rank_history::RankHistory;

/// The output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// One self-contained page.
    Html,
    /// A vector picture of the curves.
    Svg,
    /// The same picture in pixels.
    Png,
}

/// The result of `trainmon plot`.
#[derive(Debug, Serialize)]
pub struct Plotted {
    /// The output file.
    pub out: PathBuf,
    /// The chosen run, if the directory holds several.
    pub newest: Option<NewestRun>,
    /// The log that was read, if another tool wrote it.
    #[serde(serialize_with = "log_in_json")]
    pub log: Option<Arc<Log>>,
    /// The run's name.
    pub run: String,
    /// The drawn rank.
    pub rank: u32,
    /// The run's other ranks.
    pub other_ranks: Vec<u32>,
    /// The number of steps.
    pub steps: u64,
    /// The first and the last step.
    pub range: Option<(u64, u64)>,
    /// The number of marked alerts.
    pub alerts: usize,
    /// Problems in the files and parts that are not shown, one sentence each.
    pub warnings: Vec<String>,
}

/// Draws one rank of the run, or of another tool's log, in `path` to a new file: a picture if its name ends with `.svg`
/// or `.png`, otherwise a page. Without `out`, the file is `NAME.html` in the current directory.
///
/// A running training is drawn up to its latest step. `columns` names columns of another tool's log.
///
/// # Errors
/// There is no run, no such rank, a file is damaged, the output has another extension, or the output exists.
pub fn plot(
    path: &Path,
    out: Option<&Path>,
    rank: Option<u32>,
    columns: &ColumnNames,
    progress: &mut dyn FnMut(Progress),
) -> Result<Plotted, PlotError> {
    let format = out.map_or(Ok(Format::Html), format_of)?;
    if let Some(out) = out.filter(|out| out.exists()) {
        return Err(OutputError::Exists { path: out.to_path_buf() }.into());
    }
    let ranks = rank.map_or(RankChoice::First, RankChoice::Only);
    let RecordedRun { name, all_ranks, newest, ranks, log, .. } = RecordedRun::open_any(path, ranks, columns)?;
    let no_steps = || PlotError::NoSteps { path: path.to_path_buf() };
    let rank = ranks.first().ok_or_else(no_steps)?;
    let total = rank.bytes();
    let history = RankHistory::read(rank, Limits::default(), &mut |done| progress(Progress { done, total }))?;
    if history.steps == 0 {
        return Err(no_steps());
    }
    let out = out.map_or_else(|| PathBuf::from(format!("{name}.html")), Path::to_path_buf);
    let mut warnings = history.warnings.clone();
    let bytes = match format {
        Format::Html => page::page(&history, &mut warnings)?.into_bytes(),
        Format::Svg => chart::svg(&history)?.into_bytes(),
        Format::Png => chart::png(&history)?,
    };
    let write = |file: &mut BufWriter<&File>| file.write_all(&bytes);
    write_new(&out, write).map_err(|error| error.at(&out))?;
    let RankHistory { run, alerts, steps, range, .. } = &history;
    let other_ranks = all_ranks.into_iter().filter(|&other| other != run.rank.0).collect();
    let alerts = alerts.iter().filter(|alert| alert.phase == AlertPhase::Begins).count();
    let (rank, steps, range) = (run.rank.0, *steps, *range);
    Ok(Plotted { out, newest, log, run: name, rank, other_ranks, steps, range, alerts, warnings })
}

fn format_of(out: &Path) -> Result<Format, PlotError> {
    match out.extension().and_then(|extension| extension.to_str()).map(str::to_ascii_lowercase).as_deref() {
        Some("html" | "htm") => Ok(Format::Html),
        Some("svg") => Ok(Format::Svg),
        Some("png") => Ok(Format::Png),
        _ => Err(PlotError::UnknownFormat { path: out.to_path_buf() }),
    }
}

impl Plotted {
    /// The result as text for a terminal.
    pub fn in_words(&self) -> String {
        let Self { out, run, rank, other_ranks, steps, range, alerts, .. } = self;
        let range = range.map_or_else(String::new, |(first, last)| format!(", {first} to {last}"));
        let others = match &other_ranks[..] {
            [] => String::new(),
            [other] => format!("; `--rank {other}` shows the other rank"),
            [other, ..] => format!("; `--rank {other}` shows another of {}", other_ranks.len()),
        };
        let steps = counted(*steps, "step", "steps");
        let alerts = counted(*alerts as u64, "alert", "alerts");
        format!("{}: {run} rank {rank}, {steps}{range}, {alerts}{others}\n", out.display())
    }
}

/// The result or the error as JSON.
pub fn as_json(plotted: &Result<Plotted, PlotError>) -> Value {
    result_as_json(plotted, json!({}))
}
