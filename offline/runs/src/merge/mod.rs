//! `trainmon merge-ranks`: merges the rows of all ranks of a run into those of one whole model.
//!
//! ```text
//! each rank's rows of a step, rank by rank ─▶ layout: the part of the parameter in a row ─▶ step: one of the copies of
//! each part, the parts in one row (statistics) ─▶ the run's own CSV exporter ─▶ a run of one rank
//! ```
//!
//! Memory holds one step of one rank, the merged step and the names, whatever the run's length; per rank, a buffer per table
//! and its parts. Between steps no table is open, however many ranks there are.

mod error;
mod layout;
mod report;
mod statistics;
mod step;

use std::path::{Path, PathBuf};
use std::time::Instant;

use trainmon_core::config::{Config, Csv, FileLayout, Signals};
use trainmon_core::{RUN_FILE, Rank, RunFile, Statistic, StepBatch};
use trainmon_exporters::{CsvExporter, Exporter as _};
use trainmon_report::{FreshDirectory, NotMade, OutputError, Progress};
use trainmon_run_files::rank_directory;

pub use self::error::MergeRanksError;
pub use self::report::{LeftOutRows, MergedRun, as_json};

use self::layout::{NoLayout, RankLayout, SharedLayouts};
use self::step::Merger;
use crate::steps::{Names, RankChoice, RecordedRank, RecordedRun, StepReader};

/// Values that do not follow from those of the parts.
const NOT_OF_PARTS: [Statistic; 3] = [Statistic::Crc32, Statistic::Xor64, Statistic::Id];

/// A rank that is being read.
struct RankRows {
    reader: StepReader,
    layout: RankLayout,
    /// The next step; `None` at the end.
    step: Option<u64>,
    /// That step, if it was read ahead: after one of a journal that cannot be read.
    ahead: Option<StepBatch>,
}

impl RankRows {
    fn open(rank: &RecordedRank, shared: &mut SharedLayouts) -> Result<Self, MergeRanksError> {
        let layout = layout_of(rank, shared)?;
        let mut rows = Self { reader: rank.open_beside_others()?, layout, step: None, ahead: None };
        rows.step = rows.reader.peek()?;
        Ok(rows)
    }

    /// Reads the next step into `batch`. Returns `false` if it cannot be read.
    fn read(&mut self, names: &mut Names, batch: &mut StepBatch) -> Result<bool, MergeRanksError> {
        let step = self.step;
        let is_read = if let Some(ahead) = self.ahead.take() {
            *batch = ahead;
            true
        } else {
            self.reader.next_with(names, batch)?
        };
        if is_read && step != Some(batch.step.0) {
            self.step = Some(batch.step.0);
            self.ahead = Some(std::mem::take(batch));
            return Ok(false);
        }
        self.step = self.reader.peek()?;
        Ok(is_read)
    }
}

fn layout_of(rank: &RecordedRank, shared: &mut SharedLayouts) -> Result<RankLayout, MergeRanksError> {
    let directory = directory_of(rank);
    RankLayout::read(&directory, shared).map_err(|why| match why {
        NoLayout::Missing => MergeRanksError::NoLayout { rank: rank.run().rank.0, path: directory },
        NoLayout::Read(source) => MergeRanksError::ReadLayout { path: directory, source },
        NoLayout::Malformed(found) => MergeRanksError::MalformedLayout { path: directory, found },
    })
}

/// The directory of a rank's files; for a journal, the directory that contains it.
fn directory_of(rank: &RecordedRank) -> PathBuf {
    let path = rank.path();
    let directory = if rank.is_journal() { path.parent().unwrap_or(path) } else { path };
    directory.to_path_buf()
}

/// Whether a run has rows of more than one rank.
pub(crate) fn is_of_several_ranks(path: &Path) -> bool {
    RecordedRun::open(path, RankChoice::First).is_ok_and(|run| run.all_ranks.len() > 1)
}

/// Whether the rows of two runs have different parts: another number of ranks, or other contents. `false` if a run of several
/// ranks has no layout.
pub(crate) fn are_laid_out_otherwise(one: &Path, other: &Path) -> bool {
    let mut shared = SharedLayouts::default();
    let mut layouts = |path: &Path| -> Option<Vec<Option<RankLayout>>> {
        let run = RecordedRun::open(path, RankChoice::All).ok()?;
        Some(run.ranks.iter().map(|rank| layout_of(rank, &mut shared).ok()).collect())
    };
    let (Some(one), Some(other)) = (layouts(one), layouts(other)) else { return false };
    let tells = |ranks: &[Option<RankLayout>]| ranks.len() < 2 || ranks.iter().all(Option::is_some);
    // Two runs of one rank each always pair.
    one.len().max(other.len()) > 1 && tells(&one) && tells(&other) && one != other
}

/// Merges the rows of the ranks of the run at `path` into the new directory `out`: a run of one rank, in the layout `run`. A
/// run of one rank keeps its rows. `tell` receives the progress.
///
/// There is one row per parameter, kind and step: of copies, the lowest rank's; of disjoint parts, the merged row. Rows that
/// belong to each rank (activations, gradients before reduction) or do not follow from the parts are omitted and counted.
///
/// # Errors
/// There is no run, a file is damaged, a rank has no `layout.json`, the output exists or cannot be written.
pub fn merge_ranks(path: &Path, out: &Path, tell: &mut dyn FnMut(Progress)) -> Result<MergedRun, MergeRanksError> {
    let output = FreshDirectory::prepare(out).map_err(|error| error.at(out))?;
    let merged = merge_into(path, output.path(), tell)?;
    output.put_in_place().map_err(|source| OutputError::write(out, source))?;
    Ok(MergedRun { out: out.to_path_buf(), ..merged })
}

/// Merges like [`merge_ranks`], into an existing directory.
pub(crate) fn merge_into(
    path: &Path,
    out: &Path,
    tell: &mut dyn FnMut(Progress),
) -> Result<MergedRun, MergeRanksError> {
    let run = RecordedRun::open(path, RankChoice::All)?;
    let total = run.bytes();
    let mut shared = SharedLayouts::default();
    let ranks = run.ranks.iter().map(|rank| RankRows::open(rank, &mut shared)).collect::<Result<Vec<_>, _>>();
    let mut ranks = ranks.map_err(|error| match error {
        MergeRanksError::NoLayout { path, .. } if run.ranks.len() == 1 => MergeRanksError::OneRank { path },
        other => other,
    })?;
    drop(shared);
    let config = config_of(&ranks);
    let csv = Csv { layout: Some(FileLayout::Run), ..config.csv_layout.clone() };
    let mut exporter = CsvExporter::in_directory(&config, &csv, out.join(rank_directory(Rank(0))));
    let held_by_one = layout::held_by_one(ranks.iter().map(|rank| &rank.layout));
    let lacks_gradients = ranks.iter().any(|rank| rank.layout.has_unknown_gradient(&held_by_one));
    let mut merger = Merger::knowing(held_by_one, lacks_gradients);
    let (mut names, mut batch, mut into) = (Names::default(), StepBatch::default(), StepBatch::default());
    let (mut steps, mut records, mut range, mut lacking) = (0, 0, None, 0);
    while let Some(step) = ranks.iter().filter_map(|rank| rank.step).min() {
        let mut having = 0;
        for rank in ranks.iter_mut().filter(|rank| rank.step == Some(step)) {
            if rank.read(&mut names, &mut batch)? {
                merger.add(&rank.layout, rank.reader.names_of(&names), &batch);
                having += 1;
            }
        }
        lacking += u64::from(having < ranks.len());
        if having > 0 {
            merger.finish(&mut into);
            exporter
                .export(&merger.names, &into)
                .map_err(|failure| MergeRanksError::WriteRows { step, source: failure.source })?;
            steps += 1;
            records += into.records.len() as u64;
            range = Some((range.map_or(step, |(first, _)| first), step));
        }
        tell(Progress { done: ranks.iter().map(|rank| rank.reader.bytes_read()).sum(), total });
    }
    let last = range.map_or(0, |(_, last)| last);
    exporter.shutdown(Instant::now()).map_err(|source| MergeRanksError::WriteRows { step: last, source })?;
    write_run_file(&run, out)?;
    let warnings = ranks.iter().flat_map(|rank| rank.reader.warnings().iter().cloned()).collect();
    Ok(MergedRun {
        out: out.to_path_buf(),
        newest: run.newest.clone(),
        run: run.name.clone(),
        ranks: run.all_ranks.clone(),
        world_size: run.world_size,
        steps,
        range,
        records,
        lacking_ranks: lacking,
        incomplete: merger.incomplete,
        first_incomplete: merger.first_incomplete,
        first_surplus: merger.first_surplus,
        left_out: LeftOutRows::of(&merger.left_out),
        warnings,
    })
}

/// A config for the signals of all ranks, without those that do not exist for a whole tensor.
fn config_of(ranks: &[RankRows]) -> Config {
    let mut config = ranks.first().map(|rank| rank.reader.config().clone()).unwrap_or_default();
    for rank in ranks.iter().skip(1) {
        let other = &rank.reader.config().signals;
        let own = &mut config.signals;
        let Signals { weight_grad, moments, param, activations: _, mg_direction, update } = other.clone();
        own.weight_grad = own.weight_grad.take().or(weight_grad);
        own.moments = own.moments.take().or(moments);
        own.param = own.param.take().or(param);
        own.mg_direction = own.mg_direction.take().or(mg_direction);
        own.update = own.update.take().or(update);
    }
    let Signals { weight_grad, moments, param, activations, mg_direction, update } = &mut config.signals;
    *activations = None;
    if let Some(grad) = weight_grad {
        grad.every_micro_batch = false;
    }
    let of_grad = weight_grad.iter_mut().map(|grad| &mut grad.signal);
    let others = [moments, param, mg_direction, update].into_iter().flatten();
    for signal in of_grad.chain(others) {
        signal.ops.retain(|op| !NOT_OF_PARTS.contains(op));
    }
    config
}

fn write_run_file(run: &RecordedRun, out: &Path) -> Result<(), MergeRanksError> {
    let started = jiff::Timestamp::now().to_string();
    let file = RunFile { run: format!("{}-merged", run.name), world_size: 1, job: String::new(), started };
    let path = out.join(RUN_FILE);
    let written = serde_json::to_vec(&file).map_err(std::io::Error::from).and_then(|text| std::fs::write(&path, text));
    written.map_err(|source| NotMade::Failed(source).at(&path).into())
}
