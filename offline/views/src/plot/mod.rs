//! `trainmon plot`: a run as a page, or as a picture.

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

/// What a run is drawn as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// One self-contained page.
    Html,
    /// A picture of the curves, in lines.
    Svg,
    /// The same, in pixels.
    Png,
}

/// What was drawn.
#[derive(Debug, Serialize)]
pub struct Plotted {
    /// The file.
    pub out: PathBuf,
    /// Which run was taken of a directory that holds several.
    pub newest: Option<NewestRun>,
    /// What was read, where it is the log of another tool.
    #[serde(serialize_with = "log_in_json")]
    pub log: Option<Arc<Log>>,
    /// The run's name.
    pub run: String,
    /// The rank that is shown.
    pub rank: u32,
    /// The other ranks there are.
    pub other_ranks: Vec<u32>,
    /// How many steps.
    pub steps: u64,
    /// The first and the last of them.
    pub range: Option<(u64, u64)>,
    /// Alerts marked.
    pub alerts: usize,
    /// What is not as it should be, or not shown, a sentence each.
    pub warnings: Vec<String>,
}

/// Draws a rank of the run, or of the log of another tool, in `path` to a new file: a page, or a picture if its name ends with `.svg` or `.png`. Absent: the
/// run's name with `.html`, in the current directory.
///
/// A run that is at work is drawn as far as it got. `columns` names columns of another tool's log.
///
/// # Errors
/// There is no run, no such rank, a file of it is damaged, the name has another ending, or the output exists.
pub fn plot(
    path: &Path,
    out: Option<&Path>,
    rank: Option<u32>,
    columns: &ColumnNames,
    tell: &mut dyn FnMut(Progress),
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
    let history = RankHistory::read(rank, Limits::default(), &mut |done| tell(Progress { done, total }))?;
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
    /// For a terminal.
    pub fn in_words(&self) -> String {
        let Self { out, run, rank, other_ranks, steps, range, alerts, .. } = self;
        let range = range.map_or_else(String::new, |(first, last)| format!(", {first} to {last}"));
        let others = match &other_ranks[..] {
            [] => String::new(),
            [other] => format!("; --rank {other} shows the other"),
            [other, ..] => format!("; --rank {other} shows another of {}", other_ranks.len()),
        };
        let steps = counted(*steps, "step", "steps");
        let alerts = counted(*alerts as u64, "alert", "alerts");
        format!("{}: {run} rank {rank}, {steps}{range}, {alerts}{others}\n", out.display())
    }
}

/// For programs, a failure too.
pub fn as_json(plotted: &Result<Plotted, PlotError>) -> Value {
    result_as_json(plotted, json!({}))
}
