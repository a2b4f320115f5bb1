//! `trainmon recover`: restores the CSV files of a run from its journal, and the documents of a capture from its record file.
//!
//! ```text
//! journal ─▶ trainmon-journal: every record checked ─▶ the run's own CSV exporter ─▶ files as the run wrote them
//! ```

mod calls;
mod captures;
mod error;
mod report;
mod source;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use trainmon_exporters::{CsvExporter, Exporter as _};
use trainmon_journal::Recovered;

use self::calls::CallsFile;
pub use self::captures::{CaptureRecovery, captures_as_json, recover_captures};
pub(crate) use self::error::RecoverError;
use self::report::RecoveredJournal;
pub use self::report::{Recovery, as_json};
use self::source::{JournalSource, sources};
use trainmon_baseline::run_directory_of;
use trainmon_report::{FreshDirectory, NotMade, Progress};

/// Writes the CSV files of every step in the journal at `path` to the new directory `out`, as the run itself would have written
/// them. Its alerts go to `alerts.jsonl`, and its collective operations, call by call, to `collective_calls.csv`. If `path` is
/// a directory, this includes every journal in it and in its subdirectories, each with a directory of its own in `out`; of
/// several runs in the layout `run`, only the newest. `tell` receives the progress.
///
/// # Errors
/// There is no readable journal, or the output exists or cannot be written. Torn data inside a journal are omitted and
/// reported, not an error; an unreadable journal does not affect others.
pub fn recover(path: &Path, out: &Path, tell: &mut dyn FnMut(Progress)) -> Result<Recovery, RecoverError> {
    let (path, newest) = run_directory_of(path);
    let sources = sources(&path)?;
    let total = sources.iter().map(JournalSource::length).sum();
    let output = FreshDirectory::prepare(out).map_err(|error| match error {
        NotMade::Exists => RecoverError::OutputExists { path: out.to_path_buf() },
        NotMade::Failed(source) => RecoverError::MakeOutput { path: out.to_path_buf(), source },
    })?;
    let (mut journals, mut unreadable, mut done) = (Vec::new(), Vec::new(), 0);
    let mut taken = BTreeSet::new();
    for source in &sources {
        let mut tell_part = |share: f64| tell(Progress { done: done + (share * source.length() as f64) as u64, total });
        match Recovered::open(&source.path) {
            Ok(recovered) => {
                let part = source.directory(output.path(), recovered.config().dialect, recovered.run().rank);
                let part = unused(&part, &mut taken);
                let mut journal = write(&recovered, &part, &mut tell_part)?;
                if let Ok(inside) = part.strip_prefix(output.path()) {
                    journal.out = if inside.as_os_str().is_empty() { out.to_path_buf() } else { out.join(inside) };
                }
                journals.push(journal);
            }
            Err(error) => unreadable.push(error.into()),
        }
        done += source.length();
    }
    if journals.is_empty()
        && let Some(error) = unreadable.pop()
    {
        return Err(error);
    }
    output.put_in_place().map_err(|source| RecoverError::MakeOutput { path: out.to_path_buf(), source })?;
    Ok(Recovery { out: out.to_path_buf(), newest, journals, unreadable })
}

/// The directory, or the first of `…-2`, `…-3` that no other journal has: file names do not show that several journals belong
/// to one rank.
fn unused(directory: &Path, taken: &mut BTreeSet<PathBuf>) -> PathBuf {
    let (mut found, mut count) = (directory.to_path_buf(), 1_u32);
    while !taken.insert(found.clone()) {
        count += 1;
        let mut name = directory.to_path_buf().into_os_string();
        name.push(format!("-{count}"));
        found = name.into();
    }
    found
}

/// Writes one journal's files.
fn write(recovered: &Recovered, out: &Path, tell: &mut dyn FnMut(f64)) -> Result<RecoveredJournal, RecoverError> {
    std::fs::create_dir_all(out).map_err(|source| RecoverError::MakeOutput { path: out.to_path_buf(), source })?;
    let mut csv = CsvExporter::in_directory(&recovered.config(), &recovered.csv(), out.to_path_buf());
    let mut calls = CallsFile::new(out);
    let found = recovered.step_numbers().len();
    let (mut range, mut steps, mut records) = (None, 0, 0);
    let mut faults: Vec<String> = recovered.faults().iter().map(ToString::to_string).collect();
    for (index, step) in recovered.steps().enumerate() {
        tell((index + 1) as f64 / found as f64);
        // A running training overwrites its oldest steps with new ones: all others are read nevertheless.
        let step = match step {
            Ok(step) => step,
            Err(overwritten) => {
                faults.push(overwritten.to_string());
                continue;
            }
        };
        let number = step.batch.step.0;
        csv.export(&recovered.names()[..step.names_known], &step.batch)
            .map_err(|failure| RecoverError::WriteRows { step: number, source: failure.source })?;
        calls.push(&recovered.names()[..step.names_known], &step.batch)?;
        let (first, _) = range.unwrap_or((number, number));
        range = Some((first, number));
        steps += 1;
        records += step.batch.records.len() as u64;
    }
    // Closing flushes nothing: every step is in its files already.
    csv.shutdown(Instant::now())
        .map_err(|source| RecoverError::WriteRows { step: range.map_or(0, |(_, last)| last), source })?;
    calls.finish()?;
    write_alerts(recovered, &out.join(trainmon_core::ALERTS_FILE))?;
    Ok(RecoveredJournal {
        journal: recovered.path().to_path_buf(),
        out: out.to_path_buf(),
        run: recovered.run().run.clone(),
        rank: recovered.run().rank.0,
        steps,
        range,
        records,
        alerts: recovered.alerts().len(),
        ended_in_order: recovered.is_closed(),
        faults,
    })
}

/// Writes one alert per line; no file if there is none.
fn write_alerts(recovered: &Recovered, path: &Path) -> Result<(), RecoverError> {
    if recovered.alerts().is_empty() {
        return Ok(());
    }
    let write = || -> std::io::Result<()> {
        let mut file = std::io::BufWriter::new(std::fs::File::create_new(path)?);
        for alert in recovered.alerts() {
            writeln!(file, "{alert}")?;
        }
        file.flush()
    };
    write().map_err(|source| RecoverError::WriteAlerts { path: path.to_path_buf(), source })
}
