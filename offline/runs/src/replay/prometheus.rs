//! Replays to Prometheus: writes `OpenMetrics` text and creates blocks from it.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use jiff::Timestamp;
use trainmon_core::StepBatch;
use trainmon_exporters::Sources;
use trainmon_exporters::otlp::{OpenMetricsOpening, OpenMetricsWriter, Written};
use trainmon_report::{FreshDirectory, OutputError, Progress, unfinished_in};

use super::alert_counters::AlertCounters;
use super::error::ReplayError;
use super::report::{Replayed, ReplayedRank};
use super::timeline::{MadeUpTimes, Timeline};
use crate::steps::{ColumnNames, RankChoice, RecordedRank, RecordedRun};

/// The text file in the output directory.
const TEXT: &str = "openmetrics.txt";
/// The directory of blocks in the output directory.
const BLOCKS: &str = "blocks";
const PROMTOOL: &str = "promtool";

/// The options of a replay to Prometheus.
#[derive(Clone, Copy, Debug)]
pub struct PrometheusOptions<'a> {
    /// The ranks.
    pub ranks: RankChoice,
    /// The columns of another tool's log.
    pub columns: &'a ColumnNames,
    /// Times for a run without any.
    pub times: Option<MadeUpTimes>,
    /// Whether to write every statistic of every tensor, by name.
    pub per_parameter: bool,
    /// Whether promtool creates blocks.
    pub blocks: bool,
    /// The new directory; by default, `<run>-prometheus`.
    pub output: Option<&'a Path>,
}

/// Writes the run in `path` as `OpenMetrics` text to a new directory, and runs promtool to create blocks from it.
///
/// # Errors
/// There is no run, a file of it is damaged, its steps have no times, the output exists or cannot be written, or promtool
/// fails.
pub fn to_prometheus(
    path: &Path,
    options: PrometheusOptions<'_>,
    tell: &mut dyn FnMut(Progress),
) -> Result<Replayed, ReplayError> {
    let run = RecordedRun::open_any(path, options.ranks, options.columns)?;
    let out = options.output.map_or_else(|| PathBuf::from(format!("{}-prometheus", run.name)), Path::to_path_buf);
    let failed = |source| OutputError::write(&out, source);
    let fresh = FreshDirectory::prepare(&out).map_err(|error| error.at(&out))?;
    let collected = unfinished_in(fresh.path()).map_err(failed)?;
    let mut writer = OpenMetricsWriter::new(collected.path());
    let (mut ranks, mut warnings) = (Vec::new(), Vec::new());
    let mut progress = RankProgress { done: 0, total: run.bytes(), tell };
    for rank in &run.ranks {
        ranks.push(write_rank(rank, options, &mut writer, &failed, &mut warnings, &mut progress)?);
        progress.done += rank.bytes();
    }
    let text = fresh.path().join(TEXT);
    let written = write_text(writer, &text).map_err(failed)?;
    collected.close().map_err(failed)?;
    if written.moved > 0 {
        let moved = written.moved;
        warnings.push(format!("{moved} steps have no later time than the step before: each is written 1 ms after it"));
    }
    if options.blocks {
        make_blocks(&text, &fresh.path().join(BLOCKS))?;
    }
    fresh.put_in_place().map_err(failed)?;
    let time = |milliseconds| Timestamp::from_millisecond(milliseconds).ok().map(|time| time.to_string());
    Ok(Replayed {
        run: run.name,
        newest: run.newest,
        log: run.log,
        ranks,
        to: out.join(TEXT).display().to_string(),
        samples: Some(written.samples),
        blocks: options.blocks.then(|| out.join(BLOCKS)),
        times: written.range.and_then(|(first, last)| Some((time(first)?, time(last)?))),
        warnings,
    })
}

struct RankProgress<'a> {
    done: u64,
    total: u64,
    tell: &'a mut dyn FnMut(Progress),
}

fn write_rank(
    rank: &RecordedRank,
    options: PrometheusOptions<'_>,
    writer: &mut OpenMetricsWriter,
    failed: &dyn Fn(io::Error) -> OutputError,
    warnings: &mut Vec<String>,
    progress: &mut RankProgress<'_>,
) -> Result<ReplayedRank, ReplayError> {
    let mut reader = rank.open()?;
    let found = rank.alerts(&|a, b| b == a + 1)?;
    warnings.extend(found.unread);
    let mut alerts = AlertCounters::new(found.alerts, found.end);
    let sources = Sources::of_recorded(reader.measured(), alerts.totals.clone(), reader.has_account());
    let config = reader.config().clone();
    let per_parameter = options.per_parameter;
    writer.begin(&OpenMetricsOpening { config: &config, run: rank.run(), sources: &sources, per_parameter });
    let mut timeline = Timeline::new(options.times);
    let mut replayed = ReplayedRank { rank: rank.run().rank.0, ..ReplayedRank::default() };
    let mut batch = StepBatch::default();
    while reader.next(&mut batch)? {
        timeline.set(&reader, &mut batch)?;
        replayed.alerts += alerts.advance(batch.step, batch.time).len() as u64;
        writer.export(reader.names(), &batch).map_err(failed)?;
        replayed.count(&batch);
        (progress.tell)(Progress { done: progress.done + reader.bytes_read(), total: progress.total });
    }
    warnings.extend_from_slice(reader.warnings());
    warnings.extend(timeline.warning(replayed.rank));
    Ok(replayed)
}

impl ReplayedRank {
    pub(super) fn count(&mut self, batch: &StepBatch) {
        let (first, _) = self.range.unwrap_or((batch.step.0, batch.step.0));
        self.range = Some((first, batch.step.0));
        self.steps += 1;
        self.records += batch.records.len() as u64;
    }
}

fn write_text(writer: OpenMetricsWriter, path: &Path) -> io::Result<Written> {
    let mut out = io::BufWriter::new(std::fs::File::create_new(path)?);
    let written = writer.finish(&mut out)?;
    out.flush()?;
    Ok(written)
}

/// Runs promtool to create blocks. It reads the text once per two hours of the run.
fn make_blocks(text: &Path, blocks: &Path) -> Result<(), ReplayError> {
    let made =
        Command::new(PROMTOOL).args(["tsdb", "create-blocks-from", "openmetrics"]).arg(text).arg(blocks).output();
    let made = made.map_err(|source| ReplayError::NoPromtool { source })?;
    if made.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&made.stderr);
    let lines: Vec<&str> = said.lines().rev().take(3).collect();
    Err(ReplayError::Promtool { said: lines.into_iter().rev().collect::<Vec<_>>().join("; ") })
}
