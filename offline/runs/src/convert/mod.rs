//! `trainmon convert`: converts the CSV files of a run, ours or msprobe's, to another format.
//!
//! ```text
//! run directory ─▶ trainmon-run-files: runs, their rows step by step ─▶ points: values by kind ─▶ event files
//! ```
//!
//! Memory holds one step, whatever the run's length. Repeated steps of a resumed run are read once.

mod error;
mod facts;
mod points;
mod report;

use std::path::Path;

use self::error::ConvertError;
use self::facts::{StepTimes, convert_facts};
use self::points::{Kept, KindPoints};
use self::report::ConvertedRun;
use trainmon_baseline::run_directory_of;
use trainmon_report::{FreshDirectory, NotMade, Progress};
use trainmon_run_files::{FileUse, RankFiles, RunDirectory, STACKS, Selection, Table, runs_in};

pub use self::report::{Converted, as_json};

/// The number of tags per rank from which TensorBoard takes minutes to open; a training's own event files stop there.
const MANY_TAGS: usize = 10_000;

/// Converts the run in `path` to TensorBoard's event files in `out`, by default `tensorboard` in `path`:
/// `out/rank0/grad_reduced/events.out.tfevents.…`. Of several runs, it converts the newest; in msprobe's layout, which does not
/// show which ranks belong to one run, all. The output appears complete or not at all. `tell` receives the progress.
///
/// A row has the time from `steps.csv`; without one, as in msprobe's files, that of its file.
///
/// # Errors
/// The directory is not a run, a table is damaged (with file, line and column), the output exists or cannot be written. A torn
/// line at the end of a file, as a killed training leaves it, is a warning.
pub fn to_tensorboard(
    path: &Path,
    out: Option<&Path>,
    tell: &mut dyn FnMut(Progress),
) -> Result<Converted, ConvertError> {
    let (path, newest) = run_directory_of(path);
    let runs = runs_in(&path)?;
    let out = out.map_or_else(|| path.join("tensorboard"), Path::to_path_buf);
    let failed = |source| ConvertError::MakeOutput { path: out.clone(), source };
    let output = FreshDirectory::prepare(&out).map_err(|error| match error {
        NotMade::Exists => ConvertError::OutputExists { path: out.clone() },
        NotMade::Failed(source) => failed(source),
    })?;
    let total = runs.iter().flat_map(RunDirectory::files).map(|file| length(file)).sum();
    let mut work = Work { warnings: Vec::new(), done: 0, total, tell };
    let mut converted = Vec::with_capacity(runs.len());
    for run in &runs {
        let mut done = work.convert(run, &output.path().join(&run.name))?;
        done.out = out.join(&run.name);
        converted.push(done);
    }
    output.put_in_place().map_err(failed)?;
    Ok(Converted { out, newest, runs: converted, warnings: work.warnings })
}

/// The state that several files share.
struct Work<'a> {
    warnings: Vec<String>,
    done: u64,
    total: u64,
    tell: &'a mut dyn FnMut(Progress),
}

impl Work<'_> {
    fn convert(&mut self, run: &RunDirectory, out: &Path) -> Result<ConvertedRun, ConvertError> {
        let mut converted = ConvertedRun { source: run.path.clone(), ..ConvertedRun::default() };
        for stranger in &run.other_files {
            self.warnings.push(format!("skipped `{}`: not a table of a monitor", stranger.display()));
        }
        let mut times = StepTimes::default();
        let Work { warnings, done, total, tell } = self;
        if let Some(path) = &run.steps {
            match Table::open(path, FileUse::Held)? {
                None => warnings.push(format!("skipped `{}`: no header", path.display())),
                Some(mut table) => {
                    warnings.extend(table.torn_line_in_words());
                    times = convert_facts(&mut table, out, &mut converted, warnings)?;
                }
            }
        }
        let mut warn = |warning| warnings.push(warning);
        let selection =
            Selection { tables: &|prefix| prefix != STACKS, empty_rows: true, steps: &[], file_use: FileUse::Held };
        let mut files = RankFiles::open(run, &selection, Kept::of, &mut warn)?;
        let mut points = KindPoints::new(out);
        while let Some(step) = files.peek(&mut warn)? {
            files.rows(step, &mut warn, |row| points.take(row))?;
            points.write(step, &times, &mut converted)?;
            tell(Progress { done: *done + files.bytes_read(), total: *total });
        }
        points.finish(&mut converted);
        *done += run.files().map(|file| length(file)).sum::<u64>();
        tell(Progress { done: *done, total: *total });
        converted.kinds.sort();
        if converted.tags > MANY_TAGS {
            let many = format!("`{1}` has {0} tags: TensorBoard lists them slowly", converted.tags, run.name);
            self.warnings.push(many);
        }
        Ok(converted)
    }
}

fn length(file: &Path) -> u64 {
    file.metadata().map_or(0, |file| file.len())
}
